//! A generated crawl: fed into a topic at a rate, with what is known of it, against which an outcome is held.

use super::daemon::Setup;
use super::oracle::{Fate, Outcome, Repeats, Report};
use super::topics::{Origin, Record};
use pagesieve::generate::{Generator, Kind, Settings, Truth, resemblance};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// How a crawl is fed.
pub struct Feed {
    pub settings: Settings,
    pub partitions: Range<i32>,
    /// Pages a second.
    pub rate: f64,
    /// This share of it and no more, until the caller wants it finished.
    pub at_first: f64,
    /// What is done to each record, given its number, before it is sent.
    pub alter: fn(usize, &mut Record),
    /// What is done to each before it is kept for the oracle.
    pub keep: fn(&mut Record),
}

/// Feeds a crawl into these partitions of the first input topic, `rate` pages a second.
pub fn feed(setup: &Setup, partitions: Range<i32>, settings: Settings, rate: f64) -> Feeding {
    Feed { settings, partitions, rate, at_first: 1.0, alter: |_, _| {}, keep: |_| {} }.start(setup)
}

/// The same, but the last quarter waits until the caller wants it finished.
pub fn feed_most(setup: &Setup, partitions: Range<i32>, settings: Settings, rate: f64) -> Feeding {
    Feed { settings, partitions, rate, at_first: 0.75, alter: |_, _| {}, keep: |_| {} }.start(setup)
}

impl Feed {
    /// Begins.
    pub fn start(self, setup: &Setup) -> Feeding {
        let Self { settings, partitions, rate, at_first, alter, keep } = self;
        let topic = setup.inputs[0].clone();
        let mut feeder = setup.cluster.feeder();
        let (release, released) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let held_from = (settings.pages as f64 * at_first) as usize;
            let started = Instant::now();
            let (mut records, mut truths) = (Vec::new(), Vec::new());
            for page in Generator::new(settings) {
                if records.len() == held_from {
                    // An error is the release: the sender is gone.
                    let _ = released.recv();
                }
                let due = Duration::from_secs_f64(records.len() as f64 / rate);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
                let mut record = Record {
                    key: page.url.map(String::into_bytes),
                    value: Some(page.line),
                    timestamp_ms: page.event_time_ms,
                    headers: vec![("crawl".into(), Some(b"7".to_vec())), ("empty".into(), None)],
                };
                alter(records.len(), &mut record);
                // Not in strict turns: pages and their copies are to lie in all combinations of partitions.
                let scattered = (page.truth.line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as i32;
                feeder.send(&topic, partitions.start + scattered % partitions.len() as i32, &record);
                keep(&mut record);
                records.push(record);
                truths.push(page.truth);
            }
            let origins = feeder.finish();
            let sent = origins.iter().cloned().zip(records).collect();
            Crawl { sent, truth: origins.into_iter().zip(truths).collect() }
        });
        Feeding { thread, release: Some(release) }
    }
}

/// What an outcome is held to.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub repeats: Repeats,
    /// (e) was the window whole all the time? Without one, copies get through and only the rest is promised.
    pub whole_window: bool,
}

impl Crawl {
    /// The whole oracle: holds, or panics.
    pub fn check(&self, outcome: &Outcome, repeats: Repeats) {
        self.report(outcome, Terms { repeats, whole_window: true }).assert_sound();
    }

    /// The same without (e).
    pub fn check_without_window(&self, outcome: &Outcome, repeats: Repeats) {
        self.report(outcome, Terms { repeats, whole_window: false }).assert_sound();
    }

    /// The whole oracle.
    pub fn report(&self, outcome: &Outcome, terms: Terms) -> Report {
        let mut report = outcome.report(&self.sent, terms.repeats);
        self.clusters(outcome, &mut report);
        self.drops(outcome, &mut report);
        self.verdicts(outcome, terms, &mut report);
        report
    }

    /// Takes further records in, of which nothing is known beforehand, and returns how many are new.
    pub fn add(&mut self, origins: &[Origin], records: &[Record]) -> usize {
        let before = self.sent.len();
        for (origin, record) in origins.iter().zip(records) {
            self.sent.entry(origin.clone()).or_insert_with(|| record.clone());
        }
        self.sent.len() - before
    }

