//! What must hold of everything read back, whatever happened in between.
//!
//! (a) every cluster of copies has a survivor; (b) every page has a fate: survivor, verdict record or dead letter;
//! (c) no page has two; (d) every drop names a page that was emitted; (e) surplus survivors are few.

use super::daemon::Setup;
use super::topics::{Feeder, Origin, Record, origin_of, read_all};
use pagesieve::generate::{Generator, Kind, Settings, Truth, resemblance};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What became of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// It is on the output topic, in this partition.
    Survived { verdict: String, partition: i32, record: Record },
    /// Only a verdict record tells of it.
    Recorded { verdict: String, canonical: Option<Origin>, record: serde_json::Value },
    /// It is among the dead letters.
    Rejected { reason: String, record: Record },
}

impl Fate {
    fn name(&self) -> String {
        match self {
            Fate::Survived { verdict, .. } => format!("survived as {verdict}"),
            Fate::Recorded { verdict, canonical, .. } => format!("{verdict} of {canonical:?}"),
            Fate::Rejected { reason, .. } => format!("rejected: {reason}"),
        }
    }
}

/// May a page meet the same fate twice?
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Repeats {
    Never,
    AfterACrash,
}

/// What became of every page.
pub struct Outcome {
    pub fates: BTreeMap<Origin, Vec<Fate>>,
    output_partitions: i32,
}

impl Outcome {
    /// Reads the output, verdict and dead-letter topics.
    pub fn read(setup: &Setup) -> Self {
        let mut fates: BTreeMap<Origin, Vec<Fate>> = BTreeMap::new();
        for ((_, partition, _), record) in read_all(&setup.output()) {
            let origin = origin_of(record.header("pagesieve-origin").expect("every survivor says where it came from"));
            let verdict = record.header("pagesieve-verdict").expect("every survivor says why").to_owned();
            fates.entry(origin).or_default().push(Fate::Survived { verdict, partition, record });
        }
        for (_, record) in read_all(&setup.verdicts()) {
            let record = record.json();
            let origin = origin_of(record["origin"].as_str().expect("every verdict record has an origin"));
            let verdict = record["verdict"].as_str().expect("and a verdict").to_owned();
            let canonical = record["canonical"]["position"].as_str().map(origin_of);
            fates.entry(origin).or_default().push(Fate::Recorded { verdict, canonical, record });
        }
        for (_, record) in read_all(&setup.dead_letters()) {
            let header = |name: &str| record.header(name).unwrap_or_else(|| panic!("a dead letter without {name}"));
            let number = |name: &str| header(name).parse::<i64>().expect("a number");
            let partition = number("pagesieve-error-partition") as i32;
            let origin = (header("pagesieve-error-topic").to_owned(), partition, number("pagesieve-error-offset"));
            let reason = header("pagesieve-error-reason").to_owned();
            fates.entry(origin).or_default().push(Fate::Rejected { reason, record });
        }
        Self { fates, output_partitions: super::topics::num_partitions(&setup.output()) }
    }

    /// The first fate of a page.
    pub fn of(&self, origin: &Origin) -> &Fate {
        &self.fates.get(origin).unwrap_or_else(|| panic!("{origin:?} has no fate"))[0]
    }

    /// A page's verdict, or the reason why it has none.
    pub fn verdict(&self, origin: &Origin) -> &str {
        match self.of(origin) {
            Fate::Survived { verdict, .. } | Fate::Recorded { verdict, .. } => verdict,
            Fate::Rejected { reason, .. } => reason,
        }
    }

    /// The page that a page was measured against.
    pub fn canonical(&self, origin: &Origin) -> Option<Origin> {
        match self.of(origin) {
            Fate::Survived { record, .. } => record.header("pagesieve-canonical-position").map(origin_of),
            Fate::Recorded { canonical, .. } => canonical.clone(),
            Fate::Rejected { .. } => None,
        }
    }

    /// Is the page on the output topic?
    pub fn is_emitted(&self, origin: &Origin) -> bool {
        self.fates.get(origin).is_some_and(|fates| fates.iter().any(|fate| matches!(fate, Fate::Survived { .. })))
    }

