//! `dropbehind run` from a user's chair: the same program, plain and observed.

#[path = "../user/mod.rs"]
mod user;
#[path = "../who/mod.rs"]
mod who;

mod claims;
mod files;
mod hanging;
mod inheritance;
mod observer;
mod pipelines;
mod privilege;
mod shell;
mod signals;
mod status;
mod terminal;
