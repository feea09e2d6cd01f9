//! What the daemon counts, in its own Prometheus registry.
//!
//! `Metrics` has one field per metric, named as the metric is without its `pagesieve_` prefix; the field's doc comment is
//! the metric's HELP. Every label has a closed set of values, listed here, and every child exists from the start at 0, so
//! that a rate over a series that has not moved yet is 0 and not "no data". Counters by label are arrays: the core turns
//! its own enums into an index, and the hot path never hashes a label.
//!
//! A thread that counts per page does so in a [`LocalTally`], flushed once a batch; nothing here is touched per page.

mod process;
mod tally;
#[cfg(test)]
mod tests;

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use process::Process;
pub use tally::LocalTally;

/// What can become of a page: values of `pages_total{verdict}`, in the order of its array.
pub const VERDICTS: [&str; 7] =
    ["unique", "exact_duplicate", "near_duplicate", "unchanged", "updated", "skipped", "rejected"];

/// Why a page could not be judged: values of `pages_rejected_total{reason}`.
pub const REASONS: [&str; 10] = [
    "not_json",
    "bad_utf8",
    "no_text",
    "bad_field",
    "too_large",
    "inflate_ratio",
    "nesting",
    "schema_registry",
    "sink_limit",
    "internal",
];

/// Which rule left a page unjudged: values of `pages_skipped_total{rule}`.
pub const RULES: [&str; 8] =
    ["status", "content_type", "no_body", "no_words", "url_pattern", "header", "late", "tombstone"];

/// What verifying a candidate gave: values of `candidates_total{result}`. `confirmed` is at or above the threshold;
/// `unrelated` shares no band and was met by an equal tag in a bucket.
pub const CANDIDATE_RESULTS: [&str; 3] = ["confirmed", "below_threshold", "unrelated"];

/// The stages of the pipeline: values of `stage_duration_seconds{stage}`.
pub const STAGES: [&str; 3] = ["sketch", "judge", "publish"];

/// Why a page was evicted: values of `index_evictions_total{reason}` and `eviction_age_seconds{reason}`.
pub const EVICTION_REASONS: [&str; 4] = ["age", "capacity", "replaced", "forgotten"];

/// How an event time was out of bounds: values of `timestamps_clamped_total{side}`.
pub const CLAMP_SIDES: [&str; 3] = ["future", "past", "unreadable"];

/// How a transaction ended: values of `transactions_total{result}`.
pub const TRANSACTION_RESULTS: [&str; 2] = ["committed", "aborted"];

/// Powers of two: the fan-out is bounded, and what matters is whether a page costs one look or hundreds.
const CANDIDATE_BUCKETS: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Steps of 0.05 where a threshold is likely to be set, so that the effect of moving it can be read off; coarse below,
/// where candidates are chance encounters in a band.
const RESEMBLANCE_BUCKETS: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0];

/// Ages against the window: hours within the first day, days up to the default window of 7, then weeks for longer ones.
/// A window may be shortened to the bucket above which nothing matches any more.
const AGE_BUCKETS: &[f64] = &[
    60.0,
    600.0,
    HOUR,
    3.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    3.0 * DAY,
    4.0 * DAY,
    5.0 * DAY,
    6.0 * DAY,
    7.0 * DAY,
    14.0 * DAY,
    30.0 * DAY,
    90.0 * DAY,
];

/// 1-2.5-5 steps from a small batch's sketching (50 µs) to a publish that has stopped being normal (5 s).
const STAGE_BUCKETS: &[f64] =
    &[50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0, 2.5, 5.0];

/// Fine around the default commit interval of 100 ms, which is the floor of most pages; up to a broker's transaction
/// time-out (60 s), past which the transaction is gone.
const PROCESSING_BUCKETS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// From keeping up (well under a second) to working off a backlog of days: both must be told apart from standing still.
const LATENCY_BUCKETS: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, HOUR, 6.0 * HOUR, DAY, 7.0 * DAY];

const HOUR: f64 = 3_600.0;
const DAY: f64 = 24.0 * HOUR;

