//! How fragmented files are on their disk.

use std::io;
use std::path::Path;

use crate::command::{output_of, tool};

/// The number of extents of a file, as `filefrag` counts them. The file's
/// dirty data is written first: it has no place on the disk before that.
///
/// That is the number of jumps on the disk, plus one: holes in the file do not
/// count if the disk has the same gaps.
pub fn extents(path: &Path) -> io::Result<u64> {
    let said = output_of(tool("filefrag").arg("-s").arg(path))?;
    parse(&said).ok_or_else(|| io::Error::other(format!("filefrag said {said:?}")))
}

/// Reads "NAME: 3 extents found"; the name may hold anything.
fn parse(said: &str) -> Option<u64> {
    let (_, count) = said.trim_end().rsplit_once(": ")?;
    let (number, rest) = count.split_once(' ')?;
    rest.starts_with("extent").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn counts_are_read() {
        assert_eq!(parse("/a/b: 3 extents found\n"), Some(3));
        assert_eq!(parse("/a: b: 1 extent found\n"), Some(1));
        assert_eq!(parse("/a: FIBMAP unsupported\n"), None);
    }
}
