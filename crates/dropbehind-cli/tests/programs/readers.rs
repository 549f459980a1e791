//! Ways for a program to read all of a file.

use crate::bed::Bed;

/// Touches each page of a file in a mapping.
const MAPPED: &str = r#"
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.lseek(file, 0, os.SEEK_END)
with mmap.mmap(file, size, prot=mmap.PROT_READ) as mapping:
    sum(mapping[at] for at in range(0, size, mmap.PAGESIZE))
"#;

/// Scripts, with `PATH` for the file's; they run in a folder beside `mapped.py`.
pub(crate) const READERS: [&str; 3] = [
    "exec $RUN cat PATH >/dev/null",
    "exec $RUN dd if=PATH of=/dev/null bs=1M status=none",
    "exec $RUN python3 ../mapped.py PATH",
];

/// The programs they are made of.
pub(crate) const TOOLS: [&str; 3] = ["cat", "dd", "python3"];

/// Puts what they need there.
pub(crate) fn prepare(bed: &Bed) {
    std::fs::write(bed.file("mapped.py"), MAPPED).expect("a script");
}
