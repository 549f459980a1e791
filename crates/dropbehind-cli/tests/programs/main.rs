//! `dropbehind run` with programs as people have them, on file systems of their
//! own: each is run plain and observed, and must leave the same behind, but for
//! what is cached.

#[path = "../run/shell.rs"]
#[allow(dead_code, reason = "each test program uses its share")]
mod shell;
#[path = "../user/mod.rs"]
mod user;

mod bed;

mod advice;
mod archives;
mod cold_reads;
mod cold_trees;
mod copiers;
mod daemons;
mod databases;
mod errors;
mod figures;
mod fio;
mod held_open;
mod identity;
mod kept;
mod languages;
mod layouts;
mod limits;
mod mapped;
mod mounts;
mod names;
mod others;
mod outsiders;
mod passed_files;
mod random_writes;
mod readers;
mod report;
mod reuse;
mod rounds;
mod small_files;
mod stress;
mod watched;
mod without_trace;
