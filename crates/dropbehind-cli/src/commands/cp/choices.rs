//! What the options of `cp` mean together. Where several say something about the same thing,
//! the last one wins, as with GNU cp.

use super::backups::{Backups, Control};
use super::flags::Flags;
use crate::options::{IoSettings, WriteEnd};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::path::{Path, PathBuf};

/// Which symbolic links stand for what they point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dereference {
    Never,
    /// Those of the command line.
    Arguments,
    Always,
}

/// What is made of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Making {
    Copies,
    /// Copies without data.
    Attributes,
    HardLinks,
    SymbolicLinks,
}

/// What to do with a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overwrite {
    Yes,
    Ask,
    Skip,
    Fail,
}

/// What becomes of holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sparse {
    /// Holes of the source are holes of the copy.
    Auto,
    /// Blocks of zeroes, too.
    Always,
    /// Holes are filled.
    Never,
}

/// Whether to share data with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reflink {
    Auto,
    Always,
    Never,
}

/// Which attributes of the source the copy gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Preserve {
    pub(super) mode: bool,
    pub(super) ownership: bool,
    pub(super) timestamps: bool,
    pub(super) links: bool,
    pub(super) xattrs: bool,
    pub(super) context: bool,
    /// Extended attributes were asked for by name, so that it is a failure to lose one where
    /// the file system has none.
    pub(super) xattrs_by_name: bool,
    /// Not even new files get the permissions of the source.
    pub(super) explicitly_no_mode: bool,
}

impl Preserve {
    /// Whether the copy gets what a process that has an old file open must not gain.
    pub(super) fn takes_new_file(self) -> bool {
        self.mode || self.ownership
    }

    fn set(&mut self, words: &str, on: bool) -> Result<(), clap::Error> {
        const WORDS: [&str; 7] = [
            "mode",
            "timestamps",
            "ownership",
            "links",
            "context",
            "xattr",
            "all",
        ];
        for word in words.split(',') {
            let option = if on { "preserve" } else { "no-preserve" };
            match choose(option, word, &WORDS)? {
                "mode" => {
                    self.mode = on;
                    self.explicitly_no_mode = !on;
                }
                "timestamps" => self.timestamps = on,
                "ownership" => self.ownership = on,
                "links" => self.links = on,
                "context" => {
                    if on && !selinux_is_enabled() {
                        return Err(wrong(
                            "cannot preserve security context without an SELinux-enabled kernel",
                        ));
                    }
                    self.context = on;
                }
                "xattr" => {
                    self.xattrs = on;
                    self.xattrs_by_name = on;
                }
                _ => self.set_all(on),
            }
        }
        Ok(())
    }

    fn set_all(&mut self, on: bool) {
        *self = Self {
            mode: on,
            ownership: on,
            timestamps: on,
            links: on,
            xattrs: on,
            context: on && selinux_is_enabled(),
            xattrs_by_name: self.xattrs_by_name && on,
            explicitly_no_mode: !on,
        };
    }
}

/// What a command line of `cp` asks for.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Choices {
    pub(super) paths: Vec<PathBuf>,
    pub(super) atomic: bool,
    pub(super) verify: bool,
    pub(super) resume: bool,
    pub(super) target_directory: Option<PathBuf>,
    pub(super) no_target_directory: bool,
    pub(super) parents: bool,
    pub(super) recursive: bool,
    pub(super) dereference: Dereference,
    pub(super) making: Making,
    /// Pipes and devices are read, and not made anew.
    pub(super) as_regular: bool,
    pub(super) one_file_system: bool,
    pub(super) overwrite: Overwrite,
    pub(super) only_newer: bool,
    pub(super) force: bool,
    pub(super) remove_destination: bool,
    pub(super) backups: Option<Backups>,
    pub(super) preserve: Preserve,
    pub(super) sparse: Sparse,
    pub(super) reflink: Reflink,
    pub(super) verbose: bool,
    pub(super) debug: bool,
    pub(super) settings: IoSettings,
    pub(super) end: WriteEnd,
}

/// Options of the command line in its order.
struct InOrder<'a>(&'a ArgMatches);

impl InOrder<'_> {
    /// Where an option was typed last; `None` if it was not.
    fn last(&self, id: &str) -> Option<usize> {
        if self.0.value_source(id) != Some(ValueSource::CommandLine) {
            return None;
        }
        self.0.indices_of(id)?.next_back()
    }

    /// The one of these that was typed last.
    fn winner<T: Copy>(&self, options: &[(&str, T)]) -> Option<T> {
        let typed = options
            .iter()
            .filter_map(|&(id, value)| Some((self.last(id)?, value)));
        typed.max_by_key(|&(at, _)| at).map(|(_, value)| value)
    }
}

