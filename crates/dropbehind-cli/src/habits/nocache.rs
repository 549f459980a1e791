//! `nocache [-n N] [-f] [-D FILE] CMD [ARGUMENT...]`: runs a command without
//! leaving in the page cache what it brings in.
//!
//! Unlike the original, it observes the command from outside. So any program is covered (static
//! ones, those that write with stdio or never close), and what it brought in goes while it runs,
//! not at close. If that is not possible, the command runs plainly, and a line says why.

use crate::commands;
use crate::error::shown;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;

/// What the options ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Write figures to this file.
    debug: Option<OsString>,
    /// Drop what was cached before, too.
    all: bool,
    /// Unknown options, and those without their value; they stop nothing.
    odd: Vec<String>,
    /// How many words are options.
    words: usize,
}

pub(super) fn run(name: &OsStr, args: &[OsString]) -> ExitCode {
    let name = shown(Path::new(name));
    let options = Options::of(args);
    for odd in &options.odd {
        complain!("{name}: {odd}");
    }
    if options.all {
        complain!(
            "{name}: -f is not done: what was cached before stays (dropbehind drop evicts it)"
        );
    }
    let command = &args[options.words..];
    if command.is_empty() {
        complain!("usage: {name} [-n <n>] command [argument...]");
        return ExitCode::from(2);
    }
    let mode = match leaves_all_alone(std::env::var("NOCACHE_MAX_FDS").ok().as_deref()) {
        true => "buffered",
        false => "dontcache",
    };
    let mut words: Vec<OsString> = ["dropbehind", "run", "--best-effort", "--mode", mode]
        .map(OsString::from)
        .into();
    words.push("--reads".into());
    if let Some(file) = options.debug {
        words.extend(["--stats".into(), file]);
    }
    words.push("--".into());
    words.extend_from_slice(command);
    commands::run(words).into()
}

/// The original leaves files alone whose descriptors are not below this variable. From outside,
/// files have no descriptors. But the first that a program opens is number 3, and if that is not
/// below, all its files are left alone.
fn leaves_all_alone(most_descriptors: Option<&str>) -> bool {
    let most = most_descriptors.and_then(|text| text.trim().parse::<u64>().ok());
    most.is_some_and(|most| most <= 3)
}

impl Options {
    /// Like a shell's getopts: letters may share a word, a value may follow its letter, and the
    /// first word that is not an option ends them, as does `--`.
    fn of(args: &[OsString]) -> Self {
        let mut options = Self::default();
        while let Some([b'-', letters @ ..]) = args.get(options.words).map(|word| word.as_bytes()) {
            if letters.is_empty() {
                break;
            }
            options.words += 1;
            if letters == b"-" {
                break;
            }
            options.take_word(letters, args);
        }
        options
    }

    fn take_word(&mut self, letters: &[u8], args: &[OsString]) {
        for (position, letter) in letters.iter().enumerate() {
            match letter {
                b'f' => self.all = true,
                b'n' | b'D' => {
                    let value = match &letters[position + 1..] {
                        [] => args.get(self.words).inspect(|_| self.words += 1).cloned(),
                        rest => Some(OsString::from_vec(rest.to_owned())),
                    };
                    let shown = char::from(*letter);
                    match value {
                        // Drops are verified and tried again in any case.
                        Some(_) if *letter == b'n' => {}
                        Some(file) => self.debug = Some(file),
                        None => self
                            .odd
                            .push(format!("option requires an argument -- {shown}")),
                    }
                    return;
                }
                other => {
                    let shown = char::from(*other).escape_default();
                    self.odd.push(format!("illegal option -- {shown}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Options {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Options::of(&words)
    }

    #[test]
    fn options_are_those_of_getopts() {
        for (line, words) in [
            ("cp -r a b", 0),
            ("-n 3 cp -r", 2),
            ("-n3 cp", 1),
            ("-fn 3 cp", 2),
            ("-f -- -x", 2),
            ("- cp", 0),
            ("", 0),
        ] {
            let options = of(line);
            assert_eq!((options.words, options.odd.len()), (words, 0), "{line}");
        }
        assert_eq!(of("-D log -f cp").debug.as_deref(), Some(OsStr::new("log")));
        assert_eq!(of("-fDlog cp").debug.as_deref(), Some(OsStr::new("log")));
        assert!(of("-fDlog cp").all && !of("-n1 cp -f").all);
        assert_eq!(of("-x cp").odd, ["illegal option -- x"]);
        assert_eq!(of("-n").odd, ["option requires an argument -- n"]);
    }
}
