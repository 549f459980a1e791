//! The observer, as watch uses it.

use crate::commands::observe::tracing_is_wanted;
use crate::error::Failure;
use dropbehind_linux::{Fanotify, GroupClass, IoPriority};
use dropbehind_observer::rules::Rules;
use dropbehind_observer::snapshot::Snapshot;
use dropbehind_observer::{Observer, ObserverConfig, ObserverError, Source};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Behind whatever the programs themselves want of the disk, but not behind idle work: what is
/// dirty would then wait for hours on a busy disk.
const IO_PRIORITY: IoPriority = IoPriority::BestEffort(7);

/// A machine being observed.
pub(super) struct Observing {
    observer: Arc<Observer>,
}

impl Observing {
    /// Finds out whether observing can work, before anything is touched.
    pub(super) fn check() -> Result<(), Failure> {
        match Fanotify::new(GroupClass::Notification) {
            Ok(_) => Ok(()),
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::PERM) => not_possible(&ObserverError::NotPermitted),
                Some(Errno::NOSYS) => not_possible(&ObserverError::NoFanotify),
                _ => failed("fanotify_init", &error),
            }),
        }
    }

    pub(super) fn begin(rules: Arc<dyn Rules>) -> Result<Self, Failure> {
        let observer = Observer::new(ObserverConfig {
            opens: None,
            source: Source::Machine,
            rules,
            kind: "watch".to_owned(),
            traced: tracing_is_wanted(),
            io_priority: IO_PRIORITY,
        });
        let observer = observer.map_err(|error| match error {
            ObserverError::Failed { doing, error } => failed(doing, &error),
            error => not_possible(&error),
        })?;
        Ok(Self {
            observer: Arc::new(observer),
        })
    }

    /// Sets the rules from the next file on.
    pub(super) fn set_rules(&self, rules: Arc<dyn Rules>) {
        self.observer.set_rules(rules);
    }

    /// Records that other rules had a mistake.
    pub(super) fn rules_refused(&self) {
        self.observer.rules_refused();
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.observer.snapshot()
    }

    pub(super) fn reporter(&self) -> impl Fn() -> Snapshot + Send + 'static {
        self.observer.reporter()
    }

    /// Returns whether nothing is left to write back and drop.
    pub(super) fn settle(&self, at_most: Duration) -> bool {
        self.observer.settle(at_most)
    }

    /// Returns whether the observer does its work.
    pub(super) fn works(&self, at_most: Duration) -> bool {
        self.observer.works(at_most)
    }

    /// Returns false if a file system keeps the observer from ending.
    pub(super) fn stop(self) -> bool {
        self.observer.stop()
    }
}

fn not_possible(error: &ObserverError) -> Failure {
    let step = match error {
        ObserverError::NotPermitted => {
            "Run it as root outside of containers, or by its systemd unit."
        }
        ObserverError::ForeignProc => "Do that first.",
        _ => "Run it on another kernel, or without a sandbox that hides the call.",
    };
    Failure::impossible(format!(
        "cannot watch: {error}. {step} `dropbehind cp`, `write` and `read`, and the library, work \
         without it."
    ))
}

fn failed(doing: &str, error: &io::Error) -> Failure {
    Failure::new(format!(
        "cannot watch: {doing}: {error}. Raise fs.fanotify.max_user_groups, \
         fs.fanotify.max_user_marks or the limit on open files, whichever is short."
    ))
}
