//! Running other programs for their output.

use std::io;
use std::process::{Command, Stdio};

use crate::context::Context;

/// Runs a tool to its end and returns its standard output; anything but
/// success is an error that carries what the tool said.
pub(crate) fn output_of(command: &mut Command) -> io::Result<String> {
    let output = command
        // Output is parsed, so it must not be translated.
        .env("LC_ALL", "C")
        // The tools are witnesses: nothing under test may be loaded into them.
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output()
        .context(|| format!("running {command:?}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!(
        "{command:?}: {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    )))
}

/// Where `PATH` has a program of this name. System administration folders
/// count even when `PATH` lacks them, as it does for ordinary users on Debian.
pub(crate) fn find_tool(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// A command for a tool, found with [`find_tool`].
pub(crate) fn tool(name: &str) -> Command {
    Command::new(find_tool(name).unwrap_or_else(|| name.into()))
}
