//! Where others can see what a watch does: a socket and a file of metrics.

use super::journal::Journal;
use super::observing::Observing;
use crate::error::Failure;
use dropbehind_observer::snapshot::Snapshot;
use dropbehind_observer::{prometheus, status};
use std::path::{Path, PathBuf};

/// Open until it is dropped.
#[derive(Debug)]
pub(super) struct Outlets {
    _server: status::Server,
    metrics: Option<PathBuf>,
    /// Said once, until the file can be written again.
    complained: bool,
}

impl Outlets {
    pub(super) fn open(
        socket: &Path,
        metrics: Option<&Path>,
        observing: &Observing,
    ) -> Result<Self, Failure> {
        let server = status::Server::start(socket, observing.reporter()).map_err(|error| {
            Failure::new(format!(
                "cannot answer at {}: {error}. Name another place with --socket.",
                socket.display()
            ))
        })?;
        Ok(Self {
            _server: server,
            metrics: metrics.map(Path::to_owned),
            complained: false,
        })
    }

    pub(super) fn publish(&mut self, snapshot: &Snapshot, journal: Journal) {
        let Some(path) = &self.metrics else { return };
        match prometheus::write_file(path, &prometheus::text(snapshot, 0)) {
            Ok(()) => self.complained = false,
            Err(error) if !self.complained => {
                self.complained = true;
                journal.warning(format!(
                    "cannot write the metrics to {}: {error}. It is tried again with every \
                     sample.",
                    path.display()
                ));
            }
            Err(_) => {}
        }
    }
}
