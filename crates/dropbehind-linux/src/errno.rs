//! The calling conventions shared by the raw calls: results and ranges.

use std::io;

/// `EINVAL` as an [`io::Error`].
pub(crate) fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// The result of a raw call that returns 0, or -1 with `errno` set.
pub(crate) fn check(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Offset and length as the kernel's signed file offsets. A length of 0 means "to the end of
/// the file". An overlong range becomes that, too, because the kernel returns `EINVAL` if a
/// range's end overflows.
pub(crate) fn signed_range(offset: u64, len: u64) -> io::Result<(i64, i64)> {
    let start = i64::try_from(offset).map_err(|_| invalid())?;
    let length = match i64::try_from(len) {
        Ok(length) if start.checked_add(length).is_some() => length,
        _ => 0,
    };
    Ok((start, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_past_the_largest_offset_reach_the_end() {
        assert_eq!(signed_range(1, 2).unwrap(), (1, 2));
        assert_eq!(signed_range(7, u64::MAX).unwrap(), (7, 0));
        assert_eq!(
            signed_range(7, i64::MAX as u64 - 7).unwrap(),
            (7, i64::MAX - 7)
        );
        assert_eq!(signed_range(7, i64::MAX as u64 - 6).unwrap(), (7, 0));
        let error = signed_range(1 << 63, 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
