//! A flusher that observes files, and a trace for it.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use dropbehind_flusher::{
    CacheMap, Flusher, Notice, NoticeSink, ObserveOptions, Observed, ObservedState, Provenance,
    ReportedTrace,
};
use dropbehind_linux::{CacheTrace, Description, KernelDevices, KernelInode, block_device_number};
use dropbehind_policy::Mode;

use crate::common::{MIB, PATIENCE};

/// A flusher that observes, and what it says.
pub(crate) struct Observing {
    pub(crate) flusher: Flusher,
    pub(crate) notices: mpsc::Receiver<Notice>,
    pub(crate) options: ObserveOptions,
}

impl Observing {
    pub(crate) fn new(mode: Mode) -> Observing {
        let (sender, notices) = mpsc::channel();
        Observing {
            flusher: Flusher::builder().observing().build().unwrap(),
            notices,
            options: ObserveOptions {
                mode,
                window_bytes: None,
                request_bytes: None,
                reads: true,
                opened_size_bytes: u64::MAX,
                only_written: false,
                provenance: Provenance::ResidentAtOpen(CacheMap::empty()),
                writeback_sign: None,
                key: 7,
                notices: NoticeSink::new(move |notice| drop(sender.send(notice))),
            },
        }
    }

    pub(crate) fn observe(&self, path: &Path) -> Observed {
        let description = fs::File::open(path).unwrap();
        let options = ObserveOptions {
            provenance: Provenance::ResidentAtOpen(CacheMap::now(description.as_fd())),
            ..self.options.clone()
        };
        self.flusher
            .observe(Description::held(description.into()).into(), options)
            .unwrap()
    }

    /// The same, where somebody tells who brought in what.
    pub(crate) fn observe_told(&self, path: &Path, trace: &ReportedTrace) -> Observed {
        let description = fs::File::open(path).unwrap();
        let inode = KernelDevices::new().inode_of(description.as_fd());
        let inode = inode.unwrap_or_else(|_| device_inode(&description));
        let options = ObserveOptions {
            provenance: Provenance::Traced(trace.clone(), inode),
            ..self.options.clone()
        };
        let description = Description::held(description.into()).into();
        self.flusher.observe(description, options).unwrap()
    }

    /// Waits until the file is finished.
    pub(crate) fn finished(&self) -> ObservedState {
        loop {
            match self.notices.recv_timeout(PATIENCE).unwrap() {
                Notice::Finished { key, state, .. } => {
                    assert_eq!(key, 7);
                    return *state;
                }
                Notice::Idle { .. } => {}
            }
        }
    }
}

/// The inode of a block device. The trace names its superblock by a number that nobody needs
/// here, since no test has others use a device.
pub(crate) fn device_inode(device: &fs::File) -> KernelInode {
    KernelInode {
        device: 0,
        number: block_device_number(device.as_fd()).unwrap(),
    }
}

/// A trace, and a thread that empties its rings: full ones would lose records.
pub(crate) struct Tracing {
    pub(crate) reported: ReportedTrace,
    pub(crate) _stop: mpsc::Sender<()>,
}

impl Tracing {
    /// Nothing is reported by itself.
    pub(crate) fn new() -> Tracing {
        let trace = CacheTrace::open(4 * MIB as usize).unwrap();
        let reported = ReportedTrace::new(trace.view());
        Tracing::empty(trace, reported, |_| {})
    }

    /// All counts as reported soon after it happened.
    pub(crate) fn reported() -> Tracing {
        let trace = CacheTrace::open(4 * MIB as usize).unwrap();
        let reported = ReportedTrace::new(trace.view());
        Tracing::empty(trace, reported, |reported| {
            reported.reported_until(reported.mark());
        })
    }

    fn empty(
        mut trace: CacheTrace,
        reported: ReportedTrace,
        report: impl Fn(&ReportedTrace) + Send + 'static,
    ) -> Tracing {
        let (stop, stopped) = mpsc::channel::<()>();
        let ours = reported.clone();
        std::thread::spawn(move || {
            let pause = || stopped.recv_timeout(Duration::from_millis(1));
            while pause() == Err(mpsc::RecvTimeoutError::Timeout) {
                report(&ours);
                trace.gather(|_, _| {});
                trace.read(u64::MAX, drop);
            }
        });
        Tracing {
            reported,
            _stop: stop,
        }
    }
}
