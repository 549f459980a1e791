//! A whole benchmark: scenario after scenario, modes in turn, saved after every
//! case.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::caches::{Emptying, touch_memory};
use crate::case::{self, Outcome, Stand};
use crate::device::FreeDevice;
use crate::environment::Environment;
use crate::error::Error;
use crate::files::{Folder, free_bytes, needed_bytes, prepare};
use crate::machine::meminfo_bytes;
use crate::memory_group::{Hierarchy, MemoryGroup};
use crate::metric::{Metric, shown};
use crate::mode::{Mode, SMALL_GROUP_BYTES};
use crate::nfs::NfsServer;
use crate::options::Options;
use crate::process::Launcher;
use crate::results::{BenchSettings, ModeResults, Results, Run, SCHEMA, ScenarioResults};
use crate::sampler::Watched;
use crate::scenario::{Scenario, Setting, Size, Stage};
use crate::stage::{NoStage, SetStage};
use crate::table;

/// The user, as far as the benchmark talks to them.
pub trait Terminal {
    /// Something to know while it runs.
    fn note(&mut self, text: &str);
    /// What is being measured, for those who ask.
    fn doing(&mut self, _text: String) {}
    /// A result.
    fn result(&mut self, text: &str);
    /// A question; true means go on.
    fn asks(&mut self, question: &str) -> bool;
}

/// What stays the same over a benchmark.
struct Bench<'a> {
    options: &'a Options,
    launcher: &'a Launcher,
    interrupted: &'a AtomicBool,
    hierarchy: Option<Hierarchy>,
    memory_bytes: u64,
    emptying: Emptying,
    results: Results,
}

/// Runs a benchmark.
///
/// It ends early when `interrupted` becomes true; what was measured is saved,
/// and its files are removed.
///
/// # Errors
/// What makes the whole of it impossible. What concerns a scenario or a mode is
/// in the results.
pub fn run(
    options: &Options,
    launcher: &Launcher,
    interrupted: &AtomicBool,
    terminal: &mut dyn Terminal,
) -> Result<Results, Error> {
    let scenarios = options.chosen_scenarios()?;
    raise_descriptor_limit();
    let dir = match &options.dir {
        Some(dir) => dir.clone(),
        None => PathBuf::from("."),
    };
    let dir = dir
        .canonicalize()
        .map_err(|error| Error::io("finding the directory", &dir, &error))?;
    if let Some(device) = &options.device {
        let found = FreeDevice::check(device)?;
        let question = format!(
            "All data on {} ({} MiB) will be written over.",
            device.display(),
            found.bytes >> 20
        );
        if !options.assume_yes && !terminal.asks(&question) {
            return Err(Error::Failed(format!(
                "{} was left alone. Answer yes, or give --yes.",
                device.display()
            )));
        }
    }
    let place = options.device.clone().unwrap_or_else(|| dir.clone());
    let environment = Environment::of(&place)?;
    let (hierarchy, group_text) = match Hierarchy::find() {
        Ok(hierarchy) => {
            let version = hierarchy.version().to_owned();
            (Some(hierarchy), version)
        }
        Err(why) => (None, format!("none: {why}")),
    };
    let memory_bytes = options.memory_limit_bytes(environment.memory_bytes);
    let emptying = Emptying::choose(options.quick);
    let mut bench = Bench {
        options,
        launcher,
        interrupted,
        memory_bytes,
        emptying,
        results: Results {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            settings: BenchSettings {
                size_bytes: options.size_bytes,
                runs: options.runs(),
                quick: options.quick,
                place: place.display().to_string(),
                memory_limit_bytes: hierarchy.as_ref().map(|_| memory_bytes),
                memory_group: group_text,
                caches_dropped: emptying.describe().to_owned(),
            },
            notes: notes(&environment),
            environment,
            scenarios: Vec::new(),
            complete: false,
        },
        hierarchy,
    };
    for note in bench.results.notes.clone() {
        terminal.note(&note);
    }
    if bench.hierarchy.is_none() {
        let why = &bench.results.settings.memory_group;
        terminal.note(&format!(
            "the workers' memory is not limited ({why}): sizes below the machine's memory show \
             no reclaim. Run as root, or give a --size beyond memory."
        ));
    }
    // What cannot be written is better known now than in an hour.
    bench.save_all()?;
    // On a device there are no files, but what holds them costs nothing.
    let folder = Folder::new(&dir)?;
    let touched_bytes = touch_memory(memory_bytes + memory_bytes / 2);
    bench.results.notes.push(format!(
        "Memory that a virtual machine's host must provide first is slower to fill. Before the \
         first case {} MiB were used once; beyond that the turns of the modes spread the effect.",
        touched_bytes >> 20
    ));
    let ended = scenarios
        .iter()
        .try_for_each(|scenario| bench.scenario(scenario, &folder, terminal));
    bench.results.complete = ended.is_ok();
    bench.save_all()?;
    let disturbed = bench.results.disturbed_runs();
    if disturbed > 0 {
        terminal.note(&format!(
            "{disturbed} runs were disturbed, as said above. They are left out where a mode has \
             others; stop what else runs on the machine and run those scenarios again."
        ));
    }
    ended.map(|()| bench.results)
}

