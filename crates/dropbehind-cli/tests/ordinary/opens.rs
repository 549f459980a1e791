//! Opens that must not be done by anybody else, or that pass by.

use crate::bed::Ordinary;
use dropbehind_testbed::need;

/// Opening a pipe for the program would make the other end go on too soon.
#[test]
fn pipes_are_the_programs_alone() {
    need!(all Ordinary::needs(&["mkfifo", "timeout"]));
    let user = Ordinary::new();
    let script = "mkfifo pipe; \
                  $RUN sh -c 'timeout 1 cat pipe; echo $?' & \
                  timeout 20 sh -c 'echo word >pipe'; echo $?; wait";
    let text = user.does(script);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "0", "word"]);
    // Nobody else reads: the writer waits.
    let left = user.runs("", "timeout 2 $RUN sh -c 'echo word >pipe'; exit $?");
    assert_eq!(left.code, Some(124), "{left:?}");
}

/// Pages of a tmpfs are all that there is of its files.
#[test]
fn files_in_memory_are_none_of_ours() {
    need!(all Ordinary::needs(&["mktemp"]));
    let user = Ordinary::new();
    let figures = user.does(
        "file=$(mktemp -p /dev/shm); head -c 8M /dev/zero >$file; \
         $RUN --stats figures -- sh -c 'cat >/dev/null; cat /proc/self/fd/0' <$file >/dev/null; \
         rm $file; cat figures",
    );
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    for field in ["kept_bytes", "brought_bytes", "files"] {
        assert_eq!(figures[field], 0, "{field}: {figures}");
    }
}

/// Stops the observer, for some seconds if those are given, makes files, and ends.
const UNREPORTED: &str = r#"
import os, signal, sys, time
run = os.getppid()
children = open(f"/proc/{run}/task/{run}/children").read().split()
(observer,) = [c for c in children if b"\0observe\0" in open(f"/proc/{c}/cmdline", "rb").read()]
print(os.getpid(), observer, flush=True)
os.kill(int(observer), signal.SIGSTOP)
if sys.argv[2:] and os.fork() == 0:
    time.sleep(float(sys.argv[2]))
    os.kill(int(observer), signal.SIGCONT)
    os._exit(0)
for number in range(int(sys.argv[1])):
    with open(f"files/{number}", "wb") as file: file.write(bytes(3000))
"#;

/// The observer may not read for a while, and the program end meanwhile.
#[test]
fn opens_that_nobody_could_be_told_of_are_counted() {
    const FILES: u64 = 5000;
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    std::fs::write(user.file("program.py"), UNREPORTED).unwrap();
    let figures = user.does(&format!(
        "mkdir files; mkfifo said; \
         $RUN -m dontcache --only 'files/*' --stats figures -- python3 program.py {FILES} >said & \
         read program observer <said; while kill -0 $program 2>/dev/null; do sleep 0.01; done; \
         kill -CONT $observer; wait; cat figures"
    ));
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    let notes = figures["notes"].as_array().unwrap().iter();
    let missed = notes.filter_map(|note| {
        let (_, count) = note.as_str()?.split_once("too slow for up to ")?;
        count.split_once(' ')?.0.parse::<u64>().ok()
    });
    let missed: u64 = missed.sum();
    let observed = figures["files"].as_u64().unwrap();
    assert!(observed < FILES && missed <= FILES, "{figures}");
    // One that the stand-by lets go counts twice.
    assert!(observed + missed >= FILES, "{figures}");
}

/// It may write many small files before it reads on.
#[test]
fn opens_wait_until_the_observer_can_be_told_of_them() {
    const FILES: u64 = 5000;
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    std::fs::write(user.file("program.py"), UNREPORTED).unwrap();
    let figures = user.does(&format!(
        "mkdir files; $RUN -m dontcache --only 'files/*' --stats figures -- \
         python3 program.py {FILES} 0.3 >said; cat figures"
    ));
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["files"], FILES, "{figures}");
    for note in figures["notes"].as_array().unwrap() {
        let note = note.as_str().unwrap();
        for word in ["too slow", "kept dropbehind waiting"] {
            assert!(!note.contains(word), "{figures}");
        }
    }
}

