//! `dropbehind bench`: what each way of doing buffered I/O costs here.

use super::{Cli, print, report};
use crate::error::{Exit, Failure};
use crate::options::BenchSettings;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Subcommand};
use dropbehind_bench::{Error, Launcher, Mode, Options, Results, Scenario, Terminal};
use nix::sys::signal::{SigSet, Signal};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Scenarios, or families of them such as seq-write; all unless given
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    #[command(flatten)]
    settings: BenchSettings,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Describe each scenario and mode in a line
    List,
    /// Say what changed from one result file to another: machines, kernels, commits
    Compare {
        /// The older results
        #[arg(value_name = "A.json", value_hint = clap::ValueHint::FilePath)]
        before: PathBuf,
        /// The newer results
        #[arg(value_name = "B.json", value_hint = clap::ValueHint::FilePath)]
        after: PathBuf,
    },
    /// Print a result file's tables, or make its report
    Report {
        /// What `bench --json` wrote
        #[arg(value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
        results: PathBuf,
        /// Write a report to FILE instead
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        html: Option<PathBuf>,
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

pub(super) fn run(args: &BenchArgs) -> Exit {
    match &args.what {
        None => measure(args),
        Some(What::List) => print(list().as_bytes()),
        Some(What::Compare { before, after }) => compare(before, after),
        Some(What::Report { results, html }) => show(results, html.as_deref()),
        Some(What::Worker) if dropbehind_bench::worker_main() => Exit::Done,
        Some(What::Disk { size })
            if dropbehind_bench::disk_main(std::slice::from_ref(size)) == 0 =>
        {
            Exit::Done
        }
        // Both have said why.
        Some(What::Worker | What::Disk { .. }) => Exit::Failed,
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        // Treated like any other word that the command line should not have.
        Error::Usage(text) => Cli::command()
            .error(ErrorKind::ValueValidation, text)
            .exit(),
        other => Failure::new(other.to_string()),
    }
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

fn compare(before: &Path, after: &Path) -> Exit {
    match Results::load(before).and_then(|before| Ok((before, Results::load(after)?))) {
        Ok((before, after)) => print(dropbehind_bench::compare(&before, &after).as_bytes()),
        Err(error) => report(&failure(&error)),
    }
}

fn show(results: &Path, html: Option<&Path>) -> Exit {
    let results = match Results::load(results) {
        Ok(results) => results,
        Err(error) => return report(&failure(&error)),
    };
    match html {
        None => print(results.to_text().as_bytes()),
        Some(path) => match results.save_html(path) {
            Ok(()) => Exit::Done,
            Err(error) => report(&failure(&error)),
        },
    }
}

fn measure(args: &BenchArgs) -> Exit {
    let settings = &args.settings;
    let options = Options {
        scenarios: args.scenarios.clone(),
        dir: settings.dir.clone(),
        device: settings.device.clone(),
        size_bytes: settings.size_bytes,
        memory_bytes: settings.memory_bytes,
        modes: settings.modes.clone(),
        runs: settings.runs,
        quick: settings.quick,
        json: settings.json.clone(),
        html: settings.html.clone(),
        assume_yes: settings.yes,
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    if let Err(error) = watch_for_the_end(&interrupted) {
        return report(&Failure::new(format!("cannot watch for signals: {error}.")));
    }
    let mut screen = Screen { lost: false };
    match dropbehind_bench::run(&options, &launcher(), &interrupted, &mut screen) {
        Ok(_) if screen.lost => Exit::BrokenPipe,
        Ok(results) if results.has_failures() => report(&Failure::new(
            "some cases failed, as said above; the others are measured.",
        )),
        Ok(_) => Exit::Done,
        Err(error) => report(&failure(&error)),
    }
}

/// Ctrl-C and the like end a benchmark in order: its files, mounts and devices must be removed.
fn watch_for_the_end(interrupted: &Arc<AtomicBool>) -> nix::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Threads started later inherit the mask.
    signals.thread_block()?;
    let interrupted = Arc::clone(interrupted);
    std::thread::spawn(move || {
        while signals.wait().is_ok() {
            interrupted.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Workers are this program, through a link that leads to it even if its file was replaced
/// meanwhile.
fn launcher() -> Launcher {
    let program = OsString::from(format!("/proc/{}/exe", std::process::id()));
    let words = |words: &[&str]| -> Vec<OsString> {
        let words = words.iter().map(OsString::from);
        std::iter::once(program.clone()).chain(words).collect()
    };
    let has_run = Command::new(&program)
        .args(["run", "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    Launcher {
        worker: words(&["bench", "worker"]),
        disk: words(&["bench", "disk"]),
        run: words(&["run"]),
        run_missing: (!has_run).then(|| "this dropbehind has no `run`".to_owned()),
    }
}

/// Results go to standard output, the rest to standard error.
struct Screen {
    /// Standard output is gone.
    lost: bool,
}

impl Terminal for Screen {
    fn note(&mut self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
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
