//! What is in the page cache while a file is used, and afterwards: what this
//! I/O brought goes, what others had stays. On every file system and on a raw
//! block device, by the testimony of a process that knows nothing of us.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod everywhere;
mod accounts;

mod modes;
mod others;
mod reads;
mod strides;
mod writes;
