//! The system calls behind dropbehind.
//!
//! Everything dropbehind asks of the kernel beyond opening a file goes through this crate,
//! one file per call family. A function here is one call to the kernel, with Rust types as
//! arguments, bytes as the unit, and its errno values documented. Nothing is retried: the
//! caller sees what the program would have seen (`EINTR`, short counts).
//!
//! Nothing here makes decisions. What a caller needs to know for one is in [`probe()`] (what
//! works on this file system, found by trying) and in [`learned`] (what was found out earlier
//! in this process).
//!
//! # Ranges
//!
//! Offsets and lengths are bytes. Where a length of 0 is documented to mean "to the end of
//! the file", that is the kernel's own convention. A range that reaches past the largest file
//! offset (2^63 - 1) counts as reaching the end of the file; an offset past it is `EINVAL`.

#![cfg(target_os = "linux")]

pub mod advice;
pub mod at_exit;
pub mod block;
mod bpf;
pub mod cache_trace;
pub mod cachestat;
pub mod claims;
pub mod close;
mod deferred_close;
mod description;
pub mod descriptor_table;
pub mod detach;
pub mod direct_read;
pub mod disk;
mod environment;
mod errno;
pub mod extents;
mod fact;
pub mod fanotify;
pub mod file;
mod file_advice;
pub mod fork;
pub mod futex;
pub mod io_priority;
pub mod kernel;
pub mod large_read;
pub mod learned;
pub mod loop_device;
mod mapping;
mod memory;
mod memory_cgroup;
pub mod mincore;
pub mod mount_namespace;
mod mounts;
mod nowhere;
pub mod open_files;
mod page;
pub mod page_counts;
pub mod passing;
pub mod peer;
pub mod pidfd;
pub mod poll;
pub mod presence;
pub mod probe;
pub mod processes;
mod processor_time;
pub mod program;
mod record_lock;
pub mod reopen;
mod ring;
pub mod seccomp;
pub mod signals;
pub mod start_state;
pub mod thread;
pub mod time_slice;
mod usdt;
pub mod vectored;
pub mod writeback;
mod writeback_failures;
mod writeback_question;

pub use advice::{Access, advise_access, drop_clean, will_need};
pub use at_exit::at_exit;
pub use block::{block_size_bytes, is_read_only, logical_sector_bytes};
pub use cache_trace::{
    ArrivalMark, CacheTrace, CacheTraceError, CacheUses, KernelDevices, KernelInode, PageUses,
    ProgramName, TraceRecord, TraceView, block_device_number, has_subvolumes, kernel_device,
    monotonic_ns,
};
pub use cachestat::{CacheStat, cachestat};
pub use claims::{Claimed, Claims};
pub use close::close;
pub use description::{Description, FileSystem, MountPoint, Visit};
pub use descriptor_table::{
    give_up_inherited_descriptors, keep_descriptors, unshare_descriptor_table,
};
pub use detach::detach;
pub use direct_read::{DirectReader, write_and_wait_unseen};
pub use disk::{DiskCounters, DiskId, DiskInfo, DiskStatistics, InFlight, disk_of};
pub use extents::extent_count;
pub use fanotify::{Event, EventBuffer, EventMask, Events, Fanotify, MarkLife, MarkTarget};
pub use file::{
    AccessMode, FileId, FileInfo, FileKind, FileStat, FsKind, StatusFlags, file_info, file_stat,
    filesystem, filesystem_tag, position, size_bytes, status_flags,
};
pub use file_advice::{FileAdvice, FileAdviceTrace, Usage};
pub use fork::{fork_count, fork_generation};
pub use futex::{Wake, futex_wait, futex_wake};
pub use io_priority::{IoPriority, set_thread_io_priority, thread_io_priority};
pub use kernel::{KernelVersion, kernel_version};
pub use large_read::{LargeRead, huge_page_size};
pub use learned::{Operation, dontcache, remember_dontcache};
pub use loop_device::{LoopDevice, attach_loop_device, backing_paths};
pub use memory::{return_large_blocks, return_memory};
pub use memory_cgroup::MemoryCgroup;
pub use mincore::{may_write, resident_ranges};
pub use mount_namespace::{
    HeldMountNamespace, MountNamespaceId, MountWatch, mount_namespace_of, mount_with_id, mounts_of,
    unshare_mount_namespace,
};
pub use mounts::{Mount, mount_number};
pub use open_files::{FileLink, FileLinks, NamedFile, file_link, file_links, mapped_files};
pub use page::page_size;
pub use page_counts::{cached_pages, cachestat_sees, count_own_pages, count_pages, has_cachestat};
pub use passing::{message_sockets, receive_message, send_message};
pub use peer::peer_user;
pub use pidfd::Pidfd;
pub use poll::{Interest, PollEntry, poll};
pub use presence::Presence;
pub use probe::{Probe, Support, probe};
pub use processes::{
    CallUnderWay, Cgroup, ProcessStat, cgroups, children, command_name, descriptor_limit,
    executable, process_stat, process_user, processes, processes_started,
};
pub use processor_time::{processor_time, processor_time_of};
pub use program::{Apart, Change, CommandLine, Program};
pub use reopen::{OwnLinks, Sharing, open_named, reopen};
pub use ring::Ring;
pub use signals::{Received, SignalFd, die_by, stop_by};
pub use start_state::StartState;
pub use thread::{SignalsBlocked, thread_id};
pub use time_slice::{TIME_SLICE_MIN, set_thread_time_slice};
pub use usdt::{probe_drop, probe_writeback};
pub use vectored::{IoFlags, RWF_DONTCACHE, pread, preadv2, pwrite, pwritev2, read, write};
pub use writeback::{start_writeback, write_and_wait};
pub use writeback_failures::{WritebackFailure, WritebackFailures};
pub use writeback_question::{Askable, prepare_to_ask, writeback_error};
