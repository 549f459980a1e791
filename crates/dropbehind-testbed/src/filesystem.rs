//! The file systems that tests run on.

use std::io;
use std::path::Path;

use crate::Need;
use crate::command::{output_of, tool};
use crate::mount_point::MountPoint;

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fs {
    /// ext4 as everyone has it.
    Ext4,
    /// ext4 without a journal: it stays writable when metadata cannot be
    /// written, so that data errors alone decide what a test sees.
    Ext4NoJournal,
    /// ext4 that keeps the data of tiny files in their inodes.
    Ext4InlineData,
    /// XFS.
    Xfs,
    /// btrfs, single device. Its `st_dev` is anonymous.
    Btrfs,
}

impl Fs {
    /// Those that differ in what most tests look at.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Ext4NoJournal, Self::Xfs, Self::Btrfs];

    /// The kernel's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4InlineData => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The smallest disk that its tools agree to format.
    pub fn smallest_disk_bytes(self) -> u64 {
        match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4InlineData => 8 << 20,
            Self::Xfs => 300 << 20,
            Self::Btrfs => 128 << 20,
        }
    }

    /// What a machine must have to make and mount it on a block device.
    pub fn needs(self) -> Vec<Need> {
        vec![
            Need::Root,
            Need::Filesystem(self.name()),
            Need::Tool(self.maker()),
        ]
    }

    /// Formats a block device.
    pub(crate) fn make_on(self, device: &Path) -> io::Result<()> {
        let mut maker = tool(self.maker());
        // No discards: the disks are fresh, and a test that looks at what
        // reaches the disk wants its own requests only.
        match self {
            Self::Ext4 => {
                maker.args(["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"]);
            }
            Self::Ext4NoJournal => {
                maker.args(["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"]);
                maker.args(["-O", "^has_journal"]);
            }
            Self::Ext4InlineData => {
                maker.args(["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"]);
                maker.args(["-O", "inline_data"]);
            }
            Self::Xfs => {
                maker.args(["-q", "-f", "-K"]);
            }
            Self::Btrfs => {
                maker.args(["-q", "-f", "-K"]);
            }
        }
        output_of(maker.arg(device)).map(drop)
    }

    /// Mounts a formatted block device.
    pub(crate) fn mount(self, device: &Path, at: &Path) -> io::Result<MountPoint> {
        let options = match self {
            // Zeroing inode tables in the background would be noise on the disk.
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4InlineData => "noinit_itable",
            Self::Xfs => "",
            Self::Btrfs => "nodiscard",
        };
        MountPoint::new(device, at, self.name(), options)
    }

    fn maker(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4InlineData => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
            Self::Btrfs => "mkfs.btrfs",
        }
    }
}
