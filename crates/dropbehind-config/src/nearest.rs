//! What was probably meant by a name that is none.

/// Names less alike than this are not meant by each other; 1 is the same name. clap takes this,
/// too.
const ALIKE: f64 = 0.7;

/// The one of these names that is most like a mistyped one, if any is.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = names
        .into_iter()
        .map(|name| (strsim::jaro(typed, name), name));
    let best = rated.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (best.0 > ALIKE).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let names = ["buffered", "dontcache", "write-behind"];
        for (typed, meant) in [
            ("dontcahe", Some("dontcache")),
            ("writebehind", Some("write-behind")),
            ("bufferd", Some("buffered")),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
    }
}
