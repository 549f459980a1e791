//! Files too small or too young to be worth writing.
//!
//! We should not cause a write of a temporary file that is deleted at once (Kára, in the
//! review of write-behind). And thousands of small files should not be written one by one. So
//! a small file that was closed waits, up to [`GRACE_NS`], for enough others.

/// A closed file with fewer unwritten bytes than this is small.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;
/// How long a small closed file waits. Compilers and editors delete or replace their temporary
/// files within two seconds, but `git gc` deletes the loose objects of a clone after up to four. The
/// kernel's flusher looks for old dirty data every five seconds (`dirty_writeback_centisecs`).
pub const GRACE_NS: u64 = 5_000_000_000;
/// The budget of a disk's small files together: beyond it, the oldest are written.
pub const SMALL_FILES_BYTES: u64 = 32 << 20;
/// The most small files, since each holds a descriptor. Where a process may have few of those, it
/// is less.
pub const SMALL_FILES_COUNT: usize = 256;
/// How long an open file's dirty pages wait if they don't fill a batch, and its clean ones if
/// they are too few for a drop.
pub const AGE_NS: u64 = 1_000_000_000;
