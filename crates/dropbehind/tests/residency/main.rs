//! What is in the page cache while a file is used, and afterwards: pages that this I/O
//! brought in go, pages that others had stay. Checked on every file system and on a raw block
//! device, by a process that knows nothing of us.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod everywhere;
mod accounts;

mod ends;
mod modes;
mod others;
mod reads;
mod sizes;
mod strides;
mod threads;
mod writes;
