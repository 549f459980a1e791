//! How often what depends on chance is tried.

/// So often, unless `DROPBEHIND_ROUNDS` says how often.
const ROUNDS: u32 = 3;

pub(crate) fn rounds() -> u32 {
    match std::env::var("DROPBEHIND_ROUNDS") {
        Ok(number) => number.parse().expect("DROPBEHIND_ROUNDS is a number"),
        Err(_) => ROUNDS,
    }
}
