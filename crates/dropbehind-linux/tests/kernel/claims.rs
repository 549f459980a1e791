//! Who observes a mount namespace or a mount is seen from everywhere, and root alone can be.

use crate::setup::{as_nobody, wait_for};
use dropbehind_linux::{Claimed, Claims, mount_namespace_of, unshare_mount_namespace};
use dropbehind_testbed::{Need, need};
use std::sync::mpsc;
use std::thread;

#[test]
fn a_claim_is_seen_while_it_is_held() {
    need!(Need::Root);
    let (claimed, is_claimed) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        unshare_mount_namespace().unwrap();
        // SAFETY: an integer; it changes no memory, and no descriptor table.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        let claims = Claims::new().unwrap();
        let namespace = Claimed::Namespace(mount_namespace_of(0).unwrap());
        claims.claim(namespace).unwrap();
        assert!(!claims.is_claimed_by_others(namespace).unwrap());
        claimed.send(namespace).unwrap();
        let _ = ended.recv();
    });
    let namespace = is_claimed.recv().unwrap();
    let claims = Claims::new().unwrap();
    assert!(claims.is_claimed_by_others(namespace).unwrap());
    let own = Claimed::Namespace(mount_namespace_of(0).unwrap());
    assert!(!claims.is_claimed_by_others(own).unwrap());
    // Nobody keeps another from it.
    claims.claim(namespace).unwrap();
    drop(end);
    other.join().unwrap();
    // A child of another test has the descriptor, too, until its exec.
    wait_for("given up", || {
        !claims.is_claimed_by_others(namespace).unwrap()
    });
}

#[test]
fn what_is_given_up_is_free() {
    need!(Need::Root);
    let (claims, others) = (Claims::new().unwrap(), Claims::new().unwrap());
    // No mount has this number.
    let [one, next] = [7, 8].map(|low| Claimed::Mount((1 << 31) + low));
    others.claim(one).unwrap();
    others.claim(one).unwrap();
    others.claim(next).unwrap();
    others.give_up(one).unwrap();
    assert!(!claims.is_claimed_by_others(one).unwrap());
    assert!(claims.is_claimed_by_others(next).unwrap());
}

#[test]
fn nobody_may_not_claim() {
    need!(Need::Root);
    let error = as_nobody(|| Claims::new().map(drop)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}
