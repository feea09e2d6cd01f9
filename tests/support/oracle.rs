//! What must hold of everything read back, whatever happened in between.
//!
//! (a) every cluster of copies has a survivor; (b) every page has a fate: survivor, verdict record or dead letter;
//! (c) no page has two; (d) every drop names a page that was emitted; (e) surplus survivors are few.

use super::daemon::Setup;
use super::topics::{Origin, Record, origin_of};
use std::collections::BTreeMap;

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
    /// Once more for each of so many faults.
    After(usize),
}

/// What is wrong with an outcome, counted.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Pages sent.
    pub pages: usize,
    /// (a) Clusters of copies of which none came out.
    pub clusters_gone: usize,
    /// (b) Pages without a fate.
    pub lost: usize,
    /// (c) Pages with a second fate.
    pub doubled: usize,
    /// (d) Drops that name a page that was never emitted.
    pub orphans: usize,
    /// (e) Copies that came out, less those that were dropped although that was not expected.
    pub surplus: usize,
    /// Everything that breaks a promise, in words.
    pub wrong: Vec<String>,
}

impl Report {
    /// Panics with what is wrong.
    pub fn assert_sound(&self) {
        let Self { pages, wrong, .. } = self;
        let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(wrong.is_empty(), "{} things are wrong with {pages} pages, first:\n{shown}", wrong.len());
    }

    /// Notes what breaks a promise.
    pub fn wrong(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }
}

/// What became of every page.
pub struct Outcome {
    pub fates: BTreeMap<Origin, Vec<Fate>>,
    output_partitions: i32,
}

impl Outcome {
    /// Reads the output, verdict and dead-letter topics.
    pub fn read(setup: &Setup) -> Self {
        Self::read_with(setup, |_| {})
    }

    /// The same, and does something to each survivor and dead letter before it is kept.
    pub fn read_with(setup: &Setup, alter: fn(&mut Record)) -> Self {
        let mut fates: BTreeMap<Origin, Vec<Fate>> = BTreeMap::new();
        for ((_, partition, _), record) in setup.cluster.read_with(&setup.output(), alter) {
            let origin = origin_of(record.header("pagesieve-origin").expect("every survivor says where it came from"));
            let verdict = record.header("pagesieve-verdict").expect("every survivor says why").to_owned();
            fates.entry(origin).or_default().push(Fate::Survived { verdict, partition, record });
        }
        for (_, record) in setup.cluster.read_all(&setup.verdicts()) {
            let record = record.json();
            let origin = origin_of(record["origin"].as_str().expect("every verdict record has an origin"));
            let verdict = record["verdict"].as_str().expect("and a verdict").to_owned();
            let canonical = record["canonical"]["position"].as_str().map(origin_of);
            fates.entry(origin).or_default().push(Fate::Recorded { verdict, canonical, record });
        }
        for (_, record) in setup.cluster.read_with(&setup.dead_letters(), alter) {
            let header = |name: &str| record.header(name).unwrap_or_else(|| panic!("a dead letter without {name}"));
            let number = |name: &str| header(name).parse::<i64>().expect("a number");
            let partition = number("pagesieve-error-partition") as i32;
            let origin = (header("pagesieve-error-topic").to_owned(), partition, number("pagesieve-error-offset"));
            let reason = header("pagesieve-error-reason").to_owned();
            fates.entry(origin).or_default().push(Fate::Rejected { reason, record });
        }
        Self { fates, output_partitions: setup.cluster.num_partitions(&setup.output()) }
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

    /// (b), (c) and (d), and that pages come out as they went in: holds, or panics.
    pub fn check(&self, sent: &BTreeMap<Origin, Record>, repeats: Repeats) {
        self.report(sent, repeats).assert_sound();
    }

    /// (b), (c) and (d), and whether pages came out as they went in.
    pub fn report(&self, sent: &BTreeMap<Origin, Record>, repeats: Repeats) -> Report {
        let mut report = Report { pages: sent.len(), ..Report::default() };
        let most = if let Repeats::After(faults) = repeats { faults + 1 } else { 1 };
        let mut changes = 0;
        for origin in sent.keys().filter(|origin| !self.fates.contains_key(origin)) {
            report.lost += 1;
            report.wrong(format!("{origin:?} is lost"));
        }
        for (origin, fates) in &self.fates {
            let Some(sent) = sent.get(origin) else {
                report.wrong(format!("{origin:?} was never sent"));
                continue;
            };
            if fates.len() > 1 {
                report.doubled += 1;
                // A page that was remembered keeps its verdict, one that was not may be judged differently the next
                // time. Whatever is said then, a page that was emitted stays so.
                changes += usize::from(fates.iter().any(|fate| fate.name() != fates[0].name()));
            }
            if fates.len() > most {
                let names = fates.iter().map(Fate::name).collect::<Vec<_>>();
                report.wrong(format!("{origin:?} has {} fates: {}", fates.len(), names.join(", ")));
            }
            let complaints = fates.iter().filter_map(|fate| self.complaint(sent, origin, fate)).collect::<Vec<_>>();
            // What was said before a crash and said again after it may have been about pages that the crash undid.
            if complaints.len() == fates.len() || repeats == Repeats::Never {
                report.orphans += usize::from(complaints.iter().any(|(is_orphan, _)| *is_orphan));
                complaints.into_iter().for_each(|(_, what)| report.wrong(format!("{origin:?}: {what}")));
            }
        }
        if report.doubled > 0 {
            println!(
                "{} of {} pages were repeated, {changes} of them with another verdict",
                report.doubled,
                sent.len()
            );
        }
        report
    }

    /// What is wrong with a fate, if anything, and whether it is that it names a page that was never emitted.
    fn complaint(&self, sent: &Record, origin: &Origin, fate: &Fate) -> Option<(bool, String)> {
        match fate {
            Fate::Survived { partition, record, .. } => {
                let (_, of_origin, _) = origin;
                if partition != of_origin && *of_origin < self.output_partitions {
                    return Some((false, format!("forwarded to partition {partition}")));
                }
                let added = record.headers.get(sent.headers.len()..).unwrap_or_default();
                let only_ours = added.iter().all(|(name, _)| name.starts_with("pagesieve-"));
                let same = (&sent.key, &sent.value) == (&record.key, &record.value)
                    && record.headers.starts_with(&sent.headers)
                    && sent.timestamp_ms.is_none_or(|time| Some(time) == record.timestamp_ms);
                (!same || !only_ours).then(|| (false, format!("changed on its way: {sent:?} → {record:?}")))
            }
            Fate::Recorded { verdict, canonical, .. } => match canonical {
                None => Some((true, format!("{verdict} without a canonical"))),
                Some(canonical) => (!self.is_emitted(canonical))
                    .then(|| (true, format!("{verdict} of {canonical:?}, which was never emitted"))),
            },
            Fate::Rejected { record, .. } if record.header("pagesieve-error-left-out").is_some() => None,
            Fate::Rejected { record, .. } => {
                let cut = record.header("pagesieve-error-truncated-from-bytes").is_some();
                let (was, is) =
                    (sent.value.as_deref().unwrap_or_default(), record.value.as_deref().unwrap_or_default());
                let same = if cut { was.starts_with(is) } else { was == is };
                (!same || !record.headers.starts_with(&sent.headers) || record.key != sent.key)
                    .then(|| (false, "a dead letter is not the record".to_owned()))
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
