//! `dropbehind probe`: what works here, and what would be used.

mod choice;
mod consequence;

use super::run::source::sources;
use super::{json, print, report};
use crate::error::{Doing, Exit, Failure};
use crate::size::show;
use choice::{Choice, choices};
use clap::Args;
use consequence::consequences;
use dropbehind_linux::{CacheUses, Probe, Support};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// A directory, file or block device; what is tried in a directory leaves nothing behind, and
    /// files and devices are not written
    #[arg(value_name = "PATH", default_value = ".", value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const WITHOUT_TRACE: &str = "without a trace of the page cache, run and watch do not know who \
     brings in which page: what was cached when a file was opened stays, and the rest is dropped";

/// What it means that the kernel does not report which cached pages are used.
pub(super) const WITHOUT_USES: &str = "the kernel does not report which cached pages are used \
     (Linux 6.12 and later do, to root): run uses dontcache by default; run -m auto, and watch with \
     the mode auto, leave everything cached";

const STOPPED: &str = "run learns of opens from seccomp, which stops programs at each open for some \
     microseconds: what was cached when a file was opened stays, and the rest is dropped; nobody \
     gains rights inside (sudo), and what is read of others' files that you may only read stays cached";

const NO_SOURCE: &str = "run cannot observe programs: neither fanotify nor seccomp tells what they \
     open";

/// The result; the names are those of the JSON output.
#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    filesystem: String,
    disk: ProbedDisk,
    works: Vec<Feature>,
    strategies: Vec<Choice>,
    /// What is missing, and what that means.
    consequences: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct ProbedDisk {
    name: String,
    device: String,
    request_bytes: u64,
    read_ahead_bytes: u64,
    scheduler: String,
    rotational: bool,
    #[serde(rename = "virtual")]
    is_virtual: bool,
}

/// Something that was tried.
#[derive(Debug, Serialize)]
struct Feature {
    name: &'static str,
    works: bool,
    /// In words.
    result: String,
}

pub(super) fn run(args: &ProbeArgs) -> Exit {
    let found = match dropbehind_linux::probe(&args.path) {
        Ok(found) => found,
        Err(error) => return report(&Failure::io(Doing::Probe, &args.path, &error)),
    };
    let result = Report::of(&found);
    let text = if args.json {
        match json(serde_json::to_string_pretty(&result)) {
            Ok(text) => text,
            Err(failure) => return report(&failure),
        }
    } else {
        result.to_text()
    };
    print(text.as_bytes())
}

/// Everything that is tried, by its name in the kernel's manuals.
fn features(found: &Probe) -> [(&'static str, &Support); 12] {
    [
        ("cachestat", &found.cachestat),
        ("mincore", &found.mincore),
        ("sync_file_range", &found.sync_file_range),
        ("posix_fadvise DONTNEED", &found.fadvise_dontneed),
        ("RWF_DONTCACHE, new file", &found.dontcache_write),
        ("RWF_DONTCACHE, overwrite", &found.dontcache_overwrite),
        ("RWF_DONTCACHE, read", &found.dontcache_read),
        ("FIEMAP", &found.fiemap),
        ("O_DIRECT", &found.direct_io),
        ("own open file description", &found.own_description),
        ("own descriptor table", &found.descriptor_table),
        ("I/O priority", &found.io_priority),
    ]
}

impl Report {
    fn of(found: &Probe) -> Self {
        let disk = &found.disk;
        let works = features(found).map(|(name, support)| Feature {
            name,
            works: support.works(),
            result: support.to_string(),
        });
        let mut works = Vec::from(works);
        let mut consequences = consequences(found);
        let trace = dropbehind_observer::open_trace();
        if trace.is_err() {
            consequences.push(WITHOUT_TRACE);
        }
        let uses = CacheUses::open();
        if uses.is_err() {
            consequences.push(WITHOUT_USES);
        }
        let feature = |name, tried: Result<(), String>| Feature {
            name,
            works: tried.is_ok(),
            result: tried.map_or_else(
                |error| format!("no: {error}"),
                |()| Support::Works.to_string(),
            ),
        };
        let sources = sources();
        match &sources {
            (Ok(()), _) => {}
            (Err(_), Ok(())) => consequences.push(STOPPED),
            (Err(_), Err(_)) => consequences.push(NO_SOURCE),
        }
        works.push(feature("fanotify, for run", sources.0));
        works.push(feature("seccomp, for run", sources.1));
        works.push(feature("page cache trace", trace.map(|_| ())));
        let uses = uses.map(|_| ()).map_err(|error| error.to_string());
        works.push(feature("use of cached pages", uses));
        Self {
            kernel: found.kernel.to_string(),
            filesystem: found.filesystem.to_string(),
            disk: ProbedDisk {
                name: disk.name.clone(),
                device: disk.id.to_string(),
                request_bytes: disk.request_bytes,
                read_ahead_bytes: disk.read_ahead_bytes,
                scheduler: disk.scheduler.clone(),
                rotational: disk.rotational,
                is_virtual: disk.virtual_,
            },
            works,
            strategies: choices(found),
            consequences,
        }
    }

    fn to_text(&self) -> String {
        let disk = &self.disk;
        let mut text = format!(
            "kernel       Linux {}\nfile system  {}\ndisk         {} ({}), requests of {}, \
             read-ahead {}, scheduler {}\n\nwhat works\n",
            self.kernel,
            self.filesystem,
            disk.name,
            if disk.is_virtual {
                "no block device"
            } else {
                &disk.device
            },
            show(disk.request_bytes),
            show(disk.read_ahead_bytes),
            disk.scheduler,
        );
        let widest = |names: &mut dyn Iterator<Item = &str>| names.map(str::len).max().unwrap_or(0);
        let width = widest(&mut self.works.iter().map(|feature| feature.name));
        for Feature { name, result, .. } in &self.works {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:width$}  {result}");
        }
        if !self.consequences.is_empty() {
            text.push_str("\nwhat that means\n");
        }
        for sentence in &self.consequences {
            let _ = writeln!(text, "  {sentence}");
        }
        text.push_str("\nwhat dontcache would use\n");
        let width = widest(&mut self.strategies.iter().map(|choice| choice.operation));
        for choice in &self.strategies {
            let Choice {
                operation,
                strategy,
                why,
            } = choice;
            let _ = writeln!(text, "  {operation:width$}  {strategy}: {why}");
        }
        text
    }
}
