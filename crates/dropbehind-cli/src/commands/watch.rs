//! `dropbehind watch`: all programs of a machine, observed by rules.

mod check;
mod explain;
mod journal;
mod lock;
mod observing;
mod outlets;
mod reports;
mod service_manager;
mod service_signals;

use crate::error::{Exit, Failure, shown};
use crate::report_file::{self, InUse};
use crate::size;
use crate::trace_file::TraceFile;
use clap::Args;
use dropbehind_config::folder_of;
use dropbehind_linux::{return_large_blocks, return_memory};
use dropbehind_observer::Observer;
use dropbehind_observer::rules_file::{RulesFile, RulesFileError};
use dropbehind_observer::status;
use journal::Journal;
use lock::Lock;
use outlets::Outlets;
use reports::Reports;
use service_manager::ServiceManager;
use service_signals::{ServiceSignal, ServiceSignals};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to report to the log, the metrics and the service manager, unless the watchdog
/// wants it more often.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// How often to return unused memory to the kernel. glibc keeps what is free between blocks in
/// use, so the heap of a watch would grow with each burst of work. It costs a millisecond or two.
const RETURN_MEMORY_EVERY: Duration = Duration::from_secs(60);
/// How long the observer may take to show that it works, which takes it a few milliseconds.
const ANSWER: Duration = Duration::from_secs(1);
/// How long to wait at the end until what is left is written back and dropped.
const SETTLE: Duration = Duration::from_secs(20);
/// How soon leaving can be cut short.
const SETTLE_STEP: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// The rules: which files are observed, and how
    ///
    /// Files *.toml in the folder of the same name, with .d instead of .toml, are read after it:
    /// /etc/dropbehind.d/*.toml by default.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/dropbehind.toml",
        env = "DROPBEHIND_CONFIG",
        value_hint = clap::ValueHint::FilePath
    )]
    config: PathBuf,
    /// Print what the rules mean, or what is wrong with them, and end
    #[arg(long)]
    check: bool,
    /// Print which rule decides about FILE, and why, and end; FILE need not exist
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "check")]
    explain: Option<PathBuf>,
    /// With --explain: which program opens it, by the name or the path of its file
    #[arg(long, value_name = "NAME", requires = "explain")]
    program: Option<String>,
    /// Answer `dropbehind top` and Prometheus on this socket instead of
    /// /run/dropbehind/watch.sock
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    socket: Option<PathBuf>,
    /// Give the metrics, without names of files, to anybody who asks for /metrics by HTTP at this
    /// address, such as 127.0.0.1:9599
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Keep a file of metrics, ending in .prom, for the textfile collector of Prometheus' node
    /// exporter; it is removed at the end
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    metrics: Option<PathBuf>,
    /// Write each writeback and drop to FILE: when, which range, why; docs/traces.md in the source
    /// describes it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an IP address and a port, such as 127.0.0.1:9599; names are not looked up"
            .to_owned()
    })
}

pub(super) fn run(args: &WatchArgs) -> Exit {
    if args.check {
        return check::run(&args.config);
    }
    if let Some(path) = &args.explain {
        return explain::run(&args.config, path, args.program.as_deref());
    }
    let journal = Journal::new();
    match Watch::begin(args, journal) {
        Ok(watch) => watch.run(),
        Err(failure) => {
            journal.error(&failure);
            failure.exit
        }
    }
}

/// A running watch.
struct Watch<'a> {
    config: &'a Path,
    journal: Journal,
    manager: ServiceManager,
    signals: ServiceSignals,
    observer: Observer,
    outlets: Outlets,
    trace: Option<TraceFile>,
    reports: Reports,
    /// The observer did not work when we last looked.
    hangs: bool,
    _lock: Lock,
}

impl<'a> Watch<'a> {
    fn begin(args: &'a WatchArgs, journal: Journal) -> Result<Self, Failure> {
        let config = &args.config;
        observing::check()?;
        let rules = read_rules(config, journal)?;
        // This comes before there are any threads.
        let signals = ServiceSignals::receive()
            .map_err(|error| Failure::new(format!("cannot receive signals: {error}.")))?;
        let directory = status::directory().map_err(|error| Failure::new(format!("{error}.")))?;
        let socket = args.socket.clone();
        let socket = socket.unwrap_or_else(|| directory.join("watch.sock"));
        let mut in_use = vec![InUse::Folder(folder_of(config))];
        let drop_ins = rules.drop_ins().iter();
        let drop_ins = drop_ins.map(|name| folder_of(config).join(name));
        let own = [config.clone(), lock::path(&directory), socket.clone()];
        in_use.extend(own.into_iter().chain(drop_ins).map(InUse::File));
        if let Some(metrics) = &args.metrics {
            report_file::refuse("--metrics", metrics, &in_use)?;
            in_use.push(InUse::File(metrics.clone()));
        }
        if let Some(trace) = &args.trace {
            report_file::refuse("--trace", trace, &in_use)?;
        }
        let lock = Lock::take(&directory, config)?;
        let trace = args.trace.as_deref();
        let trace = trace.map(|path| TraceFile::start(path, &in_use));
        let trace = trace.transpose()?;
        // Searches fill large buffers: all that somebody has mapped or open.
        return_large_blocks();
        let observer = observing::begin(Arc::new(rules))?;
        Ok(Self {
            config,
            journal,
            manager: ServiceManager::new(),
            signals,
            outlets: Outlets::open(
                &socket,
                args.listen,
                args.metrics.as_deref(),
                &observer,
                journal,
            )?,
            observer,
            trace,
            reports: Reports::default(),
            hangs: false,
            _lock: lock,
        })
    }

