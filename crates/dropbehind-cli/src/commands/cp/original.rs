//! A source, opened for looking or for reading.

use super::choices::{Choices, Dereference, Making, Overwrite};
use super::making::metadata_of;
use crate::error::{Doing, Failure};
use crate::input::Input;
use crate::place::Place;
use rustix::fs::FileType;
use std::fs::{File, Metadata};

/// An open source.
pub(super) struct Original {
    pub(super) file: File,
    pub(super) metadata: Metadata,
    /// A regular file that can be read through this descriptor.
    pub(super) is_readable: bool,
}

impl Choices {
    /// Whether links stand for what they point to.
    pub(super) fn follows(&self, is_named: bool) -> bool {
        match self.dereference {
            Dereference::Always => true,
            Dereference::Arguments => is_named,
            Dereference::Never => false,
        }
    }

    /// Whether whatever is there stays as it is.
    pub(super) fn leaves_what_is_there(&self) -> bool {
        matches!(self.overwrite, Overwrite::Skip | Overwrite::Fail)
    }

    /// Opens a source, of which its directory said that it was of this kind.
    pub(super) fn original(&self, source: &Place<'_>, kind: FileType) -> Result<Original, Failure> {
        if kind == FileType::RegularFile && self.making == Making::Copies {
            match Input::open_regular(source) {
                Ok((file, metadata)) => {
                    return Ok(Original {
                        file,
                        metadata,
                        is_readable: true,
                    });
                }
                // What stays as it is needs no source that can be read.
                Err(_) if self.only_newer || self.leaves_what_is_there() => {}
                Err(failure) => return Err(failure),
            }
        }
        let file = source
            .look()
            .map_err(|errno| Failure::io(Doing::Look, source.path, &errno.into()))?;
        let metadata = metadata_of(&file, source)?;
        Ok(Original {
            file,
            metadata,
            is_readable: false,
        })
    }
}
