//! The systemd unit, and the privileges that it leaves.

use crate::commands::packaged;
use crate::files::{assert_dropped, cached_mib, writes_until_seen};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::{Need, need};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn the_units_privileges_are_enough() {
    need!(Need::Root, Need::Cachestat, Need::Tool("setpriv"));
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let private = home.join("private");
    std::fs::create_dir(&private).unwrap();
    let nobody = 65534;
    std::os::unix::fs::chown(&private, Some(nobody), Some(nobody)).unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Another user's program is to be told by the path of its file.
    user.writes(
        "rules",
        &format!(
            "[[rule]]\npath = \"{}/**\"\nprogram = \"/**/dd\"\nmode = \"dontcache\"\n",
            private.display()
        ),
    );
    // One file is open already, so that no event brings a descriptor of it.
    let (secret, open_before) = (private.join("secret"), private.join("before"));
    let mut writer = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["dd", "bs=1M", "status=none", "iflag=fullblock"])
        .arg(format!("of={}", open_before.display()))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = writer.stdin.take().unwrap();
    words.write_all(&vec![1; 1 << 20]).unwrap();
    while !open_before.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::set_permissions(&open_before, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut watch = RunningWatch::start(&user, &mut user.watch_as_a_service("--config rules"));
    watch.says("READY=1");
    words.write_all(&vec![1; 64 << 20]).unwrap();
    drop(words);
    assert!(writer.wait().unwrap().success());
    // Which program it is can be told for as long as it runs.
    let mut writer = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args([
            "sh",
            "-c",
            "umask 077 && exec dd bs=1M iflag=fullblock status=none of=\"$0\"",
        ])
        .arg(&secret)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writes_until_seen(&mut writer, &secret, &watch);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_dropped(&secret, &watch);
    let untraced = watch
        .log()
        .contains("does not report which process brings in which page");
    assert!(!untraced, "{}", watch.log());
    // What it wrote before we came counts as others'.
    let left = cached_mib(&open_before);
    assert!(left <= 1, "{left} MiB\n{}", watch.log());
}

#[test]
fn the_unit_is_well_formed_and_has_no_mount_namespace() {
    need!(Need::Tool("systemd-analyze"));
    let user = User::new();
    let unit = packaged("dropbehind.service");
    for option in [
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ReadOnlyPaths",
        "ReadWritePaths",
        "InaccessiblePaths",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "PrivateMounts",
        "BindPaths",
        "TemporaryFileSystem",
        "DynamicUser",
        "RootDirectory",
        "MountFlags",
        "DevicePolicy",
        "ProtectClock",
        "PrivateUsers",
        "PrivateNetwork",
    ] {
        let set = unit
            .lines()
            .any(|line| line.starts_with(&format!("{option}=")));
        assert!(
            !set,
            "{option} would give the service a mount namespace of its own"
        );
    }
    let here = env!("CARGO_BIN_EXE_dropbehind");
    user.writes(
        "dropbehind.service",
        &unit.replace("/usr/bin/dropbehind", here),
    );
    let said = user.sh("systemd-analyze verify --man=no ./dropbehind.service");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}
