//! The settings of each disk.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::Path;

use dropbehind_policy::Mode;
use dropbehind_policy::write_behind::WINDOW_MIN_BYTES;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{FileError, Problem};
use crate::texts::{ConfigText, read_texts, readable_texts};
use crate::values::{Mistakes, Section, shown_value};

/// The file that is read unless another one is named. It need not be there.
pub const DEFAULT_PATH: &str = "/etc/dropbehind.toml";
/// The variable that names another one. If it is empty, no file is read.
pub const CONFIG_VARIABLE: &str = "DROPBEHIND_CONFIG";

/// The windows that can be set, in bytes; on the command line and in the file.
pub const WINDOW_RANGE_BYTES: RangeInclusive<u64> = WINDOW_MIN_BYTES..=64 << 30;
/// The requests that can be set, in bytes; on the command line and in the file.
pub const REQUEST_RANGE_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;
/// The limits on dirty data that can be set, in bytes.
pub const MAX_DIRTY_RANGE_BYTES: RangeInclusive<u64> = 16 << 20..=1 << 50;

/// The keys of the file itself.
pub const FILE_KEYS: [&str; 7] = [
    "mode",
    "window",
    "request",
    "max_dirty",
    "reads",
    "rule",
    "disk",
];
const DISK_KEYS: [&str; 5] = ["enabled", "mode", "window", "request", "max_dirty"];

/// One disk's table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DiskSettings {
    /// If false, all files on the disk are left alone, whatever mode anybody asks for.
    pub enabled: bool,
    /// The mode of files for which nothing else sets one.
    #[serde(with = "mode_as_text")]
    pub mode: Option<Mode>,
    /// The window in bytes.
    pub window_bytes: Option<u64>,
    /// The request in bytes.
    pub request_bytes: Option<u64>,
    /// How many bytes of a file may be unwritten before its writers wait, where they are observed
    /// from outside.
    pub max_dirty_bytes: Option<u64>,
}

impl Default for DiskSettings {
    fn default() -> DiskSettings {
        DiskSettings {
            enabled: true,
            mode: None,
            window_bytes: None,
            request_bytes: None,
            max_dirty_bytes: None,
        }
    }
}

/// A mode as the file has it.
mod mode_as_text {
    use dropbehind_policy::Mode;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(super) fn serialize<S: Serializer>(mode: &Option<Mode>, to: S) -> Result<S::Ok, S::Error> {
        mode.map(|mode| mode.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Mode>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let mode = text.map(|text| text.parse::<Mode>());
        mode.transpose().map_err(de::Error::custom)
    }
}

/// The tables of all disks, by the names in `/sys/block`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Disks(BTreeMap<String, DiskSettings>);

impl Disks {
    /// The disks of `named`, which an option names, or else of the file that the environment
    /// names, or else of [`DEFAULT_PATH`], if that is there; and of the files in its
    /// [folder](crate::folder_of).
    ///
    /// # Errors
    /// The file cannot be read, although an option or the environment names it; or its disks have
    /// mistakes, or the file has a key that it cannot have, or it is no TOML. Mistakes in its rules
    /// are none here.
    pub fn find(named: Option<&Path>) -> Result<Disks, FileError> {
        let variable = std::env::var_os(CONFIG_VARIABLE);
        let named = named.map(|path| path.as_os_str().to_owned());
        match named.or(variable) {
            Some(name) if name == OsStr::new("") => Ok(Disks::default()),
            Some(name) => Disks::read(Path::new(&name)),
            // Nobody asked for it. (It may hold rules that are not for everybody to read.)
            None => Disks::of_texts(&readable_texts(Path::new(DEFAULT_PATH))),
        }
    }

    /// Reads the disks of a file and of its [folder](crate::folder_of).
    ///
    /// # Errors
    /// As for [`Disks::find`].
    pub fn read(path: &Path) -> Result<Disks, FileError> {
        Disks::of_texts(&read_texts(path)?)
    }

    fn of_texts(texts: &[ConfigText]) -> Result<Disks, FileError> {
        let mut disks = Disks::default();
        for of_file in FileError::of_each(texts, Disks::parse)? {
            disks.add(of_file);
        }
        Ok(disks)
    }

