//! In a pipeline, with ends that close early.

use crate::shell::{RUN, kill, lives, once, the_same, wait_for};
use crate::user::{User, holds};
use dropbehind_testbed::{Need, need};

#[test]
fn data_passes_on_both_sides() {
    need!(Need::Root);
    let user = User::new();
    user.has("a", 3_000_000);
    let left = once(
        &user,
        RUN,
        "cat a | $RUN cat | $RUN sh -c 'cat > b'; echo ${PIPESTATUS[*]}",
    );
    assert_eq!(left.stdout, "0 0 0\n");
    holds(&user.file("b"), 3_000_000);
}

#[test]
fn a_reader_that_goes_away_ends_the_program() {
    need!(Need::Root);
    let user = User::new();
    let left = the_same(&user, "$RUN yes | head -n 1; echo ${PIPESTATUS[*]}");
    assert_eq!(left.stdout, "y\n141 0\n");
    // Or is told by an error, where that was wished.
    let left = the_same(
        &user,
        "trap '' PIPE; $RUN yes 2>&1 >/dev/full | grep -c space",
    );
    assert_eq!(left.stdout, "1\n");
    let left = the_same(
        &user,
        "(trap '' PIPE; $RUN yes; echo $? >code) 2>/dev/null | head -n 1; cat code",
    );
    assert_eq!(left.stdout, "y\n1\n");
}

#[test]
fn a_program_that_stops_reading_is_noticed_by_the_writer() {
    need!(Need::Root);
    let user = User::new();
    let left = the_same(&user, "yes | $RUN head -n 1; echo ${PIPESTATUS[*]}");
    assert_eq!(left.stdout, "y\n141 0\n");
}

#[test]
fn a_daemons_observer_holds_no_pipe_open() {
    need!(Need::Root);
    let user = User::new();
    // cat ends when the last writer is gone, though sleep lives on.
    let script = "$RUN sh -c 'setsid sh -c \"sleep 600 & echo \\$! >pid\" </dev/null >/dev/null 2>&1; echo done' | cat";
    let left = once(&user, RUN, script);
    assert_eq!((left.code, left.stdout.as_str()), (Some(0), "done\n"));
    let pid = || {
        std::fs::read_to_string(user.file("pid"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    wait_for("the daemon's number", || pid().is_some());
    let daemon: u32 = pid().expect("just seen");
    assert!(lives(daemon));
    kill("KILL", daemon);
}

#[test]
fn what_the_program_closes_is_closed() {
    need!(Need::Root);
    let user = User::new();
    // The writer ends while the program lives on; or it never would.
    let waits = "for i in $(seq 2000); do test -e ended && exit 4; sleep 0.01; done";
    let script = format!("rm -f ended; (yes; touch ended) | $RUN sh -c 'exec <&-; {waits}'");
    assert_eq!(the_same(&user, &script).code, Some(4));
    let script = format!(
        "rm -f ended; $RUN sh -c 'exec >&-; {waits}' | (cat; touch ended); exit ${{PIPESTATUS[0]}}"
    );
    assert_eq!(the_same(&user, &script).code, Some(4));
    let script = format!(
        "rm -f ended; {{ $RUN sh -c 'exec 5>&-; {waits}' 5>&1 >&2 | (cat; touch ended); }}; \
         exit ${{PIPESTATUS[0]}}"
    );
    assert_eq!(the_same(&user, &script).code, Some(4));
}
