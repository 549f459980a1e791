//! `dropbehind cp -r` by root in trees that somebody else changes meanwhile.

mod user;

use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
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
                let exchange = RenameFlags::EXCHANGE;
                match rustix::fs::renameat_with(CWD, one, CWD, other, exchange) {
                    // The copy is making one of them anew.
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => panic!("{errno}"),
                }
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

/// The copies of one file's names are names of one file, and never of another one that has taken
/// the place of the first.
#[test]
fn directories_swapped_at_the_destination_lead_no_hard_link_outside() {
    let user = with_secret();
    for name in ["tree/directory", "tree/later"] {
        fs::create_dir_all(user.file(name)).unwrap();
        for number in 0..FILES {
            let linked = user.file(&format!("{name}/linked{number}"));
            let first = user.file(&format!("tree/directory/linked{number}"));
            if linked == first {
                fs::write(&first, "decoy").unwrap();
            } else {
                fs::hard_link(&first, &linked).unwrap();
            }
            fs::write(user.file(&format!("outside/linked{number}")), SECRET).unwrap();
        }
    }
    let before = outside(&user);
    let (one, other) = (user.file("copy/directory"), user.file("copy/other"));
    // A link to a directory in its place, and another directory.
    for takes_place in ["ln -s ../outside", "cp -r outside"] {
        let prepare = format!("rm -rf copy; mkdir -p copy/directory; {takes_place} copy/other");
        assert_eq!(user.sh(&prepare).code, 0);
        attacked(&user, (&one, &other), |user| {
            let said = user.runs("cp -a --no-sync tree/. copy");
            assert!(matches!(said.code, 0 | 1), "{}: {}", said.code, said.stderr);
            assert_eq!(outside(user), before);
            nothing_secret_in(&user.file("copy/later"));
            let _ = fs::remove_dir_all(user.file("copy/later"));
            if takes_place.starts_with("cp") {
                user.sh("for d in copy/directory copy/other; do cp -f outside/linked* $d; done");
            }
        });
    }
}

/// What is outside, with permissions and times.
fn outside(user: &User) -> String {
    user.sh("find outside -printf '%p %m %u %T@ %s %n\\n' | sort; cat outside/*")
        .text()
}

/// Another process has a file of the destination open, and another file there has a second name
/// elsewhere. Neither file becomes the copy, with its owner and its permissions.
#[test]
fn what_others_have_of_the_destination_does_not_become_the_copy() {
    let user = User::new();
    user.sh(
        "mkdir source copy outside; echo copied | tee source/tool source/linked
        chmod 4755 source/tool; echo theirs | tee copy/tool outside/linked
        ln outside/linked copy/linked",
    );
    let held = fs::File::options()
        .read(true)
        .write(true)
        .open(user.file("copy/tool"))
        .unwrap();
    let said = user.runs("cp -rp source/. copy");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let held = held.metadata().unwrap();
    assert_eq!((held.len(), held.mode() & 0o6000, held.nlink()), (7, 0, 0));
    let copy = user.file("copy/tool").metadata().unwrap();
    assert_eq!((copy.len(), copy.mode() & 0o7777), (7, 0o4755));
    for preserve in ["", "p"] {
        user.sh("echo theirs > outside/linked; ln -f outside/linked copy/linked");
        let said = user.runs(&format!("cp -r{preserve} source/. copy"));
        assert_eq!(said.code, 0, "{}", said.stderr);
        let text = |name| fs::read_to_string(user.file(name)).unwrap();
        assert_eq!(text("outside/linked"), "theirs\n", "-r{preserve}");
        assert_eq!(text("copy/linked"), "copied\n", "-r{preserve}");
    }
}

/// Appends to a file for as long as it is copied, up to a size that the copy never gets to.
#[test]
fn a_file_that_always_grows_does_not_keep_the_copy_from_the_others() {
    const MOST_BYTES: u64 = 1 << 30;
    let user = User::new();
    user.sh("mkdir tree; echo > tree/last");
    for first in ["", "first"] {
        fs::write(user.file("tree/grows"), first).unwrap();
        let said = user.sh(&format!(
            "rm -rf copy
            (until [ -e copy/last ] || [ $(stat -c %s tree/grows) -ge {MOST_BYTES} ]; do
                head -c 8M /dev/zero >>tree/grows; done) & grows=$!
            dropbehind cp -r --no-sync --block-size 4096 tree copy; code=$?
            wait $grows; exit $code"
        ));
        assert_eq!(said.code, 0, "{}", said.stderr);
        let bytes = user.file("copy/grows").metadata().unwrap().len();
        assert!(bytes < MOST_BYTES, "{bytes} bytes, {first:?}");
    }
}

/// A tree as deep as users can make them does not keep the copy from what is beside it.
#[test]
fn a_tree_of_any_depth_does_not_keep_the_copy_from_the_others() {
    let user = User::new();
    let said = user.sh("mkdir tree; echo > tree/a; echo > tree/z; cd tree
        python3 -c 'import os
for _ in range(5000):
    os.mkdir(\"d\")
    os.chdir(\"d\")'
        cd ..; dropbehind cp -r --no-sync tree copy; echo $?; cmp tree/a copy/a && cmp tree/z copy/z
        rm -rf tree/d copy/d");
    assert_eq!(
        (said.code, said.text()),
        (0, "1\n".into()),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains("too deep") && said.stderr.len() < 1000,
        "{}",
        said.stderr
    );
}

/// Opening a pipe by its name would wait for its writer.
#[test]
fn a_pipe_in_place_of_the_directory_does_not_keep_the_copy_from_its_end() {
    let user = User::new();
    let said = user.sh("mkdir to; mkfifo pipe; exec 3<>pipe; echo 1 >&3
        timeout -k 1 30 dropbehind cp pipe to/out 3<&- &
        until [ -s to/out ]; do :; done; mv to away; mkfifo to; exec 3<&-; wait $!; echo $?");
    assert_eq!(said.text(), "1\n", "{}", said.stderr);
    let told = "cannot sync to: somebody put something else in its place";
    assert!(said.stderr.contains(told), "{}", said.stderr);
}
