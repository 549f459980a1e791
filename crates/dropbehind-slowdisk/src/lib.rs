//! A disk that is as slow and as broken as one wants, and that remembers every
//! request.
//!
//! A process of its own serves one file over FUSE out of its memory; whoever
//! starts it makes a block device of that file. The server must not share a
//! process with its users: were one killed while it waits for the disk, the
//! disk could never answer, and the machine would keep the process for ever.
//!
//! Needs root and `/dev/fuse`.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod clock;
mod context;
mod disk_command;
mod disk_server;
mod image;
mod queue;
mod request;
mod server;
mod settings;

pub use clock::now_ns;
pub use disk_server::DiskServer;
pub use request::{Request, RequestKind};
pub use server::server_main;
pub use settings::Failing;
