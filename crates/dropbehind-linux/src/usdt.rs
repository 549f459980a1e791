//! Probes for tracers: `bpftrace -l 'usdt:/usr/bin/dropbehind:*'` lists them.
//!
//! Each is a `nop` and a note in the program's file (`readelf -n`, SystemTap's SDT format). A
//! tracer puts a breakpoint there; without one, it costs the `nop`.

use probe::probe;

use crate::file::FileId;

/// Writeback of a range was started. Arguments: `st_dev` and `st_ino` of the file, offset and
/// length of the range in bytes, how many of these bytes are to be written, and the number of
/// the reason.
#[inline(never)]
pub fn probe_writeback(file: FileId, offset: u64, length: u64, bytes: u64, reason: u64) {
    probe!(
        dropbehind,
        writeback,
        file.device,
        file.inode,
        offset,
        length,
        bytes,
        reason
    );
}

/// A range was dropped. Arguments: `st_dev` and `st_ino` of the file, offset and length of the
/// range in bytes, how many of these bytes left the cache, and the number of the reason.
#[inline(never)]
pub fn probe_drop(file: FileId, offset: u64, length: u64, bytes: u64, reason: u64) {
    probe!(
        dropbehind,
        drop,
        file.device,
        file.inode,
        offset,
        length,
        bytes,
        reason
    );
}
