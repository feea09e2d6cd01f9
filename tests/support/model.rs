//! The plain model of the judge: pages in a [`LruCache`], candidates by comparing every band key with every other; no
//! table, no slots, no journal.

use crate::text::{Random, prose};
use lru::LruCache;
use pagesieve::config::{Key, Late};
use pagesieve::index::{Evicted, NO_TIME, Origin};
use pagesieve::page::{EventTime, SkipRule};
use pagesieve::sketch::odd::Estimator;
use pagesieve::sketch::{BandKey, Shape, Sketcher, Sketches};
use pagesieve::verdict::Verdict;
use std::sync::OnceLock;

pub const SHAPE: Shape = Shape { shingle_words: 5, bands: 12, rows: 5, min_shingles: 8, bytes: 64 };
pub const THRESHOLD: f32 = 0.8;

/// A text of the small universe that streams are drawn from.
pub struct Text {
    pub digest: u64,
    pub short: bool,
    pub bands: Vec<BandKey>,
    pub bits: Vec<u64>,
    pub neighbours: Vec<u64>,
}

pub const BASES: usize = 4;
pub const EDITS: [usize; 8] = [0, 1, 2, 4, 6, 9, 14, 30];
pub const SHORTS: [&str; 4] = ["Page not found", "page not found", "Sign in", "Sign  in"];
pub const NUM_TEXTS: usize = BASES * EDITS.len() + SHORTS.len();

/// Four texts of 60 words, each with the last 0 to 30 words changed (resemblance 1 to 0.3 and everything between), and
/// short ones.
pub fn universe() -> &'static [Text] {
    static UNIVERSE: OnceLock<Vec<Text>> = OnceLock::new();
    UNIVERSE.get_or_init(|| {
        let mut random = Random(11);
        let mut sketcher = Sketcher::new(SHAPE, &Key::from_bytes([7; 16]));
        let mut texts = Vec::new();
        for _ in 0..BASES {
            let base = prose(&mut random, 60);
            for edit in EDITS {
                let mut words = base[..60 - edit].to_vec();
                words.extend(prose(&mut random, edit));
                texts.push(words.join(" "));
            }
        }
        texts.extend(SHORTS.map(str::to_owned));
        let mut sketch = |text: &String| {
            let mut sketch = Sketches::default();
            let summary = sketcher.sketch(text, &mut sketch);
            let Sketches { bands, bits, neighbours } = sketch;
            Text { digest: summary.digest, short: summary.short, bands, bits, neighbours }
        };
        texts.iter().map(&mut sketch).collect()
    })
}

#[derive(Debug, Clone)]
pub struct Page {
    pub text: usize,
    pub url: Option<u8>,
    pub host: Option<u8>,
    pub time: Time,
    pub remember: bool,
    pub source: u16,
}

#[derive(Debug, Clone, Copy)]
pub enum Time {
    /// So many seconds off the time that the stream has reached.
    Off(i64),
    Absent,
    Unreadable,
    /// So many milliseconds after 1970.
    Ancient(i64),
}

/// A page of the stream as judge and model see it.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub page: Page,
    pub origin: Origin,
    pub event_time: EventTime,
}

impl Delivery {
    pub fn name(&self) -> Option<String> {
        self.page.url.map(|url| format!("https://example.com/{url}"))
    }

    pub fn id(&self) -> Option<String> {
        self.origin.offset.is_multiple_of(3).then(|| format!("id {}", self.origin.offset))
    }

    pub fn url_key(&self) -> Option<u64> {
        self.page.url.map(url_key)
    }
}

pub fn url_key(url: u8) -> u64 {
    pagesieve::sketch::keyed::mix(u64::from(url) + 1)
}

#[derive(Debug, Clone)]
pub struct Setup {
    pub capacity: usize,
    pub max_age_seconds: Option<u32>,
    pub refresh_on_match: bool,
    pub late: Late,
    pub max_pages_per_host: usize,
}

/// What is said of a page, by judge or model, in words that can be compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub verdict: Verdict,
    pub rule: Option<SkipRule>,
    /// Origin, event time, id, URL.
    pub canonical: Option<(Origin, u32, Option<String>, Option<String>)>,
    pub resemblance: Option<f32>,
    pub remembered: bool,
    pub replaced: Option<Origin>,
    pub event_time: u32,
}

/// What happened to the window meanwhile.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    pub evicted: Vec<(&'static str, Option<u32>)>,
    pub times_clamped: [u64; 3],
    pub quota_refused: u64,
    pub late_pages: u64,
    pub short_pages: u64,
}

