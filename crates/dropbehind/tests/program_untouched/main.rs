//! Apart from its bytes, a program sees nothing of us. Its descriptors, locks, signals,
//! children and system calls are its own.

#[path = "../common/mod.rs"]
mod common;
mod parts;

mod access_times;
mod descriptors;
mod forks;
mod locks;
mod signals;
mod system_calls;
