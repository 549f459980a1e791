//! The program `fail-nth`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use super::{CallFilter, FailNth, Outcome};

const USAGE: &str = "\
usage: fail-nth [OPTION]... -- COMMAND [ARGUMENT]...
  --call CALL        a system call that counts; may be given several times:
                     fsync, openat:path=/proc/self/, ioctl:request=0x4c0a,
                     pwritev2:flags=0x80, fcntl:arg1=1033
  --nth N            the call that fails, from 1 on; default 0: only count
  --from N           all calls from the Nth on fail
  --errno ERROR      what they return: a number or a name; default EIO
  --timeout SECONDS  kill everything after this time; default 60
Exits as the command did, with 124 after a timeout, 125 after its own errors.";

const ERRORS: [(&str, i32); 16] = [
    ("EPERM", libc::EPERM),
    ("ENOENT", libc::ENOENT),
    ("EINTR", libc::EINTR),
    ("EIO", libc::EIO),
    ("EBADF", libc::EBADF),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EACCES", libc::EACCES),
    ("EINVAL", libc::EINVAL),
    ("ENFILE", libc::ENFILE),
    ("EMFILE", libc::EMFILE),
    ("ENOSPC", libc::ENOSPC),
    ("ESPIPE", libc::ESPIPE),
    ("ENOSYS", libc::ENOSYS),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EDQUOT", libc::EDQUOT),
];

/// Runs the program and returns its exit code.
pub fn main(arguments: &[OsString]) -> i32 {
    let run = parse(arguments).and_then(|(fail, command)| fail.run_attached(command));
    match run {
        Ok(outcome) => {
            let failed = outcome.failed_call.as_deref().unwrap_or("none");
            eprintln!(
                "fail-nth: calls seen: {}; failed: {failed}",
                outcome.calls_seen
            );
            exit_code(&outcome)
        }
        Err(error) => {
            eprintln!("fail-nth: {error}");
            125
        }
    }
}

fn exit_code(outcome: &Outcome) -> i32 {
    if outcome.timed_out {
        eprintln!("fail-nth: killed, as its time was over");
        return 124;
    }
    let by_signal = || 128 + outcome.status.signal().unwrap_or(0);
    outcome.status.code().unwrap_or_else(by_signal)
}

fn parse(arguments: &[OsString]) -> io::Result<(FailNth, Command)> {
    let usage = || io::Error::other(USAGE);
    let mut fail = FailNth::once([], 0, libc::EIO);
    let mut rest = arguments.iter();
    loop {
        let option = rest
            .next()
            .and_then(|option| option.to_str())
            .ok_or_else(usage)?;
        if option == "--" {
            break;
        }
        let value = rest
            .next()
            .and_then(|value| value.to_str())
            .ok_or_else(usage)?;
        let number = || value.parse::<u64>().map_err(|_| usage());
        match option {
            "--call" => fail.calls.push(value.parse::<CallFilter>()?),
            "--nth" => fail.nth = number()?,
            "--from" => (fail.nth, fail.sticky) = (number()?, true),
            "--errno" => fail.errno = parse_errno(value).ok_or_else(usage)?,
            "--timeout" => fail.timeout = Duration::from_secs(number()?),
            _ => return Err(usage()),
        }
    }
    let mut command = Command::new(rest.next().ok_or_else(usage)?);
    command.args(rest);
    Ok((fail, command))
}

fn parse_errno(text: &str) -> Option<i32> {
    let named = ERRORS
        .iter()
        .find(|(name, _)| *name == text)
        .map(|&(_, number)| number);
    named
        .or_else(|| text.parse().ok())
        .filter(|number| (1..4096).contains(number))
}
