//! Event times as crawlers write them → milliseconds since 1970.

use jiff::{Timestamp, civil, fmt::rfc2822, tz::TimeZone};

/// Below this a number counts seconds (the year 5138), above it milliseconds.
const SECONDS_BELOW: f64 = 1e11;
/// Below this a number counts milliseconds, above it microseconds, and nanoseconds past 1e17.
const MILLIS_BELOW: f64 = 1e14;
const MICROS_BELOW: f64 = 1e17;

/// Reads RFC 3339 (with or without an offset; without one it is UTC), a plain date, the 14 digits
/// of web archives, an HTTP date, or a number as text. Milliseconds since 1970, or `None`.
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.bytes().all(|b| b.is_ascii_digit()) && text.len() == 14 {
        return archive_digits(text);
    }
    if let Ok(number) = text.parse::<f64>() {
        return from_number(number);
    }
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Some(stamp.as_millisecond());
    }
    if let Ok(local) = text.parse::<civil::DateTime>() {
        return utc(local);
    }
    rfc2822::parse(text).ok().map(|zoned| zoned.timestamp().as_millisecond())
}

/// Seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by size.
pub fn from_number(number: f64) -> Option<i64> {
    if !number.is_finite() || number < 0.0 {
        return None;
    }
    let millis = match number {
        n if n < SECONDS_BELOW => n * 1e3,
        n if n < MILLIS_BELOW => n,
        n if n < MICROS_BELOW => n / 1e3,
        n => n / 1e6,
    };
    Some(millis as i64)
}

/// `YYYYMMDDhhmmss`, UTC.
fn archive_digits(text: &str) -> Option<i64> {
    let part = |range: std::ops::Range<usize>| text[range].parse::<i16>().ok();
    let small = |range| part(range).and_then(|n| i8::try_from(n).ok());
    let local =
        civil::DateTime::new(part(0..4)?, small(4..6)?, small(6..8)?, small(8..10)?, small(10..12)?, small(12..14)?, 0);
    utc(local.ok()?)
}

fn utc(local: civil::DateTime) -> Option<i64> {
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_crawlers_write_them() {
        let table = [
            ("2026-01-02T03:04:05Z", Some(1_767_323_045_000)),
            ("2026-01-02T03:04:05.250Z", Some(1_767_323_045_250)),
            ("2026-01-02T05:04:05+02:00", Some(1_767_323_045_000)),
            ("2026-01-02T03:04:05", Some(1_767_323_045_000)),
            ("2026-01-02 03:04:05", Some(1_767_323_045_000)),
            ("2026-01-02", Some(1_767_312_000_000)),
            ("20260102030405", Some(1_767_323_045_000)),
            ("Fri, 02 Jan 2026 03:04:05 GMT", Some(1_767_323_045_000)),
            ("1767323045", Some(1_767_323_045_000)),
            ("1767323045000", Some(1_767_323_045_000)),
            ("yesterday", None),
            ("", None),
            ("-5", None),
            ("NaN", None),
            ("20261399999999", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(from_number(1_767_323_045.5), Some(1_767_323_045_500));
        assert_eq!(from_number(1_767_323_045_000_000.0), Some(1_767_323_045_000));
    }
}
