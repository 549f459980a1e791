//! The filter: which calls of which architecture are stopped.

use super::{Notification, Request};
use std::io;

/// Where the fields of `struct seccomp_data` are.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// Which arguments a call has where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A path, flags.
    Open,
    /// A path.
    Creat,
    /// A directory, a path, flags.
    OpenAt,
    /// A directory, a path, how.
    OpenAt2,
    /// A path.
    Exec,
    /// A directory, a path.
    ExecAt,
    Rename,
    Ring,
}

struct Table {
    /// `AUDIT_ARCH_...`, include/uapi/linux/audit.h.
    architecture: u32,
    calls: &'static [(u32, Form)],
}

#[cfg(target_arch = "x86_64")]
const TABLES: &[Table] = &[
    Table {
        architecture: 0xc000_003e,
        calls: &[
            (257, Form::OpenAt),
            (2, Form::Open),
            (437, Form::OpenAt2),
            (85, Form::Creat),
            (59, Form::Exec),
            (322, Form::ExecAt),
            (82, Form::Rename),
            (264, Form::Rename),
            (316, Form::Rename),
            (86, Form::Rename),
            (265, Form::Rename),
            (425, Form::Ring),
        ],
    },
    // i386.
    Table {
        architecture: 0x4000_0003,
        calls: &[
            (295, Form::OpenAt),
            (5, Form::Open),
            (437, Form::OpenAt2),
            (8, Form::Creat),
            (11, Form::Exec),
            (358, Form::ExecAt),
            (38, Form::Rename),
            (302, Form::Rename),
            (353, Form::Rename),
            (9, Form::Rename),
            (303, Form::Rename),
            (425, Form::Ring),
        ],
    },
];

#[cfg(target_arch = "aarch64")]
const TABLES: &[Table] = &[
    Table {
        architecture: 0xc000_00b7,
        calls: &[
            (56, Form::OpenAt),
            (437, Form::OpenAt2),
            (221, Form::Exec),
            (281, Form::ExecAt),
            (38, Form::Rename),
            (276, Form::Rename),
            (37, Form::Rename),
            (425, Form::Ring),
        ],
    },
    // 32-bit ARM.
    Table {
        architecture: 0x4000_0028,
        calls: &[
            (322, Form::OpenAt),
            (5, Form::Open),
            (437, Form::OpenAt2),
            (8, Form::Creat),
            (11, Form::Exec),
            (387, Form::ExecAt),
            (38, Form::Rename),
            (329, Form::Rename),
            (382, Form::Rename),
            (9, Form::Rename),
            (330, Form::Rename),
            (425, Form::Ring),
        ],
    },
];

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const TABLES: &[Table] = &[];

/// x32 programs have the numbers of x86-64 with this bit.
const X32: u32 = 0x4000_0000;

/// `__O_TMPFILE`, which `O_TMPFILE` combines with `O_DIRECTORY`.
const UNNAMED: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// The filter answers this operation of seccomp(2), which is none, with this error. So a process
/// finds out that it is under the filter, whatever became of those that put it there.
const QUESTION: u32 = u32::from_be_bytes(*b"drop");
const ANSWER: i32 = libc::EALREADY;

/// What a stopped call asks for.
pub(super) fn request(stopped: &Notification) -> Request {
    let mut tables = TABLES.iter();
    let table = tables.find(|table| table.architecture == stopped.architecture);
    let number = stopped.number as u32 & !X32;
    let mut calls = table.map_or(&[][..], |table| table.calls).iter();
    let form = calls.find(|call| call.0 == number).map(|call| call.1);
    // Descriptors and flags are 32 bits wide in each of these calls.
    let [first, second, third, ..] = stopped.arguments;
    match form {
        Some(Form::Open) => Request::Open {
            directory: libc::AT_FDCWD,
            path: first,
            flags: second as i32,
        },
        Some(Form::Creat) => Request::Open {
            directory: libc::AT_FDCWD,
            path: first,
            flags: libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
        },
        Some(Form::OpenAt) => Request::Open {
            directory: first as i32,
            path: second,
            flags: third as i32,
        },
        Some(Form::OpenAt2) => Request::OpenHow {
            directory: first as i32,
            path: second,
            how: third,
        },
        Some(Form::Exec) => Request::Open {
            directory: libc::AT_FDCWD,
            path: first,
            flags: libc::O_RDONLY,
        },
        Some(Form::ExecAt) => Request::Open {
            directory: first as i32,
            path: second,
            flags: libc::O_RDONLY,
        },
        Some(Form::Ring) => Request::Ring,
        Some(Form::Rename) | None => Request::Rename,
    }
}

/// The filter's program.
#[derive(Debug)]
pub(crate) struct Filter(Vec<libc::sock_filter>);

