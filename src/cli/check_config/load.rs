//! What a stream of pages makes of a configuration: how long the memory lasts, what the state takes,
//! what goes over the wire.

use super::rows::Rows;
use crate::cli::text;
use crate::config::{Action, Config, Mode, VerdictRecords, Window, units};
use crate::index::plan::Plan;
use crate::sketch::Shape;
use std::str::FromStr;
use std::time::Duration;

/// Bytes of a state record beside bands and bits: with those of the default shape, 250 with a URL of ordinary
/// length.
const STATE_RECORD_BASE_BYTES: usize = 250 - 12 * 4 - 64;
/// Bytes of a record's length in a segment.
const RECORD_LENGTH_BYTES: f64 = 4.0;
/// Bytes of a verdict record.
const VERDICT_RECORD_BYTES: f64 = 200.0;
/// Speed at which the state topic is taken to be read, in bytes and records a second: what a gigabit network
/// and one thread that fills the index manage. Assumed, not measured here.
const RESTORE_BYTES_PER_SECOND: f64 = 100e6;
const RESTORE_RECORDS_PER_SECOND: f64 = 300e3;
/// Largest `window.max_memory` that the configuration takes.
const MAX_MEMORY: u64 = 16 << 40;

/// A rate in pages a second, read as `580/s`, `35k/min`, `2M/h` or `50M/d`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (number, unit) = text.split_once('/')?;
            let seconds = match unit.trim() {
                "s" | "sec" => 1.0,
                "min" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => return None,
            };
            let number = number.trim().replace(['_', ','], "");
            let (number, times) = match number.strip_suffix(['k', 'K']) {
                Some(thousands) => (thousands, 1e3),
                None => number.strip_suffix('M').map_or((number.as_str(), 1.0), |millions| (millions, 1e6)),
            };
            // "inf" and "nan" are numbers, too.
            let per_second = number.trim().parse::<f64>().ok()? * times / seconds;
            (per_second.is_finite() && per_second > 0.0).then_some(Self(per_second))
        };
        read().ok_or_else(|| "must be pages a time, as 580/s, 35k/min, 2M/h or 50M/d".to_owned())
    }
}

/// The stream.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Pages a second.
    pub pages_per_second: f64,
    /// Share of them that is remembered.
    pub survivors: f64,
    /// Mean bytes of a record.
    pub page_bytes: f64,
}

/// What comes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// Pages remembered a second.
    pub remembered_per_second: f64,
    /// How long it takes to fill the index.
    pub memory_lasts: Duration,
    /// Is a page forgotten for want of memory before its age is up?
    pub bound_by_memory: bool,
    /// Pages within `window.max_age`, were there memory for them.
    pub pages_in_window: Option<f64>,
    /// The `window.max_memory` that holds them; `None` if there is no such thing.
    pub max_memory_for_window: Option<u64>,
    /// Bytes of a state record.
    pub state_record_bytes: f64,
    /// Bytes of the state topic, one replica, kept for one window.
    pub state_topic_bytes: f64,
    /// Bytes of a snapshot of the full window.
    pub snapshot_bytes: f64,
    /// Time to restore from the state topic alone.
    pub restore: Duration,
    /// Bytes a second from Kafka.
    pub in_bytes: f64,
    /// Bytes a second to Kafka: pages, state, verdict records.
    pub out_bytes: [f64; 3],
}

impl Outlook {
    /// The outlook on this stream with an index of this plan.
    pub fn new(config: &Config, index: &Plan, load: Load) -> Self {
        let remembered = load.pages_per_second * load.survivors;
        let capacity = index.capacity_pages as f64;
        let memory_lasts = seconds(capacity / remembered);
        let pages_in_window = config.window.max_age.map(|age| age.as_secs_f64() * remembered);
        let held = pages_in_window.unwrap_or(capacity).min(capacity);
        // Retention goes by time: the topic holds the window whether or not the memory does.
        let records = pages_in_window.unwrap_or(capacity);
        let shape = Shape::new(&config.sketch);
        let state_record_bytes = (STATE_RECORD_BASE_BYTES + shape.bands * 4 + shape.bit_words() * 8) as f64;
        let restore =
            (records * state_record_bytes / RESTORE_BYTES_PER_SECOND).max(records / RESTORE_RECORDS_PER_SECOND);
        let copies = load.pages_per_second - remembered;
        let drops = [config.policy.exact_duplicate, config.policy.near_duplicate].contains(&Action::Drop);
        let forwarded = match config.output.mode {
            Mode::Verdicts => 0.0,
            Mode::Pages if drops => remembered,
            Mode::Pages => load.pages_per_second,
        };
        let recorded = match (&config.output.verdict_topic, config.output.verdict_records) {
            (None, _) => 0.0,
            (_, VerdictRecords::All) => load.pages_per_second,
            (_, VerdictRecords::NotUnique) => copies,
            // Those that went out as pages are told of there.
            (_, VerdictRecords::Dropped) => copies.min(load.pages_per_second - forwarded),
        };
        Self {
            remembered_per_second: remembered,
            memory_lasts,
            bound_by_memory: pages_in_window.is_none_or(|pages| pages > capacity),
            pages_in_window,
            max_memory_for_window: pages_in_window.and_then(|pages| max_memory_for(pages, &config.window, &shape)),
            state_record_bytes,
            state_topic_bytes: records * state_record_bytes,
            snapshot_bytes: held * (state_record_bytes + RECORD_LENGTH_BYTES),
            restore: seconds(restore),
            in_bytes: load.pages_per_second * load.page_bytes,
            out_bytes: [forwarded * load.page_bytes, remembered * state_record_bytes, recorded * VERDICT_RECORD_BYTES],
        }
    }

