//! Random operations, by seed, under `run` and beside a watch.
//!
//! `DROPBEHIND_SEEDS=n` tries so many seeds, `DROPBEHIND_SEED=n` that one. `benches/xfstests`
//! does the same with xfstests' own fsx and fsstress, for longer.

use crate::bed::Bed;
use crate::user::User;
use crate::watched::watch_with;
use dropbehind_testbed::{Fs, need};

/// Seeds of a usual run.
const SEEDS: u64 = 2;
const FILE_SYSTEMS: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];

/// Of fsx: files that get a stream, and every operation that it knows.
const FSX: &str = "\
flen = 16777216
[opsize]
max = 262144
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 20
write = 30
truncate = 2
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 5
sendfile = 2
posix_fadvise = 2
copy_file_range = 5
";

/// What fsstress does: any operation on any file of a tree, buffered, direct or mapped. What
/// it leaves depends on the seed alone.
const STRESS: &str = r#"
import mmap, os, random, shutil, sys
rng = random.Random(int(sys.argv[1]))
MIB = 1 << 20
def folder():
    folders = [path for path, _, _ in sorted(os.walk("."))]
    return rng.choice(folders)
def some(kind=os.path.isfile):
    found = [os.path.join(path, name) for path, folders, files in sorted(os.walk("."))
             for name in sorted(folders + files)]
    found = [path for path in found if kind(path) and not os.path.islink(path)]
    return rng.choice(found) if found else None
def name():
    return os.path.join(folder(), "n%d" % rng.randrange(60))
def bytes_of(size):
    return rng.randbytes(min(size, 65536)) * (size // 65536 + 1)
def create(path):
    with open(path, "xb", buffering=rng.choice([0, -1])) as file:
        for _ in range(rng.randrange(5)):
            file.write(bytes_of(rng.choice([100, 5000, MIB, 3 * MIB])))
def write(path):
    with open(path, "r+b") as file:
        file.seek(rng.randrange(6 * MIB))
        file.write(bytes_of(rng.choice([1, 4096, 70000, MIB])))
        if rng.random() < 0.2:
            os.fsync(file.fileno())
def append(path):
    with open(path, "ab") as file:
        file.write(bytes_of(rng.randrange(300000)))
def truncate(path):
    os.truncate(path, rng.randrange(8 * MIB))
def allocate(path):
    file = os.open(path, os.O_RDWR)
    os.posix_fallocate(file, rng.randrange(4 * MIB), 1 + rng.randrange(MIB))
    os.close(file)
def map(path):
    if os.path.getsize(path) == 0:
        return
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        at = rng.randrange(len(mapped))
        size = min(100000, len(mapped) - at)
        mapped[at:at + size] = bytes_of(size)[:size]
def direct(path):
    file = os.open(path, os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, MIB) as block:
        block[:65536] = rng.randbytes(65536)
        os.pwrite(file, block, rng.randrange(64) * 65536)
    os.close(file)
def read(path):
    with open(path, "rb") as file:
        file.seek(rng.randrange(MIB))
        file.read(rng.randrange(4 * MIB))
def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)
def steps():
    yield 8, lambda: create(name())
    yield 8, lambda: write(some())
    yield 4, lambda: append(some())
    yield 3, lambda: truncate(some())
    yield 2, lambda: allocate(some())
    yield 3, lambda: map(some())
    yield 3, lambda: direct(some())
    yield 4, lambda: read(some())
    yield 3, lambda: os.mkdir(name())
    yield 3, lambda: os.rename(some(), name())
    yield 1, lambda: os.rename(some(os.path.isdir), name())
    yield 2, lambda: os.link(some(), name())
    yield 1, lambda: os.symlink("nowhere", name())
    yield 2, lambda: os.remove(some())
    yield 1, lambda: shutil.copyfile(some(), name())
    yield 2, lambda: sync(some())
weights, actions = zip(*steps())
done = 0
for _ in range(400):
    try:
        rng.choices(actions, weights)[0]()
        done += 1
    except (OSError, TypeError, shutil.SameFileError):
        pass
print("done", done)
"#;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("DROPBEHIND_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("DROPBEHIND_SEEDS").unwrap_or(SEEDS),
    }
}

/// fsx remembers what it wrote, and reads it again in every way.
#[test]
fn fsx_finds_what_it_wrote() {
    for filesystem in FILE_SYSTEMS {
        need!(all Bed::needs(filesystem, &["fsx"]));
        let bed = Bed::on(filesystem);
        std::fs::write(bed.file("fsx.toml"), FSX).unwrap();
        for seed in seeds() {
            let fsx = format!("exec $RUN fsx -N 3000 -S {seed} -f ../fsx.toml file 2>&1");
            let observed = bed.observed(&fsx);
            assert_eq!(
                observed.code,
                Some(0),
                "{filesystem:?} {seed}: {observed:?}"
            );
            let user = User::new();
            let path = bed.file("beside");
            let mut watch = watch_with(&user, &format!("path = \"{}/**\"", path.display()));
            let beside = bed.runs("", "beside", &fsx);
            assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
            assert_eq!(beside.code, Some(0), "{filesystem:?} {seed}: {beside:?}");
        }
    }
}

#[test]
fn random_operations_on_a_tree_leave_the_same() {
    for filesystem in FILE_SYSTEMS {
        need!(all Bed::needs(filesystem, &["python3"]));
        for seed in seeds() {
            println!("{filesystem:?}, seed {seed}");
            let bed = Bed::on(filesystem);
            std::fs::write(bed.file("stress.py"), STRESS).unwrap();
            let stress = format!("exec $RUN python3 ../stress.py {seed}");
            let plain = bed.runs("", "plain", &stress);
            assert_eq!(plain, bed.observed(&stress));
            bed.are_alike("plain", "observed");
            let user = User::new();
            let path = bed.file("beside");
            let mut watch = watch_with(&user, &format!("path = \"{}/**\"", path.display()));
            assert_eq!(plain, bed.runs("", "beside", &stress));
            assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
            bed.are_alike("plain", "beside");
            assert!(plain.stdout.starts_with("done "), "{plain:?}");
        }
    }
}
