//! Where a run learns what its program opens: fanotify, or seccomp without root.

use super::own;
use crate::error::Failure;
use crate::options::OpenSource;
use dropbehind_linux::seccomp::{can_stop_at_opens, may_trace, yama_scope};
use dropbehind_linux::{Apart, Fanotify, Pidfd, unshare_mount_namespace};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::StatxFlags;
use std::io;

/// How the program's opens can become known here.
pub(super) fn choose_source(wanted: OpenSource) -> Result<Apart, Failure> {
    check_calls()?;
    match wanted {
        OpenSource::Fanotify => match check_privilege() {
            Ok(()) => Ok(Apart::MountNamespace),
            Err(mut failure) => {
                if check_stopping().is_ok() {
                    failure.add("Or leave out --source: `run` then uses seccomp.");
                }
                Err(failure)
            }
        },
        OpenSource::Seccomp => check_stopping(),
        OpenSource::Auto => match check_privilege() {
            Ok(()) => Ok(Apart::MountNamespace),
            Err(mut failure) => check_stopping().map_err(|other| {
                failure.add(&other.to_string());
                failure.add(
                    "`dropbehind cp`, `write` and `read` and the library work without either.",
                );
                failure
            }),
        },
    }
}

/// Finds out whether a sandbox refuses calls without which nothing can be observed: it may be older
/// than the call.
fn check_calls() -> Result<(), Failure> {
    let asked = rustix::fs::AtFlags::empty();
    let root = rustix::fs::statx(rustix::fs::CWD, "/", asked, StatxFlags::MNT_ID);
    let event = eventfd(0, EventfdFlags::CLOEXEC);
    let process = Pidfd::open(rustix::process::getpid().as_raw_nonzero().get());
    let tried = [
        ("statx(2)", root.map(drop).map_err(io::Error::from)),
        ("eventfd(2)", event.map(drop).map_err(io::Error::from)),
        ("pidfd_open(2)", process.map(drop)),
    ];
    for (call, result) in tried {
        if let Err(error) = result
            && is_refusal(&error)
        {
            return Err(Failure::impossible(format!(
                "{call} is refused here: {error}. Observing takes it: start dropbehind outside of \
                 the sandbox (a seccomp filter), or allow it there."
            )));
        }
    }
    Ok(())
}

/// Finds out whether programs can be stopped at their opens.
pub(super) fn check_stopping() -> Result<Apart, Failure> {
    if yama_scope() >= 2 && !may_trace() {
        return Err(Failure::impossible(
            "programs cannot be stopped at their opens here (--source seccomp): \
             kernel.yama.ptrace_scope lets no process look at another one's memory. Set it to 1.",
        ));
    }
    match can_stop_at_opens() {
        Ok(()) => Ok(Apart::StoppedAtOpens),
        // What two processes share is in a file, though in memory.
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(own(format!(
            "programs cannot be stopped at their opens here (--source seccomp): {error}. Raise the \
             limit on file sizes (ulimit -f), which concerns shared memory, too."
        ))),
        Err(error) => Err(Failure::impossible(format!(
            "programs cannot be stopped at their opens here (--source seccomp): {error}. It takes \
             Linux 5.6 or later, and no sandbox that forbids seccomp(2)."
        ))),
    }
}

/// Whether fanotify and seccomp could tell what a program opens.
pub(in crate::commands) fn sources() -> (Result<(), String>, Result<(), String>) {
    let said = |failure: Failure| failure.to_string();
    let fanotify = check_calls()
        .and_then(|()| check_privilege())
        .and_then(|()| check_namespace());
    let seccomp = check_calls().and_then(|()| check_stopping());
    (fanotify.map_err(said), seccomp.map(drop).map_err(said))
}

/// Finds out whether observing by fanotify can work, before anything is started.
fn check_privilege() -> Result<(), Failure> {
    let Err(error) = Fanotify::new() else {
        return Ok(());
    };
    Err(match error.raw_os_error() {
        Some(nix::libc::EPERM) => Failure::impossible(
            "fanotify takes CAP_SYS_ADMIN in the machine's first user namespace, which \
             is missing: run this as root, outside of unprivileged containers.",
        ),
        Some(nix::libc::ENOSYS) => Failure::impossible(
            "fanotify is missing: it takes a kernel that has it, and no sandbox that hides it.",
        ),
        _ => own(format!(
            "cannot observe programs: {error}. Raise fs.fanotify.max_user_groups, or the limit on \
             open files (ulimit -n)."
        )),
    })
}

/// Finds out whether a program can get a mount namespace of its own. A run finds out by starting
/// it.
fn check_namespace() -> Result<(), Failure> {
    // A thread's root and working directories are then its own.
    let tried = std::thread::spawn(unshare_mount_namespace).join();
    match tried {
        Ok(Err(error)) => Err(no_namespace(&error)),
        _ => Ok(()),
    }
}

/// Whether the kernel, or a sandbox, refuses a call or a mount namespace.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    use nix::libc::{EACCES, ENOSPC, ENOSYS, EPERM};
    let refusals = [EPERM, EACCES, ENOSYS, ENOSPC];
    error
        .raw_os_error()
        .is_some_and(|code| refusals.contains(&code))
}

pub(super) fn no_namespace(error: &io::Error) -> Failure {
    Failure::impossible(format!(
        "fanotify takes a mount namespace for the program, which is refused here: {error}. It \
         takes a systemd unit without RestrictNamespaces=, no other sandbox that forbids \
         unshare(2), and a user.max_mnt_namespaces that is not reached."
    ))
}
