//! The mincore system call: which pages are resident, one by one.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

use super::page_bytes;
use crate::context::Context;

/// For each page of a file or block device whether it is in the page cache.
///
/// Only who may write the file gets true answers; for all others the kernel
/// claims that everything is resident.
pub fn resident_map(path: &Path) -> io::Result<Vec<bool>> {
    resident_map_of(path, 0..u64::MAX)
}

/// Like [`resident_map`], for the pages that a range of bytes touches, as far
/// as the file goes.
pub fn resident_map_of(path: &Path, range: Range<u64>) -> io::Result<Vec<bool>> {
    let mut file = File::open(path).context(|| path.display().to_string())?;
    // The end is a block device's size too, which metadata does not know.
    let size = file.seek(SeekFrom::End(0))?;
    let start = range.start / page_bytes() * page_bytes();
    let end = range.end.min(size);
    if start >= end {
        return Ok(Vec::new());
    }
    let length = usize::try_from(end - start).map_err(io::Error::other)?;
    let mut pages = vec![0_u8; length.div_ceil(page_bytes() as usize)];
    // SAFETY: a new mapping at an address of the kernel's choice; mapping
    // alone brings no page in.
    let address = unsafe {
        rustix::mm::mmap(
            ptr::null_mut(),
            length,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            start,
        )
    }?;
    // SAFETY: the range is the mapping made above, and `pages` has one byte
    // for each of its pages.
    let result = unsafe { libc::mincore(address, length, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: nothing refers to the mapping any more.
    unsafe { rustix::mm::munmap(address, length) }?;
    if result != 0 {
        return Err(error).context(|| format!("mincore of {}", path.display()));
    }
    Ok(pages.iter().map(|page| page & 1 == 1).collect())
}
