//! What is saved: one JSON file a benchmark.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clock::date;
use crate::environment::Environment;
use crate::error::Error;
use crate::latency::Latency;
use crate::mode::Mode;
use crate::reclaim::ReclaimFigures;
use crate::sampler::MemorySample;

/// Changes whenever an older reader would misunderstand a newer file.
pub const SCHEMA: &str = "dropbehind-bench-1";

/// A benchmark's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of dropbehind.
    pub version: String,
    /// Seconds since 1970, when it began.
    pub started_s: u64,
    /// Where it ran.
    pub environment: Environment,
    /// How.
    pub settings: BenchSettings,
    /// What is to be known about all figures.
    pub notes: Vec<String>,
    /// In the order they ran.
    pub scenarios: Vec<ScenarioResults>,
    /// Whether it ran to its end.
    pub complete: bool,
}

/// How a benchmark was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchSettings {
    /// The size asked for, if any.
    pub size_bytes: Option<u64>,
    /// Runs of each mode.
    pub runs: u32,
    /// Whether it was a quick one.
    pub quick: bool,
    /// Where the files were, or the device.
    pub place: String,
    /// The version of the workers' memory cgroup, or why there was none.
    pub memory_group: String,
    /// Its limit.
    pub memory_limit_bytes: Option<u64>,
    /// How the caches were emptied before each case.
    pub caches_dropped: String,
}

/// One scenario in all modes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResults {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub summary: String,
    /// The role that the verdict is about.
    pub role: String,
    /// The metric that the verdict is about.
    pub metric: String,
    /// How much the foreground moved.
    pub size_bytes: u64,
    /// Size of a call.
    pub block_bytes: u64,
    /// Why it was not run, if it was not.
    pub skipped: Option<String>,
    /// What is special here.
    pub notes: Vec<String>,
    /// In the order of the tables.
    pub modes: Vec<ModeResults>,
}

/// One mode's runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeResults {
    /// Which.
    pub mode: Mode,
    /// Why it is not available here, if it is not.
    pub unavailable: Option<String>,
    /// What went wrong, if something did.
    pub failed: Option<String>,
    /// In the order they ran.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its place among all runs of the scenario.
    pub turn: u32,
    /// What each role did.
    pub roles: BTreeMap<String, RoleFigures>,
    /// Processor time.
    pub cpu: CpuFigures,
    /// The page cache.
    pub memory: MemoryFigures,
    /// What reached the disk; absent where it has no counters.
    pub disk: Option<DiskFigures>,
    /// What the kernel did to find free memory; absent where it does not count.
    #[serde(default)]
    pub reclaim: Option<ReclaimFigures>,
    /// Extents of the files that were written.
    pub extents: Option<u64>,
    /// From the last sync to the last page dropped, by our flusher.
    pub settle_ns: u64,
    /// What else went on on the machine.
    pub disturbances: Vec<String>,
}

/// What one role did. Speeds follow from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleFigures {
    /// Bytes moved.
    pub bytes: u64,
    /// Calls.
    pub operations: u64,
    /// From the start to the end of the last call.
    pub io_ns: u64,
    /// From the start to the end of the last closing sync.
    pub total_ns: u64,
    /// How long calls took.
    pub latency: Latency,
    /// Bytes of each tenth of a second.
    pub series_bytes: Vec<u64>,
    /// Bytes of each stream of this role per second, the slowest first.
    pub stream_bytes_per_s: Vec<u64>,
    /// CPU time of the program's own threads.
    pub cpu_ns: u64,
    /// CPU time of the rest of the process while the files lay idle.
    pub idle_cpu_ns: u64,
    /// How long they did.
    pub idle_ns: u64,
    /// Whether it was ended before everything was moved.
    pub cut_short: bool,
}

/// Processor time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFigures {
    /// The programs' own threads.
    pub program_ns: u64,
    /// What works behind them in user space: our flusher, `run`.
    pub flusher_ns: u64,
    /// The whole machine but the benchmark itself: the kernel's threads, too.
    pub machine_ns: u64,
}

/// The page cache. Absent values could not be counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// Most that was dirty or under writeback at once.
    pub peak_dirty_bytes: Option<u64>,
    /// Most that was cached at once.
    pub peak_cached_bytes: Option<u64>,
    /// What was cached in the end.
    pub left_cached_bytes: Option<u64>,
    /// Most that the cgroup used.
    pub peak_group_bytes: Option<u64>,
    /// Pages of the hot set, all cached before.
    pub hot_pages: Option<u64>,
    /// Most of them that were missing at once.
    pub hot_evicted_pages: Option<u64>,
    /// The maximum of each tenth of a second.
    pub series: Vec<MemorySample>,
}

/// What reached the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFigures {
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Bytes that the programs asked to be read.
    pub asked_read_bytes: u64,
    /// Bytes that the programs asked to be written.
    pub asked_written_bytes: u64,
}

