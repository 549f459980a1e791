//! A sandbox that refuses calls.

use crate::bed::Ordinary;
use dropbehind_testbed::{CallFilter, FailNth, need};
use nix::libc::{ENOSYS, EPERM};

#[test]
fn a_refused_call_is_named_and_nothing_is_started() {
    need!(all Ordinary::needs(&[]));
    let user = Ordinary::new();
    for (name, shown) in [
        ("statx", "statx(2)"),
        ("pidfd_open", "pidfd_open(2)"),
        ("ioctl", "ioctl(2)"),
        ("memfd_create", "memfd_create(2)"),
        ("eventfd2", "eventfd(2)"),
        ("openat2", "openat2(2)"),
    ] {
        for errno in [ENOSYS, EPERM] {
            let there = |script: &str| {
                let plan = FailNth::every([CallFilter::new(name).unwrap()], errno);
                let outcome = plan.run(user.script("", script)).unwrap();
                let said = [outcome.stdout, outcome.stderr].concat();
                (outcome.status.code(), String::from_utf8(said).unwrap())
            };
            let (code, said) = there("exec $RUN mkdir started");
            assert_eq!(code, Some(3), "{name}: {said}");
            for saying in [shown, "sandbox", "mkdir was not started"] {
                assert!(said.contains(saying), "{name}, {saying}: {said}");
            }
            assert!(!user.file("started").exists());
            let (_, said) = there("exec $DROPBEHIND probe");
            let lines = said.lines();
            let mut seccomp = lines.filter(|line| line.contains("seccomp, for run"));
            assert!(seccomp.any(|line| line.contains(shown)), "{name}: {said}");
            let (code, said) = there("exec $RUN --best-effort mkdir started");
            assert_eq!(code, Some(0), "{name}: {said}");
            std::fs::remove_dir(user.file("started")).unwrap();
        }
    }
}
