//! Sizes and durations as people write them: `"64MiB"`, `"500MB"`, `"7d"`, `"100ms"`.
//!
//! What is printed here is read here again: `size(&show_size(n)) == Ok(n)`, and so for durations.

use std::time::Duration;

/// Size units with their bytes, the binary ones first because they are preferred in print.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Duration units with their nanoseconds, longest first.
const DURATION_UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Bytes of a size: a whole number, alone or with a unit from B to TiB in any case.
///
/// # Errors
/// What a size has to look like, if this is none or passes 2⁶⁴ bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let bytes_per_unit = match SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, bytes)) => Some(*bytes),
        None => unit.is_empty().then_some(1),
    };
    let bytes = number.parse::<u64>().ok().zip(bytes_per_unit);
    bytes
        .and_then(|(number, bytes)| number.checked_mul(bytes))
        .ok_or_else(|| "a whole number of bytes or one with a unit, as \"64MiB\"".to_owned())
}

/// A size in the largest unit that divides it: `"16MiB"`, `"500MB"`, `"1023B"`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let fits = |unit: u64| bytes >= unit && bytes.is_multiple_of(unit);
    match SIZE_UNITS.iter().find(|(_, unit)| fits(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => "0".to_owned(),
    }
}

/// A duration: `"7d"`, `"1h 30m"`, `"100ms"`, or a plain `"0"`.
///
/// # Errors
/// What a duration has to look like, if this is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|_| "a number with a unit, as \"100ms\", \"90s\" or \"7d\"".to_owned())
}

/// A duration in the largest unit that divides it: `"7d"`, `"90m"`, `"100ms"`.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let fits = |unit: u128| nanos >= unit && nanos.is_multiple_of(unit);
    match DURATION_UNITS.iter().find(|(_, unit)| fits(*unit)) {
        Some((name, unit)) => format!("{}{name}", nanos / unit),
        None => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        let cases = [
            ("0", Some(0)),
            ("1048576", Some(1 << 20)),
            ("64MiB", Some(64 << 20)),
            ("4 GiB", Some(4 << 30)),
            ("500MB", Some(500_000_000)),
            ("500mb", Some(500_000_000)),
            ("3kb", Some(3_000)),
            ("7B", Some(7)),
            ("16777215TiB", Some(16_777_215 << 40)),
            ("16777216TiB", None), // 2^64
            ("18446744073709551616", None),
            ("", None),
            ("MiB", None),
            ("1.5GiB", None),
            ("-1", None),
            ("64M", None), // 10^6 or 2^20? not guessed
        ];
        for (text, expected) in cases {
            assert_eq!(size(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn durations() {
        let cases = [
            ("0", Some(Duration::ZERO)),
            ("100ms", Some(Duration::from_millis(100))),
            ("7d", Some(Duration::from_secs(7 * 86_400))),
            ("1h 30m", Some(Duration::from_secs(5_400))),
            ("5", None),
            ("", None),
            ("-1s", None),
            ("soon", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration(text).ok(), expected, "{text:?}");
        }
        assert_eq!(show_duration(Duration::from_secs(5_400)), "90m");
        assert_eq!(show_duration(Duration::from_secs(7 * 86_400)), "7d");
        assert_eq!(show_size(16 << 20), "16MiB");
        assert_eq!(show_size(500_000_000), "500MB");
        assert_eq!(show_size(1_023), "1023B");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(bytes: u64, secs in 0..1_u64 << 40, nanos in 0..1_000_000_000_u32) {
            prop_assert_eq!(size(&show_size(bytes)), Ok(bytes));
            let time = Duration::new(secs, nanos);
            // Nanoseconds in one number pass what the reader takes after some 584 years.
            if time.as_nanos() < u128::from(u64::MAX) {
                prop_assert_eq!(duration(&show_duration(time)), Ok(time));
            }
        }
    }
}
