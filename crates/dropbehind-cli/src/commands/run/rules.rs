//! Which files of a run are observed: all, or as `--only` and `--except`
//! say.

use super::messages::Wishes;
use crate::path_pattern::PathPatterns;
use dropbehind::Mode;
use dropbehind::config::Disks;
use dropbehind::mode::Residency;
use dropbehind_observer::rules::{Candidate, MAX_DIRTY_RANGE_BYTES, Rules, Settings};

/// How much of a file may be unwritten in modes without a window behind the writer, unless that
/// or a large window was set.
const MAX_DIRTY_BYTES: u64 = 96 << 20;

/// How much of a file may be unwritten if that was not set. Nobody is to wait for what the
/// window allows.
fn max_dirty(window_bytes: Option<u64>) -> u64 {
    let windows = window_bytes.map_or(0, |bytes| bytes.saturating_mul(2));
    windows.clamp(MAX_DIRTY_BYTES, *MAX_DIRTY_RANGE_BYTES.end())
}

/// The rules of one run.
#[derive(Debug)]
pub(crate) struct RunRules {
    /// What was set for all disks.
    mode: Option<Mode>,
    window_bytes: Option<u64>,
    request_bytes: Option<u64>,
    max_dirty_bytes: Option<u64>,
    reads: bool,
    disks: Disks,
    only: PathPatterns,
    except: PathPatterns,
}

impl RunRules {
    /// The rules that carry out these wishes; a sentence if one of them cannot be read.
    pub(crate) fn new(wishes: &Wishes) -> Result<Self, String> {
        let mode = wishes.mode.as_ref().map(|mode| mode.parse());
        Ok(Self {
            mode: mode.transpose().map_err(|error| format!("{error}"))?,
            window_bytes: wishes.window_bytes,
            request_bytes: wishes.request_bytes,
            max_dirty_bytes: wishes.max_dirty_bytes,
            reads: wishes.reads,
            disks: wishes.disks.clone(),
            only: PathPatterns::new(&wishes.only)?,
            except: PathPatterns::new(&wishes.except)?,
        })
    }

    /// What is in force on a disk; `None` if its files are left alone.
    fn settings(&self, disk: &str) -> Option<Settings> {
        let disk = self.disks.get(disk).cloned().unwrap_or_default();
        let window_bytes = self.window_bytes.or(disk.window_bytes);
        let mode = self.mode.or(disk.mode).unwrap_or(Mode::AUTO);
        let max_dirty_bytes = self.max_dirty_bytes.or(disk.max_dirty_bytes);
        let unset = (!mode.is_behind()).then(|| max_dirty(window_bytes));
        disk.enabled.then(|| Settings {
            mode,
            window_bytes,
            request_bytes: self.request_bytes.or(disk.request_bytes),
            max_dirty_bytes: max_dirty_bytes.or(unset),
            reads: self.reads,
            rule: 0,
        })
    }
}

impl Rules for RunRules {
    fn settings_for(&self, candidate: Candidate<'_>) -> Option<Settings> {
        let wanted = (self.only.is_empty() || self.only.matches(candidate.path))
            && !self.except.matches(candidate.path);
        wanted.then(|| self.settings(candidate.disk)).flatten()
    }

    fn have_mode(&self, of: fn(Mode) -> bool) -> bool {
        let disks = self.disks.iter().filter_map(|(_, disk)| disk.mode);
        let mut modes = disks.chain([self.mode.unwrap_or(Mode::AUTO)]);
        modes.any(of)
    }

    fn unless_uses_are_known(&self, disk: &str) -> Residency {
        // Who asks for `auto` fears drops more than what stays.
        let of_disk = match disk {
            // Of no disk in particular: what is to be said of all.
            "" => {
                let mut modes = self.disks.iter().filter_map(|(_, disk)| disk.mode);
                modes.find(|mode| mode.keeps_reused())
            }
            _ => self.disks.get(disk).and_then(|disk| disk.mode),
        };
        match self.mode.or(of_disk) {
            Some(_) => Residency::Keep,
            None => Residency::Drop,
        }
    }

    fn ask_for_paths(&self) -> bool {
        !(self.only.is_empty() && self.except.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;

    fn wishes() -> Wishes {
        Wishes {
            mode: None,
            disks: Disks::default(),
            window_bytes: None,
            request_bytes: Some(1 << 20),
            max_dirty_bytes: None,
            io_priority: "inherit".to_owned(),
            reads: true,
            only: Vec::new(),
            except: Vec::new(),
            opens_reported: false,
            settle: Duration::ZERO,
            trace: None,
        }
    }

    #[test]
    fn exceptions_count_for_more() {
        let wishes = Wishes {
            only: vec!["*.iso".to_owned(), "/srv/".to_owned()],
            except: vec!["keep.iso".to_owned()],
            ..wishes()
        };
        let rules = RunRules::new(&wishes).unwrap();
        let found = |path: &str| {
            rules.settings_for(Candidate {
                path: Path::new(path),
                name: None,
                size_bytes: None,
                process: 0,
                disk: "",
            })
        };
        assert!(found("/a/b.iso").is_some_and(|found| found.request_bytes == Some(1 << 20)));
        assert!(found("/srv/x/y").is_some());
        assert!(found("/srv/keep.iso").is_none());
        assert!(found("/a/b").is_none());
        let broken = Wishes {
            only: vec!["a[".to_owned()],
            ..wishes
        };
        assert!(RunRules::new(&broken).is_err());
    }

    #[test]
    fn options_go_before_a_disk_and_a_disk_before_defaults() {
        let text = "[disk.a]\nmode = \"noreuse\"\nwindow = \"1GiB\"\n[disk.b]\nenabled = false";
        let mut wishes = Wishes {
            disks: Disks::parse(text).unwrap(),
            ..wishes()
        };
        let of = |wishes: &Wishes, disk| RunRules::new(wishes).unwrap().settings(disk);
        let a = of(&wishes, "a").unwrap();
        assert_eq!((a.mode, a.window_bytes), (Mode::NOREUSE, Some(1 << 30)));
        assert_eq!(a.request_bytes, Some(1 << 20));
        assert_eq!(a.max_dirty_bytes, Some(2 << 30), "two windows");
        assert_eq!(of(&wishes, "b"), None);
        let c = of(&wishes, "c").unwrap();
        assert_eq!((c.mode, c.window_bytes), (Mode::AUTO, None));
        wishes.mode = Some("write-through".to_owned());
        wishes.window_bytes = Some(1 << 20);
        let a = of(&wishes, "a").unwrap();
        assert_eq!(
            (a.mode, a.window_bytes),
            (Mode::WRITE_THROUGH, Some(1 << 20))
        );
    }

    #[test]
    fn a_large_window_may_be_dirty() {
        for (window, most) in [
            (None, 96 << 20),
            (Some(1 << 20), 96 << 20),
            (Some(1 << 30), 2 << 30),
            (Some(u64::MAX), 1 << 50),
        ] {
            assert_eq!(max_dirty(window), most);
        }
    }
}
