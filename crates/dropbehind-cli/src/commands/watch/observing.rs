//! The observer, as watch uses it.

use crate::error::Failure;
use dropbehind_linux::{Fanotify, GroupClass};
use dropbehind_observer::rules::Rules;
use dropbehind_observer::snapshot::Snapshot;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// The right to observe, found out before anything is touched.
pub(super) struct Prepared {
    group: Fanotify,
}

impl Prepared {
    pub(super) fn begin(self, _rules: Arc<dyn Rules>) -> Result<Observing, Failure> {
        Ok(Observing { _group: self.group })
    }
}

pub(super) struct Observing {
    _group: Fanotify,
}

impl Observing {
    pub(super) fn prepare() -> Result<Prepared, Failure> {
        match Fanotify::new(GroupClass::Notification) {
            Ok(group) => Ok(Prepared { group }),
            Err(error) => Err(Failure::impossible(match Errno::from_io_error(&error) {
                Some(Errno::PERM) => "cannot watch: what programs do is seen through fanotify, \
                                      which takes the privilege CAP_SYS_ADMIN outside containers. \
                                      Run it as root, or by its systemd unit. `dropbehind cp`, \
                                      `write` and `read`, and the library, work without it."
                    .to_owned(),
                _ => format!("cannot watch: fanotify: {error}."),
            })),
        }
    }

    pub(super) fn set_rules(&self, _rules: Arc<dyn Rules>) {}

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }

    pub(super) fn settle(&self, _at_most: Duration) -> bool {
        true
    }

    pub(super) fn stop(self) {}
}
