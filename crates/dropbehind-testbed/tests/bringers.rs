//! Who brought pages in, told by a trace.

use dropbehind_testbed::bringers::{Bringers, Brought};
use dropbehind_testbed::residency::{evict, page_bytes, warm};
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn the_last_to_bring_a_page_in_is_told() {
    need!(Need::Trace, Need::Tool("cat"));
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all MountedFs::needs(filesystem));
        let disk = MountedFs::new(filesystem, 64 << 20).unwrap();
        let path = disk.file("data");
        std::fs::write(&path, vec![1; 4 << 20]).unwrap();
        evict(&path);
        let bringers = Bringers::watch(disk.path()).unwrap();
        let pages = ((4 << 20) / page_bytes()) as usize;
        assert_eq!(bringers.of(&path).unwrap(), vec![None; pages]);
        for _ in 0..2 {
            let mut cat = Command::new("cat")
                .arg(&path)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            assert!(cat.wait().unwrap().success());
            let mut brought = Brought {
                thread: cat.id(),
                dropped: false,
                taken: false,
            };
            let expected = vec![Some(brought); pages];
            assert_eq!(bringers.of(&path).unwrap(), expected, "{filesystem:?}");
            drop_by_dropbehind(&path);
            brought.dropped = true;
            let expected = vec![Some(brought); pages];
            assert_eq!(bringers.of(&path).unwrap(), expected, "{filesystem:?}");
        }
        warm(&path, 0..1 << 20);
        let found = bringers.of(&path).unwrap();
        let own = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        let (first, rest) = found.split_at(pages / 4);
        let is_own = |brought: &Option<Brought>| brought.unwrap().thread == own;
        assert!(
            first
                .iter()
                .all(|page| is_own(page) && !page.unwrap().dropped)
        );
        assert!(!rest.iter().any(is_own));
        evict(&path);
        let found = bringers.of(&path).unwrap();
        assert!(found.iter().all(|page| is_own(page) == page.unwrap().taken));
    }
}

/// Evicts a file in a thread that has the name of one of dropbehind's.
fn drop_by_dropbehind(path: &Path) {
    let path = path.to_owned();
    let thread = std::thread::Builder::new().name("dropbehind-disk".into());
    let drop = move || {
        evict(&path);
        // The kernel notes a thread's name for the trace when the thread next gives up its processor,
        // and what joins it goes on before it does so for good (kernel/trace/trace_sched_switch.c).
        std::thread::sleep(Duration::from_millis(1));
    };
    thread.spawn(drop).unwrap().join().unwrap();
}
