//! Numbers as people read them.

use std::time::Duration;

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.5 GiB`.
pub fn bytes(number: f64) -> String {
    let (mut number, mut unit) = (number, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if number < 1024.0 {
            break;
        }
        (number, unit) = (number / 1024.0, next);
    }
    if unit == "B" { format!("{number:.0} B") } else { format!("{number:.1} {unit}") }
}

/// `2 days 3 hours`, to two units.
pub fn duration(time: Duration) -> String {
    let whole = humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// `12.3 %`.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(16.0 * 1024.0 * 1024.0 * 1024.0), "16.0 GiB");
        assert_eq!(duration(Duration::from_secs(90_061)), "1day 1h");
        assert_eq!(percent(1, 8), "12.5 %");
    }
}
