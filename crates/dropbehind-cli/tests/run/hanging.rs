//! File systems whose server does not answer.

use crate::shell::{RUN, Running, bash, observer_of, once, wait_for};
use crate::user::User;
use dropbehind_testbed::{HangingFs, Need, need};

/// As plain: nobody asks for a path that is only an argument, and what is mounted is not
/// waited for.
#[test]
fn a_program_that_does_not_use_it_runs() {
    need!(all HangingFs::needs());
    let user = User::new();
    let fs = HangingFs::new().unwrap();
    let _hanging = fs.hang();
    let script = format!("$RUN echo {}", fs.file().display());
    let left = once(&user, RUN, &script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(left.stdout, format!("{}\n", fs.file().display()));
}

#[test]
fn a_program_that_uses_it_ends_as_plain() {
    need!(Need::Root, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    let fs = HangingFs::new().unwrap();
    std::fs::write(
        user.file("uses.py"),
        "import os, sys, time\n\
         open('started', 'w').close()\n\
         while not os.path.exists('end'): open(sys.argv[1]).close(); time.sleep(0.001)\n\
         sys.exit(4)",
    )
    .unwrap();
    let script = format!(
        "exec $RUN -v --settle 2 --stats figures python3 uses.py {} 2>said",
        fs.file().display()
    );
    let mut running = Running::start(bash(&user, RUN, &script));
    wait_for("its start", || user.file("started").exists());
    let observer = observer_of(running.id()).expect("an observer");
    let _hanging = fs.hang_for(observer);
    wait_for("its observer's hanging", || fs.waiting() > 0);
    std::fs::write(user.file("end"), "").unwrap();
    assert_eq!(running.ends().code(), Some(4));
    // What it had counted by then is not all.
    let said = std::fs::read_to_string(user.file("said")).unwrap();
    assert!(said.contains("figures are incomplete"), "{said}");
    let figures = std::fs::read_to_string(user.file("figures")).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["observer_hung"], true, "{figures}");
    assert_eq!(figures["observer_died"], false, "{figures}");
}

/// As each desktop has one. Root may not look into it, and has no programs there.
#[test]
fn the_mount_of_one_user_is_no_news() {
    need!(Need::Fuse, Need::Tool("unshare"));
    let user = User::new();
    std::fs::create_dir(user.file("mine")).unwrap();
    let script = "exec unshare --mount sh -c 'exec 3<>/dev/fuse; \
                  mount -i -t fuse -o fd=3,rootmode=40000,user_id=65534,group_id=65534 x mine || \
                  exit 9; ls mine; $RUN -v true'";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stderr.contains("Permission denied"), "{left:?}");
    assert!(!left.stderr.contains("cannot be observed"), "{left:?}");
}
