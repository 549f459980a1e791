//! `cachestat-witness FILE [OFFSET LENGTH]` prints the file's cached, dirty,
//! writeback and recently evicted pages, on one line.

use std::process::exit;

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    exit(dropbehind_testbed::residency::witness_main(&arguments));
}