impl Filter {
    /// Stops what opens, executes or renames files, except opens of directories and those that
    /// only name a file (`O_PATH`).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`]: the calls of this architecture are not known.
    pub(crate) fn new() -> io::Result<Filter> {
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
        const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
        const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
        if TABLES.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let step = |code: u32, k: u32, jt: usize, jf: usize| libc::sock_filter {
            // Codes are small, and so are the distances: see the test.
            code: code as u16,
            jt: jt as u8,
            jf: jf as u8,
            k,
        };
        let stop = step(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0);
        let allow = step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
        let names = (libc::O_PATH | libc::O_DIRECTORY) as u32 | UNNAMED;
        let mut program = vec![step(LOAD, ARCHITECTURE_AT, 0, 0)];
        for table in TABLES {
            let mut block = vec![step(LOAD, NUMBER_AT, 0, 0), step(AND, !X32, 0, 0)];
            if table.architecture == TABLES[0].architecture {
                block.extend([
                    step(IF_EQUAL, libc::SYS_seccomp as u32, 0, 4),
                    step(LOAD, ARGUMENTS_AT, 0, 0),
                    step(IF_EQUAL, QUESTION, 0, 1),
                    step(RETURN, libc::SECCOMP_RET_ERRNO | ANSWER as u32, 0, 0),
                    allow,
                ]);
            }
            for (number, form) in table.calls {
                let flags = match form {
                    Form::Open => Some(1),
                    Form::OpenAt => Some(2),
                    _ => None,
                };
                let Some(argument) = flags else {
                    block.extend([step(IF_EQUAL, *number, 0, 1), stop]);
                    continue;
                };
                // The lower half of the argument: all these machines are little-endian.
                block.extend([
                    step(IF_EQUAL, *number, 0, 6),
                    step(LOAD, ARGUMENTS_AT + 8 * argument, 0, 0),
                    step(AND, names, 0, 0),
                    step(IF_ANY_BIT, UNNAMED, 1, 0),
                    step(IF_EQUAL, 0, 0, 1),
                    stop,
                    allow,
                ]);
            }
            block.push(allow);
            program.push(step(IF_EQUAL, table.architecture, 0, block.len()));
            program.extend(block);
        }
        program.push(allow);
        Ok(Filter(program))
    }
}

const NEW_LISTENER: libc::c_uint = 1 << 3;
/// Only a fatal signal interrupts a call that was received.
const WAIT_KILLABLE: libc::c_uint = 1 << 5;

/// Returns whether only a deadly signal ends a stopped call that was received, and no other one
/// with `EINTR` (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, since Linux 5.19).
#[must_use]
pub fn stopped_calls_may_wait() -> bool {
    // The kernel looks at the flags before it reads the filter.
    let flags = NEW_LISTENER | WAIT_KILLABLE;
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    let nowhere = std::ptr::null::<libc::sock_fprog>();
    // SAFETY: there is no filter at this address, so the call fails.
    let failed = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, nowhere) };
    crate::errno::check(failed).is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
}

/// Returns whether this process's opens are stopped already, by a filter that it inherited. There
/// can be only one listener for a process.
#[must_use]
pub fn are_stopped_at_opens() -> bool {
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: the kernel knows no such operation, and reads nothing.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, QUESTION, 0, nothing) };
    crate::errno::check(answer).is_err_and(|error| error.raw_os_error() == Some(ANSWER))
}

/// Puts the calling thread under the filter, and returns the listener's descriptor or an errno.
/// Makes only calls that are allowed between fork and exec.
///
/// # Safety
/// The caller knows that from here on its opens wait for an answer.
pub(crate) unsafe fn install(filter: &Filter) -> Result<libc::c_int, libc::c_int> {
    // The filter is no sandbox: before Linux 5.16, one slows its programs down so that they
    // cannot speculate.
    const SPEC_ALLOW: libc::c_uint = 1 << 2;
    let program = libc::sock_fprog {
        len: filter.0.len() as u16,
        filter: filter.0.as_ptr().cast_mut(),
    };
    let set = |flags: libc::c_uint| {
        // SAFETY: the kernel copies the program, which lives across the call.
        let listener = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        // SAFETY: there is always an errno.
        (listener as libc::c_int, unsafe {
            *libc::__errno_location()
        })
    };
    let set_any = || match set(SPEC_ALLOW | NEW_LISTENER | WAIT_KILLABLE) {
        (-1, libc::EINVAL) => set(SPEC_ALLOW | NEW_LISTENER),
        other => other,
    };
    let mut result = set_any();
    if let (-1, libc::EACCES) = result {
        // Without privilege, a process must first give up gaining any.
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0 {
            result = set_any();
        }
    }
    match result {
        (-1, errno) => Err(errno),
        (listener, _) => Ok(listener),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_jump_stays_within_the_program() {
        let Filter(program) = Filter::new().unwrap();
        for (position, step) in program.iter().enumerate() {
            let furthest = usize::from(step.jt.max(step.jf));
            assert!(position + 1 + furthest <= program.len(), "{position}");
        }
        for table in TABLES {
            assert!(table.calls.len() * 7 + 8 < 256);
        }
    }
}
