//! The program by itself. The tests of `dropbehind bench` try what it does.

use std::process::Command;

/// That cargo builds the program for these tests also lets those of the command find it.
#[test]
fn it_says_whose_other_half_it_is() {
    let program = || Command::new(env!("CARGO_BIN_EXE_dropbehind-bench"));
    let said = program().arg("--help").output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success() && text.contains("`dropbehind bench`"),
        "{text}"
    );
    let said = program()
        .args(["measure", "--size", "1MiB"])
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    let said = program()
        .args(["measure", "no-such", "--dropbehind", "/dev/null"])
        .output();
    assert_eq!(said.unwrap().status.code(), Some(2));
}
