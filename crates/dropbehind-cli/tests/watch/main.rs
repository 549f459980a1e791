//! `dropbehind watch`: its rules, its signals, and what a service manager sees.

#[path = "../user/mod.rs"]
mod user;

mod check;
mod commands;
mod failures;
mod files;
mod hanging;
mod life;
mod mounts;
mod others;
mod outlets;
mod owners;
mod reuse;
mod rules;
mod unit;
mod users;
