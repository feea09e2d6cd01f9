//! What a run of `filter` did, in numbers.

use crate::index::judge::Judge;
use crate::index::{Evicted, Index};
use crate::metrics::Metrics;
use crate::page::{Reason, SkipRule};
use crate::verdict::{NotJudged, Verdict};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Counts of outcomes.
#[derive(Debug, Clone, Default)]
pub struct Report {
    verdicts: [u64; 7],
    skipped: [u64; 8],
    rejected: [u64; 10],
    /// Bytes of all pages.
    pub bytes: u64,
}

impl Report {
    /// Counts one page.
    pub fn count(&mut self, verdict: Verdict, reason: Option<&NotJudged>) {
        self.verdicts[verdict as usize] += 1;
        match reason {
            Some(NotJudged::Skipped(rule)) => self.skipped[*rule as usize] += 1,
            Some(NotJudged::Rejected(reject)) => self.rejected[reject.reason as usize] += 1,
            None => {}
        }
    }

    /// Pages of a verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict as usize]
    }

    /// All pages.
    pub fn pages(&self) -> u64 {
        self.verdicts.iter().sum()
    }

    /// Pages republished.
    pub fn survivors(&self) -> u64 {
        Verdict::ALL.iter().filter(|verdict| verdict.survives()).map(|verdict| self.of(*verdict)).sum()
    }

    /// Reasons of rejects that occurred, with their counts.
    pub fn rejected(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::ALL
            .iter()
            .map(|reason| (reason.name(), self.rejected[*reason as usize]))
            .filter(|(_, count)| *count > 0)
    }

    /// Rules of skips that occurred, with their counts.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        SkipRule::ALL.iter().map(|rule| (rule.name(), self.skipped[*rule as usize])).filter(|(_, count)| *count > 0)
    }

    /// The report as `--report` writes it.
    pub fn to_json(&self, judge: &Judge, metrics: &Metrics, elapsed: Duration) -> Value {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let index: &Index = judge.index();
        let counts = |pairs: Vec<(&'static str, u64)>| {
            Value::Object(pairs.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<_, _>>())
        };
        let pages = index.num_pages();
        json!({
            "pages": self.pages(),
            "survivors": self.survivors(),
            "unique": self.of(Verdict::Unique),
            "exact_duplicates": self.of(Verdict::ExactDuplicate),
            "near_duplicates": self.of(Verdict::NearDuplicate),
            "unchanged": self.of(Verdict::Unchanged),
            "updated": self.of(Verdict::Updated),
            "skipped": counts(self.skipped().collect()),
            "rejected": counts(self.rejected().collect()),
            "seconds": seconds,
            "pages_per_second": self.pages() as f64 / seconds,
            "bytes_per_second": self.bytes as f64 / seconds,
            "index": {
                "pages": pages,
                "bytes": index.bytes(),
                "bytes_per_page": index.plan().bytes_per_page(),
                "capacity_pages": index.plan().capacity_pages,
                "evicted": counts(
                    Evicted::ALL.iter().map(|it| (it.name(), metrics.index_evictions_total[*it as usize].get())).collect()
                ),
            },
        })
    }
}
