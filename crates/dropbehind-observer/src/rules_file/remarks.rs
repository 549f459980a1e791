//! What is correct, but probably not meant. Found by looking at the machine, which may change
//! later.

use std::path::{Path, PathBuf};

use dropbehind_policy::Writeback;

use super::RulesFile;
use super::condition::Condition;
use super::patterns::is_glob;

use crate::in_time::in_time;
use crate::shown;

/// So many rules are compared with each other, which takes some 0.2 s. Who has more lets a program
/// write them.
const COMPARED: usize = 1000;

impl RulesFile {
    /// Remarks on rules that cannot have any effect on this machine as it is. Whether an earlier rule
    /// leaves nothing to a later one is known of the first 1000 rules.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut hangs = false;
        let paths = self.rules.iter().flat_map(|rule| {
            let texts = rule.path_texts();
            texts.map(move |text| (&rule.place, text))
        });
        let paths = paths.filter_map(|(place, text)| {
            if hangs {
                return None;
            }
            let asked = text.to_owned();
            // A server that the rule names may hang.
            let remark = in_time(move || of_path(&asked)).unwrap_or_else(|| {
                hangs = true;
                Some(format!(
                    "nothing says within a second whether there is {text}: its file system's server \
                     does not answer, or the machine is busy; what comes after it was not looked at"
                ))
            })?;
            Some(format!("{place}: {remark}"))
        });
        let rules = &self.rules;
        let compared = rules.iter().take(COMPARED).enumerate();
        let idle = compared.filter_map(|(index, rule)| {
            let earlier = rules[..index].iter().find(|earlier| earlier.covers(rule))?;
            Some(format!(
                "{}: this rule has no effect: the one in {} is asked before it and matches \
                 everything that this one does; move this one above it, or remove it",
                rule.place, earlier.place
            ))
        });
        let users = rules.iter().flat_map(|rule| {
            let conditions = rule.conditions.iter().chain(&rule.exceptions);
            let unknown = conditions.flat_map(Condition::unknown_users);
            unknown.map(move |name| format!("{}: there is no user {name} now", rule.place))
        });
        let unlimited = rules.iter().filter(|rule| {
            let is_lazy = rule.mode.writeback == Writeback::Lazy;
            is_lazy && !rule.mode.is_buffered() && rule.keys.max_dirty_bytes.is_some()
        });
        let unlimited = unlimited.map(|rule| {
            format!(
                "{}: max_dirty has no effect in the mode {}, which leaves writeback to the kernel",
                rule.place, rule.mode
            )
        });
        let disks = self.disks.iter();
        let disks = disks.filter_map(|(name, _)| of_disk(name));
        let all = paths.chain(idle).chain(users).chain(unlimited).chain(disks);
        let mut remarks: Vec<String> = all.map(shown).collect();
        if self.leaves_all_alone() {
            remarks.push("every file is left alone: there is nothing to do".to_owned());
        }
        remarks
    }
}

fn of_path(text: &str) -> Option<String> {
    if text.starts_with('~') {
        return Some(format!(
            "{text} matches only what is in a folder with the name ~: in rules, ~ does not stand for \
             a home; write the home's path, or /home/* for all homes"
        ));
    }
    if !text.starts_with('/') {
        return None;
    }
    let fixed = fixed_part(text);
    let is_folder = text.ends_with('/') || is_glob(text);
    let folder = if is_folder {
        Some(&*fixed)
    } else {
        fixed.parent()
    };
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        return Some(format!("there is no folder {} now", shown(folder)));
    }
    if !is_folder && fixed.is_dir() {
        return Some(format!(
            "{text} is a folder, and the rule is about files; write {text}/** for all that is in it"
        ));
    }
    let real = std::fs::canonicalize(&fixed).ok()?;
    if real == fixed {
        return None;
    }
    let real = shown(&real);
    Some(format!(
        "{} leads through a symbolic link to {real}, and rules match the real paths of files only; \
         write {real} instead",
        shown(&fixed)
    ))
}

/// The folders up to the first part that is a glob.
fn fixed_part(text: &str) -> PathBuf {
    let parts = Path::new(text).components();
    parts
        .take_while(|part| part.as_os_str().to_str().is_some_and(|part| !is_glob(part)))
        .collect()
}

fn of_disk(name: &str) -> Option<String> {
    // Disks without a device are named after their file system's number.
    if name.contains(':') || Path::new("/sys/block").join(name).exists() {
        return None;
    }
    let device = Path::new("/sys/class/block").join(name);
    if device.join("partition").exists() {
        let directory = std::fs::canonicalize(&device).ok()?;
        let whole = directory
            .parent()?
            .file_name()?
            .to_string_lossy()
            .into_owned();
        return Some(format!(
            "disk {name} is a partition; settings are the whole disk's, which is {whole}"
        ));
    }
    Some(format!(
        "there is no disk {name} now (`lsblk --nodeps` lists them)"
    ))
}