    /// The section's rows.
    pub fn rows(&self, config: &Config) -> Rows {
        let mut rows = Rows::default();
        rows.push("remembered", format!("{} pages/s", rate(self.remembered_per_second)), "");
        rows.push("memory lasts", lasting(self.memory_lasts), "at that rate, until the index is full");
        self.bound(config, &mut rows);
        rows.push("", "", "");
        let kept = match config.window.max_age {
            Some(age) => format!("kept for {}", units::show_duration(age)),
            None => "kept for as long as memory lasts".to_owned(),
        };
        let note = format!("each replica, about {} bytes a record, {kept}", self.state_record_bytes);
        rows.push("state topic", text::bytes(self.state_topic_bytes), note);
        let max_disk = config.snapshot.max_disk;
        let note = match &config.snapshot.directory {
            None => "on disk, if snapshot.directory were set".to_owned(),
            Some(_) if self.snapshot_bytes > max_disk as f64 => {
                format!("MORE than snapshot.max_disk = {}: a restart would forget pages", text::bytes(max_disk as f64))
            }
            Some(_) => "on disk, once the window is full".to_owned(),
        };
        rows.push("snapshot", text::bytes(self.snapshot_bytes), note);
        let note = format!(
            "an estimate: from the state topic alone at an assumed {:.0} MB/s and {} records/s",
            RESTORE_BYTES_PER_SECOND / 1e6,
            text::count(RESTORE_RECORDS_PER_SECOND as u64)
        );
        rows.push("restore", lasting(self.restore), note);
        if self.restore > config.recovery.max_wait {
            let on_gap = config.recovery.on_gap.as_str();
            let wait = units::show_duration(config.recovery.max_wait);
            let note = format!("is shorter: without a snapshot recovery.on_gap = {on_gap:?} decides before the end");
            rows.push("recovery.max_wait", wait, note);
        }
        rows.push("", "", "");
        let per_second = |bytes: f64| format!("{}/s", text::bytes(bytes));
        rows.push("from Kafka", per_second(self.in_bytes), "before compression");
        let out = self.out_bytes.map(per_second);
        let [pages, state, verdicts] = &out;
        let note = format!("pages {pages}, state {state}, verdict records {verdicts}");
        rows.push("to Kafka", per_second(self.out_bytes.iter().sum()), note);
        rows
    }

    /// What ends a page's stay, and what memory the window wants.
    fn bound(&self, config: &Config, rows: &mut Rows) {
        let (Some(age), Some(pages)) = (config.window.max_age, self.pages_in_window) else {
            rows.push("window.max_age", "none", "memory is the bound");
            return;
        };
        let note = match self.bound_by_memory {
            true => "MEMORY IS THE BOUND: pages are forgotten before this age",
            false => "age is the bound: the memory holds the whole window",
        };
        rows.push("window.max_age", units::show_duration(age), note);
        let pages = text::count(pages.ceil() as u64);
        match self.max_memory_for_window {
            Some(bytes) => {
                let exact = format!("window.max_memory = \"{}MiB\" holds {pages} pages", bytes >> 20);
                rows.push("whole window needs", text::bytes(bytes as f64), exact);
            }
            None => {
                let note = format!("no index holds {pages} pages: shorten window.max_age");
                rows.push("whole window needs", "too much", note);
            }
        }
    }
}

/// The smallest `window.max_memory`, in whole MiB, with which the index holds this many pages.
fn max_memory_for(pages: f64, window: &Window, shape: &Shape) -> Option<u64> {
    let holds = |mebibytes: u64| {
        let window = Window { max_memory: mebibytes << 20, ..window.clone() };
        Plan::new(&window, shape).capacity_pages as f64 >= pages
    };
    let (mut too_small, mut enough) = (0, MAX_MEMORY >> 20);
    if !holds(enough) {
        return None;
    }
    while enough - too_small > 1 {
        let middle = too_small.midpoint(enough);
        if holds(middle) { enough = middle } else { too_small = middle }
    }
    Some(enough << 20)
}

