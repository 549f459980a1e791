//! The processors: Documentation/ABI/testing/sysfs-devices-system-cpu.

use std::io;

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The numbers of the online processors.
pub(crate) fn online() -> io::Result<Vec<i32>> {
    parse(&std::fs::read_to_string(ONLINE)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Parses a list such as `0-3,8`.
fn parse(list: &str) -> Option<Vec<i32>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<i32>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_gaps() {
        assert_eq!(parse("0\n").unwrap(), [0]);
        assert_eq!(parse("0-2,5,7-8\n").unwrap(), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse(""), None);
        assert_eq!(parse("0-x"), None);
    }
}
