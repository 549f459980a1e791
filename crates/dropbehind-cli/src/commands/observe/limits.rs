//! Lifts the program's limits that would keep the observer from its work.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for every observed file. By default, the kernel lets a process have at most 2^20
/// (`fs.nr_open`).
const DESCRIPTORS: u64 = 1 << 16;

/// Gives this process what it needs, or as much as it may have.
pub(super) fn lift() {
    for resource in [
        Resource::As,
        Resource::Data,
        Resource::Cpu,
        Resource::Nproc,
        Resource::Fsize,
        Resource::Memlock,
    ] {
        raise(resource, None);
    }
    let hard = getrlimit(Resource::Nofile).maximum;
    raise(Resource::Nofile, hard.map(|hard| hard.max(DESCRIPTORS)));
}

/// Raises a limit to `wanted`, where `None` means no limit; to the hard limit if that is not
/// allowed.
fn raise(resource: Resource, wanted: Option<u64>) {
    let both = |limit| Rlimit {
        current: limit,
        maximum: limit,
    };
    if setrlimit(resource, both(wanted)).is_err() {
        // The last resort; without it, the observer makes do with less.
        let _ = setrlimit(resource, both(getrlimit(resource).maximum));
    }
}