    /// Forgets pages that the topic had lost before anybody could read them, and returns how many those were.
    pub fn forget(&mut self, is_gone: impl Fn(&Origin) -> bool) -> usize {
        let before = self.sent.len();
        self.sent.retain(|origin, _| !is_gone(origin));
        self.truth.retain(|origin, _| !is_gone(origin));
        before - self.sent.len()
    }

    /// (a)
    fn clusters(&self, outcome: &Outcome, report: &mut Report) {
        let mut clusters: BTreeMap<u64, bool> = BTreeMap::new();
        for (origin, truth) in &self.truth {
            if !matches!(truth.kind, Kind::Bad) {
                *clusters.entry(truth.of.unwrap_or(truth.line)).or_default() |= outcome.is_emitted(origin);
            }
        }
        let gone = clusters.iter().filter(|(_, alive)| !**alive).map(|(line, _)| line).collect::<Vec<_>>();
        report.clusters_gone = gone.len();
        if let Some(first) = gone.first() {
            report.wrong(format!("{} clusters without a survivor, first of line {first}", gone.len()));
        }
    }

    /// Dropped pages do resemble the pages they were dropped for, counted exactly on their words.
    fn drops(&self, outcome: &Outcome, report: &mut Report) {
        // The threshold less five standard errors of an estimate at 0.8 between very long pages.
        const SURELY_APART: f64 = 0.8 - 5.0 * 0.02;
        let text = |origin: &Origin| {
            let value: serde_json::Value = serde_json::from_slice(self.sent.get(origin)?.value.as_deref()?).ok()?;
            Some(value["text"].as_str()?.to_owned())
        };
        for (origin, fates) in &outcome.fates {
            let Some(Fate::Recorded { verdict, canonical: Some(canonical), .. }) = fates.first() else { continue };
            // Pages that are not of the crawl are complained of elsewhere.
            let (Some(dropped), Some(kept)) = (text(origin), text(canonical)) else { continue };
            let of = resemblance(&dropped, &kept);
            let least = if verdict == "exact_duplicate" { 1.0 } else { SURELY_APART };
            if of < least {
                report.wrong(format!("{origin:?} is dropped as {verdict} of {canonical:?}, but resembles it by {of}"));
            }
        }
    }

    /// (e), and that pages which owe nothing to their order have the verdict that is known of them.
    fn verdicts(&self, outcome: &Outcome, terms: Terms, report: &mut Report) {
        let (mut right, mut asked) = (0, 0);
        let (mut least, mut most, mut dropped) = (0, 0, 0);
        let there: HashSet<u64> = self.truth.values().map(|truth| truth.line).collect();
        for (origin, truth) in &self.truth {
            let Some(fates) = outcome.fates.get(origin) else { continue };
            dropped += usize::from(matches!(fates[0], Fate::Recorded { .. }));
            let of_lost = truth.of.is_some_and(|of| !there.contains(&of));
            match truth.expect.as_str() {
                expect @ ("skipped" | "rejected") => {
                    let is = match &fates[0] {
                        Fate::Rejected { .. } => "rejected",
                        _ => outcome.verdict(origin),
                    };
                    if is != expect {
                        report.wrong(format!("{origin:?} is {is}, not {expect}: {truth:?}"));
                    }
                }
                "unique" if matches!(truth.kind, Kind::Late) => {
                    asked += 1;
                    right += usize::from(outcome.verdict(origin) == "unique");
                }
                "near_duplicate" | "exact_duplicate" if !of_lost => (least, most) = (least + 1, most + 1),
                "either" | "near_duplicate" | "exact_duplicate" => most += 1,
                _ => {}
            }
        }
        report.surplus = usize::saturating_sub(least, dropped);
        if right * 100 < asked * 97 {
            report.wrong(format!("{right} of {asked} late pages are unique"));
        }
        // Where partitions overtake each other, a copy may come before its source, and a second copy may resemble
        // the source enough but not the first copy: then one more survives.
        let (fewest, most) = (least as f64 * 0.95, most as f64 * 1.02);
        println!("{dropped} dropped, {fewest:.0} to {most:.0} expected");
        let fewest = if terms.whole_window { fewest } else { 0.0 };
        if !(fewest..=most).contains(&(dropped as f64)) {
            report.wrong(format!("{dropped} dropped, expected {fewest} to {most}"));
        }
    }
}