/// Declares the metrics: `/// HELP`, then `name: Kind = shape`, where the shape is what the kind needs besides a name.
macro_rules! metrics {
    ($(#[$meta:meta])* pub struct $Metrics:ident { $($(#[doc = $help:literal])+ $name:ident: $Kind:ty $(= $shape:expr)?,)* }) => {
        $(#[$meta])*
        pub struct $Metrics {
            registry: Registry,
            process: Option<Process>,
            $($(#[doc = $help])+ pub $name: $Kind,)*
        }

        impl $Metrics {
            fn register(registry: Registry) -> prometheus::Result<Self> {
                Ok(Self {
                    $($name: <$Kind>::register(
                        &registry,
                        Opts::new(concat!("pagesieve_", stringify!($name)), concat!($($help),+).trim()),
                        ($($shape)?),
                    )?,)*
                    process: Process::register(&registry)?,
                    registry,
                })
            }
        }
    };
}

metrics! {
    /// All metrics of one process. Cheap to share behind an `Arc`; every field is safe to use from any thread.
    pub struct Metrics {
        /// Pages answered, by verdict.
        pages_total: [IntCounter; 7] = ("verdict", VERDICTS),
        /// Pages that could not be judged, by reason.
        pages_rejected_total: [IntCounter; 10] = ("reason", REASONS),
        /// Pages passed on unjudged, by the rule that said so.
        pages_skipped_total: [IntCounter; 8] = ("rule", RULES),
        /// Pages found in the cache of the hottest digests.
        exact_cache_hits_total: IntCounter,
        /// Pages looked up in the cache of the hottest digests and not found there.
        exact_cache_misses_total: IntCounter,
        /// Candidates (remembered pages that share a band), by what verifying them gave.
        candidates_total: [IntCounter; 3] = ("result", CANDIDATE_RESULTS),
        /// Candidates of one page.
        candidates_per_page: Histogram = CANDIDATE_BUCKETS,
        /// Estimated resemblance of verified candidates, 0 to 1.
        resemblance: Histogram = RESEMBLANCE_BUCKETS,
        /// Verified candidates so close to the threshold that the error of the estimate could have decided.
        near_threshold_total: IntCounter,
        /// Pages with too few shingles for a sketch, judged by their digest alone.
        short_pages_total: IntCounter,
        /// Pages whose event time was older than the window.
        late_pages_total: IntCounter,
        /// Event time between a page and the remembered page it matched: the curve that sizes the window.
        match_age_seconds: Histogram = AGE_BUCKETS,
        /// Time a stage worked on one batch (publish: on one transaction).
        stage_duration_seconds: [Histogram; 3] = ("stage", STAGES, STAGE_BUCKETS),
        /// Time from receiving a page to the commit of its transaction.
        processing_seconds: Histogram = PROCESSING_BUCKETS,
        /// Time from the timestamp of a page's record to the commit of its transaction.
        page_latency_seconds: Histogram = LATENCY_BUCKETS,
        /// Pages remembered now.
        index_pages: IntGauge,
        /// Memory the index holds, laid out at start.
        index_bytes: IntGauge,
        /// Pages the index can remember.
        index_capacity_pages: IntGauge,
        /// Pages evicted from the index, by reason.
        index_evictions_total: [IntCounter; 4] = ("reason", EVICTION_REASONS),
        /// Age of pages when they were evicted, in event time, by reason.
        eviction_age_seconds: [Histogram; 4] = ("reason", EVICTION_REASONS, AGE_BUCKETS),
        /// Keys that found both their buckets full and were not stored: copies found by that key alone get through.
        bucket_overflow_total: IntCounter,
        /// Pages not remembered because their host had used up its share of the window.
        quota_refused_total: IntCounter,
        /// Event times replaced by the clock of the window, by what was wrong with them.
        timestamps_clamped_total: [IntCounter; 3] = ("side", CLAMP_SIDES),
        /// Offsets of the state topic that were gone before they could be restored: pages they named may come again.
        gap_offsets_total: IntCounter,
        /// 1 if this member holds only a part of the window because others share its group, else 0.
        window_partial: IntGauge,
        /// Records of an assigned partition not yet read.
        consumer_lag: IntGaugeVec = &["topic", "partition"],
        /// Transactions, by how they ended.
        transactions_total: [IntCounter; 2] = ("result", TRANSACTION_RESULTS),
        /// Estimated time until the window is restored; 0 once it is, NaN while there is no estimate.
        restore_remaining_seconds: Gauge,
        /// Bytes of the snapshot on disk.
        snapshot_bytes: IntGauge,
        /// When the snapshot last held everything that was committed, in seconds since 1970; 0 if it never did.
        snapshot_last_success_timestamp_seconds: Gauge,
        /// Failures to write the snapshot or to read it back.
        snapshot_errors_total: IntCounter,
    }
}

impl Metrics {
    /// All series at 0. `text_version` names what turns bytes into words and goes into `pagesieve_build_info`.
    pub fn new(text_version: &str) -> Self {
        let metrics = Self::register(Registry::new())
            .expect("names are constants, valid and distinct: every test would fail here");
        let help = "Always 1; the labels say which build this is.";
        let build = Opts::new("pagesieve_build_info", help)
            .const_label("version", env!("CARGO_PKG_VERSION"))
            .const_label("text_version", text_version)
            .const_label("arch", std::env::consts::ARCH);
        let build_info = IntGauge::register(&metrics.registry, build, ()).expect("any text is a valid label value");
        build_info.set(1);
        metrics
    }

    /// Pages with the verdict `VERDICTS[index]`.
    pub fn verdict(&self, index: usize) -> &IntCounter {
        &self.pages_total[index]
    }

    /// Pages rejected for `REASONS[index]`.
    pub fn reason(&self, index: usize) -> &IntCounter {
        &self.pages_rejected_total[index]
    }

    /// Pages skipped by `RULES[index]`.
    pub fn rule(&self, index: usize) -> &IntCounter {
        &self.pages_skipped_total[index]
    }

    /// Records of an assigned partition still to be read. A negative lag, which a broker can report after a truncation,
    /// reads 0.
    pub fn set_lag(&self, topic: &str, partition: i32, lag: i64) {
        let partition = partition.to_string();
        self.consumer_lag.with_label_values(&[topic, &partition]).set(lag.max(0));
    }

    /// Ends the series of a revoked partition, so that it neither goes stale nor adds up over rebalances. One that never
    /// had a lag is no error.
    pub fn remove_partition(&self, topic: &str, partition: i32) {
        let partition = partition.to_string();
        let _never_had_a_lag = self.consumer_lag.remove_label_values(&[topic, &partition]);
    }

    /// The remaining time of a restore; `None` while it cannot be estimated, zero once it is over.
    pub fn set_restore_remaining(&self, remaining: Option<Duration>) {
        self.restore_remaining_seconds.set(remaining.map_or(f64::NAN, |it| it.as_secs_f64()));
    }

    /// A tally for one thread that counts per page.
    pub fn tally(&self) -> LocalTally {
        LocalTally::new(self)
    }

    /// Everything in Prometheus's text format, version 0.0.4. Fails only if the registry holds an inconsistent metric.
    pub fn render(&self) -> prometheus::Result<String> {
        if let Some(process) = &self.process {
            process.refresh();
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// A kind of metric: how one comes to be, given its name and what else it needs.
trait Instrument: Sized {
    /// Label values, buckets, or nothing.
    type Shape;

    fn register(registry: &Registry, opts: Opts, shape: Self::Shape) -> prometheus::Result<Self>;
}

/// Keeps a handle to what the registry now owns.
fn enter<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

impl Instrument for IntCounter {
    type Shape = ();

    fn register(registry: &Registry, opts: Opts, (): ()) -> prometheus::Result<Self> {
        enter(registry, IntCounter::with_opts(opts)?)
    }
}

impl Instrument for IntGauge {
    type Shape = ();

    fn register(registry: &Registry, opts: Opts, (): ()) -> prometheus::Result<Self> {
        enter(registry, IntGauge::with_opts(opts)?)
    }
}

impl Instrument for Gauge {
    type Shape = ();

    fn register(registry: &Registry, opts: Opts, (): ()) -> prometheus::Result<Self> {
        enter(registry, Gauge::with_opts(opts)?)
    }
}

impl Instrument for Histogram {
    type Shape = &'static [f64];

    fn register(registry: &Registry, opts: Opts, buckets: Self::Shape) -> prometheus::Result<Self> {
        enter(registry, Histogram::with_opts(HistogramOpts::from(opts).buckets(buckets.to_vec()))?)
    }
}

/// The one kind whose label values come and go: partitions as they are assigned and revoked.
impl Instrument for IntGaugeVec {
    type Shape = &'static [&'static str];

    fn register(registry: &Registry, opts: Opts, labels: Self::Shape) -> prometheus::Result<Self> {
        enter(registry, IntGaugeVec::new(opts, labels)?)
    }
}

impl<const N: usize> Instrument for [IntCounter; N] {
    type Shape = (&'static str, [&'static str; N]);

    fn register(registry: &Registry, opts: Opts, (label, values): Self::Shape) -> prometheus::Result<Self> {
        let family = enter(registry, IntCounterVec::new(opts, &[label])?)?;
        Ok(values.map(|value| family.with_label_values(&[value])))
    }
}

impl<const N: usize> Instrument for [Histogram; N] {
    type Shape = (&'static str, [&'static str; N], &'static [f64]);

    fn register(registry: &Registry, opts: Opts, (label, values, buckets): Self::Shape) -> prometheus::Result<Self> {
        let opts = HistogramOpts::from(opts).buckets(buckets.to_vec());
        let family = enter(registry, HistogramVec::new(opts, &[label])?)?;
        Ok(values.map(|value| family.with_label_values(&[value])))
    }
}
