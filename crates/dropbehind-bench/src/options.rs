//! What the user asks for.

use std::path::PathBuf;

use crate::error::Error;
use crate::export::Reports;
use crate::mode::Mode;
use crate::scenario::{Scenario, Size, Stage};
use dropbehind_config::nearest;

/// What to measure, where and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of scenarios and families; all where there are none.
    pub scenarios: Vec<String>,
    /// Where files go; the working directory unless given.
    pub dir: Option<PathBuf>,
    /// A block device to be written over.
    pub device: Option<PathBuf>,
    /// How much each scenario moves.
    pub size_bytes: Option<u64>,
    /// The workers' memory limit.
    pub memory_bytes: Option<u64>,
    /// The modes; those of each scenario where there are none.
    pub modes: Vec<Mode>,
    /// Runs of each mode.
    pub runs: Option<u32>,
    /// A few minutes, to see how it looks.
    pub quick: bool,
    /// Where the results go.
    pub json: Option<PathBuf>,
    /// Where the reports go.
    pub reports: Reports,
    /// Do not ask before a device is written over.
    pub assume_yes: bool,
}

/// Without `--quick` and `--runs`.
const RUNS: u32 = 5;
/// Modes of a quick benchmark, unless asked for others.
const QUICK_MODES: [Mode; 6] = [
    Mode::Buffered,
    Mode::Native,
    Mode::DirectQ16,
    Mode::Dontcache,
    Mode::Run,
    Mode::Alone,
];
const MEMORY_BYTES: u64 = 1 << 30;
const QUICK_MEMORY_BYTES: u64 = 256 << 20;
/// The workers' own memory must fit.
const SMALLEST_MEMORY_BYTES: u64 = 64 << 20;
/// A case that takes longer is cut short.
const LIMIT_MS: u64 = 60_000;
const QUICK_LIMIT_MS: u64 = 4_000;

impl Options {
    pub(crate) fn runs(&self) -> u32 {
        let default = if self.quick { 1 } else { RUNS };
        self.runs.unwrap_or(default).max(1)
    }

    pub(crate) fn limit_ms(&self) -> u64 {
        if self.quick { QUICK_LIMIT_MS } else { LIMIT_MS }
    }

    /// The workers' memory limit on a machine with so much memory.
    pub(crate) fn memory_limit_bytes(&self, machine_bytes: u64) -> u64 {
        if let Some(bytes) = self.memory_bytes {
            return bytes;
        }
        let wanted = match self.size_bytes {
            Some(size) => (size / 4).min(MEMORY_BYTES),
            None if self.quick => QUICK_MEMORY_BYTES,
            None => MEMORY_BYTES,
        };
        wanted.min(machine_bytes / 4).max(SMALLEST_MEMORY_BYTES)
    }

    /// How much a scenario moves.
    pub(crate) fn scenario_bytes(&self, scenario: &Scenario, memory_bytes: u64) -> u64 {
        match (scenario.size, self.size_bytes) {
            (Size::OfLimit(_) | Size::Unlimited(_), Some(size)) => size,
            (Size::OfLimit(percent), None) => memory_bytes / 100 * percent,
            (Size::Unlimited(bytes), None) if self.quick => bytes / 10,
            (Size::Unlimited(bytes), None) => bytes,
            (Size::Own, _) => scenario.count * scenario.block_bytes,
        }
    }

    /// The scenarios that are meant, in their own order.
    pub(crate) fn chosen_scenarios(&self) -> Result<Vec<Scenario>, Error> {
        let all = Scenario::all();
        for name in &self.scenarios {
            if !all.iter().any(|scenario| scenario.is_meant_by(name)) {
                let meant = nearest(name, all.iter().map(|scenario| scenario.name));
                let meant = meant.map_or(String::new(), |name| format!("Did you mean {name}? "));
                return Err(Error::Usage(format!(
                    "there is no scenario {name:?}. {meant}`dropbehind bench list` names them."
                )));
            }
        }
        let is_named = |scenario: &Scenario| {
            self.scenarios.is_empty()
                || self.scenarios.iter().any(|name| scenario.is_meant_by(name))
        };
        let chosen: Vec<Scenario> = all.into_iter().filter(is_named).collect();
        if self.device.is_none() {
            return Ok(chosen);
        }
        // A device has no room for files.
        let (here, elsewhere): (Vec<Scenario>, Vec<Scenario>) = chosen
            .into_iter()
            .partition(|scenario| scenario.stage == Stage::Device);
        match elsewhere.first() {
            Some(other) if !self.scenarios.is_empty() => Err(Error::Usage(format!(
                "{} needs a directory and not a device. Leave out --device, or name device-write \
                 and device-read only.",
                other.name
            ))),
            _ => Ok(here),
        }
    }

    /// The modes of a scenario that are meant.
    pub(crate) fn chosen_modes(&self, scenario: &Scenario) -> Vec<Mode> {
        let wanted: &[Mode] = match (self.modes.as_slice(), self.quick) {
            ([], true) => &QUICK_MODES,
            ([], false) => &Mode::ALL,
            (modes, _) => modes,
        };
        let modes = scenario.modes.iter().copied();
        modes.filter(|mode| wanted.contains(mode)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_memory_limit() {
        let scenario = Scenario::all()[0];
        let mut options = Options::default();
        assert_eq!(options.memory_limit_bytes(24 << 30), 1 << 30);
        assert_eq!(options.memory_limit_bytes(1 << 30), 256 << 20);
        let bytes = options.scenario_bytes(&scenario, 1 << 30);
        assert_eq!(bytes >> 20, 4095);
        options.size_bytes = Some(64 << 20);
        assert_eq!(options.memory_limit_bytes(24 << 30), 64 << 20);
        options.size_bytes = Some(100 << 30);
        assert_eq!(options.memory_limit_bytes(24 << 30), 1 << 30);
        options.size_bytes = Some(64 << 20);
        assert_eq!(options.scenario_bytes(&scenario, 1 << 30), 64 << 20);
        options.memory_bytes = Some(100 << 20);
        assert_eq!(options.memory_limit_bytes(24 << 30), 100 << 20);
    }

    #[test]
    fn scenarios_and_modes_are_chosen_by_name() {
        let mut options = Options {
            scenarios: vec!["device".to_owned(), "overwrite".to_owned()],
            modes: vec![Mode::Dontcache, Mode::Buffered, Mode::Alone],
            ..Options::default()
        };
        let chosen = options.chosen_scenarios().unwrap();
        let names: Vec<&str> = chosen.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names, ["overwrite", "device-write", "device-read"]);
        let modes = options.chosen_modes(&chosen[0]);
        assert_eq!(modes, [Mode::Buffered, Mode::Dontcache]);
        options.device = Some("/dev/x".into());
        let error = options.chosen_scenarios().unwrap_err().to_string();
        assert!(error.starts_with("overwrite needs a directory"), "{error}");
        options.scenarios = vec!["sequential".to_owned()];
        assert!(matches!(options.chosen_scenarios(), Err(Error::Usage(_))));
        options.scenarios.clear();
        assert_eq!(options.chosen_scenarios().unwrap().len(), 2);
    }
}
