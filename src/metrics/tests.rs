//! The text that a scraper reads, taken apart line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use super::*;

/// Every metric of the design, with its type. Written out, not derived: dashboards and alerts depend on these names.
const PRESENT_AT_START: [(&str, &str); 33] = [
    ("pagesieve_pages_total", "counter"),
    ("pagesieve_pages_rejected_total", "counter"),
    ("pagesieve_pages_skipped_total", "counter"),
    ("pagesieve_exact_cache_hits_total", "counter"),
    ("pagesieve_exact_cache_misses_total", "counter"),
    ("pagesieve_candidates_total", "counter"),
    ("pagesieve_candidates_per_page", "histogram"),
    ("pagesieve_resemblance", "histogram"),
    ("pagesieve_near_threshold_total", "counter"),
    ("pagesieve_short_pages_total", "counter"),
    ("pagesieve_late_pages_total", "counter"),
    ("pagesieve_match_age_seconds", "histogram"),
    ("pagesieve_stage_duration_seconds", "histogram"),
    ("pagesieve_processing_seconds", "histogram"),
    ("pagesieve_page_latency_seconds", "histogram"),
    ("pagesieve_index_pages", "gauge"),
    ("pagesieve_index_bytes", "gauge"),
    ("pagesieve_index_capacity_pages", "gauge"),
    ("pagesieve_index_evictions_total", "counter"),
    ("pagesieve_eviction_age_seconds", "histogram"),
    ("pagesieve_bucket_overflow_total", "counter"),
    ("pagesieve_quota_refused_total", "counter"),
    ("pagesieve_timestamps_clamped_total", "counter"),
    ("pagesieve_gap_offsets_total", "counter"),
    ("pagesieve_window_partial", "gauge"),
    ("pagesieve_transactions_total", "counter"),
    ("pagesieve_restore_remaining_seconds", "gauge"),
    ("pagesieve_snapshot_bytes", "gauge"),
    ("pagesieve_snapshot_last_success_timestamp_seconds", "gauge"),
    ("pagesieve_snapshot_errors_total", "counter"),
    ("pagesieve_build_info", "gauge"),
    ("process_cpu_seconds_total", "counter"),
    ("process_start_time_seconds", "gauge"),
];

/// Every label there may be, with all its values. `le` is bounded by the buckets, the labels of a build by the build.
const CLOSED_LABELS: [(&str, &[&[&str]]); 6] = [
    ("verdict", &[&VERDICTS]),
    ("reason", &[&REASONS, &EVICTION_REASONS]),
    ("rule", &[&RULES]),
    ("result", &[&CANDIDATE_RESULTS, &TRANSACTION_RESULTS]),
    ("stage", &[&STAGES]),
    ("side", &[&CLAMP_SIDES]),
];

/// A scrape taken apart: types by family, values by series (`name{labels}` as written).
struct Scrape {
    types: BTreeMap<String, String>,
    series: BTreeMap<String, f64>,
}

impl Scrape {
    /// Panics at the first line that is not of the format.
    fn of(metrics: &Metrics) -> Self {
        let text = metrics.render().expect("the registry is consistent");
        let (mut types, mut series) = (BTreeMap::new(), BTreeMap::new());
        let mut helped = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a help text");
                assert!(help.ends_with('.') && !help.contains("  "), "HELP is a sentence: {line}");
                helped.insert(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert!(helped.contains(name), "no HELP: {line}");
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
            } else {
                let (name, value) = line.rsplit_once(' ').expect("a series and a value");
                let value = value.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
                assert!(series.insert(name.to_owned(), value).is_none(), "twice: {line}");
            }
        }
        Self { types, series }
    }

    fn value(&self, series: &str) -> f64 {
        *self.series.get(series).unwrap_or_else(|| panic!("no series {series}"))
    }
}

/// The labels of a series as written, name and value. No value here holds a comma or a quote.
fn labels(series: &str) -> impl Iterator<Item = (&str, &str)> {
    let inside = series.split_once('{').map_or("", |(_, rest)| rest.trim_end_matches('}'));
    inside.split(',').filter_map(|label| label.split_once('=')).map(|(name, value)| (name, value.trim_matches('"')))
}

fn metrics() -> Metrics {
    Metrics::new("1")
}