impl Choices {
    fn new(flags: Flags, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let order = InOrder(matches);
        let (overwrite, only_newer) = update(&flags, &order, matches)?;
        let making = match (flags.symbolic_link, flags.link, flags.attributes_only) {
            (true, true, _) => return Err(wrong("cannot make both hard and symbolic links")),
            (true, ..) => Making::SymbolicLinks,
            (_, true, _) => Making::HardLinks,
            (.., true) => Making::Attributes,
            _ => Making::Copies,
        };
        let recursive = flags.recursive || flags.archive;
        let sparse = match flags.sparse.as_deref() {
            None => Sparse::Auto,
            Some(word) => match choose("sparse", word, &["never", "auto", "always"])? {
                "auto" => Sparse::Auto,
                "always" => Sparse::Always,
                _ => Sparse::Never,
            },
        };
        let reflink = match flags.reflink.as_deref() {
            None => Reflink::Auto,
            Some(word) => match choose("reflink", word, &["auto", "always", "never"])? {
                "auto" => Reflink::Auto,
                "always" => Reflink::Always,
                _ => Reflink::Never,
            },
        };
        if reflink == Reflink::Always && sparse != Sparse::Auto {
            return Err(wrong("--reflink can be used only with --sparse=auto"));
        }
        if flags.target_directory.is_some() && flags.no_target_directory {
            return Err(wrong(
                "cannot combine --target-directory (-t) and --no-target-directory (-T)",
            ));
        }
        let backups = backups(&flags, &order)?;
        if backups.is_some() && matches!(overwrite, Overwrite::Skip | Overwrite::Fail) {
            return Err(wrong(
                "options --backup and --no-clobber are mutually exclusive",
            ));
        }
        let preserve = preserve(&flags, &order, matches)?;
        check_context(&flags)?;
        let dereference = order
            .winner(&[
                ("archive", Dereference::Never),
                ("no_dereference_preserve_links", Dereference::Never),
                ("no_dereference", Dereference::Never),
                ("dereference_arguments", Dereference::Arguments),
                ("dereference", Dereference::Always),
            ])
            .unwrap_or(if recursive && making != Making::HardLinks {
                Dereference::Never
            } else {
                Dereference::Always
            });
        let mut paths = flags.paths;
        check_paths(
            &paths,
            flags.target_directory.as_deref(),
            flags.no_target_directory,
        )?;
        if flags.strip_trailing_slashes {
            for path in &mut paths {
                *path = without_slashes(path);
            }
        }
        if flags.atomic {
            let others = backups.is_some() || flags.remove_destination;
            if others || making != Making::Copies || !flags.end.sync {
                return Err(wrong(
                    "--atomic replaces files when their copies are on the disk: it cannot be \
                     combined with --backup, --remove-destination, --attributes-only, -l, -s or \
                     --no-sync",
                ));
            }
        }
        if flags.resume {
            let others = flags.atomic || backups.is_some() || flags.remove_destination;
            let leaves = only_newer || matches!(overwrite, Overwrite::Skip | Overwrite::Fail);
            if others || leaves || making != Making::Copies {
                return Err(wrong(
                    "--resume goes on with what is there: it cannot be combined with --atomic, \
                     --backup, --remove-destination, --attributes-only, -l, -s, -n or -u",
                ));
            }
        }
        if flags.verify && (making != Making::Copies || !flags.end.sync) {
            return Err(wrong(
                "--verify reads data back from the disk: it cannot be combined with \
                 --attributes-only, -l, -s or --no-sync",
            ));
        }
        Ok(Self {
            paths,
            atomic: flags.atomic,
            verify: flags.verify,
            resume: flags.resume,
            target_directory: flags.target_directory,
            no_target_directory: flags.no_target_directory,
            parents: flags.parents,
            recursive,
            dereference,
            making,
            as_regular: !recursive || flags.copy_contents,
            one_file_system: flags.one_file_system,
            overwrite,
            only_newer,
            force: flags.force,
            remove_destination: flags.remove_destination,
            backups,
            preserve,
            sparse,
            reflink,
            verbose: flags.verbose || flags.debug,
            debug: flags.debug,
            settings: flags.settings,
            end: flags.end,
        })
    }
}

fn update(
    flags: &Flags,
    order: &InOrder<'_>,
    matches: &ArgMatches,
) -> Result<(Overwrite, bool), clap::Error> {
    let mut typed: Vec<(usize, &str)> = Vec::new();
    if let Some(indices) = order.last("update").and(matches.indices_of("update")) {
        for (at, word) in indices.zip(&flags.update) {
            let words = ["all", "none", "none-fail", "older"];
            typed.push((at, choose("update", word, &words)?));
        }
    }
    for (id, word) in [
        ("plain_update", "older"),
        ("no_clobber", "none"),
        ("interactive", "ask"),
    ] {
        typed.extend(order.last(id).map(|at| (at, word)));
    }
    typed.sort_unstable();
    let (mut overwrite, mut only_newer) = (Overwrite::Yes, false);
    for (_, word) in typed {
        match word {
            "ask" => overwrite = Overwrite::Ask,
            "none" => overwrite = Overwrite::Skip,
            "none-fail" => overwrite = Overwrite::Fail,
            "older" => only_newer = true,
            _ => {
                only_newer = false;
                if overwrite != Overwrite::Ask {
                    overwrite = Overwrite::Yes;
                }
            }
        }
    }
    only_newer &= !matches!(overwrite, Overwrite::Skip | Overwrite::Fail);
    Ok((overwrite, only_newer))
}

