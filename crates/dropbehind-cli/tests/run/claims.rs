//! What a run claims, so that others leave it alone.

use crate::shell::{RUN, Running, bash, kill, observer_of, once, wait_for};
use crate::user::User;
use dropbehind_testbed::residency::cached;
use dropbehind_testbed::{Need, need};

/// More mounts than there are without it.
fn mounts(user: &User, folder: &str, kind: &str) {
    let script = format!(
        "mkdir {folder} && mount --bind {folder} {folder} && mount --make-{kind} {folder} && \
         for i in $(seq 64); do mkdir {folder}/$i; mount --bind {folder}/$i {folder}/$i; done"
    );
    assert_eq!(once(user, "", &script).code, Some(0));
}

/// The kernel gives the numbers of mounts that are gone to the next ones.
#[test]
fn mounts_that_are_gone_are_not_claimed_from_others() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    // The run has them as well, as long as they are mounted here.
    mounts(&user, "shared", "shared");
    let script = "exec $RUN sh -c 'touch started; until [ -e go ]; do sleep 0.01; done'";
    let mut first = Running::start(bash(&user, RUN, script));
    wait_for("the first run", || user.file("started").exists());
    let observer = observer_of(first.id()).expect("an observer");
    kill("STOP", observer);
    let unmounted = once(&user, "", "umount -R shared");
    // They get the numbers that ours had, and the second run those that the first had.
    mounts(&user, "private", "private");
    let script = "$RUN dd if=/dev/zero of=out bs=1M count=8 status=none";
    let second = once(&user, RUN, script);
    kill("CONT", observer);
    once(&user, "", "umount -R private");
    std::fs::write(user.file("go"), "").unwrap();
    assert!(first.ends().success());
    assert_eq!(unmounted.code, Some(0), "{unmounted:?}");
    assert_eq!(second.code, Some(0), "{second:?}");
    assert_eq!(cached(&user.file("out")).unwrap().cached_pages, 0);
}