#[test]
fn every_metric_is_there_from_the_start() {
    let scrape = Scrape::of(&metrics());
    for (name, kind) in PRESENT_AT_START {
        assert_eq!(scrape.types.get(name).map(String::as_str), Some(kind), "{name}");
    }
    for name in scrape.types.keys() {
        let expected = name.starts_with("process_") || PRESENT_AT_START.iter().any(|(known, _)| known == name);
        assert!(expected, "{name} is not in the design");
    }
}

#[test]
fn every_child_is_there_from_the_start_at_zero() {
    let scrape = Scrape::of(&metrics());
    for (family, label, values) in [
        ("pages_total", "verdict", &VERDICTS[..]),
        ("pages_rejected_total", "reason", &REASONS),
        ("pages_skipped_total", "rule", &RULES),
        ("candidates_total", "result", &CANDIDATE_RESULTS),
        ("stage_duration_seconds_count", "stage", &STAGES),
        ("index_evictions_total", "reason", &EVICTION_REASONS),
        ("eviction_age_seconds_count", "reason", &EVICTION_REASONS),
        ("timestamps_clamped_total", "side", &CLAMP_SIDES),
        ("transactions_total", "result", &TRANSACTION_RESULTS),
    ] {
        for value in values {
            assert_eq!(scrape.value(&format!("pagesieve_{family}{{{label}=\"{value}\"}}")), 0.0);
        }
    }
}

#[test]
fn labels_are_closed_sets_and_partitions_leave_no_trace() {
    let metrics = metrics();
    let at_start = Scrape::of(&metrics).series.len();
    for partition in 0..100 {
        metrics.set_lag("pages", partition, i64::from(partition));
    }
    let scrape = Scrape::of(&metrics);
    assert_eq!(scrape.series.len(), at_start + 100);
    for (name, value) in scrape.series.keys().flat_map(|series| labels(series)) {
        let closed = CLOSED_LABELS.iter().find(|(label, _)| *label == name);
        match (name, closed) {
            (_, Some((_, sets))) => assert!(sets.iter().any(|set| set.contains(&value)), "{name}={value}"),
            ("topic" | "partition" | "le" | "version" | "text_version" | "arch", None) => {}
            _ => panic!("{name} is not a known label"),
        }
    }
    for partition in 0..100 {
        metrics.remove_partition("pages", partition);
    }
    metrics.remove_partition("never seen", 0);
    assert_eq!(Scrape::of(&metrics).series.len(), at_start);
}

#[test]
fn lag_is_never_negative() {
    let metrics = metrics();
    for (lag, expected) in [(7, 7.0), (0, 0.0), (-1, 0.0), (i64::MIN, 0.0)] {
        metrics.set_lag("pages", 3, lag);
        let series = "pagesieve_consumer_lag{partition=\"3\",topic=\"pages\"}";
        assert_eq!(Scrape::of(&metrics).value(series), expected, "{lag}");
    }
}

#[test]
fn handles_are_those_of_the_registry() {
    let metrics = metrics();
    metrics.verdict(2).inc();
    metrics.reason(9).inc_by(2);
    metrics.rule(7).inc_by(3);
    let scrape = Scrape::of(&metrics);
    for (series, expected) in [
        ("pagesieve_pages_total{verdict=\"near_duplicate\"}", 1.0),
        ("pagesieve_pages_rejected_total{reason=\"internal\"}", 2.0),
        ("pagesieve_pages_skipped_total{rule=\"tombstone\"}", 3.0),
    ] {
        assert_eq!(scrape.value(series), expected, "{series}");
    }
}

/// Calls everything a tally has, with the index `i` modulo each array's length.
fn fill(tally: &mut LocalTally, i: usize) {
    tally.count_verdict(i % 7);
    tally.count_rejected(i % 10);
    tally.count_skipped(i % 8);
    tally.count_exact_cache(1, 1);
    tally.count_candidates([0, 1, 2].map(|result| u64::from(i % 3 == result)));
    tally.observe_candidates(2);
    tally.observe_resemblance(0.875);
    tally.count_near_threshold(1);
    tally.count_short_pages(1);
    tally.count_late_pages(1);
    tally.observe_match_age(3_600.0);
    tally.count_eviction(i % 4, Some(3_600.0));
    tally.count_bucket_overflow(1);
    tally.count_quota_refused(1);
    tally.count_timestamps_clamped([0, 1, 2].map(|side| u64::from(i % 3 == side)));
    tally.observe_processing(0.125);
    tally.observe_page_latency(0.125);
}

