//! The processes of a mount namespace, which is all that ties a tree of processes together once
//! its root is gone.

use dropbehind_linux::{MountNamespaceId, Pidfd, mount_namespace_of, processes, processes_started};
use std::io;
use std::time::Duration;

/// Where a process cannot be waited for (before Linux 5.3, or out of
/// descriptors), its namespace is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The processes of one mount namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inhabitants {
    namespace: MountNamespaceId,
}

impl Inhabitants {
    /// The processes of the namespace that this process is in.
    pub(super) fn of(process: i32) -> io::Result<Self> {
        Ok(Self {
            namespace: mount_namespace_of(process)?,
        })
    }

    /// Whether a process is elsewhere; one that has ended is not.
    pub(super) fn lacks(self, process: i32) -> bool {
        mount_namespace_of(process).is_ok_and(|id| id != self.namespace)
    }

    fn list(self) -> Vec<i32> {
        let all = processes().into_iter().flatten();
        all.filter(|&process| mount_namespace_of(process).is_ok_and(|id| id == self.namespace))
            .collect()
    }

    /// How many there are. A child made during the search may be missed, and so may its parent,
    /// if that ends meanwhile. So an empty namespace is searched twice, unless nobody made a
    /// process meanwhile.
    pub(super) fn count(self) -> usize {
        let started = processes_started().ok();
        match self.list().len() {
            0 if started.is_none() || started != processes_started().ok() => self.list().len(),
            count => count,
        }
    }

    /// Waits until there is none.
    pub(super) fn wait_until_gone(self) {
        while self.count() > 0 {
            // One at a time: the others are searched for again afterwards.
            let one = self.list().into_iter().find_map(|process| {
                let pidfd = Pidfd::open(process).ok()?;
                // The number may be another process's by now.
                (mount_namespace_of(process).ok()? == self.namespace).then_some(pidfd)
            });
            let ended = one.is_some_and(|one| one.wait(None).unwrap_or(false));
            if !ended {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }
}