    /// (b), (c) and (d), and that pages come out as they went in.
    pub fn check(&self, sent: &BTreeMap<Origin, Record>, repeats: Repeats) {
        let (mut wrong, mut repeated, mut changes) = (Vec::new(), 0, 0);
        for origin in sent.keys().filter(|origin| !self.fates.contains_key(origin)) {
            wrong.push(format!("{origin:?} is lost"));
        }
        for (origin, fates) in &self.fates {
            let Some(sent) = sent.get(origin) else {
                wrong.push(format!("{origin:?} was never sent"));
                continue;
            };
            if fates.len() > 1 {
                repeated += 1;
                // A page that was remembered keeps its verdict, one that was not may be judged differently the next
                // time. Whatever is said then, a page that was emitted stays so.
                let changed = fates.iter().any(|fate| fate.name() != fates[0].name());
                changes += usize::from(changed);
                if repeats == Repeats::Never || fates.len() > 2 {
                    let names = fates.iter().map(Fate::name).collect::<Vec<_>>();
                    wrong.push(format!("{origin:?} has {} fates: {}", fates.len(), names.join(", ")));
                }
            }
            let complaints = fates.iter().filter_map(|fate| self.complaint(sent, origin, fate)).collect::<Vec<_>>();
            // What was said before a crash and said again after it may have been about pages that the crash undid.
            if complaints.len() == fates.len() || repeats == Repeats::Never {
                wrong.extend(complaints.into_iter().map(|what| format!("{origin:?}: {what}")));
            }
        }
        if repeated > 0 {
            println!("{repeated} of {} pages were repeated, {changes} of them with another verdict", sent.len());
        }
        let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(wrong.is_empty(), "{} things are wrong with {} pages, first:\n{shown}", wrong.len(), sent.len());
    }

    fn complaint(&self, sent: &Record, origin: &Origin, fate: &Fate) -> Option<String> {
        match fate {
            Fate::Survived { partition, record, .. } => {
                let (_, of_origin, _) = origin;
                if partition != of_origin && *of_origin < self.output_partitions {
                    return Some(format!("forwarded to partition {partition}"));
                }
                let added = record.headers.get(sent.headers.len()..).unwrap_or_default();
                let only_ours = added.iter().all(|(name, _)| name.starts_with("pagesieve-"));
                let same = (&sent.key, &sent.value) == (&record.key, &record.value)
                    && record.headers.starts_with(&sent.headers)
                    && sent.timestamp_ms.is_none_or(|time| Some(time) == record.timestamp_ms);
                (!same || !only_ours).then(|| format!("changed on its way: {sent:?} → {record:?}"))
            }
            Fate::Recorded { verdict, canonical, .. } => match canonical {
                None => Some(format!("{verdict} without a canonical")),
                Some(canonical) => (!self.is_emitted(canonical))
                    .then(|| format!("{verdict} of {canonical:?}, which was never emitted")),
            },
            Fate::Rejected { record, .. } if record.header("pagesieve-error-left-out").is_some() => None,
            Fate::Rejected { record, .. } => {
                let cut = record.header("pagesieve-error-truncated-from-bytes").is_some();
                let (was, is) =
                    (sent.value.as_deref().unwrap_or_default(), record.value.as_deref().unwrap_or_default());
                let same = if cut { was.starts_with(is) } else { was == is };
                (!same || !record.headers.starts_with(&sent.headers) || record.key != sent.key)
                    .then(|| "a dead letter is not the record".to_owned())
            }
        }
    }

    /// How many pages met each fate.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for fate in self.fates.values().flatten() {
            let name = match fate {
                Fate::Survived { verdict, .. } => format!("survived as {verdict}"),
                Fate::Recorded { verdict, .. } => format!("recorded as {verdict}"),
                Fate::Rejected { .. } => "rejected".to_owned(),
            };
            *counts.entry(name).or_insert(0) += 1;
        }
        counts
    }
}

/// A generated crawl in a topic, with what is known of it.
pub struct Crawl {
    pub sent: BTreeMap<Origin, Record>,
    truth: BTreeMap<Origin, Truth>,
}

/// The crawl of the tests: short pages, so that the generator does not outweigh the daemon.
pub fn crawl_settings(pages: u64, seed: u64) -> Settings {
    Settings { pages, seed, mean_words: 200, ..Settings::default() }
}

/// A crawl that is being fed.
pub struct Feeding {
    thread: JoinHandle<Crawl>,
    release: Option<Sender<()>>,
}

impl Feeding {
    /// Waits until all of it is in the topic.
    pub fn finish(mut self) -> Crawl {
        drop(self.release.take());
        self.thread.join().expect("the crawl is fed")
    }
}

/// Feeds a crawl into these partitions of a topic, `rate` pages a second.
pub fn feed(topic: &str, partitions: Range<i32>, settings: Settings, rate: f64) -> Feeding {
    let mut feeding = feed_most(topic, partitions, settings, rate);
    drop(feeding.release.take());
    feeding
}