    /// Adds what a later file says. What it sets goes before what an earlier one does, but a disk
    /// that any file switches off is off.
    pub fn add(&mut self, later: Disks) {
        for (name, later) in later.0 {
            let disk = self.0.entry(name).or_default();
            *disk = DiskSettings {
                enabled: disk.enabled && later.enabled,
                mode: later.mode.or(disk.mode),
                window_bytes: later.window_bytes.or(disk.window_bytes),
                request_bytes: later.request_bytes.or(disk.request_bytes),
                max_dirty_bytes: later.max_dirty_bytes.or(disk.max_dirty_bytes),
            };
        }
    }

    /// Parses the disks of a text.
    ///
    /// # Errors
    /// All their mistakes, in the order of the lines.
    pub fn parse(text: &str) -> Result<Disks, Vec<Problem>> {
        let mut mistakes = Mistakes::in_text(text);
        let table = mistakes.tables(text)?;
        let file = Section::new(table.get_ref(), "the file", &FILE_KEYS, &mut mistakes);
        let disks = read_disks(file.value("disk"), &mut mistakes);
        match mistakes.sorted() {
            none if none.is_empty() => Ok(disks),
            some => Err(some),
        }
    }

    /// Returns whether no disk has settings of its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A disk's settings, by its name in `/sys/block`.
    pub fn get(&self, disk: &str) -> Option<&DiskSettings> {
        self.0.get(disk)
    }

    /// All disks that have settings, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &DiskSettings)> {
        self.0.iter().map(|(name, disk)| (name.as_str(), disk))
    }
}

/// Reads the tables below the key `disk`.
pub fn read_disks(value: Option<&Spanned<DeValue<'_>>>, mistakes: &mut Mistakes<'_>) -> Disks {
    let mut disks = Disks::default();
    let Some(value) = value else {
        return disks;
    };
    let Some(tables) = value.get_ref().as_table() else {
        mistakes.note(
            value.span().start,
            "disk is not a table; begin each disk with a line such as [disk.\"sda\"]",
        );
        return disks;
    };
    for (name, disk) in tables {
        let start = name.span().start;
        let name = name.get_ref();
        let Some(table) = disk.get_ref().as_table() else {
            mistakes.note(
                start,
                format!(
                    "disk.{name} is {}; begin each disk with a line such as [disk.\"sda\"]",
                    shown_value(disk.get_ref())
                ),
            );
            continue;
        };
        if name.is_empty() || name.contains('/') {
            mistakes.note(
                start,
                format!(
                    "{name:?} is no disk's name; the names are those in /sys/block, such as sda"
                ),
            );
        }
        disks
            .0
            .insert(name.clone().into_owned(), read_disk(table, mistakes));
    }
    disks
}

fn read_disk(table: &DeTable<'_>, mistakes: &mut Mistakes<'_>) -> DiskSettings {
    let disk = Section::new(table, "a disk", &DISK_KEYS, mistakes);
    DiskSettings {
        enabled: disk.flag("enabled", mistakes).unwrap_or(true),
        mode: disk.mode(mistakes),
        window_bytes: disk.size("window", &WINDOW_RANGE_BYTES, mistakes),
        request_bytes: disk.size("request", &REQUEST_RANGE_BYTES, mistakes),
        max_dirty_bytes: disk.size("max_dirty", &MAX_DIRTY_RANGE_BYTES, mistakes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_read_beside_rules_that_are_not() {
        let text = "[[rule]]\nmode = 7\n[disk.\"sda\"]\nmode = \"noreuse\"\nwindow = \"1MiB\"\n\
                    [disk.\"sdb\"]\nenabled = false\n";
        let disks = Disks::parse(text).unwrap();
        let sda = disks.get("sda").unwrap();
        assert!(sda.enabled);
        assert_eq!(sda.mode, Some(Mode::NOREUSE));
        assert_eq!(sda.window_bytes, Some(1 << 20));
        assert!(!disks.get("sdb").unwrap().enabled);
        assert_eq!(disks.get("sdc"), None);
    }

    #[test]
    fn a_misspelt_table_is_no_table_that_is_left_out() {
        let problems = Disks::parse("[dsik.\"sda\"]\nenabled = false\n").unwrap_err();
        assert!(problems[0].message.contains("did you mean \"disk\"?"));
    }

    #[test]
    fn each_mistake_has_its_line() {
        let text = "[disk.sda]\nwindows = 1\nmode = \"fast\"\n[disk.\"sd/b\"]\nrequest = 7\n";
        let problems = Disks::parse(text).unwrap_err();
        let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [2, 3, 4, 5]);
        assert!(problems[0].message.contains("did you mean \"window\"?"));
        let problems = Disks::parse("disk = {\n").unwrap_err();
        assert!(!problems.is_empty());
    }
}
