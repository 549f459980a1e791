//! `dropbehind man`: the man pages. clap makes most of a page; the examples are here.

use super::{Cli, print, report};
use crate::error::{Doing, Exit, Failure, shown};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Command to document (default: dropbehind itself)
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Option<String>,
    /// Write all pages into this directory, for packaging
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

/// Of each command: what a user may want, and the line that does it.
const EXAMPLES: [(&str, &str, &str); 27] = [
    (
        "dropbehind",
        "Copy a file and keep it out of the page cache:",
        "dropbehind cp disk.img /backup/",
    ),
    (
        "dropbehind",
        "Archive a folder, with nothing of it left in the cache:",
        "dropbehind run -- tar -cf /backup/home.tar /home",
    ),
    (
        "dropbehind-run",
        "Dump a database, and tell afterwards what was observed:",
        "dropbehind run -v -- pg_dump -Fc -f /backup/db.dump db",
    ),
    (
        "dropbehind-run",
        "Observe the images that a program writes, and nothing that it reads:",
        "dropbehind run --only '*.img' --no-reads -- ./build",
    ),
    (
        "dropbehind-cp",
        "Copy a tree with its owners, modes and times:",
        "dropbehind cp -a /srv/data /backup/",
    ),
    (
        "dropbehind-cp",
        "Write an image onto a disk, and compare what arrived:",
        "dropbehind cp --verify disk.img /dev/sdx",
    ),
    (
        "dropbehind-write",
        "Compress a folder into a file:",
        "tar -c /srv | zstd | dropbehind write /backup/srv.tar.zst",
    ),
    (
        "dropbehind-write",
        "Write onto a disk from a certain place:",
        "dropbehind write --seek 1GiB /dev/sdx < part.img",
    ),
    (
        "dropbehind-read",
        "Check a large file without evicting what is cached:",
        "dropbehind read /backup/srv.tar | sha256sum",
    ),
    (
        "dropbehind-stat",
        "See what the page cache has of a log:",
        "dropbehind stat /var/log/syslog",
    ),
    (
        "dropbehind-stat",
        "The same of all files in a tree:",
        "dropbehind stat -r /srv/data",
    ),
    (
        "dropbehind-drop",
        "Evict a file that nobody reads again:",
        "dropbehind drop /backup/srv.tar",
    ),
    (
        "dropbehind-drop",
        "Evict all that find lists:",
        "find /srv -name '*.iso' -print0 | dropbehind drop --files0-from=-",
    ),
    (
        "dropbehind-watch",
        "Check the rules, and see what they mean:",
        "dropbehind watch --check",
    ),
    (
        "dropbehind-watch",
        "Observe the machine by other rules, in the foreground:",
        "dropbehind watch --config ./rules.toml",
    ),
    (
        "dropbehind-probe",
        "Find out what works on a file system:",
        "dropbehind probe /srv",
    ),
    (
        "dropbehind-top",
        "Look on while a run or a watch works:",
        "dropbehind top",
    ),
    (
        "dropbehind-top",
        "Once, for a program:",
        "dropbehind top --once --json",
    ),
    (
        "dropbehind-bench",
        "See in a few minutes how it looks:",
        "dropbehind bench --quick --html report.html",
    ),
    (
        "dropbehind-bench",
        "Measure two scenarios on another disk:",
        "dropbehind bench --dir /srv seq-write-1m backup",
    ),
    (
        "dropbehind-bench-list",
        "See what can be measured:",
        "dropbehind bench list",
    ),
    (
        "dropbehind-bench-compare",
        "Compare an older kernel with a newer one:",
        "dropbehind bench compare before.json after.json",
    ),
    (
        "dropbehind-bench-compare",
        "Lay both over each other in a page:",
        "dropbehind bench compare before.json after.json --html both.html",
    ),
    (
        "dropbehind-bench-report",
        "Make a page of results:",
        "dropbehind bench report mine.json --html mine.html",
    ),
    (
        "dropbehind-completions",
        "Complete in this shell:",
        "source <(dropbehind completions bash)",
    ),
    (
        "dropbehind-man",
        "Read the page of cp where no package installed it:",
        "dropbehind man cp | man -l -",
    ),
    (
        "dropbehind-man",
        "Write all pages into a folder:",
        "dropbehind man --dir /usr/local/share/man/man1",
    ),
];

