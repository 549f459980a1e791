//! Which files of a run are observed: all, or as `--only` and `--except`
//! say.

use super::messages::Wishes;
use crate::path_pattern::PathPatterns;
use dropbehind_observer::rules::{Candidate, Rules, Settings};

/// The rules of one run.
#[derive(Debug)]
pub(crate) struct RunRules {
    settings: Settings,
    only: PathPatterns,
    except: PathPatterns,
}

impl RunRules {
    /// The rules that carry out these wishes; a sentence if one of them cannot be read.
    pub(crate) fn new(wishes: &Wishes) -> Result<Self, String> {
        Ok(Self {
            settings: Settings {
                mode: wishes.mode.parse().map_err(|error| format!("{error}"))?,
                window_bytes: wishes.window_bytes,
                request_bytes: wishes.request_bytes,
                max_dirty_bytes: wishes.max_dirty_bytes,
                reads: wishes.reads,
            },
            only: PathPatterns::new(&wishes.only)?,
            except: PathPatterns::new(&wishes.except)?,
        })
    }
}

impl Rules for RunRules {
    fn settings_for(&self, candidate: Candidate<'_>) -> Option<Settings> {
        let wanted = (self.only.is_empty() || self.only.matches(candidate.path))
            && !self.except.matches(candidate.path);
        wanted.then_some(self.settings)
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

    #[test]
    fn exceptions_count_for_more() {
        let wishes = Wishes {
            mode: "dontcache".to_owned(),
            window_bytes: None,
            request_bytes: Some(1 << 20),
            max_dirty_bytes: None,
            io_priority: "inherit".to_owned(),
            reads: false,
            only: vec!["*.iso".to_owned(), "/srv/".to_owned()],
            except: vec!["keep.iso".to_owned()],
            settle: Duration::ZERO,
            trace: None,
        };
        let rules = RunRules::new(&wishes).unwrap();
        let found = |path: &str| {
            rules.settings_for(Candidate {
                path: Path::new(path),
                name: None,
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
}
