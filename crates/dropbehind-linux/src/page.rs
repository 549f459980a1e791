//! The page size.

use crate::fact::Fact;

/// The size of a page of memory, and so the granularity of the page cache, in bytes.
///
/// From the auxiliary vector, see getauxval(3) `AT_PAGESZ`. It is asked for once: a call costs a
/// load.
#[must_use]
pub fn page_size() -> u64 {
    static SIZE: Fact = Fact::new();
    SIZE.get(|| rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_what_libc_says() {
        // SAFETY: sysconf takes an integer and touches no memory of ours.
        let expected = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        assert_eq!(super::page_size(), u64::try_from(expected).unwrap());
    }
}
