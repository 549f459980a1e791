//! Programs that write through a shared mapping.

use crate::bed::Bed;
use crate::shell::RUN;
use dropbehind_testbed::residency::{page_bytes, sample};
use dropbehind_testbed::{Fs, need};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MIB_WRITTEN: u64 = 96;

/// May stay for as long as the file is open.
const TWO_WINDOWS: u64 = 32 * MIB;

/// Half of the time after which the kernel writes by itself.
const PATIENCE: Duration = Duration::from_secs(15);

/// Says so once it has written all, and goes on when it is told to.
const PROGRAM: &str = r#"
import mmap, os, sys
length = int(sys.argv[1]) << 20
file = os.open("data", os.O_CREAT | os.O_RDWR, 0o600)
os.ftruncate(file, length)
mapping = mmap.mmap(file, length)
for at in range(0, length, 1 << 20):
    mapping[at:at + (1 << 20)] = b"a" * (1 << 20)
print("written", flush=True)
input()
"#;

/// What is written in order is written behind, though no call tells of it.
#[test]
fn who_writes_through_a_mapping_is_written_behind() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        std::fs::write(bed.file("program.py"), PROGRAM).unwrap();
        let run = format!("{RUN} -m write-behind-any");
        let script = format!("exec $RUN python3 ../program.py {MIB_WRITTEN}");
        let mut command = bed.bash(&run, "observed", &script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(running.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        assert_eq!(said, "written\n");
        let file = File::open(bed.file("observed/data")).unwrap();
        let begun = Instant::now();
        let counts = loop {
            let counts = sample(&file).unwrap();
            if counts.unwritten_pages() * page_bytes() <= TWO_WINDOWS || begun.elapsed() > PATIENCE
            {
                break counts;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        running.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(running.wait().unwrap().success());
        let unwritten_bytes = counts.unwritten_pages() * page_bytes();
        assert!(unwritten_bytes <= TWO_WINDOWS, "{filesystem:?}: {counts:?}");
    }
}
