//! The commands, one file each.

mod bench;
mod completions;
mod cp;
mod drop;
mod man;
mod named_files;
mod observe;
mod probe;
mod read;
mod run;
mod stat;
mod top;
mod watch;
mod write;

use crate::error::{Exit, Failure, reason, shown};
use crate::input::check_open;
use crate::options::{Voice, instead_of};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use dropbehind_config::nearest;
use dropbehind_observer::shown_json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

/// Copy, write and read files without filling the page cache.
#[derive(Debug, Parser)]
#[command(
    name = "dropbehind",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "`dropbehind COMMAND --help` explains sizes, defaults and exit codes.",
    after_long_help = EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The exit codes of all commands, for the long help of `dropbehind` itself.
const EXIT_CODES: &str = "\
Exit codes:
  0     all but run: everything was done; watch and top ended as asked
  1     all but run: an operation failed, and the others were done
        watch: the rules have a mistake, or another watch runs on this machine
        top: no observer runs, or standard output is no terminal
  2     the command line is wrong; nothing was done, and run did not start the program
  3     not possible here: the kernel or file system lacks a feature, or the user a privilege
        run: the program was not started; top: the observer answers its owner and root only
  125   run: dropbehind itself failed; the program was not started
  126   run: the program cannot be run
  127   run: there is no such program
  141   all but run: whoever read standard output went away (as a shell shows it for cat)
  else  run: the program's own; when a signal killed it, dropbehind dies of the same signal";

/// The exit codes of most commands.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0    everything was done
  1    an operation failed; the others were done
  2    the command line is wrong; nothing was done
  3    not possible here: the kernel or file system lacks a feature, or the user a privilege
  141  whoever read standard output went away (as a shell shows it for cat)"
    };
}

/// At the end of the long help of most commands.
const AFTER_HELP: &str = exit_codes!();

/// At the end of the long help of commands that take sizes.
const SIZES_HELP: &str = concat!(
    "Sizes: a number of bytes such as 4096, 4k, 16MiB or 1.5G. k, KiB and Ki are 1024, kB is 1000; \
     so are M, G, T, P and E their powers. 32x64k is a product.\n\n",
    exit_codes!()
);

/// At the end of watch's long help.
const WATCH_HELP: &str = "\
Signals: SIGHUP reads the rules again; a file with a mistake leaves those in force, and the log \
names its line. SIGUSR1 logs what was done so far. SIGTERM and SIGINT write back and drop what is left, at most 20 seconds long, and \
end.

Exit codes:
  0    ended by a signal; with --check and --explain: the rules have no mistake
  1    the rules have a mistake or cannot be read, or another watch runs on this machine
  2    the command line is wrong; nothing was done
  3    not possible here: the privilege CAP_SYS_ADMIN is missing, or the kernel has no fanotify";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program, and keep its files from filling the page cache
    #[command(after_long_help = run::AFTER_HELP)]
    Run(run::RunArgs),
    /// Copy files, directories and block devices
    #[command(after_long_help = SIZES_HELP)]
    Cp(Box<cp::Choices>),
    /// Write standard input to a file
    #[command(after_long_help = SIZES_HELP)]
    Write(write::WriteArgs),
    /// Read a file to standard output
    #[command(after_long_help = SIZES_HELP)]
    Read(read::ReadArgs),
    /// Show what the page cache holds of files
    #[command(after_long_help = AFTER_HELP)]
    Stat(stat::StatArgs),
    /// Drop files' clean pages from the page cache
    #[command(after_long_help = AFTER_HELP)]
    Drop(drop::DropArgs),
    /// Observe all programs of this machine, by rules
    #[command(after_long_help = WATCH_HELP)]
    Watch(watch::WatchArgs),
    /// Find out what works here, and what would be used
    #[command(after_long_help = AFTER_HELP)]
    Probe(probe::ProbeArgs),
    /// The other half of `run`
    #[command(name = run::observer_process::COMMAND, hide = true)]
    Observe,
    /// The process that answers a program's opens if the supervisor of `run` does not
    #[command(name = run::stand_by::COMMAND, hide = true)]
    StandBy(run::stand_by::StandByArgs),
    /// Show live what observers (run, watch) do
    #[command(after_long_help = top::AFTER_HELP)]
    Top(top::TopArgs),
    /// Measure what each way of doing buffered I/O costs here
    #[command(after_long_help = SIZES_HELP)]
    Bench(bench::BenchArgs),
    /// Print the completions of a shell
    Completions(completions::CompletionsArgs),
    /// Print the man page, of all or of one command
    Man(man::ManArgs),
}

/// Acts as plain `cp`.
pub(crate) fn run_as_cp(words: &[OsString]) -> Exit {
    cp::run_as_cp(words)
}