/// The same, but the last quarter waits until the caller wants it finished.
pub fn feed_most(topic: &str, partitions: Range<i32>, settings: Settings, rate: f64) -> Feeding {
    let topic = topic.to_owned();
    let (release, released) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let held_from = settings.pages as usize * 3 / 4;
        let started = Instant::now();
        let mut feeder = Feeder::new();
        let (mut records, mut truths) = (Vec::new(), Vec::new());
        for page in Generator::new(settings) {
            if records.len() == held_from {
                // An error is the release: the sender is gone.
                let _ = released.recv();
            }
            let due = Duration::from_secs_f64(records.len() as f64 / rate);
            std::thread::sleep(due.saturating_sub(started.elapsed()));
            let record = Record {
                key: page.url.map(String::into_bytes),
                value: Some(page.line),
                timestamp_ms: page.event_time_ms,
                headers: vec![("crawl".into(), Some(b"7".to_vec())), ("empty".into(), None)],
            };
            // Not in strict turns: pages and their copies are to lie in all combinations of partitions.
            let scattered = (page.truth.line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as i32;
            feeder.send(&topic, partitions.start + scattered % partitions.len() as i32, &record);
            records.push(record);
            truths.push(page.truth);
        }
        let origins = feeder.finish();
        Crawl { sent: origins.iter().cloned().zip(records).collect(), truth: origins.into_iter().zip(truths).collect() }
    });
    Feeding { thread, release: Some(release) }
}

impl Crawl {
    /// The whole oracle.
    pub fn check(&self, outcome: &Outcome, repeats: Repeats) {
        outcome.check(&self.sent, repeats);
        self.check_clusters(outcome);
        self.check_drops(outcome);
        self.check_verdicts(outcome);
    }

    /// (a)
    pub fn check_clusters(&self, outcome: &Outcome) {
        let mut clusters: BTreeMap<u64, bool> = BTreeMap::new();
        for (origin, truth) in &self.truth {
            if !matches!(truth.kind, Kind::Bad) {
                *clusters.entry(truth.of.unwrap_or(truth.line)).or_default() |= outcome.is_emitted(origin);
            }
        }
        let dead = clusters.iter().filter(|(_, alive)| !**alive).map(|(line, _)| line).collect::<Vec<_>>();
        assert!(dead.is_empty(), "{} clusters without a survivor, first of line {:?}", dead.len(), dead.first());
    }

    /// Dropped pages do resemble the pages they were dropped for, counted exactly on their words.
    pub fn check_drops(&self, outcome: &Outcome) {
        // The threshold less five standard errors of an estimate at 0.8 between very long pages.
        const SURELY_APART: f64 = 0.8 - 5.0 * 0.02;
        let text =
            |origin: &Origin| self.sent[origin].json()["text"].as_str().expect("dropped pages have text").to_owned();
        for (origin, fates) in &outcome.fates {
            let Some(Fate::Recorded { verdict, canonical: Some(canonical), .. }) = fates.first() else { continue };
            let of = resemblance(&text(origin), &text(canonical));
            let least = if verdict == "exact_duplicate" { 1.0 } else { SURELY_APART };
            assert!(of >= least, "{origin:?} is dropped as {verdict} of {canonical:?}, but resembles it only by {of}");
        }
    }

    /// (e), and that pages which owe nothing to their order have the verdict that is known of them.
    fn check_verdicts(&self, outcome: &Outcome) {
        let (mut right, mut asked) = (0, 0);
        let (mut least, mut most) = (0, 0);
        for (origin, truth) in &self.truth {
            let expect = truth.expect.as_str();
            match expect {
                "skipped" | "rejected" => {
                    let is = match outcome.of(origin) {
                        Fate::Rejected { .. } => "rejected",
                        _ => outcome.verdict(origin),
                    };
                    assert_eq!(is, expect, "{origin:?}, {truth:?}");
                }
                "unique" if matches!(truth.kind, Kind::Late) => {
                    asked += 1;
                    right += usize::from(outcome.verdict(origin) == expect);
                }
                "near_duplicate" | "exact_duplicate" => (least, most) = (least + 1, most + 1),
                "either" => most += 1,
                _ => {}
            }
        }
        assert!(right * 100 >= asked * 97, "{right} of {asked} late pages are unique");
        let dropped = outcome.fates.values().filter(|fates| matches!(fates[0], Fate::Recorded { .. })).count();
        // Where partitions overtake each other, a copy may come before its source, and a second copy may resemble
        // the source enough but not the first copy: then one more survives.
        let (least, most) = (least as f64 * 0.95, most as f64 * 1.02);
        println!("{dropped} dropped, {least:.0} to {most:.0} expected");
        assert!((least..=most).contains(&(dropped as f64)), "{dropped} dropped, expected {least} to {most}");
    }
}
