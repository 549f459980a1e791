//! Where others see what a watch does: a socket, an address for HTTP, and a file of metrics.

use super::journal::Journal;
use crate::error::{Doing, Failure, shown};
use dropbehind_observer::Observer;
use dropbehind_observer::prometheus;
use dropbehind_observer::snapshot::Snapshot;
use dropbehind_observer::status::{HttpServer, Server};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Each file would be a new set of series for whoever stores them; the socket reports single
/// files on request.
const FILES: usize = 0;

/// Open until it is dropped.
#[derive(Debug)]
pub(super) struct Outlets {
    _server: Server,
    _http: Option<HttpServer>,
    metrics: Option<Metrics>,
}

/// A file that the node exporter reads.
#[derive(Debug)]
struct Metrics {
    path: PathBuf,
    /// The last attempt failed, and that was logged.
    failing: bool,
}

impl Outlets {
    pub(super) fn open(
        socket: &Path,
        address: Option<SocketAddr>,
        metrics: Option<&Path>,
        observer: &Observer,
        journal: Journal,
    ) -> Result<Self, Failure> {
        let server = Server::start(socket, observer.reporter())
            .map_err(|error| Failure::new(format!("{error}. --socket names another path.")))?;
        let http = address.map(|address| {
            HttpServer::start(address, observer.reporter())
                .map_err(|error| refused(address, &error))
        });
        let metrics = metrics.map(|path| Metrics::begin(path, &observer.snapshot(), journal));
        Ok(Self {
            _server: server,
            _http: http.transpose()?,
            metrics: metrics.transpose()?,
        })
    }

    /// Updates the metrics. Clients of the socket get snapshots of their own.
    pub(super) fn publish(&mut self, snapshot: &Snapshot, journal: Journal) {
        if let Some(metrics) = &mut self.metrics {
            metrics.publish(snapshot, journal);
        }
    }
}

fn refused(address: SocketAddr, error: &io::Error) -> Failure {
    let step = match Errno::from_io_error(error) {
        Some(Errno::AFNOSUPPORT) => {
            "The systemd unit permits no network: add RestrictAddressFamilies=AF_INET AF_INET6 and \
             IPAddressAllow=localhost to it"
        }
        _ => "Name another address with --listen",
    };
    Failure::new(format!("cannot listen at {address}: {error}. {step}."))
}

impl Metrics {
    /// Writes once, so that a bad path is found out now, not in the journal later.
    fn begin(path: &Path, snapshot: &Snapshot, journal: Journal) -> Result<Self, Failure> {
        if path.extension().is_none_or(|ending| ending != "prom") {
            journal.warning(format!(
                "{}: the node exporter passes over files that do not end in .prom; name another one",
                shown(path)
            ));
        }
        let metrics = Self {
            path: path.to_owned(),
            failing: false,
        };
        match metrics.write(snapshot) {
            Ok(()) => Ok(metrics),
            Err(error) => Err(Failure::io(Doing::Create, path, &error)),
        }
    }

    fn write(&self, snapshot: &Snapshot) -> io::Result<()> {
        prometheus::write_file(&self.path, &prometheus::text(snapshot, FILES))
    }

    fn publish(&mut self, snapshot: &Snapshot, journal: Journal) {
        match self.write(snapshot) {
            Ok(()) => self.failing = false,
            Err(_) if self.failing => {}
            Err(error) => {
                self.failing = true;
                journal.warning(format!(
                    "cannot write the metrics to {}: {error}; trying on",
                    shown(&self.path)
                ));
            }
        }
    }
}

/// Removes the file: figures of a watch that has ended would go on being collected.
impl Drop for Metrics {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}