impl Results {
    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// It cannot be read, is no such file, or of another schema.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|error| Error::io("reading", path, &error))?;
        let shown = path.display();
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
            Error::Failed(format!(
                "{shown} is no JSON: {error}. Give a file that bench wrote with --json."
            ))
        })?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(Error::Failed(format!(
                    "{shown} has the schema {other:?}, and this dropbehind reads {SCHEMA:?}. \
                     Use the dropbehind that wrote it."
                )));
            }
            None => {
                return Err(Error::Failed(format!(
                    "{shown} holds no results of bench. Give a file that bench wrote with --json."
                )));
            }
        }
        serde_json::from_value(value).map_err(|error| {
            Error::Failed(format!(
                "{shown} is damaged: {error}. Run the benchmark again."
            ))
        })
    }

    /// Writes the file, so that at any time there is a whole one.
    ///
    /// # Errors
    /// Those of writing and renaming.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let mut text = serde_json::to_string(self)
            .map_err(|error| Error::Failed(format!("cannot make JSON: {error}.")))?;
        text.push('\n');
        replace(path, text.as_bytes())
    }
}

impl Results {
    /// All tables as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.scenarios
            .iter()
            .map(crate::table::of_scenario)
            .collect()
    }

    /// When, where and how often it was measured, in a line.
    #[must_use]
    pub fn circumstances(&self) -> String {
        let machine = &self.environment;
        let runs = match self.settings.runs {
            1 => "1 run".to_owned(),
            runs => format!("{runs} runs"),
        };
        format!(
            "{}, Linux {}, {} processors, {:.0} GiB of memory, {} on {}; {runs} of each mode; \
             dropbehind {}",
            date(self.started_s),
            machine.kernel,
            machine.cpus,
            machine.memory_bytes as f64 / f64::from(1 << 30),
            machine.filesystem,
            machine.disk.name,
            self.version
        )
    }

    /// What figures depend on, name and value: the machine and the settings.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let (machine, settings) = (&self.environment, &self.settings);
        let disk = &machine.disk;
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "none".to_owned(), mib);
        let facts = [
            ("dropbehind", self.version.clone()),
            ("debug build", machine.debug_build.to_string()),
            ("kernel", machine.kernel.clone()),
            ("architecture", machine.architecture.clone()),
            ("processor", machine.processor.clone()),
            ("processors", machine.cpus.to_string()),
            ("memory", mib(machine.memory_bytes)),
            ("file system", machine.filesystem.clone()),
            ("disk", format!("{} {}", disk.name, disk.model)),
            ("scheduler", disk.scheduler.clone()),
            (
                "requests up to",
                format!("{} KiB", disk.request_bytes >> 10),
            ),
            ("readahead", format!("{} KiB", disk.read_ahead_bytes >> 10)),
            ("write cache", disk.write_cache.clone()),
            ("place", settings.place.clone()),
            ("memory cgroup", settings.memory_group.clone()),
            ("memory limit", size(settings.memory_limit_bytes)),
            ("size asked for", size(settings.size_bytes)),
            ("quick", settings.quick.to_string()),
            ("caches", settings.caches_dropped.clone()),
            ("huge pages", machine.huge_pages.clone()),
        ];
        let facts = facts.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        facts.into_iter().chain(machine.sysctls.clone()).collect()
    }

    /// Why the figures should be taken with care, in sentences.
    #[must_use]
    pub fn cautions(&self) -> Vec<String> {
        let mut cautions = Vec::new();
        if !self.complete {
            cautions.push("The benchmark has not come to its end.".to_owned());
        }
        if self.environment.debug_build {
            cautions.push("Built without optimisation: speeds mean nothing.".to_owned());
        }
        if self.settings.quick {
            cautions.push("A quick benchmark: to see how it looks, not to compare by.".to_owned());
        }
        let disturbed = self.disturbed_runs();
        if disturbed > 0 {
            cautions.push(format!(
                "{disturbed} runs were disturbed by other programs; they are left out where a mode \
                 has others. Stop what else runs, and run those scenarios again."
            ));
        }
        cautions
    }

    /// Runs during which others used the machine.
    #[must_use]
    pub fn disturbed_runs(&self) -> usize {
        let modes = self.scenarios.iter().flat_map(|scenario| &scenario.modes);
        let runs = modes.flat_map(|mode| &mode.runs);
        runs.filter(|run| !run.disturbances.is_empty()).count()
    }

    /// Whether anything went wrong, apart from what is not possible here.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        let modes = self.scenarios.iter().flat_map(|scenario| &scenario.modes);
        modes.into_iter().any(|mode| mode.failed.is_some())
    }
}

impl ScenarioResults {
    /// What it does, and how much of it.
    #[must_use]
    pub fn description(&self) -> String {
        let block = match self.block_bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} bytes"),
        };
        let size = self.size_bytes >> 20;
        format!("{}; {size} MiB in calls of {block}", self.summary)
    }
}

/// Puts a new file in the place of an old one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: io::Error| Error::io("writing", path, &error);
    if path.exists() && !path.is_file() {
        // A pipe or /dev/stdout has no name to be replaced.
        return fs::write(path, bytes).map_err(failed);
    }
    let (mut file, new) = new_beside(path).map_err(failed)?;
    let done = file.write_all(bytes).and_then(|()| fs::rename(&new, path));
    done.map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}

/// Makes a file with a name of its own. In a directory of many users, whatever is there already may
/// be another user's file or link.
fn new_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut attempts = 0;
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.{attempts}.new", std::process::id()));
        let new = path.with_file_name(name);
        match File::create_new(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < 100 => {
                attempts += 1;
            }
            made => return Ok((made?, new)),
        }
    }
}
