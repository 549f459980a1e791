//! `dropbehind cp` with what is no file, or does not stay as it is.

mod user;

use user::{Said, User};

#[test]
fn pipes_and_files_without_a_size_are_read_to_their_end() {
    let user = User::new();
    user.has("a", 300_000);
    let said = user.sh("mkfifo p; cat a > p & dropbehind cp p out && cmp a out");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let said = user.sh("cat a | dropbehind cp /dev/stdin in && cmp a in");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let said = user.sh("dropbehind cp /proc/version v && cmp /proc/version v");
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn what_is_no_file_can_be_written_to() {
    let user = User::new();
    user.has("a", 300_000);
    user.does("cp a /dev/null");
    let said = user.sh("mkfifo p; cat p > out & dropbehind cp a p && wait && cmp a out");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let said = user.sh("dropbehind cp a /dev/stdout | cmp a -");
    assert_eq!(said.code, 0, "{}", said.stderr);
}

/// Does something to the file `a` while it is being copied to `out`.
fn copied_during(user: &User, change: &str) -> Said {
    user.sh(&format!(
        "rm -f out; dropbehind cp --block-size 512 a out & copy=$!
         until [ -s out ]; do :; done; kill -STOP $copy; {change}; kill -CONT $copy; wait $copy"
    ))
}

#[test]
fn a_growing_and_a_shrinking_source_do_no_harm() {
    let user = User::new();
    user.has("a", 60 << 20);
    let said = copied_during(&user, "echo more >> a");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(user.sh("cmp a out").code, 0);
    let said = copied_during(&user, "truncate -s 1M a");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(
        said.stderr.contains("a shrank while it was copied"),
        "{}",
        said.stderr
    );
    assert!(user.file("out").metadata().unwrap().len() < 60 << 20);
}

/// File servers hold leases on what their clients have open.
#[test]
fn a_lease_is_broken_and_not_an_error() {
    let user = User::new();
    // F_SETLEASE with F_WRLCK; the holder gives the lease up some time after the signal
    // that asks for it.
    let said = user.sh("mkdir tree; echo 1 > tree/f
        exec 3< <(exec perl -e '$SIG{IO} = sub { sleep 1; exit };
            open F, \"+<\", \"tree/f\"; fcntl(F, 1024, 1) or die $!;
            print \"held\\n\"; close STDOUT; sleep 60')
        read -u 3 held; dropbehind cp -r tree copy; code=$?
        kill $!; cat copy/f; exit $code");
    assert_eq!(
        (said.code, said.text()),
        (0, "1\n".into()),
        "{}",
        said.stderr
    );
}
