//! What was probably meant by a name that is none.

/// Names less alike than this are not meant by each other; 1 is the same name. What counts is how
/// few characters were left out, put in, changed or swapped: unlike Jaro's measure, this does not
/// find `noreuse` in `nonsense`.
const ALIKE: f64 = 0.65;

/// The one of these names that is most like a mistyped one, if any is.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let rated = names
        .into_iter()
        .map(|name| (strsim::normalized_damerau_levenshtein(&typed, name), name));
    let best = rated.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (best.0 > ALIKE).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let names = [
            "buffered",
            "dontcache",
            "noreuse",
            "write-behind",
            "write-behind-any",
            "write-through",
            "auto",
        ];
        for (typed, meant) in [
            ("dontcahe", Some("dontcache")),
            ("dont-cache", Some("dontcache")),
            ("DONTCACHE", Some("dontcache")),
            ("nocache", Some("dontcache")),
            ("writebehind", Some("write-behind")),
            ("write_behind_any", Some("write-behind-any")),
            ("writethru", Some("write-through")),
            ("bufferd", Some("buffered")),
            ("buffer", Some("buffered")),
            ("no-reuse", Some("noreuse")),
            ("atuo", Some("auto")),
            ("nonsense", None),
            ("unused", None),
            ("direct", None),
            ("fast", None),
            ("whatever", None),
            ("out", None),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
    }
}