/// `2d 16h`, to two units.
fn lasting(time: Duration) -> String {
    text::duration(time).replace("days", "d").replace("day", "d")
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// A rate in print: whole numbers unless it is small.
pub fn rate(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.2}") } else { text::count(per_second.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn rates() {
        for (text, expected) in [
            ("580/s", Some(580.0)),
            ("0.5/s", Some(0.5)),
            ("1_200/min", Some(20.0)),
            ("36,000/h", Some(10.0)),
            ("86400/d", Some(1.0)),
            ("50M/d", Some(50e6 / 86_400.0)),
            ("3k / min", Some(50.0)),
            ("580", None),
            ("580/", None),
            ("/s", None),
            ("580/m", None), // minute or month? not guessed
            ("0/s", None),
            ("-1/s", None),
            ("inf/s", None),
            ("nan/s", None),
            ("many/s", None),
        ] {
            assert_eq!(text.parse::<Rate>().ok(), expected.map(Rate), "{text:?}");
        }
    }

    fn outlook(toml: &str, load: Load) -> (Config, Outlook) {
        let config = config::parse(toml, "test", std::iter::empty()).unwrap();
        let index = Plan::new(&config.window, &Shape::new(&config.sketch));
        let outlook = Outlook::new(&config, &index, load);
        (config, outlook)
    }

    const LOAD: Load = Load { pages_per_second: 580.0, survivors: 0.6, page_bytes: 4600.0 };

    #[test]
    fn the_numbers_of_a_stream() {
        let (_, found) = outlook("[output]\nverdict_topic = 'v'", LOAD);
        // 348 pages a second for seven days.
        assert_eq!(found.remembered_per_second, 348.0);
        assert_eq!(found.pages_in_window, Some(210_470_400.0));
        assert_eq!(found.state_topic_bytes, 210_470_400.0 * 250.0);
        assert_eq!(found.restore.as_secs(), 701); // 210,470,400 / 300,000
        assert_eq!(found.in_bytes, 2_668_000.0);
        assert_eq!(found.out_bytes, [1_600_800.0, 87_000.0, 46_400.0]);
        assert!(found.bound_by_memory);
    }

    #[test]
    fn the_bound_is_age_or_memory() {
        let slow = Load { pages_per_second: 10.0, ..LOAD };
        let fast = Load { pages_per_second: 5e3, ..LOAD };
        for (case, toml, load, by_memory) in [
            ("default", "", LOAD, true),
            ("a slow stream", "", slow, false),
            ("a short window", "[window]\nmax_age = '1h'", LOAD, false),
            ("no age", "[window]\nmax_age = 'none'", slow, true),
            ("too fast for any", "", fast, true),
        ] {
            let (config, found) = outlook(toml, load);
            assert_eq!(found.bound_by_memory, by_memory, "{case}");
            if config.window.max_age.is_some_and(|age| found.memory_lasts < age) != by_memory {
                assert_eq!(config.window.max_age, None, "{case}");
            }
        }
        let (_, no_age) = outlook("[window]\nmax_age = 'none'", slow);
        assert_eq!((no_age.pages_in_window, no_age.max_memory_for_window), (None, None));
        assert_eq!(outlook("", fast).1.max_memory_for_window, None);
    }

    #[test]
    fn the_memory_named_is_just_enough() {
        for load in [LOAD, Load { pages_per_second: 10.0, ..LOAD }] {
            let (_, found) = outlook("", load);
            let needed = found.max_memory_for_window.unwrap() >> 20;
            for (mebibytes, by_memory) in [(needed, false), (needed - 1, true)] {
                let (_, found) = outlook(&format!("[window]\nmax_memory = '{mebibytes}MiB'"), load);
                assert_eq!(found.bound_by_memory, by_memory, "{mebibytes} MiB");
            }
        }
    }

    #[test]
    fn what_goes_out_follows_the_policy() {
        let (all, new, none) = (2_668_000.0, 1_600_800.0, 0.0);
        let (record, each) = (580.0 * 200.0, 232.0 * 200.0);
        for (toml, pages, verdicts) in [
            ("", new, none),
            ("[output]\nverdict_topic = 'v'", new, each),
            ("[output]\nverdict_topic = 'v'\nverdict_records = 'all'", new, record),
            ("[output]\nverdict_topic = 'v'\n[policy]\nexact_duplicate = 'tag'\nnear_duplicate = 'tag'", all, none),
            ("[output]\nverdict_topic = 'v'\nmode = 'verdicts'", none, each),
        ] {
            let (_, found) = outlook(toml, LOAD);
            assert_eq!([found.out_bytes[0], found.out_bytes[2]].map(f64::round), [pages, verdicts], "{toml}");
        }
        let wide = outlook("[sketch]\nbytes = 128", LOAD).1;
        assert_eq!(wide.state_record_bytes, 250.0 + 64.0);
    }

    #[test]
    fn durations_are_short() {
        for (seconds, expected) in [(0, "0s"), (86_400, "1d"), (230_461, "2d 16h"), (3_661, "1h 1m")] {
            assert_eq!(lasting(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_shadow_run_writes_no_pages() {
        let (config, found) = outlook("[output]\nmode = 'verdicts'\nverdict_topic = 'v'", LOAD);
        assert_eq!(found.out_bytes[0], 0.0);
        let mut out = String::new();
        found.rows(&config).render(&mut out);
        assert!(out.contains("pages 0 B/s"), "{out}");
    }
}