/// Does what the command line asks for.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> Exit {
    let words: Vec<OsString> = words.into_iter().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        // Help, or the version.
        Err(error) if !error.use_stderr() => return print_by(Voice::Own, || error.print()),
        Err(error) => wrong_words(with_hint(error), &words).exit(),
    };
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Observe => observe::run(),
        Command::StandBy(args) => run::stand_by::run(&args),
        Command::Cp(args) => cp::run(&args),
        Command::Write(args) => write::run(&args),
        Command::Read(args) => read::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Drop(args) => drop::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// The shortest abbreviations of options, which only those who know cp expect.
const ABBREVIATION_MOST: usize = "--str".len();

/// The error with what to use instead of an option that other tools have.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let suggests_abbreviation = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(name)) => name.len() <= ABBREVIATION_MOST,
        _ => false,
    };
    let hint = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
            instead_of(option)
        }
        _ => None,
    };
    if suggests_abbreviation || hint.is_some() {
        error.remove(ContextKind::SuggestedArg);
    }
    // clap offers to take any unknown option for a file's name.
    let is_file = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => Path::new(word).symlink_metadata().is_ok(),
        _ => false,
    };
    let is_offer = |tip: &StyledStr| tip.to_string().contains(" as a value, use ");
    if !is_file
        && let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
        && tips.iter().any(is_offer)
    {
        error.remove(ContextKind::Suggested);
    }
    let command = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => meant_command(typed),
        _ => None,
    };
    if error.kind() == ErrorKind::InvalidSubcommand {
        // clap suggests hidden ones, too.
        error.remove(ContextKind::SuggestedSubcommand);
        if let Some(command) = command {
            let meant = ContextValue::String(command);
            error.insert(ContextKind::SuggestedSubcommand, meant);
        }
    }
    if let Some(hint) = hint {
        let hints = vec![StyledStr::from(hint)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
    }
    error
}

/// The command that was meant by a name that is none.
fn meant_command(typed: &str) -> Option<String> {
    let other_names = match typed {
        "copy" => Some("cp"),
        "cat" => Some("read"),
        "tee" => Some("write"),
        "exec" | "start" => Some("run"),
        "evict" | "free" => Some("drop"),
        _ => None,
    };
    let command = Cli::command();
    let visible = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let nearest = || nearest(typed, visible.map(clap::Command::get_name));
    other_names.or_else(nearest).map(str::to_owned)
}

/// The error with nothing that controls the terminal, unless it is clap's own colours. Words come
/// from names of files, which anybody may have chosen.
fn wrong_words(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    if words
        .iter()
        .all(|word| shown(word) == word.to_string_lossy())
    {
        return error;
    }
    // In clap's sentences, words cannot be told from colours.
    let plain = |text: &StyledStr| {
        let lines: Vec<String> = text.to_string().lines().map(shown).collect();
        StyledStr::from(lines.join("\n"))
    };
    let context: Vec<_> = error
        .context()
        .map(|(kind, value)| (kind, value.clone()))
        .collect();
    for (kind, value) in context {
        let value = match value {
            ContextValue::String(word) => ContextValue::String(shown(word)),
            ContextValue::Strings(words) => {
                ContextValue::Strings(words.iter().map(shown).collect())
            }
            ContextValue::StyledStr(text) => ContextValue::StyledStr(plain(&text)),
            ContextValue::StyledStrs(texts) => {
                ContextValue::StyledStrs(texts.iter().map(plain).collect())
            }
            other => other,
        };
        error.insert(kind, value);
    }
    error
}

/// Says what went wrong.
fn report(failure: &Failure) -> Exit {
    complain!("dropbehind: {failure}");
    failure.exit
}

/// Says what was not possible, though nothing failed.
fn note(sentence: &str) {
    complain!("dropbehind: {sentence}.");
}

/// Prints a command's result.
fn print(bytes: &[u8]) -> Exit {
    print_by(Voice::Own, || io::stdout().write_all(bytes))
}

/// Has something printed to standard output.
fn print_by(voice: Voice, print: impl FnOnce() -> io::Result<()>) -> Exit {
    let printed = check_open(1).and_then(|()| print());
    match printed.and_then(|()| io::stdout().flush()) {
        Ok(()) => Exit::Done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::BrokenPipe,
        Err(error) => {
            let failure = unprinted(&error);
            complain!("{}", voice.line(&failure));
            failure.exit
        }
    }
}

fn unprinted(error: &io::Error) -> Failure {
    Failure::new(format!(
        "cannot write standard output: {error}. Check where it goes."
    ))
    .like_cp(format!("write error: {}", reason(error)))
}

/// A JSON text as it is printed, on lines of its own.
fn json(text: serde_json::Result<String>) -> Result<String, Failure> {
    match text {
        Ok(text) => Ok(shown_json(&text) + "\n"),
        Err(error) => Err(Failure::new(format!("cannot make JSON: {error}."))),
    }
}
