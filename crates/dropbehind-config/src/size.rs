//! Numbers of bytes as people write and read them.

/// What a size may look like; every error says it.
pub const ALLOWED: &str = "a number of bytes such as 4096, 4k, 16MiB, 1.5G or 32x64k (k = KiB = 1024, kB = 1000; up to E)";

/// The powers that the unit letters stand for.
const LETTERS: &str = "kmgtpe";

/// Reads a size: `4096`, `4k`, `16MiB`, `1.5G`, `10MB`.
///
/// A letter alone means the binary unit, as with `dd` and `fio`; only a plain `B` after it makes
/// it decimal. As with `dd`, an `x` multiplies: `32x64k`. Unlike there, a `b` alone is a byte, and
/// no block of 512. Case is ignored. A fraction takes a unit letter, as nobody means half a byte;
/// what is left of a byte in `0.3k` is cut off.
///
/// # Errors
///
/// The text is something else; the error says what a size looks like.
pub fn parse(text: &str) -> Result<u64, String> {
    parse_exactly(text.trim()).ok_or_else(|| format!("expected {ALLOWED}"))
}

fn parse_exactly(text: &str) -> Option<u64> {
    let mut factors = text.split(['x', 'X']).map(parse_factor);
    let first = factors.next()??;
    factors.try_fold(first, |product, factor| {
        // `0x1000` was meant as a hexadecimal number.
        product.checked_mul(factor?).filter(|&product| product > 0)
    })
}

fn parse_factor(text: &str) -> Option<u64> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let scale = u128::from(unit_bytes(unit.trim_start())?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !fraction.is_empty() && scale == 1 {
        return None;
    }
    // 18 decimals are more than an exabyte needs to be exact to the byte, and
    // as many as the arithmetic below has room for.
    if whole.is_empty() || number.ends_with('.') || fraction.len() > 18 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let mut bytes = u128::from(whole) * scale;
    if !fraction.is_empty() {
        let numerator: u64 = fraction.parse().ok()?;
        let denominator = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        bytes += u128::from(numerator) * scale / denominator;
    }
    u64::try_from(bytes).ok()
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    let letter = unit.chars().next()?;
    let power = u32::try_from(LETTERS.find(letter)?).ok()? + 1;
    match &unit[letter.len_utf8()..] {
        "" | "i" | "ib" => Some(1 << (10 * power)),
        "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// A size for people: `812 MiB`, `4.0 GiB`, `17 B`.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // An `f64` is precise enough for three digits.
    let mut value = bytes as f64;
    let mut name = "B";
    for unit in UNITS {
        // Not 1024: what would be rounded up to it belongs to the next unit.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        name = unit;
    }
    if value < 9.95 {
        format!("{value:.1} {name}")
    } else {
        format!("{value:.0} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("17B", 17),
            ("4k", 4096),
            ("4K", 4096),
            ("4 KiB", 4096),
            ("4kb", 4000),
            ("16MiB", 16 << 20),
            ("16mi", 16 << 20),
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            ("0.3k", 307),
            ("2.000000000000000001k", 2048),
            ("10MB", 10_000_000),
            ("1T", 1 << 40),
            ("32x64k", 2 << 20),
            ("2x3X4kB", 24_000),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_what_is_allowed() {
        for text in [
            "",
            "k",
            ".",
            "1.",
            ".5k",
            "1.2.3",
            "1.5",
            "4096.0",
            "1.5B",
            "1.5x64k",
            "2x",
            "x2",
            "2xx2",
            "0x1000",
            "2x0",
            "8Ex8E",
            "-1",
            "+1",
            "1e3",
            "16 Mbit",
            "16MiBs",
            "1x",
            "16E",
            "18446744073709551616",
            "½k",
            "4\u{212a}",
            "1.0000000000000000001G",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("16MiB"), "{text}: {error}");
        }
    }

    #[test]
    fn shows_three_digits_at_most() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 10, "10 KiB"),
            ((10 << 10) - 10, "10 KiB"),
            (812 << 20, "812 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (4 << 30, "4.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(show(bytes), text);
        }
    }

    #[test]
    fn any_size_is_what_its_digits_say() {
        dropbehind_testbed::fuzz("tests/corpus/size", |text| {
            let text = String::from_utf8_lossy(text);
            let Ok(bytes) = parse(&text) else {
                return;
            };
            assert_eq!(parse(&bytes.to_string()), Ok(bytes));
            let shown = parse(&show(bytes)).unwrap_or(u64::MAX) as f64;
            assert!(
                (shown - bytes as f64).abs() <= bytes as f64 / 18.0,
                "{text}"
            );
            let digits = text.trim().bytes().take_while(u8::is_ascii_digit).count();
            let whole: u64 = text.trim()[..digits].parse().unwrap();
            assert!(bytes >= whole, "{text}");
        });
    }
}
