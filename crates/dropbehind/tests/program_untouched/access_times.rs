//! Access times: only the program's own reads count.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use dropbehind::{File, OpenOptions};
use dropbehind_testbed::{Fs, need, residency};

use crate::common::{KIB, Kind, MIB, PATIENCE, write_pattern};
use crate::parts::ext4;

#[test]
fn a_writer_leaves_the_access_time_alone() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(64 * MIB);
    // The beds are mounted without access times; here they matter.
    let with_times = rustix::mount::MountFlags::RELATIME;
    let folder = place.path().parent().unwrap().to_owned();
    rustix::mount::mount_remount(&folder, with_times, c"").unwrap();
    let path = place.cold_file(1);
    // Part of it is cached, so that we have to find out which part.
    residency::warm(&path, MIB..5 * MIB);
    // Older than the modification, so that relatime would record the next access.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (read, block_bytes) in [(false, MIB), (true, 64 * KIB)] {
        let plain = fs::File::options().write(true).open(&path).unwrap();
        plain
            .set_times(fs::FileTimes::new().set_accessed(long_ago))
            .unwrap();
        let before = fs::metadata(&path).unwrap();
        let mut file = OpenOptions::new()
            .read(read)
            .write(true)
            .open(&path)
            .unwrap();
        write_pattern(&mut file, 2, 0, 32 * MIB, block_bytes);
        file.sync_all().unwrap();
        assert!(file.settle(PATIENCE).unwrap());
        let after = fs::metadata(&path).unwrap();
        assert_eq!(
            (after.atime(), after.atime_nsec()),
            (before.atime(), before.atime_nsec()),
            "readable: {read}"
        );
        assert!(after.mtime() >= before.mtime());
        // A read by the program is recorded as ever.
        drop(file);
        let mut reader = File::open(&path).unwrap();
        reader.read_exact(&mut [0; 100]).unwrap();
        assert!(fs::metadata(&path).unwrap().atime() > before.atime());
    }
}
