//! `fail-nth` runs a command of which the Nth system call of a kind fails;
//! without arguments it says how to use it.

use std::process::exit;

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    exit(dropbehind_testbed::fail_nth::main(&arguments));
}
