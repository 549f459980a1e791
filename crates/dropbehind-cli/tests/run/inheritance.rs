//! What the program is given is what it would have been given by its parent.

use crate::shell::{RUN, once, the_same};
use crate::user::User;
use dropbehind_testbed::{Need, need};

/// Fields of /proc/self/status that follow from what was inherited.
const STATUS: &str = "grep -E '^(Umask|Uid|Gid|Groups|FDSize|Sig(Pnd|Blk|Ign|Cgt)|ShdPnd|Cap|NoNewPrivs|Seccomp|Cpus_allowed|Mems_allowed|Threads|THP|Speculation)' /proc/self/status";

#[test]
fn ids_masks_and_dispositions() {
    need!(Need::Root);
    let user = User::new();
    for before in [
        "true",
        "umask 077",
        "trap '' PIPE HUP",
        "trap '' CHLD TERM 40",
        "set -- env --block-signal=USR1,XFSZ,CHLD,35",
        "set -- env --ignore-signal=PIPE --default-signal=CHLD",
        "set -- setpriv --reuid 1 --clear-groups --inh-caps +sys_admin --ambient-caps +sys_admin",
        "set -- setpriv --no-new-privs",
        "set -- taskset 1",
    ] {
        let left = the_same(&user, &format!("{before}; \"$@\" $RUN {STATUS}"));
        assert_eq!(left.code, Some(0), "{before}: {left:?}");
        assert!(left.stdout.contains("SigIgn"), "{left:?}");
    }
}

/// A service manager says which process gets its sockets and feeds its watchdog.
#[test]
fn variables_that_name_the_process() {
    need!(Need::Root);
    let user = User::new();
    let script = r#"export LISTEN_PID=$$ WATCHDOG_PID=$$ OTHER_PID=$$
        exec $RUN sh -c 'for named in $LISTEN_PID $WATCHDOG_PID; do [ $named = $$ ] || exit 3; done
                         export LISTEN_PID=1 WATCHDOG_PID=; exec $RUN env | grep -E "^(LISTEN|WATCH)" | sort'"#;
    let left = the_same(&user, script);
    assert_eq!(left.stdout, "LISTEN_PID=1\nWATCHDOG_PID=\n", "{left:?}");
    assert_eq!(left.code, Some(0), "{left:?}");
}

#[test]
fn environment_limits_and_niceness() {
    need!(Need::Root);
    let user = User::new();
    let left = the_same(&user, "export A='b c' _=x; $RUN env | grep -v ^_= | sort");
    assert!(left.stdout.contains("A=b c"), "{left:?}");
    the_same(
        &user,
        "ulimit -n 77 -c 0 -s 1000 -f 5000; $RUN bash -c 'ulimit -a; ulimit -Ha'",
    );
    the_same(
        &user,
        "ulimit -v 4000000; ulimit -Sn 50; $RUN bash -c 'ulimit -a; ulimit -Ha'",
    );
    let left = the_same(&user, "nice; nice -n 7 $RUN nice");
    let levels: Vec<i32> = left.stdout.lines().flat_map(str::parse).collect();
    let [own, nicer] = levels[..] else {
        panic!("{left:?}");
    };
    // The tests themselves may be run by nice.
    assert_eq!(nicer, (own + 7).min(19), "{left:?}");
    the_same(
        &user,
        "$RUN cat /proc/self/{oom_score_adj,cgroup,timerslack_ns,personality,loginuid}",
    );
    the_same(
        &user,
        "cd /; $RUN pwd; $RUN readlink /proc/self/root /proc/self/cwd",
    );
    the_same(
        &user,
        "$RUN sh -c 'readlink /proc/self/ns/{pid,net,uts,user,ipc,cgroup}'",
    );
}

#[test]
fn descriptors_are_neither_more_nor_less() {
    need!(Need::Root);
    let user = User::new();
    // The pipes of the output are new each time.
    let list = "$RUN sh -c 'cd /proc/$$/fd && for fd in *; do echo $fd $(readlink $fd); done' \
                | sed 's/pipe:.*/pipe/'";
    for before in [
        "true",
        "exec 7<. 9>f",
        "exec 0<&-",
        "exec 2>&-",
        "exec 0<&- 2>f",
        "exec 3>&1",
    ] {
        let left = the_same(&user, &format!("{before}; {list}"));
        assert_eq!(left.code, Some(0), "{before}: {left:?}");
    }
    let flags = "grep flags /proc/self/fdinfo/{0,1,2}";
    the_same(
        &user,
        &format!("$RUN {flags} </dev/null >>f 2>&1; cat f; rm f"),
    );
}

#[test]
fn group_session_and_parenthood() {
    need!(Need::Root);
    let user = User::new();
    // Number, group and session are the shell's script's; the parent is not.
    let script = "set -m; $RUN sh -c 'set -- $(cat /proc/$$/stat); test $5 = $(ps -o pgid= -p $PPID) || test $5 = $$ && echo $6' | sed \"s/$(ps -o sid= -p $$ | tr -d ' ')/same/\"";
    let left = the_same(&user, script);
    assert_eq!(left.stdout, "same\n");
}

#[test]
fn alarms_go_off_in_the_program() {
    need!(Need::Root, Need::Tool("perl"));
    let user = User::new();
    let script = "exec perl -e 'alarm 1; exec @ARGV' ${RUN:-env} sleep 20";
    let left = the_same(&user, script);
    assert_eq!(left.signal, Some(14));
}

#[test]
fn mounts_are_as_shared_as_they_were() {
    need!(Need::Root);
    let user = User::new();
    // Mount numbers differ; peer groups do not.
    let list =
        "$RUN cat /proc/self/mountinfo | awk '$5 ~ \"^/(proc|sys|dev)?$\"' | cut -d' ' -f3- | sort";
    the_same(&user, list);
    let private = format!(
        "exec unshare -m --propagation private bash -c '{}'",
        list.replace('\'', "'\\''")
    );
    the_same(&user, &private);
    let shared = format!(
        "exec unshare -m --propagation shared bash -c '{}'",
        list.replace('\'', "'\\''")
    );
    assert!(once(&user, RUN, &shared).stdout.contains("shared:"));
    // What the program mounts on a shared mount is there for others.
    let script = "mkdir m; exec unshare -m --propagation shared bash -c \
                  '$RUN mount -t tmpfs tmpfs m; mountpoint m; umount m'";
    assert_eq!(
        the_same(&user, script.replace("mkdir", "mkdir -p").as_str()).code,
        Some(0)
    );
}

#[test]
fn record_locks_are_held_as_long_as_the_program_runs() {
    need!(Need::Root, Need::Tool("perl"));
    let user = User::new();
    let script = "exec perl -e '$^F = 99; open(F, \">locked\"); \
                  $l = pack(\"ssx4qql\", 1, 0, 0, 0, 0); fcntl(F, 6, $l) or die; exec @ARGV' \
                  ${RUN:-env} sh -c 'sleep 0.2; grep -c \":$(stat -c %i locked) \" /proc/locks'";
    assert_eq!(the_same(&user, script).stdout, "1\n");
}
