//! What a file has in common with [`std::fs::File`], on every system.

mod attributes;
mod opening;
mod positioned;
mod traits;
