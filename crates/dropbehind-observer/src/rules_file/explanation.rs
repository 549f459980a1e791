//! What each rule means, for `watch --check`.

use std::fmt::{self, Write};
use std::iter;

use dropbehind_config::DiskSettings;
use dropbehind_policy::{Mode, Writeback};

use super::rule::Rule;
use super::{RulesFile, Settings};
use crate::{shown, size};

/// The rules in words, in the order in which they are tried.
impl fmt::Display for RulesFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, rule) in self.rules.iter().enumerate() {
            writeln!(f, "{}: {}", rule.title(number + 1), mode_name(rule.mode))?;
            conditions(f, rule)?;
            consequence(f, self.settings(Some((number, rule)), ""))?;
        }
        let others = if self.rules.is_empty() {
            "all files"
        } else {
            "all other files"
        };
        let has_mode = |(_, disk): (&str, &DiskSettings)| disk.enabled && disk.mode.is_some();
        let elsewhere = if self.disks.iter().any(has_mode) {
            " on other disks"
        } else {
            ""
        };
        writeln!(f, "{others}{elsewhere}: {}", mode_name(self.other_mode()))?;
        consequence(f, self.settings(None, ""))?;
        for (name, disk) in self.disks.iter() {
            let mut says = sizes(disk.window_bytes, disk.request_bytes, disk.max_dirty_bytes);
            if let Some(mode) = disk.mode {
                let comma = if says.is_empty() { "" } else { "; " };
                says = format!(
                    "{}, unless a rule says otherwise{comma}{says}",
                    mode_name(mode)
                );
            }
            if !disk.enabled {
                says = "off: all its files are left alone".to_owned();
            } else if says.is_empty() {
                says = "nothing of its own".to_owned();
            }
            writeln!(f, "disk {}: {says}", shown(name))?;
        }
        if self.disks.iter().any(|(_, disk)| disk.enabled) {
            writeln!(
                f,
                "A rule's sizes override a disk's, and a disk's those at the top."
            )?;
        }
        Ok(())
    }
}

pub(super) fn mode_name(mode: Mode) -> String {
    if mode.is_buffered() {
        "left alone".to_owned()
    } else {
        mode.to_string()
    }
}

fn conditions(f: &mut fmt::Formatter<'_>, rule: &Rule) -> fmt::Result {
    let words = |first, next| iter::once(first).chain(iter::repeat(next));
    let conditions = words("if", "and").zip(&rule.conditions);
    let exceptions = words("but not if", "nor if").zip(&rule.exceptions);
    for (word, condition) in conditions.chain(exceptions) {
        let (key, texts) = (condition.key(), shown(condition.alternatives()));
        writeln!(f, "   {word} the {key} is {texts}")?;
    }
    Ok(())
}

/// What becomes of files with these settings.
pub(super) fn consequence(f: &mut impl Write, settings: Option<Settings>) -> fmt::Result {
    let Some(settings) = settings else {
        return Ok(());
    };
    let mode = settings.mode;
    let writeback = match mode.writeback {
        Writeback::Lazy => "written back when the kernel decides",
        Writeback::BehindAppending => "written back a window behind appending writers",
        Writeback::Behind => "written back a window behind sequential writers",
        Writeback::Eager => "written back as soon as a batch is there",
    };
    let residency = match (mode.drops(), settings.reads) {
        (false, _) => "pages stay",
        (true, true) => "what reads and writes brought in is dropped once clean",
        (true, false) => "what writes brought in is dropped once clean, what reads did stays",
    };
    let unless = match mode.keeps_reused() {
        true => ", unless it is used again",
        false => "",
    };
    writeln!(f, "   {writeback}; {residency}{unless}")?;
    // Where the kernel writes back, it limits what is dirty, too.
    let limits = mode.writeback != Writeback::Lazy;
    let sizes = sizes(
        settings.window_bytes,
        settings.request_bytes,
        settings.max_dirty_bytes.filter(|_| limits),
    );
    if !sizes.is_empty() {
        writeln!(f, "   {sizes}")?;
    }
    Ok(())
}

/// Lists what is set, such as "window 32 MiB, request 1.0 MiB".
fn sizes(window: Option<u64>, request: Option<u64>, max_dirty: Option<u64>) -> String {
    let sizes = [
        ("window", window),
        ("request", request),
        ("at most dirty", max_dirty),
    ];
    let set = sizes.into_iter().filter_map(|(name, bytes)| {
        let bytes = size::show(bytes?);
        Some(format!("{name} {bytes}"))
    });
    set.collect::<Vec<_>>().join(", ")
}
