//! `cp [OPTIONS] SRC... DST`: GNU cp. The options are those of `dropbehind cp`; messages are one
//! line each, without the next step; there is no progress bar unless asked for, and all failures
//! exit with 1. docs/cp.md has what differs.

use crate::commands;
use std::ffi::{OsStr, OsString};
use std::iter::once;
use std::process::ExitCode;

pub(super) fn run(name: &OsStr, args: &[OsString]) -> ExitCode {
    let words: Vec<OsString> = once(name.to_owned()).chain(args.iter().cloned()).collect();
    commands::run_as_cp(&words).into()
}