/// What is compared with the threshold.
pub fn resemblance(left: &Text, right: &Text) -> f32 {
    Estimator::new(SHAPE.bytes).resemblance(&left.bits, &left.neighbours, &right.bits)
}

#[derive(Debug, Clone)]
pub struct Entry {
    /// Entries are told apart by when they came: a page redelivered after its time is remembered beside its old self.
    pub serial: u64,
    pub delivery: Delivery,
    pub updated: bool,
    pub event_time: u32,
}

impl Entry {
    pub fn text(&self) -> &'static Text {
        &universe()[self.delivery.page.text]
    }

    pub fn rank(&self) -> (u32, Origin) {
        (self.event_time, self.delivery.origin)
    }
}

#[derive(Debug, Clone)]
pub struct Model {
    pub setup: Setup,
    pub pages: LruCache<u64, Entry>,
    pub num_remembered: u64,
    /// Every event time that moved the clock, in order.
    pub times: Vec<u32>,
    pub seen: Seen,
}

impl Model {
    pub fn new(setup: Setup) -> Self {
        Self { setup, pages: LruCache::unbounded(), num_remembered: 0, times: Vec::new(), seen: Seen::default() }
    }

    /// The median of the last 1,001 times, once 101 are known.
    pub fn now(&self) -> Option<u32> {
        let mut last = self.times[self.times.len().saturating_sub(1001)..].to_vec();
        last.sort_unstable();
        (last.len() >= 101).then(|| last[last.len() / 2])
    }

    pub fn oldest(&self) -> u32 {
        self.now().zip(self.setup.max_age_seconds).map_or(0, |(now, age)| now.saturating_sub(age))
    }

    pub fn is_past(&self, entry: &Entry) -> bool {
        entry.event_time != NO_TIME && entry.event_time < self.oldest()
    }

    pub fn evict(&mut self, serial: u64, reason: Evicted) {
        let entry = self.pages.pop(&serial).expect("the model evicts what it has");
        let age = self.now().filter(|_| entry.event_time != NO_TIME).map(|now| now.saturating_sub(entry.event_time));
        self.seen.evicted.push((reason.name(), age));
    }

    /// Of these pages those within the window.
    pub fn live(&self, of: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let pages = self.pages.iter().map(|(_, entry)| entry);
        pages.filter(|entry| of(entry) && !self.is_past(entry)).cloned().collect()
    }

    /// The page of this URL; one past the window is forgotten.
    pub fn own(&mut self, url: u8) -> Option<Entry> {
        let own =
            self.pages.iter().map(|(_, entry)| entry).find(|entry| entry.delivery.page.url == Some(url)).cloned()?;
        if self.is_past(&own) {
            self.evict(own.serial, Evicted::Age);
            return None;
        }
        Some(own)
    }

    pub fn place_in_time(&mut self, delivery: &Delivery) -> (u32, bool) {
        let (now, oldest) = (self.now(), self.oldest());
        let seconds = match delivery.event_time {
            EventTime::Absent => return (now.unwrap_or(NO_TIME), false),
            EventTime::Unreadable => {
                self.seen.times_clamped[2] += 1;
                return (now.unwrap_or(NO_TIME), false);
            }
            EventTime::At(millis) if millis < 1000 => {
                self.seen.times_clamped[1] += 1;
                1
            }
            EventTime::At(millis) => (millis / 1000) as u32,
        };
        if seconds < oldest {
            return (seconds, true);
        }
        if delivery.page.remember {
            self.times.push(seconds);
        }
        // No time, and none that was taken on trust before the clock was known, is more than an hour ahead of the
        // clock.
        let Some(clock) = now.or(self.now()) else { return (seconds, false) };
        let ahead = |time: u32| time > clock + 3600;
        if now.is_none() {
            for (_, entry) in self.pages.iter_mut().filter(|(_, entry)| ahead(entry.event_time)) {
                entry.event_time = clock;
                self.seen.times_clamped[0] += 1;
            }
        }
        self.seen.times_clamped[0] += u64::from(ahead(seconds));
        (if ahead(seconds) { clock } else { seconds }, false)
    }

