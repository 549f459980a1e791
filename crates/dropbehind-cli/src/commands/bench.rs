//! `dropbehind bench`: what each way of doing buffered I/O costs here. Another program does the
//! work, `dropbehind-bench`; this finds and becomes it.

use super::report;
use crate::error::{Exit, Failure, shown};
use crate::input::Identity;
use crate::options::BenchSettings;
use clap::{Args, Subcommand};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "dropbehind-bench";

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
        /// Write a page to FILE instead, with both in each chart and table
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        html: Option<PathBuf>,
    },
    /// Print a result file's tables, or make its report
    Report {
        /// What `bench --json` wrote
        #[arg(value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
        results: PathBuf,
        /// Write a report to FILE instead
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        html: Option<PathBuf>,
        /// Write a table to FILE, a figure a line
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        csv: Option<PathBuf>,
        /// Write the tables to FILE in Markdown
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        markdown: Option<PathBuf>,
    },
}

pub(super) fn run(args: &BenchArgs) -> Exit {
    if let Err(failure) = keep_results(args.what.as_ref()) {
        return report(&failure);
    }
    let here = match env::current_exe() {
        Ok(here) => here,
        Err(error) => {
            return report(&Failure::new(format!(
                "cannot find out where dropbehind is: {error}. Mount /proc."
            )));
        }
    };
    let path = env::var_os("PATH").unwrap_or_default();
    for program in places(&here, &path) {
        // Returns only if it fails.
        let error = Command::new(&program).args(words(args, &here)).exec();
        if error.kind() != io::ErrorKind::NotFound {
            return report(&Failure::new(format!(
                "cannot start {}: {error}. Install {PROGRAM} anew.",
                shown(&program)
            )));
        }
    }
    report(&Failure::impossible(format!(
        "there is no {PROGRAM}, which does the work of `bench`, beside {}, in PATH or in \
         libexec/dropbehind. Install the package {PROGRAM}, or build it with `cargo build --release \
         -p {PROGRAM}`.",
        shown(&here)
    )))
}

/// Refuses a report in the place of the results, which may have taken hours.
fn keep_results(what: Option<&What>) -> Result<(), Failure> {
    let (results, reports) = match what {
        Some(What::Compare {
            before,
            after,
            html,
        }) => (vec![before, after], vec![html]),
        Some(What::Report {
            results,
            html,
            csv,
            markdown,
        }) => (vec![results], vec![html, csv, markdown]),
        Some(What::List) | None => return Ok(()),
    };
    let file = |path: &PathBuf| {
        let metadata = path.metadata().ok()?;
        metadata.is_file().then(|| Identity::of(&metadata))
    };
    let results: Vec<_> = results.into_iter().filter_map(file).collect();
    let is_one = |path: &&PathBuf| file(path).is_some_and(|file| results.contains(&file));
    match reports.into_iter().flatten().find(is_one) {
        None => Ok(()),
        Some(path) => Err(Failure::usage(format!(
            "cannot write {}: it has the results that are to be read. Nothing was changed; name \
             another file.",
            shown(path)
        ))),
    }
}

/// Where the other program may be.
fn places(here: &Path, path: &OsStr) -> Vec<PathBuf> {
    let beside = here.parent().unwrap_or(Path::new("/"));
    let folders = std::iter::once(beside.to_owned())
        .chain(env::split_paths(path).filter(|folder| folder.is_absolute()))
        .chain([beside.join("../libexec/dropbehind")]);
    folders.map(|folder| folder.join(PROGRAM)).collect()
}

/// Its command line.
fn words(args: &BenchArgs, here: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    match &args.what {
        None => {
            words.push("measure".into());
            let mut dropbehind = OsString::from("--dropbehind=");
            dropbehind.push(here);
            words.push(dropbehind);
            words.extend(args.settings.words.iter().cloned());
            words.push("--".into());
            words.extend(args.scenarios.iter().map(OsString::from));
        }
        Some(What::List) => words.push("list".into()),
        Some(What::Compare {
            before,
            after,
            html,
        }) => {
            words.push("compare".into());
            words.extend(html.as_ref().map(|path| file("html", path)));
            words.extend(["--".into(), before.into(), after.into()]);
        }
        Some(What::Report {
            results,
            html,
            csv,
            markdown,
        }) => {
            words.push("report".into());
            for (option, path) in [("html", html), ("csv", csv), ("markdown", markdown)] {
                words.extend(path.as_ref().map(|path| file(option, path)));
            }
            words.extend(["--".into(), results.into()]);
        }
    }
    words
}

/// An option with its file, in one word, since a name may begin with a hyphen.
fn file(option: &str, path: &Path) -> OsString {
    let mut word = OsString::from(format!("--{option}="));
    word.push(path);
    word
}
