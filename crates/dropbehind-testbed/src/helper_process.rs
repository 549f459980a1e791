//! Parts of this library that run in a process of their own.
//!
//! Some parts must not share a process with the code under test: a witness
//! should not trust its caller's memory, and a file system's server must live
//! on when its user is killed while it waits for it. Cargo does not build the
//! programs of a library that another package's tests depend on, so the
//! running program itself is started again, with a role in its environment,
//! and taken over before its `main`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::{residency, slow_disk};

const VARIABLE: &str = "DROPBEHIND_TESTBED_ROLE";

/// What a helper process does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Prints page counts, see [`residency`].
    CachestatWitness,
    /// Serves the image of a slow disk.
    SlowDisk,
}

impl Role {
    const ALL: [Self; 2] = [Self::CachestatWitness, Self::SlowDisk];

    fn name(self) -> &'static str {
        match self {
            Self::CachestatWitness => "cachestat-witness",
            Self::SlowDisk => "slow-disk",
        }
    }

    fn play(self, arguments: &[OsString]) -> i32 {
        match self {
            Self::CachestatWitness => residency::witness_main(arguments),
            Self::SlowDisk => slow_disk::server_main(arguments),
        }
    }
}

/// A command for a helper process; arguments may be added.
pub(crate) fn command(role: Role) -> Command {
    // Referring to the hook keeps it in the program, whatever the linker
    // thinks of a table entry that no code mentions.
    std::hint::black_box(&TAKE_OVER);
    // The link leads to the running program even if its file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.env(VARIABLE, role.name()).env_remove("LD_PRELOAD");
    command
}

/// The C library runs this before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static TAKE_OVER: extern "C" fn() = take_over;

extern "C" fn take_over() {
    let Some(name) = std::env::var_os(VARIABLE) else {
        return;
    };
    let role = Role::ALL.into_iter().find(|role| role.name() == name);
    let code = role.map_or(2, |role| role.play(&arguments()));
    // SAFETY: ends the process. Exit handlers belong to a main that never ran.
    unsafe { libc::_exit(code) }
}

/// The process's arguments; the standard library may not know them yet.
fn arguments() -> Vec<OsString> {
    let line = fs::read("/proc/self/cmdline").unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    line.split(|&byte| byte == 0)
        .skip(1)
        .map(|one| OsString::from_vec(one.to_vec()))
        .collect()
}
