//! Inputs that nobody would write, made from a corpus of those that somebody did.

use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations made unless `DROPBEHIND_FUZZ_SECONDS` says for how long.
const CASES: u64 = 20_000;
/// Inputs do not grow beyond this.
const INPUT_MAX_BYTES: usize = 16 << 10;
/// What parsers trip over.
const PIECES: [&[u8]; 16] = [
    b"0",
    b"-1",
    b"+",
    b"2147483648",
    b"4294967296",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999999999999999999",
    b" ",
    b"\n",
    b"\0",
    b"\\",
    b"\x1b[2J",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    "\u{9b}\u{202e}".as_bytes(),
    b"\0\0\0\0\0\0\0\x80",
];

/// Gives `check` every file of the folder `corpus`, and then mutations of them. `check`
/// panics if it finds a fault; the input and the seed that makes it are printed then.
/// An hour by hand: `DROPBEHIND_FUZZ_SECONDS=3600`, from the seed in
/// `DROPBEHIND_FUZZ_SEED`.
///
/// # Panics
///
/// `check` did, or the corpus cannot be read or is empty.
pub fn fuzz(corpus: impl AsRef<Path>, check: impl Fn(&[u8]) + RefUnwindSafe) {
    let corpus = corpus.as_ref();
    let files = std::fs::read_dir(corpus).unwrap_or_else(|error| panic!("{corpus:?}: {error}"));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let inputs: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(!inputs.is_empty(), "{corpus:?} is empty");
    for (path, input) in paths.iter().zip(&inputs) {
        run(input, &format!("{path:?}"), &check);
    }
    let from = number("DROPBEHIND_FUZZ_SEED").unwrap_or(0);
    let lasting = number("DROPBEHIND_FUZZ_SECONDS").map(Duration::from_secs);
    let begin = Instant::now();
    let mut cases = 0;
    while lasting.map_or(cases < CASES, |lasting| begin.elapsed() < lasting) {
        let seed = from.wrapping_add(cases);
        let input = mutated(&inputs, &mut Random(seed));
        run(&input, &format!("DROPBEHIND_FUZZ_SEED={seed}"), &check);
        cases += 1;
    }
    println!("{corpus:?}: {cases} cases from seed {from}");
}

fn run(input: &[u8], whence: &str, check: &(impl Fn(&[u8]) + RefUnwindSafe)) {
    if let Err(panic) = catch_unwind(|| check(input)) {
        eprintln!("{whence}: b\"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

fn mutated(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random| &inputs[random.below(inputs.len())];
    let mut input = pick(random).clone();
    for _ in 0..=random.below(6) {
        let start = random.below(input.len() + 1);
        let end = start + random.below((input.len() - start).min(40) + 1);
        let part = start..end;
        match random.below(8) {
            0 => input.truncate(start),
            1 => drop(input.drain(part)),
            2 => input[part]
                .iter_mut()
                .for_each(|byte| *byte ^= 1 << random.below(8)),
            3 => input[part].fill_with(|| random.next() as u8),
            4 => drop(input.splice(part, PIECES[random.below(PIECES.len())].to_vec())),
            5 => drop(input.splice(start..start, PIECES[random.below(PIECES.len())].to_vec())),
            6 => {
                let again = input[part].repeat(1 + random.below(50));
                input.splice(start..start, again);
            }
            _ => {
                let other = pick(random);
                let from = random.below(other.len() + 1);
                input.splice(start.., other[from..].to_vec());
            }
        }
        input.truncate(INPUT_MAX_BYTES);
    }
    input
}

/// SplitMix64: neighbouring seeds are good, too.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
