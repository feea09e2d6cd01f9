//! What the stages saw → metrics. Beside the flow, never in it.

use crate::batch::{JudgedBatch, SketchedBatch};
use crate::index::judge::Judge;
use crate::metrics::{LocalTally, Metrics};
use crate::verdict::NotJudged;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Numbers of the stages in [`crate::metrics::STAGES`].
pub const SKETCH: usize = 0;
/// See [`SKETCH`].
pub const JUDGE: usize = 1;
/// See [`SKETCH`].
pub const PUBLISH: usize = 2;

/// Takes over what the judge saw in a batch.
pub fn judged(tally: &mut LocalTally, metrics: &Metrics, judge: &mut Judge) {
    let seen = &mut judge.tally;
    seen.candidates.iter().for_each(|count| tally.observe_candidates(*count));
    seen.resemblances.iter().for_each(|resemblance| tally.observe_resemblance(f64::from(*resemblance)));
    seen.match_ages.iter().for_each(|age| tally.observe_match_age(f64::from(*age)));
    for eviction in &seen.evictions {
        tally.count_eviction(eviction.reason as usize, eviction.age_seconds.map(f64::from));
    }
    tally.count_candidates([seen.candidates_matched, seen.candidates_below, seen.candidates_unrelated]);
    tally.count_exact_cache(seen.cache_hits, seen.cache_misses);
    tally.count_near_threshold(seen.near_threshold);
    tally.count_short_pages(seen.short_pages);
    tally.count_late_pages(seen.late_pages);
    tally.count_bucket_overflow(seen.bucket_overflows);
    tally.count_quota_refused(seen.quota_refused);
    tally.count_timestamps_clamped(seen.times_clamped);
    tally.flush();
    seen.clear();
    metrics.index_pages.set(judge.index().num_pages() as i64);
}

/// Counts a delivered batch's outcomes.
pub fn delivered(tally: &mut LocalTally, judged: &JudgedBatch, batch: &SketchedBatch) {
    for at in 0..batch.pages.len() {
        tally.count_verdict(judged.judged[at].verdict as usize);
        match judged.not_judged(at) {
            Some(NotJudged::Skipped(rule)) => tally.count_skipped(rule as usize),
            Some(NotJudged::Rejected(reject)) => tally.count_rejected(reject.reason as usize),
            None => {}
        }
    }
}

/// A batch that waits for its commit.
pub struct Published {
    received_at: Option<Instant>,
    /// Timestamp of its first record, in milliseconds, and how many there are.
    oldest_ms: Option<i64>,
    pages: usize,
}

impl Published {
    /// What has to be known of it then.
    pub fn new(batch: &SketchedBatch) -> Self {
        Self {
            received_at: batch.received.received_at,
            oldest_ms: batch.received.deliveries.first().and_then(|delivery| delivery.timestamp_ms),
            pages: batch.pages.len(),
        }
    }

    /// It has been committed: every page took as long as its batch's first one.
    pub fn committed(self, tally: &mut LocalTally) {
        let processing = self.received_at.map(|at| at.elapsed().as_secs_f64());
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64);
        let latency = self.oldest_ms.map(|oldest| now_ms.saturating_sub(oldest).max(0) as f64 / 1e3);
        for _ in 0..self.pages {
            processing.into_iter().for_each(|seconds| tally.observe_processing(seconds));
            latency.into_iter().for_each(|seconds| tally.observe_page_latency(seconds));
        }
    }
}
