//! The configuration file: what is in force for each disk, and how values are written.
//!
//! The file is TOML. The library and all commands read its `[disk]` tables; its rules are for
//! `watch` alone, which reads them with the same parts (`dropbehind-observer`, `rules_file`).

#![forbid(unsafe_code)]

mod disks;
mod nearest;
mod problem;
mod shown;
pub mod size;
mod texts;
pub mod values;

pub use disks::{
    CONFIG_VARIABLE, DEFAULT_PATH, DiskSettings, Disks, FILE_KEYS, MAX_DIRTY_RANGE_BYTES,
    REQUEST_RANGE_BYTES, WINDOW_RANGE_BYTES, read_disks,
};
pub use nearest::nearest;
pub use problem::{FileError, Problem};
pub use shown::{shown, shown_json};
pub use texts::{ConfigText, folder_of, read_texts};