#[test]
fn a_tally_reaches_the_registry_whole_and_once() {
    let metrics = metrics();
    let before = Scrape::of(&metrics);
    let mut tally = metrics.tally();
    // A multiple of every array's length, so that all children get the same share.
    let num_pages = 840;
    (0..num_pages).for_each(|i| fill(&mut tally, i));
    assert_eq!(Scrape::of(&metrics).value("pagesieve_short_pages_total"), 0.0, "nothing before the flush");
    tally.flush();
    tally.flush();
    drop(tally);

    let after = Scrape::of(&metrics);
    // What the judge does not count per page.
    let elsewhere = ["stage_duration", "gap_offsets", "transactions", "snapshot_errors"];
    for (name, kind) in PRESENT_AT_START {
        let Some(short) = name.strip_prefix("pagesieve_") else { continue };
        let suffix = match kind {
            "counter" => "",
            "histogram" => "_count",
            _ => continue,
        };
        let total = |scrape: &Scrape| -> f64 {
            let of_family = |series: &str| series.split('{').next() == Some(&format!("{name}{suffix}"));
            scrape.series.iter().filter(|(series, _)| of_family(series)).map(|(_, value)| value).sum()
        };
        let expected = if elsewhere.iter().any(|it| short.starts_with(it)) { 0.0 } else { num_pages as f64 };
        assert_eq!(total(&after) - total(&before), expected, "{name}");
    }
}

#[test]
fn what_is_not_flushed_is_on_drop() {
    let metrics = metrics();
    let mut tally = metrics.tally();
    tally.count_verdict(0);
    drop(tally);
    assert_eq!(metrics.verdict(0).get(), 1);
}

#[test]
fn tallies_of_several_threads_add_up() {
    let metrics = metrics();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut tally = metrics.tally();
                for i in 0..1_000 {
                    fill(&mut tally, i);
                    if i % 100 == 0 {
                        tally.flush();
                    }
                }
            });
        }
    });
    assert_eq!(metrics.short_pages_total.get(), 4_000);
    assert_eq!(metrics.resemblance.get_sample_count(), 4_000);
}

#[test]
fn a_histogram_never_sums_downwards() {
    let metrics = metrics();
    let mut tally = metrics.tally();
    for value in [-0.3, f64::NAN, -0.0, 0.0] {
        tally.observe_resemblance(value);
        tally.observe_match_age(value);
    }
    tally.flush();
    for histogram in [&metrics.resemblance, &metrics.match_age_seconds] {
        assert_eq!(histogram.get_sample_count(), 4);
        assert_eq!(histogram.get_sample_sum(), 0.0);
    }
    assert_eq!(Scrape::of(&metrics).value("pagesieve_resemblance_bucket{le=\"0.1\"}"), 4.0);
}

#[test]
fn remaining_restore_time() {
    let metrics = metrics();
    metrics.set_restore_remaining(Some(Duration::from_secs(12)));
    assert_eq!(metrics.restore_remaining_seconds.get(), 12.0);
    metrics.set_restore_remaining(None);
    assert!(Scrape::of(&metrics).value("pagesieve_restore_remaining_seconds").is_nan());
}

#[test]
fn any_text_version_is_a_label_value() {
    for text_version in ["1", "", "a \"quoted\" one", "two\nlines"] {
        let metrics = Metrics::new(text_version);
        assert!(metrics.render().expect("renders").contains("pagesieve_build_info{"), "{text_version:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_process_is_described() {
    let scrape = Scrape::of(&metrics());
    for (series, at_least) in [
        ("process_resident_memory_bytes", 100_000.0),
        ("process_virtual_memory_bytes", 1_000_000.0),
        ("process_threads", 1.0),
        ("process_open_fds", 3.0),
        ("process_start_time_seconds", 1.7e9),
        ("process_cpu_seconds_total", 0.0),
    ] {
        assert!(scrape.value(series) >= at_least, "{series} = {}", scrape.value(series));
    }
}

#[test]
fn promtool_finds_nothing_to_say() {
    let check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = check else {
        eprintln!("skipped: promtool is not on the PATH");
        return;
    };
    let metrics = metrics();
    metrics.set_lag("pages", 0, 1);
    let text = metrics.render().expect("the registry is consistent");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(text.as_bytes()).expect("promtool reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
