//! Names of other tools that this program answers to, through a link of that name. It takes
//! their options, prints their lines and exits with their codes.
//!
//! The tools are GNU cp and those of the nocache package; each file says what differs.

mod cachedel;
mod cachestats;
mod cp;
mod named_file;
mod nocache;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// A tool to act as.
type Habit = fn(name: &OsStr, args: &[OsString]) -> ExitCode;

/// Does what the command line asks for, if its first word is a name of one of
/// these tools.
pub(crate) fn run(command_line: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let words: Vec<OsString> = command_line.collect();
    let (name, args) = words.split_first()?;
    let habit: Habit = match Path::new(name).file_name()?.to_str()? {
        "cp" => cp::run,
        "nocache" => nocache::run,
        "cachestats" => cachestats::run,
        "cachedel" => cachedel::run,
        _ => return None,
    };
    Some(habit(name, args))
}
