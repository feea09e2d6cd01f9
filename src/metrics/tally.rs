//! Counts of one thread, added to the shared registry once a batch.
//!
//! An atomic per page and metric costs little alone, but threads that count half a million pages a second in the same
//! cache lines wait for each other. A tally is plain memory of its thread; `flush` touches the registry, once per metric
//! that moved. What was not flushed is on drop.

use prometheus::Histogram;
use prometheus::local::{LocalHistogram, LocalIntCounter};

use super::Metrics;

/// A thread's own counts since its last [`flush`](LocalTally::flush). The indices are those of the constant arrays in
/// [`super`]: one past the end panics.
pub struct LocalTally {
    pages: [LocalIntCounter; 7],
    rejected: [LocalIntCounter; 10],
    skipped: [LocalIntCounter; 8],
    cache_hits: LocalIntCounter,
    cache_misses: LocalIntCounter,
    candidates: [LocalIntCounter; 3],
    candidates_per_page: LocalHistogram,
    resemblance: LocalHistogram,
    near_threshold: LocalIntCounter,
    short_pages: LocalIntCounter,
    late_pages: LocalIntCounter,
    match_age: LocalHistogram,
    evictions: [LocalIntCounter; 4],
    eviction_age: [LocalHistogram; 4],
    bucket_overflow: LocalIntCounter,
    quota_refused: LocalIntCounter,
    clamped: [LocalIntCounter; 3],
    processing: LocalHistogram,
    page_latency: LocalHistogram,
}

impl LocalTally {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            pages: metrics.pages_total.each_ref().map(|it| it.local()),
            rejected: metrics.pages_rejected_total.each_ref().map(|it| it.local()),
            skipped: metrics.pages_skipped_total.each_ref().map(|it| it.local()),
            cache_hits: metrics.exact_cache_hits_total.local(),
            cache_misses: metrics.exact_cache_misses_total.local(),
            candidates: metrics.candidates_total.each_ref().map(|it| it.local()),
            candidates_per_page: metrics.candidates_per_page.local(),
            resemblance: metrics.resemblance.local(),
            near_threshold: metrics.near_threshold_total.local(),
            short_pages: metrics.short_pages_total.local(),
            late_pages: metrics.late_pages_total.local(),
            match_age: metrics.match_age_seconds.local(),
            evictions: metrics.index_evictions_total.each_ref().map(|it| it.local()),
            eviction_age: metrics.eviction_age_seconds.each_ref().map(Histogram::local),
            bucket_overflow: metrics.bucket_overflow_total.local(),
            quota_refused: metrics.quota_refused_total.local(),
            clamped: metrics.timestamps_clamped_total.each_ref().map(|it| it.local()),
            processing: metrics.processing_seconds.local(),
            page_latency: metrics.page_latency_seconds.local(),
        }
    }

    /// A page got `VERDICTS[verdict]`.
    pub fn count_verdict(&mut self, verdict: usize) {
        self.pages[verdict].inc();
    }

    /// A page was rejected for `REASONS[reason]`; its verdict is counted apart.
    pub fn count_rejected(&mut self, reason: usize) {
        self.rejected[reason].inc();
    }

    /// A page was skipped by `RULES[rule]`; its verdict is counted apart.
    pub fn count_skipped(&mut self, rule: usize) {
        self.skipped[rule].inc();
    }

    /// Pages looked up in the cache of the hottest digests.
    pub fn count_exact_cache(&mut self, hits: u64, misses: u64) {
        self.cache_hits.inc_by(hits);
        self.cache_misses.inc_by(misses);
    }

    /// Candidates verified, in the order of `CANDIDATE_RESULTS`.
    pub fn count_candidates(&mut self, results: [u64; 3]) {
        self.candidates.iter().zip(results).for_each(|(counter, count)| counter.inc_by(count));
    }

    /// How many candidates one page had.
    pub fn observe_candidates(&mut self, num_candidates: u32) {
        self.candidates_per_page.observe(f64::from(num_candidates));
    }

    /// The estimated resemblance of a verified candidate. The estimator can fall below 0 by chance, and a histogram's sum
    /// must not fall: such a value (or NaN) counts as 0.
    pub fn observe_resemblance(&mut self, resemblance: f64) {
        self.resemblance.observe(not_negative(resemblance));
    }

    /// Pages whose best candidate lay so close to the threshold that the estimate's error could have decided.
    pub fn count_near_threshold(&mut self, pages: u64) {
        self.near_threshold.inc_by(pages);
    }

    /// Pages judged by their digest alone.
    pub fn count_short_pages(&mut self, pages: u64) {
        self.short_pages.inc_by(pages);
    }

    /// Pages whose event time was older than the window.
    pub fn count_late_pages(&mut self, pages: u64) {
        self.late_pages.inc_by(pages);
    }

    /// Event time from the matched page to the page, in seconds; 0 if they come in the other order.
    pub fn observe_match_age(&mut self, seconds: f64) {
        self.match_age.observe(not_negative(seconds));
    }

    /// A page was evicted for `EVICTION_REASONS[reason]`, `age_seconds` of event time after its own if that is known.
    pub fn count_eviction(&mut self, reason: usize, age_seconds: Option<f64>) {
        self.evictions[reason].inc();
        age_seconds.into_iter().for_each(|age| self.eviction_age[reason].observe(not_negative(age)));
    }

    /// `num_keys` keys found both their buckets full.
    pub fn count_bucket_overflow(&mut self, num_keys: u64) {
        self.bucket_overflow.inc_by(num_keys);
    }

    /// Pages not remembered because of their host's share.
    pub fn count_quota_refused(&mut self, pages: u64) {
        self.quota_refused.inc_by(pages);
    }

    /// Event times replaced, in the order of `CLAMP_SIDES`.
    pub fn count_timestamps_clamped(&mut self, sides: [u64; 3]) {
        self.clamped.iter().zip(sides).for_each(|(counter, count)| counter.inc_by(count));
    }

    /// Seconds from receiving a page to its commit.
    pub fn observe_processing(&mut self, seconds: f64) {
        self.processing.observe(not_negative(seconds));
    }

    /// Seconds from a page's record timestamp to its commit; 0 if that timestamp lies in the future.
    pub fn observe_page_latency(&mut self, seconds: f64) {
        self.page_latency.observe(not_negative(seconds));
    }

    /// Adds everything counted since the last flush to the registry.
    pub fn flush(&mut self) {
        let single = [
            &self.cache_hits,
            &self.cache_misses,
            &self.near_threshold,
            &self.short_pages,
            &self.late_pages,
            &self.bucket_overflow,
            &self.quota_refused,
        ];
        let families =
            [&self.pages[..], &self.rejected, &self.skipped, &self.candidates, &self.evictions, &self.clamped];
        for counter in families.into_iter().flatten().chain(single) {
            counter.flush();
        }
        for histogram in
            [&self.candidates_per_page, &self.resemblance, &self.match_age, &self.processing, &self.page_latency]
        {
            histogram.flush();
        }
        self.eviction_age.iter().for_each(LocalHistogram::flush);
    }
}

impl Drop for LocalTally {
    fn drop(&mut self) {
        self.flush();
    }
}

/// `value`, or 0 for what is below it or not a number.
fn not_negative(value: f64) -> f64 {
    value.max(0.0)
}
