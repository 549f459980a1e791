//! What `run` says that it did.

use crate::bed::Bed;
use crate::shell::{Left, RUN};

/// The figures of `--stats`.
#[derive(Debug)]
pub(crate) struct Figures(serde_json::Value);

impl Figures {
    /// Runs a script in a folder to its end, observed with these options.
    #[track_caller]
    pub(crate) fn told(bed: &Bed, options: &str, folder: &str, script: &str) -> (Left, Self) {
        Self::by(bed, &format!("{RUN} {options}"), folder, script)
    }

    /// The same with another command for `run`.
    #[track_caller]
    pub(crate) fn by(bed: &Bed, run: &str, folder: &str, script: &str) -> (Left, Self) {
        let path = bed.file("figures");
        let run = format!("{run} --stats {}", path.display());
        let left = bed.runs(&run, folder, script);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let figures = serde_json::from_str(&text);
        let figures = Self(figures.unwrap_or_else(|error| panic!("{error}: {text:?}, {left:?}")));
        assert_eq!(figures.0["observer_died"], false, "{left:?}");
        assert_eq!(figures.0["settled"], true, "{figures:?}");
        (left, figures)
    }

    /// Like [`Self::told`], for a script that succeeds, and of which nothing was left.
    #[track_caller]
    pub(crate) fn of(bed: &Bed, options: &str, folder: &str, script: &str) -> Self {
        let (left, figures) = Self::told(bed, options, folder, script);
        assert_eq!(left.code, Some(0), "{script}: {left:?}");
        figures.add_up();
        assert_eq!(figures.bytes("left_bytes"), 0, "{script}: {figures:?}");
        figures
    }

    pub(crate) fn bytes(&self, name: &str) -> u64 {
        let figure = self.0[name].as_u64();
        figure.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// That all that was brought in is accounted for.
    #[track_caller]
    pub(crate) fn add_up(&self) {
        let fates = ["dropped_bytes", "left_bytes", "reused_bytes"];
        let bytes: u64 = fates.iter().map(|fate| self.bytes(fate)).sum();
        assert_eq!(self.bytes("brought_bytes"), bytes, "{self:?}");
    }
}
