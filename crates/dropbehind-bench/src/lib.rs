//! Measures what each way of doing buffered I/O costs.

#![cfg(target_os = "linux")]
