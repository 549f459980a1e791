//! `dropbehind run` as an ordinary user, who has no fanotify.

mod bed;
mod cache;
mod deaths;
mod named_files;
mod opens;
mod program;
mod waiting;