#[test]
fn links_directories_and_descriptors_lead_where_the_program_finds_them() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    user.does(
        "mkdir -p a/b; ln -s ../../target a/b/link; ln -s $PWD/a/b absolute; \
         cat >paths.py <<'END'\n\
         import os\n\
         data = b'x' * (8 << 20)\n\
         def write(fd): os.write(fd, data); os.close(fd)\n\
         W = os.O_WRONLY | os.O_CREAT\n\
         d = os.open('a/b', os.O_RDONLY)\n\
         write(os.open('link', W, 0o600, dir_fd=d))\n\
         write(os.open('at', W, 0o600, dir_fd=d))\n\
         os.chdir('a')\n\
         write(os.open('../up', W, 0o600))\n\
         write(os.open('../absolute/through', W, 0o600))\n\
         fd = os.open('../again', W, 0o600)\n\
         write(os.open(f'/proc/self/fd/{fd}', os.O_WRONLY))\n\
         END\n\
         $RUN python3 paths.py",
    );
    for name in ["target", "a/b/at", "up", "a/b/through", "again"] {
        assert_eq!(user.file(name).metadata().unwrap().len(), 8 << 20);
        assert_eq!(user.cached_pages(name), 0, "{name}");
    }
}

#[test]
fn openat2_creat_and_rings_are_known() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let script = "mkdir root; touch root/inside; cat >calls.py <<'END'\n\
         import ctypes, os, platform, struct\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         how = ctypes.create_string_buffer(struct.pack('QQQ', os.O_WRONLY | os.O_CREAT, 0o600, 8))\n\
         fd = libc.syscall(437, -100, b'beneath', how, 24)\n\
         assert fd >= 0, ctypes.get_errno()\n\
         os.write(fd, b'x' * (4 << 20))\n\
         root = os.open('root', os.O_RDONLY)\n\
         how = ctypes.create_string_buffer(struct.pack('QQQ', os.O_WRONLY, 0, 16))\n\
         fd = libc.syscall(437, root, b'/inside', how, 24)\n\
         assert fd >= 0, ctypes.get_errno()\n\
         os.write(fd, b'x' * (4 << 20))\n\
         fd = libc.creat(b'made', 0o600)\n\
         os.write(fd, b'x' * (4 << 20))\n\
         params = ctypes.create_string_buffer(120)\n\
         libc.syscall(425, 1, params)\n\
         END\n\
         $RUN -v python3 calls.py";
    let left = user.runs("", script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stderr.contains("io_uring"), "{left:?}");
    for name in ["beneath", "root/inside", "made"] {
        assert_eq!(user.cached_pages(name), 0, "{name}");
    }
}

/// i386 programs have other numbers.
#[test]
fn programs_of_32_bits_are_stopped_as_well() {
    need!(all Ordinary::needs(&["gcc"]));
    let user = Ordinary::new();
    let source = "int call(int n,int a,int b,int c,int d){int r;asm volatile(\"int $0x80\":\"=a\"(r):\
         \"a\"(n),\"b\"(a),\"c\"(b),\"d\"(c),\"S\"(d):\"memory\");return r;}\
         static char x[1<<20];void _start(void){int f=call(5,(int)\"data\",0101,0600,0);\
         for(int i=0;i<8;i++)call(4,f,(int)x,sizeof x,0);call(1,f<0,0,0,0);}";
    let script = format!(
        "echo '{source}' >p.c; gcc -m32 -nostdlib -static -fno-pie -no-pie -o p p.c 2>/dev/null"
    );
    if user.runs("", &script).code != Some(0) || user.runs("", "./p").code != Some(0) {
        dropbehind_testbed::skip!("programs of 32 bits cannot be made or run here");
    }
    user.does("rm data; $RUN ./p");
    assert_eq!(user.file("data").metadata().unwrap().len(), 8 << 20);
    assert_eq!(user.cached_pages("data"), 0);
}