    fn run(mut self) -> Exit {
        self.journal
            .notice(format!("watching, by the rules of {}", shown(self.config)));
        self.report(ServiceManager::ready);
        // A third, to be in time even if this thread was kept waiting a little.
        let watchdog = self.manager.watchdog().map(|watchdog| watchdog / 3);
        let every = watchdog.map_or(REPORT_EVERY, |watchdog| watchdog.min(REPORT_EVERY));
        let mut due = Instant::now() + every;
        let mut returned = Instant::now();
        loop {
            let pause = due.saturating_duration_since(Instant::now());
            match self.signals.wait(pause) {
                Some(ServiceSignal::Leave) => break,
                Some(ServiceSignal::Reload) => self.reload(),
                Some(ServiceSignal::Tell) => {
                    let snapshot = self.observer.snapshot();
                    self.journal.info(reports::status(&snapshot));
                }
                None => {}
            }
            // Signals may come all the time.
            if Instant::now() >= due {
                self.show_life(ANSWER.min(every));
                due = Instant::now() + every;
                if returned.elapsed() >= RETURN_MEMORY_EVERY {
                    return_memory();
                    returned = Instant::now();
                }
            }
        }
        self.leave()
    }

    /// Tells the service manager whether the watch works; one that does not is restarted.
    fn show_life(&mut self, at_most: Duration) {
        let hangs = !self.observer.works(at_most);
        if hangs && !self.hangs {
            self.journal.warning(
                "a file system's server does not answer, and nothing is observed until it does",
            );
        }
        self.hangs = hangs;
        self.report(match hangs {
            true => ServiceManager::hanging,
            false => ServiceManager::alive,
        });
    }

    fn report(&mut self, tell: fn(&ServiceManager, &str)) {
        let snapshot = self.observer.snapshot();
        self.reports.log_news(&snapshot, self.journal);
        self.outlets.publish(&snapshot, self.journal);
        tell(&self.manager, &reports::status(&snapshot));
    }

    /// Reads the rules again. A file with a mistake changes nothing.
    fn reload(&mut self) {
        self.manager.reloading();
        match read_rules(self.config, self.journal) {
            Ok(rules) => {
                let are_in_force = self.observer.set_rules(Arc::new(rules));
                let config = shown(self.config);
                match are_in_force {
                    true => self
                        .journal
                        .notice(format!("the rules of {config} are in force now")),
                    false => self.journal.warning(format!(
                        "the rules of {config} come into force once the observer is free; it \
                         waits for a file system's server, or has much to do"
                    )),
                }
            }
            Err(failure) => {
                self.observer.rules_refused();
                self.journal.error(failure);
                self.journal.error("the rules stay as they were");
            }
        }
        self.report(ServiceManager::ready);
    }

    /// What was written is in the kernel's hands, whatever happens here. Waiting only gets the
    /// rest of it out of the page cache.
    fn leave(mut self) -> Exit {
        self.journal.notice(format!(
            "stopping: dirty data is written back and dropped, for at most {} s; a second signal \
             ends the wait",
            SETTLE.as_secs()
        ));
        self.manager.stopping();
        let until = Instant::now() + SETTLE;
        let mut settled = self.observer.settle(SETTLE_STEP);
        while !settled && Instant::now() < until && self.signals.wait(Duration::ZERO).is_none() {
            settled = self.observer.settle(SETTLE_STEP);
        }
        let snapshot = self.observer.snapshot();
        if !settled {
            self.journal.warning(format!(
                "{} that were to be dropped stay in the page cache",
                size::show(snapshot.totals.cached_bytes)
            ));
        }
        self.journal.info(reports::status(&snapshot));
        if let Some(incomplete) = self.trace.and_then(TraceFile::finish) {
            self.journal.warning(incomplete);
        }
        if !self.observer.stop() {
            self.journal.warning(
                "a file system's server does not answer: this process ends when that does, or \
                 when its mount is aborted (`umount -f`)",
            );
        }
        Exit::Done
    }
}

/// Reads the rules, and warns of what is probably not meant in them. Each mistake is a line.
fn read_rules(path: &Path, journal: Journal) -> Result<RulesFile, Failure> {
    let rules = RulesFile::read(path).map_err(|error| Failure::new(explained(&error)))?;
    for remark in rules.remarks() {
        journal.warning(format!("{}: {remark}", shown(path)));
    }
    Ok(rules)
}

/// What is wrong with the rules, and what to do about it.
fn explained(error: &RulesFileError) -> String {
    match error {
        RulesFileError::Unreadable(_, cause) => {
            let step = match cause.kind() {
                io::ErrorKind::NotFound => {
                    "Write the rules (the line `mode = \"auto\"` is one for all files; \
                     dropbehind.toml(5) has examples)"
                }
                io::ErrorKind::PermissionDenied => "Run this as a user who may read it",
                io::ErrorKind::InvalidData => "Save it as text in UTF-8",
                _ => "Correct that",
            };
            format!("{error}\n{step}, or name another file with --config.")
        }
        RulesFileError::Wrong(..) => error.to_string(),
    }
}
