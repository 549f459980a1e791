//! The kernel's version: uname(2).

use std::fmt;

/// The kernel's version, as precise as features need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// The 6 of 6.18.
    pub major: u32,
    /// The 18 of 6.18.
    pub minor: u32,
}

impl KernelVersion {
    /// The version in a release string such as `6.18.44-rc1+`; 0.0, older than any kernel, if
    /// there is none.
    #[must_use]
    pub fn parse(release: &str) -> Self {
        let mut numbers = release.split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit());
            part[..digits.unwrap_or(part.len())].parse().unwrap_or(0)
        });
        Self {
            major: numbers.next().unwrap_or(0),
            minor: numbers.next().unwrap_or(0),
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The version of the running kernel.
///
/// Only for display and for choosing what to try first. Whether a call works is found by
/// making it, since distributions backport features.
#[must_use]
pub fn kernel_version() -> KernelVersion {
    KernelVersion::parse(&rustix::system::uname().release().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_distributions_make_of_it() {
        let version = |major, minor| KernelVersion { major, minor };
        assert_eq!(KernelVersion::parse("6.18.44-fc-v769"), version(6, 18));
        assert_eq!(KernelVersion::parse("5.10-rc1+"), version(5, 10));
        assert_eq!(KernelVersion::parse("7.0"), version(7, 0));
        assert_eq!(KernelVersion::parse("7"), version(7, 0));
        assert_eq!(KernelVersion::parse("strange"), version(0, 0));
        assert_eq!(KernelVersion::parse(""), version(0, 0));
        assert!(version(6, 9) < version(6, 18));
        assert!(version(5, 19) < version(6, 0));
        assert_eq!(version(6, 18).to_string(), "6.18");
        assert!(kernel_version() > version(2, 6));
    }
}
