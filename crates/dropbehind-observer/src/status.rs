//! The state of running observers, over Unix-domain sockets.
//!
//! Every observer listens on a socket of its own, in a directory that only its
//! owner can write ([`directory`]): `watch.sock`, `run-PID.sock`. The socket's
//! permissions are 0600, and the peer's user is checked besides: the owner and
//! root are answered, nobody else.
//!
//! A connection carries one request, a line:
//!
//! | request | answer |
//! |---|---|
//! | `snapshot` | one [`Snapshot`](crate::snapshot::Snapshot) as a line of JSON |
//! | `stream [MS]` | one such line at once and then every `MS` milliseconds (1000), until the client leaves |
//! | `metrics [N]` | Prometheus' text format, with the `N` most active files (0) |
//! | `GET /metrics[?files=N] HTTP/1.1` | the same with HTTP headers, for `curl --unix-socket` |
//!
//! A request that cannot be answered gets a line that begins with `error: `.
//!
//! A watch may also give its metrics, without names of files, to anybody who asks for them by HTTP
//! at an address of the network ([`HttpServer`]).

mod client;
mod connection;
mod directory;
mod request;
mod server;

pub use client::Samples;
pub use directory::{Endpoint, Found, directory, discover, run_path};
pub use request::{FILES_MAX, STREAM_MAX_MS, STREAM_MIN_MS};
pub use server::{CLIENTS_MAX, HttpServer, Server};