pub(super) fn run(args: &ManArgs) -> Exit {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    if let Some(dir) = &args.dir {
        return match write_pages(&root, dir) {
            Ok(()) => Exit::Done,
            Err(failure) => report(&failure),
        };
    }
    let wanted = match &args.command {
        None => Some(&root),
        Some(name) => root.find_subcommand(name),
    };
    match wanted {
        Some(command) => print(&page(command)),
        None => report(&Failure::new(format!(
            "there is no command {}. `dropbehind --help` lists them.",
            shown(Path::new(args.command.as_deref().unwrap_or_default()))
        ))),
    }
}

/// Writes the page of a command and those of its own commands.
fn write_pages(command: &Command, dir: &Path) -> Result<(), Failure> {
    let path = dir.join(format!("{}.1", title(command)));
    fs::write(&path, page(command)).map_err(|error| Failure::io(Doing::Create, &path, &error))?;
    shown_commands(command).try_for_each(|command| write_pages(command, dir))
}

/// As in `dropbehind-bench-list`.
fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn shown_commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

fn page(command: &Command) -> Vec<u8> {
    let mut page = Vec::new();
    let written = write_page(command, &mut page);
    written.expect("memory takes everything");
    // The help's end, for which clap_mangen has no usual heading.
    let text = String::from_utf8(page).expect("help is text");
    let text = text.replace("\n.SH EXTRA\n", "\n.SH NOTES\n");
    // clap_mangen's synopsis lists every option without its value.
    let (name, rest) = text.split_once(".SH SYNOPSIS\n").expect("a synopsis");
    let (_, description) = rest.split_once(".SH DESCRIPTION\n").expect("a description");
    format!("{name}{}.SH DESCRIPTION\n{description}", synopsis(command)).into_bytes()
}

/// The usage that help shows.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
    let mut section = Roff::new();
    section.control("SH", ["SYNOPSIS"]);
    for line in usage {
        section.text([roman(line)]).control("br", []);
    }
    section.to_roff()
}

fn write_page(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    Man::new(command.clone())
        .manual("dropbehind")
        .render(page)?;
    let title = title(command);
    let mut end = Roff::new();
    end.control("SH", ["EXAMPLES"]);
    for (_, what, line) in EXAMPLES.iter().filter(|(of, ..)| *of == title) {
        end.text([roman(*what)]);
        end.control("PP", []).control("RS", []).control("nf", []);
        end.text([roman(*line)]);
        end.control("fi", []).control("RE", []).control("PP", []);
    }
    end.control("SH", ["SEE ALSO"]);
    let mut others = see_also(command);
    others.sort_unstable();
    end.text([roman(others.join(", "))]);
    end.to_writer(page)
}

/// The other pages: of the commands above and below this one, and of what it reads.
fn see_also(command: &Command) -> Vec<String> {
    let title = title(command);
    let mut pages: Vec<String> = shown_commands(command)
        .map(|below| format!("{}(1)", self::title(below)))
        .collect();
    if let Some((above, _)) = title.rsplit_once('-') {
        pages.push(format!("{above}(1)"));
    }
    if ["dropbehind", "dropbehind-run", "dropbehind-watch"].contains(&title) {
        pages.push("dropbehind.toml(5)".to_owned());
    }
    let of_the_kernel = match title {
        "dropbehind" => "dropbehind(3)",
        "dropbehind-cp" => "cp(1)",
        "dropbehind-run" => "fanotify(7), seccomp(2)",
        "dropbehind-watch" => "fanotify(7), systemd.service(5)",
        "dropbehind-drop" => "posix_fadvise(2)",
        "dropbehind-stat" => "mincore(2), fincore(1)",
        _ => return pages,
    };
    pages.push(of_the_kernel.to_owned());
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn titles(command: &Command) -> Vec<String> {
        let below = shown_commands(command).flat_map(titles);
        std::iter::once(title(command).to_owned())
            .chain(below)
            .collect()
    }

    /// Every page has an example, and every example is a command line that is taken.
    #[test]
    fn examples_are_command_lines() {
        let mut root = Cli::command().disable_help_subcommand(true);
        root.build();
        let titles = titles(&root);
        for title in &titles {
            assert!(EXAMPLES.iter().any(|(of, ..)| of == title), "{title}");
        }
        for (of, _, line) in EXAMPLES {
            assert!(titles.iter().any(|title| title == of), "{of}");
            let ours = line.find("dropbehind").unwrap();
            let end = line[ours..]
                .find([')', '<', '|'])
                .unwrap_or(line.len() - ours);
            let words = line[ours..][..end].split_whitespace();
            let words: Vec<String> = words.map(|word| word.replace('\'', "")).collect();
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{line}: {error}");
            }
            assert!(
                of == "dropbehind" || of.split('-').nth(1) == Some(&words[1]),
                "{line}"
            );
        }
    }
}
