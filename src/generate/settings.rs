//! What to generate: how much, how many of each kind, and over what time.

/// The shortest and the longest page in words; short pages apart.
pub(super) const MIN_WORDS: f64 = 60.0;
pub(super) const MAX_WORDS: f64 = 20_000.0;

/// The year 5138, far inside what RFC 3339 can write.
const MAX_SECONDS: i64 = 100_000_000_000;

/// What to generate. Shares are of all pages; what they leave is fresh.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Pages in all.
    pub pages: u64,
    /// Another seed, another crawl.
    pub seed: u64,
    /// Share of near copies.
    pub near_copies: f64,
    /// Share of exact copies.
    pub exact_copies: f64,
    /// Share of revisits: half unchanged, half updated.
    pub revisits: f64,
    /// Share of pages of fewer than eight shingles: two thirds distinct, a third copies of those.
    pub short: f64,
    /// Share of pages fetched before the window; none among the first 300, where a filter's clock may not yet run.
    pub late: f64,
    /// Share of pages that are not to be judged.
    pub skipped: f64,
    /// Share of lines that are no page.
    pub bad: f64,
    /// Mean words on a page, navigation included. Lengths are log-normal: half are below three quarters of this.
    pub mean_words: u32,
    /// Event time of the first page, in seconds since 1970.
    pub start_epoch_seconds: i64,
    /// Pages in a second of event time.
    pub pages_per_second: f64,
    /// The window the crawl is meant for: late pages lie before `start_epoch_seconds` less this.
    pub window_seconds: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            pages: 100_000,
            seed: 1,
            near_copies: 0.25,
            exact_copies: 0.08,
            revisits: 0.05,
            short: 0.03,
            late: 0.005,
            skipped: 0.03,
            bad: 0.01,
            mean_words: 700,
            start_epoch_seconds: 1_767_225_600, // 2026-01-01
            pages_per_second: 50.0,
            window_seconds: 7 * 86_400,
        }
    }
}

impl Settings {
    /// Says what is wrong with the settings, if anything.
    ///
    /// # Errors
    /// The first setting that is out of its range, by name, with its value and the range.
    pub fn check(&self) -> Result<(), String> {
        for (name, share) in self.shares() {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name} is {share}, not a share from 0 to 1"));
            }
        }
        let sum: f64 = self.shares().iter().map(|(_, share)| share).sum();
        // Seven decimal fractions that make up 1 may add up to a little more.
        if sum > 1.0 + 1e-9 {
            let names = self.shares().map(|(name, _)| name).join(" + ");
            return Err(format!("{names} is {sum:.3}, more than 1"));
        }
        if !(MIN_WORDS..=MAX_WORDS).contains(&f64::from(self.mean_words)) {
            return Err(format!("mean_words is {}, not from {MIN_WORDS} to {MAX_WORDS}", self.mean_words));
        }
        if !(self.pages_per_second > 0.0 && self.pages_per_second.is_finite()) {
            return Err(format!("pages_per_second is {}, not above 0", self.pages_per_second));
        }
        // Below an hour, pages that are out of order by a minute would come near the window's edge.
        if !(3_600..=MAX_SECONDS).contains(&self.window_seconds) {
            return Err(format!("window_seconds is {}, not from 3600 to {MAX_SECONDS}", self.window_seconds));
        }
        if !(0..=MAX_SECONDS).contains(&self.start_epoch_seconds) {
            return Err(format!("start_epoch_seconds is {}, not from 0 to {MAX_SECONDS}", self.start_epoch_seconds));
        }
        Ok(())
    }

    /// The shares by name.
    pub(super) fn shares(&self) -> [(&'static str, f64); 7] {
        [
            ("near_copies", self.near_copies),
            ("exact_copies", self.exact_copies),
            ("revisits", self.revisits),
            ("short", self.short),
            ("late", self.late),
            ("skipped", self.skipped),
            ("bad", self.bad),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        type Case = (&'static str, fn(&mut Settings), Option<&'static str>);
        let cases: [Case; 10] = [
            ("default", |_| {}, None),
            ("all late", |s| *s = Settings { late: 1.0, ..NONE }, None),
            ("tenths", |s| *s = Settings { near_copies: 0.7, bad: 0.1, late: 0.2, ..NONE }, None),
            ("negative", |s| s.bad = -0.1, Some("bad is -0.1")),
            ("above one", |s| s.near_copies = 1.01, Some("near_copies is 1.01")),
            ("not a number", |s| s.late = f64::NAN, Some("late is NaN")),
            ("sum", |s| s.exact_copies = 0.9, Some("near_copies + exact_copies + revisits")),
            ("words", |s| s.mean_words = 59, Some("mean_words is 59")),
            ("rate", |s| s.pages_per_second = 0.0, Some("pages_per_second is 0")),
            ("window", |s| s.window_seconds = 60, Some("window_seconds is 60")),
        ];
        for (name, change, complaint) in cases {
            let mut settings = Settings::default();
            change(&mut settings);
            match (settings.check(), complaint) {
                (Ok(()), None) => {}
                (Err(message), Some(start)) => {
                    assert!(message.starts_with(start), "{name}: {message}")
                }
                (result, _) => panic!("{name}: {result:?}"),
            }
        }
    }

    /// Fresh pages only.
    const NONE: Settings = Settings {
        pages: 100,
        seed: 1,
        near_copies: 0.0,
        exact_copies: 0.0,
        revisits: 0.0,
        short: 0.0,
        late: 0.0,
        skipped: 0.0,
        bad: 0.0,
        mean_words: 700,
        start_epoch_seconds: 0,
        pages_per_second: 1.0,
        window_seconds: 3_600,
    };
}
