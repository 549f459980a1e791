//! `dropbehind cp -r` by root in trees that somebody else changes meanwhile.

mod user;

use rustix::fs::{AtFlags, CWD, RenameFlags};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use user::User;

const SECRET: &str = "nobody may read this\n";
/// Copies of one attack.
const ROUNDS: usize = 40;
/// Decoys in a directory, so that an attacker has time between its listing and them.
const FILES: usize = 60;

/// Runs copies while a thread swaps two names again and again.
fn attacked(user: &User, (one, other): (&Path, &Path), mut copy: impl FnMut(&User)) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let copies = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..ROUNDS {
                copy(user);
            }
        }));
        over.store(true, Relaxed);
        if let Err(panic) = copies {
            std::panic::resume_unwind(panic);
        }
    });
}

fn with_secret() -> User {
    let user = User::new();
    fs::create_dir_all(user.file("outside")).unwrap();
    let secret = user.file("outside/decoy");
    fs::write(&secret, SECRET).unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    fs::create_dir_all(user.file("tree/directory")).unwrap();
    for number in 0..FILES {
        fs::write(user.file(&format!("tree/directory/{number}")), "decoy").unwrap();
    }
    fs::write(user.file("tree/directory/decoy"), "decoy").unwrap();
    user
}

/// That no file below holds the secret.
fn nothing_secret_in(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            nothing_secret_in(&path);
        } else if kind.is_file() {
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.contains(SECRET), "{} has the secret", path.display());
        }
    }
}

fn copies_no_secret(user: &User) {
    let _ = fs::remove_dir_all(user.file("copy"));
    let said = user.runs("cp -rp --no-sync tree copy");
    assert!(matches!(said.code, 0 | 1), "{}: {}", said.code, said.stderr);
    nothing_secret_in(&user.file("copy"));
}

#[test]
fn a_file_swapped_for_a_link_is_not_followed() {
    let user = with_secret();
    let link = user.file("tree/directory/link");
    symlink(user.file("outside/decoy"), &link).unwrap();
    let decoy = user.file("tree/directory/decoy");
    attacked(&user, (&decoy, &link), copies_no_secret);
}

#[test]
fn a_directory_swapped_for_a_link_is_not_followed() {
    let user = with_secret();
    let link = user.file("tree/link");
    symlink(user.file("outside"), &link).unwrap();
    let directory = user.file("tree/directory");
    attacked(&user, (&directory, &link), copies_no_secret);
}

#[test]
fn a_pipe_that_takes_the_place_of_a_file_holds_nothing_up() {
    let user = with_secret();
    let pipe = user.file("tree/directory/pipe");
    assert_eq!(user.sh("mkfifo tree/directory/pipe").code, 0);
    let decoy = user.file("tree/directory/decoy");
    attacked(&user, (&decoy, &pipe), copies_no_secret);
}

#[test]
fn links_swapped_into_the_destination_are_not_written_through() {
    let user = with_secret();
    for name in ["copy/directory", "copy/spare"] {
        fs::create_dir_all(user.file(name)).unwrap();
    }
    // A link to a directory in place of one, and a link to a file in place of one.
    for (one, other, points_to) in [
        ("copy/directory", "copy/link", "outside"),
        (
            "copy/directory/decoy",
            "copy/directory/link",
            "outside/decoy",
        ),
    ] {
        let (one, other) = (user.file(one), user.file(other));
        if points_to.ends_with("decoy") {
            fs::write(&one, "old").unwrap();
        }
        symlink(user.file(points_to), &other).unwrap();
        let before = outside(&user);
        attacked(&user, (&one, &other), |user| {
            let said = user.runs("cp -rp --no-sync tree/. copy");
            assert!(matches!(said.code, 0 | 1), "{}: {}", said.code, said.stderr);
            assert_eq!(outside(user), before);
        });
        // The attacker may have stopped with the link in the place.
        if one.is_symlink() {
            rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        }
        rustix::fs::unlinkat(CWD, &other, AtFlags::empty()).unwrap();
    }
}

/// What is outside, with permissions and times.
fn outside(user: &User) -> String {
    user.sh("find outside -printf '%p %m %u %T@ %s\\n' | sort; cat outside/*")
        .text()
}
