//! What the judge saw, as plain numbers: filled without locks, emptied once a batch into the metrics.

use super::Evicted;

/// A page that was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// Why.
    pub reason: Evicted,
    /// Its age by the window's clock, where both times are known.
    pub age_seconds: Option<u32>,
}

/// Counts and observations since the last [`Tally::clear`].
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Candidates that each probed page had; bounded by the batch.
    pub candidates: Vec<u32>,
    /// Estimated resemblance of every verified candidate.
    pub resemblances: Vec<f32>,
    /// Candidates at or above the threshold.
    pub candidates_matched: u64,
    /// Candidates below the threshold.
    pub candidates_below: u64,
    /// Candidates that share no band but a tag: resemblance below [`Tally::UNRELATED_BELOW`].
    pub candidates_unrelated: u64,
    /// Pages whose best candidate was within 0.05 of the threshold.
    pub near_threshold: u64,
    /// Age of the canonical page at each match, in seconds.
    pub match_ages: Vec<u32>,
    /// Pages forgotten.
    pub evictions: Vec<Eviction>,
    /// Short pages judged.
    pub short_pages: u64,
    /// Late pages judged.
    pub late_pages: u64,
    /// Keys that found no room in the table.
    pub bucket_overflows: u64,
    /// Pages not remembered because their host is at its quota.
    pub quota_refused: u64,
    /// Event times moved: ahead of the clock, before 1970, unreadable.
    pub times_clamped: [u64; 3],
    /// Exact matches found in the cache of hot digests, and not.
    pub cache_hits: u64,
    /// See `cache_hits`.
    pub cache_misses: u64,
}

impl Tally {
    /// At 12 × 5 a pair below this shares a band in one of a thousand cases: what is seen here came
    /// by an equal tag.
    pub const UNRELATED_BELOW: f32 = 0.3;

    /// Empties everything, keeping the memory.
    pub fn clear(&mut self) {
        let Self { candidates, resemblances, match_ages, evictions, .. } = std::mem::take(self);
        *self = Self { candidates, resemblances, match_ages, evictions, ..Self::default() };
        self.candidates.clear();
        self.resemblances.clear();
        self.match_ages.clear();
        self.evictions.clear();
    }
}
