//! A file system whose server stops answering.

use std::process::{Command, Stdio};
use std::time::Duration;

use dropbehind_testbed::{HangingFs, need};

#[test]
fn who_uses_it_waits_until_it_is_gone() {
    need!(all HangingFs::needs());
    let hanging = HangingFs::new().unwrap();
    let read = |stdout| {
        let mut command = Command::new("cat");
        command.arg(hanging.file()).stdout(stdout);
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let whole = read(Stdio::piped()).wait_with_output().unwrap();
    assert_eq!(whole.stdout, vec![0; 4 << 20]);
    let hang = hanging.hang();
    let mut reader = read(Stdio::null());
    while hanging.waiting() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    reader.kill().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(reader.try_wait().unwrap().is_none(), "it was killed");
    drop(hang);
    assert!(!reader.wait().unwrap().success());
}
