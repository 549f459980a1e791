//! The speed of each file over the last samples, as a row of bars.

use super::speeds::Speeds;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// So many samples are shown.
pub(super) const SAMPLES: usize = 8;
/// From slow to fast; nothing moved where there is none.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last speeds of each file in the newest sample, in bytes a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Histories(HashMap<(String, PathBuf), [u64; SAMPLES]>);

impl Histories {
    /// Adds the speeds of one more sample.
    pub(super) fn add(&mut self, speeds: &Speeds) {
        let files = speeds.files().map(|(file, speed)| {
            let mut last = self.0.remove(file).unwrap_or_default();
            last.rotate_left(1);
            last[SAMPLES - 1] = speed;
            (file.clone(), last)
        });
        self.0 = files.collect();
    }

    /// Bars for the speeds of a file, the newest to the right. The fastest of them has the highest
    /// bar.
    pub(super) fn bars(&self, disk: &str, path: &Path) -> String {
        // The map cannot be searched by borrowed parts of a key.
        let speeds = self.0.get(&(disk.to_owned(), path.to_owned()));
        speeds.copied().map_or(String::new(), bars)
    }
}

fn bars(speeds: [u64; SAMPLES]) -> String {
    let most = u128::from(speeds.into_iter().max().unwrap_or(0).max(1));
    let bar = |speed: u64| match (u128::from(speed) * BARS.len() as u128).div_ceil(most) {
        0 => ' ',
        // At most the number of bars.
        height => BARS[height as usize - 1],
    };
    speeds.into_iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_has_the_highest_bar_and_none_is_blank() {
        assert_eq!(bars([0; SAMPLES]), "        ");
        assert_eq!(bars([0, 1, 2, 3, 4, 5, 6, 8]), " ▁▂▃▄▅▆█");
        assert_eq!(bars([0, 0, 0, 0, 0, 1, 0, u64::MAX]), "     ▁ █");
    }
}
