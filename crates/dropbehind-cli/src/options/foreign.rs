//! Options of cp, dd, pv and nocache that have other names here, or none.

/// What to use instead of an option of another tool; `None` if it is none of theirs.
pub(crate) fn instead_of(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or(option);
    Some(match name.strip_prefix('-')?.trim_start_matches('-') {
        "bs" | "ibs" | "obs" | "buffer-size" | "B" => {
            "--block-size sets how much is read and written in one call"
        }
        "skip" | "start" => "`dropbehind read --offset` begins at a place of a file",
        "count" | "stop-at-size" => {
            "`read --length` and `write --count` say how much to move; both take sizes, not blocks"
        }
        "seek" | "oseek" | "conv" => {
            "`dropbehind write --seek` writes into a file without cutting it off"
        }
        "if" | "of" => "files are named without an option: `dropbehind cp SRC DST`",
        "iflag" | "oflag" | "direct-io" | "direct" | "nocache" | "odirect" => {
            "nothing stays in the page cache anyway; --mode says how"
        }
        "fsync" | "fdatasync" | "sync" => {
            "cp and write end when the data is on the disk, unless --no-sync is given"
        }
        "status" | "bar" | "eta" | "timer" | "rate" => "--progress always shows how far it is",
        "rate-limit" => "no option limits the rate; --io-priority idle lets others go first",
        _ => return None,
    })
}

/// Whether a name of a file looks like an operand of dd.
pub(crate) fn is_of_dd(name: &str) -> bool {
    let names = [
        "if", "of", "bs", "ibs", "obs", "count", "seek", "skip", "conv", "iflag", "oflag", "status",
    ];
    name.split_once('=')
        .is_some_and(|(operand, _)| names.contains(&operand))
}