    pub fn judge(&mut self, delivery: &Delivery) -> Said {
        let (event_time, late) = self.place_in_time(delivery);
        let text = &universe()[delivery.page.text];
        let mut said = Said {
            verdict: Verdict::Unique,
            rule: None,
            canonical: None,
            resemblance: None,
            remembered: false,
            replaced: None,
            event_time,
        };
        self.seen.late_pages += u64::from(late);
        if late && self.setup.late == Late::Forward {
            return Said { verdict: Verdict::Skipped, rule: Some(SkipRule::Late), ..said };
        }
        self.seen.short_pages += u64::from(text.short);
        // The sweep: the two least recently used pages, if they are past the window.
        for _ in 0..2 {
            let past = self.pages.peek_lru().filter(|(_, entry)| self.is_past(entry)).map(|(serial, _)| *serial);
            past.into_iter().for_each(|serial| self.evict(serial, Evicted::Age));
        }
        let own = delivery.page.url.and_then(|url| self.own(url));
        let exact = self.live(|entry| entry.text().digest == text.digest).into_iter().min_by_key(Entry::rank);
        for entry in [&own, &exact].into_iter().flatten() {
            if entry.delivery.origin == delivery.origin {
                said.verdict = if entry.updated { Verdict::Updated } else { Verdict::Unique };
                return said;
            }
        }
        let (verdict, canonical, resemblance) = self.find(text, own.clone(), exact);
        said.verdict = verdict;
        said.resemblance = resemblance;
        said.canonical = canonical.as_ref().map(|canonical| {
            let Entry { delivery, event_time, .. } = canonical;
            (delivery.origin, *event_time, delivery.id(), delivery.name())
        });
        if verdict.is_duplicate() {
            let canonical = canonical.expect("a duplicate has a canonical");
            let entry = self.pages.get_mut(&canonical.serial).expect("it is live");
            if self.setup.refresh_on_match {
                entry.event_time = entry.event_time.max(event_time);
            }
        } else {
            self.remember(delivery, late, own, &mut said);
        }
        said
    }

    pub fn find(
        &mut self,
        text: &Text,
        own: Option<Entry>,
        exact: Option<Entry>,
    ) -> (Verdict, Option<Entry>, Option<f32>) {
        let verify = |entry: &Entry| resemblance(text, entry.text());
        let own_resemblance = own.as_ref().filter(|_| !text.short).map(verify);
        if own.as_ref().is_some_and(|own| own.text().digest == text.digest) {
            return (Verdict::Unchanged, own, Some(1.0));
        }
        if own_resemblance.is_some_and(|resemblance| resemblance >= THRESHOLD) {
            return (Verdict::Updated, own, own_resemblance);
        }
        if exact.is_some() {
            return (Verdict::ExactDuplicate, exact, Some(1.0));
        }
        let own_origin = own.as_ref().map(|own| own.delivery.origin);
        let candidates = self.live(|entry| {
            let share = entry.text().bands.iter().zip(&text.bands).any(|(left, right)| left == right);
            share && !entry.text().short && !text.short && Some(entry.delivery.origin) != own_origin
        });
        let matches = candidates.into_iter().filter(|entry| verify(entry) >= THRESHOLD);
        let best = matches.min_by(|a, b| verify(b).total_cmp(&verify(a)).then(a.rank().cmp(&b.rank())));
        if let Some(best) = best {
            let resemblance = verify(&best);
            return (Verdict::NearDuplicate, Some(best), Some(resemblance));
        }
        (if own.is_some() { Verdict::Updated } else { Verdict::Unique }, own, own_resemblance)
    }

    pub fn remember(&mut self, delivery: &Delivery, late: bool, own: Option<Entry>, said: &mut Said) {
        if !delivery.page.remember || late && self.setup.late != Late::Remember {
            return;
        }
        if let Some(own) = own {
            if said.event_time < own.event_time {
                return;
            }
            said.replaced = Some(own.delivery.origin);
            self.evict(own.serial, Evicted::Replaced);
        } else if let Some(host) = delivery.page.host {
            let same_host = |entry: &Entry| entry.delivery.page.host == Some(host);
            if self.pages.iter().filter(|(_, entry)| same_host(entry)).count() >= self.setup.max_pages_per_host {
                self.seen.quota_refused += 1;
                return;
            }
        }
        if late {
            said.event_time = self.now().expect("nothing is late without a clock");
        }
        if self.pages.len() >= self.setup.capacity {
            let least_recent = *self.pages.peek_lru().expect("a full window has a page").0;
            self.evict(least_recent, Evicted::Capacity);
        }
        let updated = said.verdict == Verdict::Updated;
        let serial = self.num_remembered;
        self.num_remembered += 1;
        self.pages.put(serial, Entry { serial, delivery: delivery.clone(), updated, event_time: said.event_time });
        said.remembered = true;
    }

    pub fn forget(&mut self, url: u8) -> Option<Origin> {
        let found =
            self.pages.iter().map(|(_, entry)| entry).find(|entry| entry.delivery.page.url == Some(url)).cloned()?;
        self.evict(found.serial, Evicted::Forgotten);
        Some(found.delivery.origin)
    }

    pub fn by_recency(&self) -> Vec<Origin> {
        self.pages.iter().map(|(_, entry)| entry.delivery.origin).collect()
    }
}
