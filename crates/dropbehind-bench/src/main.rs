//! `dropbehind-bench`: what `dropbehind bench` starts. A program of its own, so that the command
//! has neither scenarios nor a slow disk in it.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use dropbehind_bench::{Error, Launcher, Mode, Options, Reports, Results, Scenario, Terminal};
use nix::sys::signal::{SigSet, Signal};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Does the work of `dropbehind bench`, whose --help describes it. Sizes are numbers of bytes
/// here.
#[derive(Debug, Parser)]
#[command(name = "dropbehind-bench", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure scenarios, or families of them; all unless given
    Measure(Measure),
    /// Describe each scenario and mode in a line
    List,
    /// Say what changed from one result file to another
    Compare {
        before: PathBuf,
        after: PathBuf,
        #[arg(long)]
        html: Option<PathBuf>,
    },
    /// Print a result file's tables, or make its report
    Report {
        results: PathBuf,
        #[command(flatten)]
        reports: ReportFiles,
    },
    /// The process that does the I/O of a case
    #[command(hide = true)]
    Worker,
    /// The process that is the slow disk
    #[command(hide = true)]
    Disk {
        /// Its size in bytes
        size: OsString,
    },
}

#[derive(Debug, clap::Args)]
struct Measure {
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// The command whose `run` is measured
    #[arg(long, value_name = "PATH", default_value = "dropbehind")]
    dropbehind: PathBuf,
    #[arg(long)]
    dir: Option<PathBuf>,
    #[arg(long)]
    device: Option<PathBuf>,
    #[arg(long)]
    yes: bool,
    #[arg(long)]
    size: Option<u64>,
    #[arg(long)]
    memory: Option<u64>,
    #[arg(long, value_delimiter = ',')]
    modes: Vec<Mode>,
    #[arg(long)]
    runs: Option<u32>,
    #[arg(long)]
    quick: bool,
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    reports: ReportFiles,
}

// Flattened: a comment for clap would become the help of what it is flattened into.
#[derive(Debug, clap::Args)]
struct ReportFiles {
    #[arg(long)]
    html: Option<PathBuf>,
    #[arg(long)]
    csv: Option<PathBuf>,
    #[arg(long)]
    markdown: Option<PathBuf>,
}

impl From<ReportFiles> for Reports {
    fn from(files: ReportFiles) -> Self {
        Self {
            html: files.html,
            csv: files.csv,
            markdown: files.markdown,
        }
    }
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const WRONG_WORDS: u8 = 2;
/// What a shell shows for a program that `SIGPIPE` ended.
const BROKEN_PIPE: u8 = 141;

fn main() -> ExitCode {
    // A write past the limit on file sizes must fail, and not kill us.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    if let Err(errno) = signals.thread_block() {
        eprintln!("dropbehind: cannot block SIGXFSZ: {errno}; a file size limit will kill");
    }
    ExitCode::from(match Cli::parse().what {
        What::Measure(asked) => measure(asked),
        What::List => print(&list()),
        What::Compare {
            before,
            after,
            html,
        } => compare(&before, &after, html.as_deref()),
        What::Report { results, reports } => show(&results, &reports.into()),
        What::Worker if dropbehind_bench::worker_main() => DONE,
        What::Disk { size } if dropbehind_bench::disk_main(std::slice::from_ref(&size)) == 0 => {
            DONE
        }
        // Both have said why.
        What::Worker | What::Disk { .. } => FAILED,
    })
}

/// Says what went wrong.
fn report(error: &Error) -> u8 {
    eprintln!("dropbehind: {error}");
    match error {
        Error::Usage(_) => WRONG_WORDS,
        _ => FAILED,
    }
}

fn print(text: &str) -> u8 {
    let mut screen = Screen::default();
    screen.result(text);
    if screen.lost { BROKEN_PIPE } else { DONE }
}

fn list() -> String {
    let mut text = String::from("Scenarios:\n");
    for scenario in Scenario::all() {
        let _ = writeln!(text, "  {:<24}{}", scenario.name, scenario.summary);
    }
    text.push_str("\nModes:\n");
    for mode in Mode::ALL {
        let _ = writeln!(text, "  {:<24}{}", mode.name(), mode.summary());
    }
    text
}

