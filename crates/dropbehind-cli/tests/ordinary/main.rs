//! `dropbehind run` as an ordinary user, who has no fanotify.

#[path = "../who/mod.rs"]
mod who;

mod bed;
mod cache;
mod deaths;
mod named_files;
mod opens;
mod program;
mod sandbox;
mod waiting;
