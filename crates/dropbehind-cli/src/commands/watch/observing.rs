//! Begins to observe a machine, or says why that is not possible.

use crate::advice::observers_step;
use crate::error::Failure;
use dropbehind_linux::{Fanotify, IoPriority};
use dropbehind_observer::rules::Rules;
use dropbehind_observer::{Observer, ObserverConfig, ObserverError, Source};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Behind whatever the programs themselves want of the disk, but not behind idle work: what is
/// dirty would then wait for hours on a busy disk.
const IO_PRIORITY: IoPriority = IoPriority::BestEffort(7);

/// Finds out whether observing can work, before anything is touched.
pub(super) fn check() -> Result<(), Failure> {
    match Fanotify::new() {
        Ok(_) => Ok(()),
        Err(error) => Err(match Errno::from_io_error(&error) {
            Some(Errno::PERM) => not_possible(&ObserverError::NotPermitted),
            Some(Errno::NOSYS) => not_possible(&ObserverError::NoFanotify),
            _ => failed("fanotify_init", &error),
        }),
    }
}

/// Observes the machine.
pub(super) fn begin(rules: Arc<dyn Rules>) -> Result<Observer, Failure> {
    let observer = Observer::new(ObserverConfig {
        opens: None,
        source: Source::Machine,
        rules,
        io_priority: IO_PRIORITY,
    });
    observer.map_err(|error| match error {
        ObserverError::Failed { doing, error } => failed(doing, &error),
        error => not_possible(&error),
    })
}

fn not_possible(error: &ObserverError) -> Failure {
    let step = match error {
        ObserverError::NotPermitted => {
            "Run it as root, outside of unprivileged containers, or by its systemd unit."
        }
        ObserverError::ForeignProc => "Do that first.",
        _ => "Run it on another kernel, or without a sandbox that hides the call.",
    };
    Failure::impossible(format!(
        "cannot watch: {error}. {step} `dropbehind run`, `cp`, `write` and `read`, and the library, \
         work without it."
    ))
}

fn failed(doing: &str, error: &io::Error) -> Failure {
    Failure::new(format!(
        "cannot watch: {doing}: {error}. {}",
        observers_step(error)
    ))
}