fn compare(before: &Path, after: &Path, html: Option<&Path>) -> u8 {
    let both = Results::load(before).and_then(|before| Ok((before, Results::load(after)?)));
    let (before, after) = match both {
        Ok(both) => both,
        Err(error) => return report(&error),
    };
    let Some(html) = html else {
        return print(&dropbehind_bench::compare(&before, &after));
    };
    match dropbehind_bench::save_comparison(&before, &after, html) {
        Ok(()) => DONE,
        Err(error) => report(&error),
    }
}

fn show(results: &Path, reports: &Reports) -> u8 {
    let results = match Results::load(results) {
        Ok(results) => results,
        Err(error) => return report(&error),
    };
    if reports.is_empty() {
        return print(&results.to_text());
    }
    match reports.save(&results) {
        Ok(()) => DONE,
        Err(error) => report(&error),
    }
}

fn measure(asked: Measure) -> u8 {
    let launcher = launcher(&asked.dropbehind);
    let options = Options {
        scenarios: asked.scenarios,
        dir: asked.dir,
        device: asked.device,
        size_bytes: asked.size,
        memory_bytes: asked.memory,
        modes: asked.modes,
        runs: asked.runs,
        quick: asked.quick,
        json: asked.json,
        reports: asked.reports.into(),
        assume_yes: asked.yes,
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    let doing = Arc::new(Mutex::new("preparing".to_owned()));
    if let Err(error) = watch_for_signals(&interrupted, &doing) {
        return report(&Error::Failed(format!(
            "cannot watch for signals: {error}."
        )));
    }
    let mut screen = Screen { lost: false, doing };
    match dropbehind_bench::run(&options, &launcher, &interrupted, &mut screen) {
        Ok(_) if screen.lost => BROKEN_PIPE,
        Ok(results) if results.has_failures() => report(&Error::Failed(
            "some cases failed, as said above; the others are measured.".to_owned(),
        )),
        Ok(_) => DONE,
        Err(error) => report(&error),
    }
}

/// Ctrl-C and the like end a benchmark in order: its files, mounts and devices must be removed.
/// SIGUSR1 asks how far it is.
fn watch_for_signals(interrupted: &Arc<AtomicBool>, doing: &Arc<Mutex<String>>) -> nix::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
    ] {
        signals.add(signal);
    }
    // Threads started later inherit the mask.
    signals.thread_block()?;
    let (interrupted, doing) = (Arc::clone(interrupted), Arc::clone(doing));
    let started = Instant::now();
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal == Signal::SIGUSR1 {
                // Whoever does not read the answer must not stop the benchmark.
                let (doing, seconds) = (lock(&doing).clone(), started.elapsed().as_secs());
                let _ = writeln!(io::stderr(), "dropbehind: {doing}, {seconds} s so far");
            } else {
                interrupted.store(true, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}

/// Workers are this program, through a link that leads to it even if its file was replaced
/// meanwhile.
fn launcher(dropbehind: &Path) -> Launcher {
    let program = OsString::from(format!("/proc/{}/exe", std::process::id()));
    let has_run = Command::new(dropbehind)
        .args(["run", "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    Launcher {
        worker: vec![program.clone(), "worker".into()],
        disk: vec![program, "disk".into()],
        run: [
            dropbehind.as_os_str(),
            "run".as_ref(),
            "--mode=dontcache".as_ref(),
        ]
        .map(OsString::from)
        .into(),
        run_missing: (!has_run).then(|| format!("{} has no `run`", dropbehind.display())),
    }
}

fn lock(doing: &Mutex<String>) -> MutexGuard<'_, String> {
    doing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Results go to standard output, the rest to standard error.
#[derive(Default)]
struct Screen {
    /// Standard output is gone.
    lost: bool,
    /// What is going on, for those who ask.
    doing: Arc<Mutex<String>>,
}

impl Terminal for Screen {
    fn note(&mut self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    fn doing(&mut self, text: String) {
        *lock(&self.doing) = text;
    }

    fn result(&mut self, text: &str) {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes());
        self.lost |= written.and_then(|()| stdout.flush()).is_err();
    }

    fn asks(&mut self, question: &str) -> bool {
        if !io::stdin().is_terminal() {
            self.note(&format!(
                "{question} There is nobody to ask: standard input is no terminal."
            ));
            return false;
        }
        let _ = write!(io::stderr(), "{question} Go on? [y/N] ");
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }
}
