//! Who brought pages in, told by a trace.

use dropbehind_testbed::bringers::Bringers;
use dropbehind_testbed::residency::{evict, page_bytes, warm};
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use std::process::Command;

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
            let expected = vec![Some(cat.id()); pages];
            assert_eq!(bringers.of(&path).unwrap(), expected, "{filesystem:?}");
            evict(&path);
        }
        warm(&path, 0..1 << 20);
        let found = bringers.of(&path).unwrap();
        let own = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        let (first, rest) = found.split_at(pages / 4);
        assert!(first.iter().all(|&thread| thread == Some(own)));
        assert!(rest.iter().all(|&thread| thread != Some(own)));
    }
}
