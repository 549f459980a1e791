//! Edges that chance seldom finds: extreme numbers, scale, and fairness.

mod closing;
mod extremes;
mod fairness;
mod looks;
mod quick_disk;
mod requests;
mod scattered;
mod small_files;
mod told;
