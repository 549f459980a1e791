//! What a program sees of us besides its bytes: nothing. Its descriptors, its
//! locks, its signals, its children and its system calls are its own.

#[path = "../common/mod.rs"]
mod common;
mod parts;

mod access_times;
mod descriptors;
mod forks;
mod locks;
mod signals;
mod system_calls;
