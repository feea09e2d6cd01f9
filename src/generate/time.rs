//! Calendar time from epoch milliseconds, without a clock: RFC 3339 for `fetched_at`, year and month for URLs.

/// Year, month (1–12) and day (1–31) in the proleptic Gregorian calendar: Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>), in which years begin in March.
pub(super) fn civil(epoch_ms: i64) -> (i64, i64, i64) {
    let days = epoch_ms.div_euclid(86_400_000) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// `2026-01-01T00:00:00.000Z`.
pub(super) fn rfc3339(epoch_ms: i64) -> String {
    let (year, month, day) = civil(epoch_ms);
    let ms = epoch_ms.rem_euclid(86_400_000);
    let (hour, minute, second, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants() {
        for (epoch_ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (1_772_323_199_005, "2026-02-28T23:59:59.005Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(epoch_ms), expected);
        }
    }

    /// Day after day for 300 years: the next day of the month, or the first of the next month.
    #[test]
    fn days_follow_one_another() {
        for day in -20_000..90_000 {
            let (today, tomorrow) = (civil(day * 86_400_000), civil((day + 1) * 86_400_000));
            let same_month = (tomorrow.0, tomorrow.1) == (today.0, today.1) && tomorrow.2 == today.2 + 1;
            let next_month = tomorrow.2 == 1 && today.2 >= 28 && tomorrow.1 == today.1 % 12 + 1;
            assert!(same_month || next_month, "{today:?} {tomorrow:?}");
        }
    }
}
