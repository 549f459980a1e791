//! Test beds and witnesses for dropbehind, all against the real kernel.
//!
//! Beds are places to do I/O in: [`Scratch`] directories, [`LoopDisk`]s,
//! freshly made file systems ([`MountedFs`]), disks that run full under the
//! page cache ([`FailingDisk`]), disks that are slow, fail on command and
//! record every request ([`SlowDisk`]), servers that stop answering ([`HangingFs`]), memory limits ([`MemoryCgroup`]) and
//! kernels that lack a system call or fail the Nth one ([`FailNth`]).
//!
//! Witnesses say what happened: [`residency`] (cached, dirty and writeback
//! pages), [`bringers`] (of pages), [`extents`], [`disk_io`], and [`pattern`] for the
//! bytes themselves.
//! [`fuzz()`] makes inputs for parsers.
//! Nothing here uses dropbehind's own crates, so that a mistake in those
//! cannot hide itself.
//!
//! Most beds need root. A test names what it needs first and is skipped,
//! loudly, where that is missing:
//!
//! ```no_run
//! use dropbehind_testbed::{Fs, MountedFs, need, residency};
//!
//! need!(all MountedFs::needs(Fs::Xfs));
//! let disk = MountedFs::new(Fs::Xfs, 512 << 20).unwrap();
//! let file = disk.path().join("data");
//! std::fs::write(&file, vec![1; 1 << 20]).unwrap();
//! residency::evict(&file);
//! assert_eq!(residency::cached(&file).unwrap().cached_pages, 0);
//! ```

pub mod bringers;
pub mod disk_io;
pub mod extents;
pub mod fail_nth;
pub mod pattern;
pub mod reclaim;
pub mod residency;
pub mod skip;
pub mod slow_disk;
pub mod trace;

mod command;
mod context;
mod failing_disk;
mod filesystem;
mod fuzz;
mod hanging_fs;
mod helper_process;
mod left_behind;
mod loop_disk;
mod memory_cgroup;
mod mount;
mod mount_point;
mod mounted_device;
mod running;
mod scratch;

pub use dropbehind_slowdisk::now_ns;
pub use fail_nth::{CallFilter, FailNth, Outcome};
pub use failing_disk::FailingDisk;
pub use filesystem::Fs;
pub use fuzz::fuzz;
pub use hanging_fs::{Hanging, HangingFs};
pub use loop_disk::LoopDisk;
pub use memory_cgroup::MemoryCgroup;
pub use mount::MountedFs;
pub use running::Running;
pub use scratch::Scratch;
pub use skip::Need;
pub use slow_disk::{SlowDisk, SlowDiskOptions};