fn preserve(
    flags: &Flags,
    order: &InOrder<'_>,
    matches: &ArgMatches,
) -> Result<Preserve, clap::Error> {
    let mut typed: Vec<(usize, &str, bool)> = Vec::new();
    for (id, lists, on) in [
        ("preserve", &flags.preserve, true),
        ("no_preserve", &flags.no_preserve, false),
    ] {
        if let Some(indices) = order.last(id).and(matches.indices_of(id)) {
            typed.extend(indices.zip(lists).map(|(at, list)| (at, list.as_str(), on)));
        }
    }
    for (id, words) in [
        ("archive", "all"),
        ("plain_preserve", "mode,ownership,timestamps"),
        ("no_dereference_preserve_links", "links"),
    ] {
        typed.extend(order.last(id).map(|at| (at, words, true)));
    }
    typed.sort_unstable();
    let mut preserve = Preserve::default();
    for (_, words, on) in typed {
        preserve.set(words, on)?;
    }
    Ok(preserve)
}

fn backups(flags: &Flags, order: &InOrder<'_>) -> Result<Option<Backups>, clap::Error> {
    let wanted = flags.plain_backup || order.last("backup").is_some() || flags.suffix.is_some();
    if !wanted {
        return Ok(None);
    }
    let variable = std::env::var("VERSION_CONTROL").unwrap_or_default();
    let typed = flags.backup.last().filter(|word| !word.is_empty());
    let word = typed.unwrap_or(&variable);
    let words = [
        "none", "off", "simple", "never", "existing", "nil", "numbered", "t",
    ];
    let control = match word.as_str() {
        "" => Control::Existing,
        word => match choose("backup", word, &words)? {
            "none" | "off" => return Ok(None),
            "simple" | "never" => Control::Simple,
            "existing" | "nil" => Control::Existing,
            _ => Control::Numbered,
        },
    };
    let suffix = flags.suffix.clone();
    Ok(Some(Backups::new(control, suffix)))
}

fn check_context(flags: &Flags) -> Result<(), clap::Error> {
    if !flags.default_context && flags.context.is_none() {
        return Ok(());
    }
    if selinux_is_enabled() {
        return Err(wrong(
            "SELinux contexts can only be preserved (--preserve=context). Leave out -Z and \
             --context, and run restorecon on the copies",
        ));
    }
    if flags.context.as_ref().is_some_and(|text| !text.is_empty()) {
        complain!("cp: warning: ignoring --context; it requires an SELinux-enabled kernel");
    }
    Ok(())
}

fn check_paths(
    paths: &[PathBuf],
    directory: Option<&Path>,
    no_directory: bool,
) -> Result<(), clap::Error> {
    match paths {
        [] => Err(wrong("missing file operand")),
        [only] if directory.is_none() => Err(wrong(&format!(
            "missing destination file operand after '{}'",
            crate::error::shown(only)
        ))),
        [_, _, extra, ..] if no_directory => Err(wrong(&format!(
            "extra operand '{}': with -T there is one source",
            crate::error::shown(extra)
        ))),
        _ => Ok(()),
    }
}

/// A path without the slashes at its end.
fn without_slashes(path: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/');
    let kept = end.map_or(bytes.len().min(1), |at| at + 1);
    std::ffi::OsStr::from_bytes(&bytes[..kept]).into()
}

/// The one of these words that a text is, or is the beginning of.
fn choose(option: &str, text: &str, words: &[&'static str]) -> Result<&'static str, clap::Error> {
    if let Some(word) = words.iter().find(|word| **word == text) {
        return Ok(word);
    }
    let mut begins = words
        .iter()
        .filter(|word| !text.is_empty() && word.starts_with(text));
    match (begins.next(), begins.next()) {
        (Some(word), None) => Ok(word),
        _ => Err(wrong(&format!(
            "invalid value '{}' for '--{option}': expected {}",
            crate::error::shown(text),
            words.join(", ")
        ))),
    }
}

fn wrong(reason: &str) -> clap::Error {
    let mut command = Choices::augment_args(Command::new("cp").bin_name("dropbehind cp"));
    command.error(ErrorKind::ValueValidation, reason)
}

fn selinux_is_enabled() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

impl FromArgMatches for Choices {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::new(Flags::from_arg_matches(matches)?, matches)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Choices {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
            .infer_long_args(true)
            .override_usage("dropbehind cp [OPTIONS] SRC... DST")
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
