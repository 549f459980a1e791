//! The options of `cp`, as they are typed.

use crate::options::{IoSettings, WriteEnd};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::PathBuf;

/// Takes an empty path, too: it names no file, and the message should say so.
fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// GNU cp's options, with their meanings, and a few of our own. Where a name of ours begins like
/// one of GNU's, its shortest abbreviations still mean that one.
#[derive(Clone, Debug, Args)]
pub(super) struct Flags {
    /// What to copy, and where to: a file, a block device, or a directory to put the copies in
    #[arg(value_names = ["SRC", "DST"], num_args = 0.., value_hint = clap::ValueHint::AnyPath,
          value_parser = any_path())]
    pub(super) paths: Vec<PathBuf>,
    /// Copy all there is of trees: the same as -dR --preserve=all
    #[arg(short, long, overrides_with = "archive")]
    pub(super) archive: bool,
    /// Give a copy its name when all of it is on the disk: what has the name is the old file or
    /// the whole new one, even after a crash
    #[arg(long, overrides_with = "atomic")]
    pub(super) atomic: bool,
    /// Copy attributes only; files that exist keep their data
    #[arg(long, alias = "at", overrides_with = "attributes_only")]
    pub(super) attributes_only: bool,
    /// Keep what would be overwritten under another name
    ///
    /// none or off: never. numbered or t: as FILE.~1~, FILE.~2~ and so on. simple or never: as
    /// FILE~. existing or nil: numbered if there are numbered ones, else simple. The default is
    /// in VERSION_CONTROL, or existing.
    #[arg(long, alias = "b", value_name = "CONTROL", num_args = 0..=1, require_equals = true,
          default_missing_value = "", action = ArgAction::Append)]
    pub(super) backup: Vec<String>,
    /// Like --backup without a value
    #[arg(short = 'b', overrides_with = "plain_backup")]
    pub(super) plain_backup: bool,
    /// Under -R, copy the contents of pipes and devices, instead of creating new ones
    #[arg(long, overrides_with = "copy_contents")]
    pub(super) copy_contents: bool,
    /// Copy links as links, and keep hard links: the same as -P --preserve=links
    #[arg(short = 'd', overrides_with = "no_dereference_preserve_links")]
    pub(super) no_dereference_preserve_links: bool,
    /// Say of each file how it was copied
    #[arg(long, overrides_with = "debug")]
    pub(super) debug: bool,
    /// Replace files that cannot be opened for writing, and under -R what is not a file
    #[arg(short, long, overrides_with = "force")]
    pub(super) force: bool,
    /// Ask before something is overwritten
    #[arg(short, long, alias = "i", overrides_with = "interactive")]
    pub(super) interactive: bool,
    /// Follow symbolic links on the command line, and no others
    #[arg(short = 'H', overrides_with = "dereference_arguments")]
    pub(super) dereference_arguments: bool,
    /// Make hard links instead of copies
    #[arg(short, long, overrides_with = "link")]
    pub(super) link: bool,
    /// Follow symbolic links
    #[arg(short = 'L', long, overrides_with = "dereference")]
    pub(super) dereference: bool,
    /// Skip files that exist, and say nothing (also under --update=none)
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(super) no_clobber: bool,
    /// Copy symbolic links as links
    #[arg(short = 'P', long, overrides_with = "no_dereference")]
    pub(super) no_dereference: bool,
    /// The same as --preserve=mode,ownership,timestamps
    #[arg(short = 'p', overrides_with = "plain_preserve")]
    pub(super) plain_preserve: bool,
    /// Give the copies these attributes of the sources
    ///
    /// mode (with access control lists), ownership, timestamps, links (which names are the same
    /// file), context (of SELinux), xattr (extended attributes, capabilities among them), all.
    /// Inside of trees, new files take the place of those that are there.
    #[arg(long, alias = "pr", value_name = "LIST", num_args = 0..=1, require_equals = true,
          default_missing_value = "mode,ownership,timestamps", action = ArgAction::Append)]
    pub(super) preserve: Vec<String>,
    /// Do not give the copies these attributes
    #[arg(long, value_name = "LIST", action = ArgAction::Append)]
    pub(super) no_preserve: Vec<String>,
    /// Put each copy below DST by the whole path of its source
    #[arg(long, overrides_with = "parents")]
    pub(super) parents: bool,
    /// Copy directories and what is in them; symbolic links, pipes and devices are made anew; a
    /// file that grows meanwhile is copied up to the size that it had
    #[arg(short, long, short_alias = 'R', overrides_with = "recursive")]
    pub(super) recursive: bool,
    /// Share the data with the source instead of copying it: always, auto (where the file system
    /// can), never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "always", overrides_with = "reflink")]
    pub(super) reflink: Option<String>,
    /// Remove what is there before a copy is made
    #[arg(long, overrides_with = "remove_destination")]
    pub(super) remove_destination: bool,
    /// What becomes of holes in files
    ///
    /// auto: those of the source are holes of the copy. always: blocks of zeroes become holes,
    /// too. never: holes are filled with zeroes.
    #[arg(long, value_name = "WHEN", overrides_with = "sparse")]
    pub(super) sparse: Option<String>,
    /// Take the slashes off the ends of sources
    #[arg(long, aliases = ["st", "str"], overrides_with = "strip_trailing_slashes")]
    pub(super) strip_trailing_slashes: bool,
    /// Continue incomplete copies
    ///
    /// What such a file holds is read from the disk and compared with its source. From the first
    /// difference on, it is copied. After a signal or on a full disk, an incomplete copy stays, so
    /// that you can continue it. Inside of trees, files that -p or -a would replace are copied from
    /// the start.
    #[arg(long, overrides_with = "resume")]
    pub(super) resume: bool,
    /// Make symbolic links instead of copies
    #[arg(short, long, overrides_with = "symbolic_link")]
    pub(super) symbolic_link: bool,
    /// What to put behind the names of simple backups, instead of ~ or SIMPLE_BACKUP_SUFFIX
    #[arg(
        short = 'S',
        long,
        value_name = "SUFFIX",
        overrides_with = "suffix",
        allow_hyphen_values = true
    )]
    pub(super) suffix: Option<OsString>,
    /// The directory to put all copies in
    #[arg(short, long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath,
          value_parser = any_path())]
    pub(super) target_directory: Option<PathBuf>,
    /// Take DST for the copy itself, even if it is a directory
    #[arg(short = 'T', long, overrides_with = "no_target_directory")]
    pub(super) no_target_directory: bool,
    /// What to do with files that exist already
    ///
    /// all: overwrite them. none: leave them alone. none-fail: leave them alone, and fail. older:
    /// overwrite those that are older than the source.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "older", action = ArgAction::Append)]
    pub(super) update: Vec<String>,
    /// The same as --update=older
    #[arg(short = 'u', overrides_with = "plain_update")]
    pub(super) plain_update: bool,
    /// Read the copies back from the disk, and compare them with the sources
    #[arg(long, overrides_with = "verify")]
    pub(super) verify: bool,
    /// Say what is copied
    #[arg(short, long, alias = "ver", overrides_with = "verbose")]
    pub(super) verbose: bool,
    /// Stay on the file system of each source
    #[arg(short = 'x', long, overrides_with = "one_file_system")]
    pub(super) one_file_system: bool,
    /// Give the copies the default SELinux context of their place
    #[arg(short = 'Z', overrides_with = "default_context")]
    pub(super) default_context: bool,
    /// Like -Z, or with a context to give them
    #[arg(long, value_name = "CONTEXT", num_args = 0..=1, require_equals = true,
          default_missing_value = "", overrides_with = "context")]
    pub(super) context: Option<String>,
    #[command(flatten)]
    pub(super) settings: IoSettings,
    #[command(flatten)]
    pub(super) end: WriteEnd,
}
