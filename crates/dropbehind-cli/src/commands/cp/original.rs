//! A source, opened for looking or for reading.

use super::choices::{Choices, Dereference, Making};
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

    /// Opens a source, of which its directory said that it was of this kind.
    pub(super) fn original(&self, source: &Place<'_>, kind: FileType) -> Result<Original, Failure> {
        if kind == FileType::RegularFile && self.making == Making::Copies {
            let (file, metadata) = Input::open_regular(source)?;
            return Ok(Original {
                file,
                metadata,
                is_readable: true,
            });
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
