//! System calls by name.

use libc::c_long;

/// Names and numbers of calls, from the constants that `libc` has for them.
macro_rules! table {
    ($($constant:ident),* $(,)?) => {
        &[$((stringify!($constant), libc::$constant)),*]
    };
}

const EVERYWHERE: &[(&str, c_long)] = table![
    SYS_read,
    SYS_write,
    SYS_pread64,
    SYS_pwrite64,
    SYS_readv,
    SYS_writev,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_openat,
    SYS_openat2,
    SYS_close,
    SYS_close_range,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_fcntl,
    SYS_ioctl,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync,
    SYS_syncfs,
    SYS_fadvise64,
    SYS_readahead,
    SYS_mincore,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mlock,
    SYS_munlock,
    SYS_msync,
    SYS_mprotect,
    SYS_ftruncate,
    SYS_truncate,
    SYS_fallocate,
    SYS_copy_file_range,
    SYS_sendfile,
    SYS_splice,
    SYS_tee,
    SYS_vmsplice,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mkdirat,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_fgetxattr,
    SYS_fsetxattr,
    SYS_fstatfs,
    SYS_statfs,
    SYS_clone,
    SYS_clone3,
    SYS_execve,
    SYS_execveat,
    SYS_wait4,
    SYS_waitid,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_kill,
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsmount,
    SYS_mount_setattr,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_signalfd4,
    SYS_ppoll,
    SYS_futex,
    SYS_memfd_create,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_socket,
    SYS_socketpair,
    SYS_bind,
    SYS_connect,
    SYS_listen,
    SYS_accept4,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendto,
    SYS_recvfrom,
    SYS_prctl,
    SYS_seccomp,
    SYS_sched_setaffinity,
    SYS_sched_setscheduler,
    SYS_sched_setattr,
    SYS_ioprio_set,
    SYS_setpriority,
    SYS_prlimit64,
    SYS_getrandom,
    SYS_process_vm_readv,
];

/// Calls that only the older architectures still have.
#[cfg(target_arch = "x86_64")]
const OLD: &[(&str, c_long)] = table![
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_creat,
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_fork,
    SYS_vfork,
    SYS_unlink,
    SYS_rename,
    SYS_renameat,
    SYS_rmdir,
    SYS_mkdir,
    SYS_readlink,
    SYS_link,
    SYS_symlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(&str, c_long)] = &[];

/// Calls that `libc` has no constant for on every architecture.
const EXTRA: &[(&str, c_long)] = &[
    ("SYS_cachestat", 451),
    (
        "SYS_sync_file_range",
        if cfg!(target_arch = "x86_64") {
            277
        } else {
            84
        },
    ),
];

/// The number of a call on this machine, or `None` if the table has no call
/// of that name.
pub(super) fn number_of(name: &str) -> Option<c_long> {
    [EVERYWHERE, OLD, EXTRA]
        .into_iter()
        .flatten()
        .find(|(constant, _)| constant.strip_prefix("SYS_") == Some(name))
        .map(|&(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn names_are_found() {
        assert_eq!(number_of("fsync"), Some(libc::SYS_fsync));
        assert_eq!(number_of("cachestat"), Some(451));
        assert_eq!(number_of("fsyn"), None);
    }
}