/// What is to be known about all figures.
fn notes(environment: &Environment) -> Vec<String> {
    let mut notes = vec![
        "MB/s count the closing sync unless they say otherwise; \"CPU all\" is the whole machine, \
         since native uncached writes are finished by kernel threads that no program is charged \
         for."
            .to_owned(),
        "One request is on its way at a time, as in most programs; direct-q16 has 16, a ring as \
         many as its name says."
            .to_owned(),
    ];
    if meminfo_bytes("SwapTotal").unwrap_or(0) > 0 {
        notes.push(
            "The machine has swap: with a memory limit, programs may be swapped out.".to_owned(),
        );
    }
    if environment.debug_build {
        notes.push(
            "This dropbehind was built without optimisation: its figures say nothing about \
             speed. Build it with --release."
                .to_owned(),
        );
    }
    notes
}

/// Many files are looked at, each through a descriptor; workers inherit it.
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    const ENOUGH: u64 = 16_384;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where it stays low, opening fails and says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(ENOUGH.min(hard)), hard);
    }
}

impl Bench<'_> {
    /// After every case.
    fn save(&self) -> Result<(), Error> {
        match &self.options.json {
            Some(path) => self.results.save(path),
            None => Ok(()),
        }
    }

    /// After every scenario.
    fn save_all(&self) -> Result<(), Error> {
        self.save()?;
        self.options.reports.save(&self.results)
    }

    /// All modes of a scenario, in turns.
    fn scenario(
        &mut self,
        scenario: &Scenario,
        folder: &Folder,
        terminal: &mut dyn Terminal,
    ) -> Result<(), Error> {
        let modes = self.options.chosen_modes(scenario);
        if modes.is_empty() {
            return Ok(());
        }
        let size_bytes = self.options.scenario_bytes(scenario, self.memory_bytes);
        self.results.scenarios.push(ScenarioResults {
            name: scenario.name.to_owned(),
            summary: scenario.summary.to_owned(),
            role: scenario.role.to_owned(),
            metric: scenario.metric.to_owned(),
            size_bytes,
            block_bytes: scenario.block_bytes,
            skipped: None,
            notes: Vec::new(),
            modes: modes
                .iter()
                .map(|&mode| ModeResults {
                    mode,
                    unavailable: None,
                    failed: None,
                    runs: Vec::new(),
                })
                .collect(),
        });
        let device = self.options.device.as_deref();
        let stage = match SetStage::set(scenario, self.launcher, folder, device, size_bytes) {
            Ok(stage) => stage,
            Err(NoStage::Failed(error)) => return Err(error),
            Err(NoStage::Skip(why)) => return self.skip(&why, terminal),
        };
        let setting = Setting {
            scenario,
            dir: &stage.dir,
            device: stage.device.as_deref(),
            size_bytes,
            memory_bytes: self.memory_bytes,
            quick: self.options.quick,
        };
        let needed = needed_bytes(&(scenario.build)(&setting, modes[0]));
        if stage.device.is_none() && free_bytes(&stage.dir) < needed + needed / 10 {
            let why = format!(
                "{} MiB are not free in {}. Give a smaller --size, or another --dir",
                needed >> 20,
                stage.dir.display()
            );
            return self.skip(&why, terminal);
        }
        self.last().notes.extend(stage.note.clone());
        self.rounds(&setting, &stage, &modes, terminal)?;
        drop(stage);
        folder.clear();
        let results = self.last().clone();
        terminal.result(&table::of_scenario(&results));
        self.save_all()
    }

    fn skip(&mut self, why: &str, terminal: &mut dyn Terminal) -> Result<(), Error> {
        let last = self.last();
        last.skipped = Some(why.to_owned());
        terminal.note(&format!("SKIP {}: {why}.", last.name));
        self.save_all()
    }

    /// The scenario in work.
    fn last(&mut self) -> &mut ScenarioResults {
        let last = self.results.scenarios.len() - 1;
        &mut self.results.scenarios[last]
    }

    fn rounds(
        &mut self,
        setting: &Setting<'_>,
        stage: &SetStage,
        modes: &[Mode],
        terminal: &mut dyn Terminal,
    ) -> Result<(), Error> {
        let runs = self.options.runs() as usize;
        let mut turn = 0;
        for run in 0..runs {
            for step in 0..modes.len() {
                // Another mode is first in each round.
                let index = (run + step) % modes.len();
                let done = &self.last().modes[index];
                if done.unavailable.is_some() || done.failed.is_some() {
                    continue;
                }
                terminal.doing(format!(
                    "measuring {}, {}, run {} of {runs}; {} scenarios before it",
                    setting.scenario.name,
                    modes[index].name(),
                    run + 1,
                    self.results.scenarios.len() - 1,
                ));
                let outcome = self.one(setting, stage, modes[index])?;
                let name = format!("{:<22}{:<17}", setting.scenario.name, modes[index].name());
                let result = &mut self.last().modes[index];
                let said = match outcome {
                    Outcome::Measured(measured) => {
                        let mut measured = *measured;
                        measured.turn = turn;
                        turn += 1;
                        let said = in_short(setting.scenario, modes[index], &measured);
                        result.runs.push(measured);
                        format!("run {} of {runs}: {said}", run + 1)
                    }
                    Outcome::Unavailable(why) => {
                        let said = format!("not available: {why}");
                        result.unavailable = Some(why);
                        said
                    }
                    Outcome::Failed(why) => {
                        let said = format!("FAILED: {why}");
                        result.failed = Some(why);
                        said
                    }
                    Outcome::Interrupted => return Err(Error::Interrupted),
                };
                terminal.note(&format!("{name}{said}"));
                self.save()?;
            }
        }
        Ok(())
    }

    /// One case.
    fn one(&self, setting: &Setting<'_>, stage: &SetStage, mode: Mode) -> Result<Outcome, Error> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Ok(Outcome::Interrupted);
        }
        let scenario = setting.scenario;
        let case = (scenario.build)(setting, mode);
        prepare(&case)?;
        let watched = match Watched::open(&case.watch, &case.hot) {
            Ok(watched) => Arc::new(watched),
            Err(error) => return Ok(Outcome::Failed(format!("opening the files: {error}"))),
        };
        self.emptying.empty(stage.place(), &watched);
        let is_limited = !matches!(scenario.size, Size::Unlimited(_));
        let group = self.group("workers", self.memory_bytes, is_limited)?;
        let small_group = self.group("small", SMALL_GROUP_BYTES, mode == Mode::Cgroup)?;
        let server = if scenario.stage == Stage::Nfs {
            if let Some(why) = self.launcher.missing(mode) {
                return Ok(Outcome::Unavailable(why));
            }
            let files = stage.dir.join("server");
            match NfsServer::start(self.launcher, mode, &stage.dir, &files, group.as_ref()) {
                Ok(server) => Some(server),
                Err(why) => return Ok(Outcome::Failed(why)),
            }
        } else {
            None
        };
        let stand = Stand {
            launcher: self.launcher,
            group: group.as_ref(),
            small_group: small_group.as_ref(),
            disk: &stage.disk,
            limit_ms: if is_limited {
                self.options.limit_ms()
            } else {
                0
            },
            together: scenario.role == "all",
            server: server.as_ref(),
            interrupted: self.interrupted,
        };
        Ok(case::run(&case, watched, &stand))
    }

    fn group(
        &self,
        name: &str,
        limit_bytes: u64,
        wanted: bool,
    ) -> Result<Option<MemoryGroup>, Error> {
        match &self.hierarchy {
            Some(hierarchy) if wanted => hierarchy
                .group(name, limit_bytes)
                .map(Some)
                .map_err(|error| Error::Failed(format!("a memory cgroup failed: {error}."))),
            _ => Ok(None),
        }
    }
}

/// A run in a few words.
fn in_short(scenario: &Scenario, mode: Mode, run: &Run) -> String {
    let value = Metric::named(scenario.metric)
        .and_then(|metric| Some((metric, metric.of(run, scenario.role)?)));
    let mut text = match value {
        Some((metric, value)) => format!("{} {} ({})", shown(value), metric.unit, metric.label),
        None => format!("no {} for {mode}", scenario.role),
    };
    if run.roles.values().any(|role| role.cut_short) {
        text.push_str(", cut short");
    }
    if let Some(first) = run.disturbances.first() {
        text.push_str(&format!("; DISTURBED: {first}"));
    }
    text
}
