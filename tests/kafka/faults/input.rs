//! What happens to what comes in and where it may go: pages that are gone, that nobody can judge or that do not fit,
//! clocks that are wrong, partitions that are added, more pages than there is memory for.

use super::{Case, Found, Run, Skipped, Trial};
use crate::daemon::SOON;
use crate::feeding::{Feed, crawl_settings};
use crate::flow::bad_records;
use crate::oracle::Outcome;
use crate::text;
use crate::topics::{Origin, Record};
use std::time::SystemTime;

pub const ROWS: &[(&str, Run, bool)] = &[
    ("retention passes the committed offset", retention_passes_the_commit, true),
    ("retention passes the position of a member", retention_passes_the_position, false),
    ("poison pages in a transaction that is killed", poison, false),
    ("event times a day ahead, then a day behind", |case| clocks(case, "7d"), false),
    ("the same with a window of twelve hours", |case| clocks(case, "12h"), false),
    ("timestamps that the output topic refuses", refused_timestamps, false),
    ("a partition added under load", partition_added, false),
    ("memory at the cap, and a restart", memory_at_the_cap, true),
    ("a sink with a smaller message limit", |case| limited(case, 0.0), false),
    ("a sink whose limit shrinks meanwhile", |case| limited(case, 0.2), false),
];

const DAY_MS: i64 = 86_400_000;

/// Waits until so much of the crawl is in the topic.
fn wait_fed(trial: &Trial) {
    let progress = trial.setup.progress();
    let fed = || progress.look().values().map(|(_, end)| end).sum::<i64>();
    let deadline = std::time::Instant::now() + SOON;
    while fed() < (trial.case.pages as f64 * super::AT_FIRST) as i64 {
        assert!(std::time::Instant::now() < deadline, "the crawl is not fed");
    }
}

/// Dead for so long that pages are gone which it had not read.
fn retention_passes_the_commit(case: &Case) -> Result<Found, Skipped> {
    let mut trial = Trial::begin(case, case.setup());
    trial.wait_committed(0.2);
    trial.kill();
    wait_fed(&trial);
    let look = trial.setup.progress().look();
    let places = look.into_iter().filter(|((_, partition), _)| *partition < 2);
    let places =
        places.map(|((_, partition), (committed, end))| (partition, committed, committed + (end - committed) / 2));
    let places = places.collect::<Vec<_>>();
    let ends = places.iter().map(|(partition, _, end)| (*partition, *end)).collect::<Vec<_>>();
    trial.setup.cluster.trim(&trial.setup.inputs[0], &ends);
    trial.start();
    let mut crawl = trial.drain();
    let counted = trial.daemon().metric("pagesieve_gap_offsets_total");
    let outcome = Outcome::read(&trial.setup);
    // At least once: what came out before the kill and was not committed is not lost, though gone from the input.
    crawl.forget(|origin| {
        let (_, partition, offset) = origin;
        let is_gone = |(of, from, to): &(i32, i64, i64)| of == partition && (*from..*to).contains(offset);
        places.iter().any(is_gone) && !outcome.fates.contains_key(origin)
    });
    let gone = places.iter().map(|(_, from, to)| to - from).sum::<i64>();
    trial.fault(format!("{gone} pages trimmed"));
    let (mut found, _) = trial.count(&mut crawl, true);
    if gone == 0 || counted != gone as f64 {
        found.report.wrong(format!("{gone} pages were gone, {counted} counted"));
    }
    Ok(found)
}

/// Stopped for so long that the pages after those it has fetched are gone.
fn retention_passes_the_position(case: &Case) -> Result<Found, Skipped> {
    let case = &case.lasting(4.0);
    let mut trial = Trial::begin(case, case.setup());
    trial.wait_committed(0.2);
    trial.daemon().signal(libc::SIGSTOP);
    wait_fed(&trial);
    let look = trial.setup.progress().look();
    let ends = look.into_iter().filter(|((_, partition), _)| *partition < 2).map(|((_, it), (_, end))| (it, end));
    let ends = ends.collect::<Vec<_>>();
    trial.setup.cluster.trim(&trial.setup.inputs[0], &ends);
    trial.daemon().signal(libc::SIGCONT);
    let mut crawl = trial.drain();
    let counted = trial.daemon().metric("pagesieve_gap_offsets_total");
    let outcome = Outcome::read(&trial.setup);
    let is_gone = |origin: &Origin| {
        let (_, partition, offset) = origin;
        ends.iter().any(|(of, end)| of == partition && offset < end) && !outcome.fates.contains_key(origin)
    };
    let gone = crawl.forget(is_gone);
    trial.fault(format!("{gone} pages trimmed while it was stopped"));
    let (mut found, _) = trial.count(&mut crawl, true);
    if gone == 0 || counted != gone as f64 {
        found.report.wrong(format!("{gone} pages were gone, {counted} counted"));
    }
    Ok(found)
}

/// What nobody can judge, or only with an effort, and what is said of it.
fn poison_pages() -> Vec<(Record, &'static str)> {
    let mut pages = bad_records();
    pages.retain(|(_, reason)| *reason != "too_large");
    let page = |number: u64, text: &str| Record::page(&format!("https://poison.example/{number}"), text);
    pages.extend([
        (page(0, &text(1_000_000, 1_300_000)), "sink_limit"),
        (page(1, &"word ".repeat(300_000)), "unique"),
        (page(2, &text(1_000_001, 180_000)), "unique"),
        (page(3, &text(1_000_002, 300).replace(' ', "\0")), "unique"),
        (page(4, &"<p>".repeat(300_000)), "unique"),
    ]);
    pages
}

/// They come first, so that they are in the transaction that does not come to its end.
fn poison(case: &Case) -> Result<Found, Skipped> {
    let setup = case.setup().with("kafka.commit_interval", r#""1s""#);
    setup.cluster.set_topic(&setup.inputs[0], &[("max.message.bytes", "20000000")]);
    let (records, verdicts): (Vec<_>, Vec<_>) = poison_pages().into_iter().unzip();
    let origins = setup.cluster.send(&setup.inputs[0], &records);
    let mut trial = Trial::without_daemon(case, setup, |_, _| {});
    wait_fed(&trial);
    for at in ["before-commit:1", "produce:20"] {
        let mut daemon = trial.setup.start_in(&[("PAGESIEVE_CRASH_AT", at)]);
        daemon.wait_exit(SOON);
        trial.fault(format!("{} poison pages, SIGKILL at {at}", records.len()));
    }
    trial.start();
    let mut crawl = trial.drain();
    crawl.add(&origins, &records);
    let (mut found, outcome) = trial.count(&mut crawl, true);
    expect(&mut found, &outcome, origins.iter().zip(verdicts));
    Ok(found)
}

/// Notes what was judged otherwise.
fn expect<'a>(found: &mut Found, outcome: &Outcome, pages: impl Iterator<Item = (&'a Origin, &'static str)>) {
    for (origin, verdict) in pages.filter(|(origin, _)| outcome.fates.contains_key(*origin)) {
        let is = outcome.verdict(origin);
        if is != verdict {
            found.report.wrong(format!("{origin:?} is {is}, not {verdict}"));
        }
    }
}

/// Moves a page's time, and its record's, by whole days.
fn shift(record: &mut Record, days: i64, date: &[u8; 10]) {
    const BEFORE: &[u8] = b"\"fetched_at\":\"";
    const DATE: &[u8] = b"2026-01-01";
    let value = record.value.as_deref_mut().unwrap_or_default();
    // In place: some lines are no JSON, or not even text, and are to stay as bad as they are.
    let at = value.windows(BEFORE.len()).position(|bytes| bytes == BEFORE).map(|at| at + BEFORE.len());
    if let Some(old) = at.and_then(|at| value.get_mut(at..at + DATE.len())).filter(|old| *old == DATE) {
        old.copy_from_slice(date);
    }
    record.timestamp_ms = record.timestamp_ms.map(|time| time + days * DAY_MS);
}

/// A third of the crawl is a day ahead, and a third a day behind.
fn clocks(case: &Case, max_age: &str) -> Result<Found, Skipped> {
    let setup = case.setup().with("window.max_age", format!("{max_age:?}"));
    let alter = |number: usize, record: &mut Record| match number / 300 % 3 {
        1 => shift(record, 1, b"2026-01-02"),
        2 => shift(record, -1, b"2025-12-31"),
        _ => {}
    };
    let mut trial = Trial::begin_altered(case, setup, alter);
    trial.fault("300 pages of today, tomorrow, yesterday in turn");
    trial.wait_committed(0.4);
    trial.kill();
    trial.start();
    let mut crawl = trial.drain();
    Ok(trial.count(&mut crawl, max_age == "7d").0)
}

/// The input topic takes timestamps far ahead of the broker's clock, the output topic does not.
fn refused_timestamps(case: &Case) -> Result<Found, Skipped> {
    let setup = case.setup();
    setup.cluster.set_topic(&setup.inputs[0], &[("message.timestamp.after.max.ms", &i64::MAX.to_string())]);
    let alter = |number: usize, record: &mut Record| {
        if number % 500 == 250 {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
            record.timestamp_ms = Some(now.as_millis() as i64 + 2 * DAY_MS);
        }
    };
    let mut trial = Trial::begin_altered(case, setup, alter);
    trial.fault("one page in 500 is two days ahead of the broker");
    trial.end()
}

fn partition_added(case: &Case) -> Result<Found, Skipped> {
    let mut trial = Trial::begin(case, case.setup());
    trial.wait_committed(0.2);
    trial.setup.cluster.add_partitions(&trial.setup.inputs[0], 5);
    trial.fault("a fifth partition");
    let feed = Feed {
        settings: crawl_settings(case.pages / 4, 4),
        partitions: 4..5,
        rate: f64::INFINITY,
        at_first: 1.0,
        alter: |_, _| {},
        keep: |_| {},
    };
    let added = feed.start(&trial.setup).finish();
    let mut crawl = trial.finish_feeding();
    trial.wait_drained();
    let (origins, records): (Vec<_>, Vec<_>) = added.sent.into_iter().unzip();
    crawl.add(&origins, &records);
    Ok(trial.count(&mut crawl, true).0)
}

/// Many times the pages that fit.
fn memory_at_the_cap(case: &Case) -> Result<Found, Skipped> {
    const MIB: u64 = 1 << 20;
    // Beside the window: queues, buffers and the program, with every thread at work.
    const BESIDE: u64 = 200 * MIB;
    let case = &Case { pages: case.pages * 5, rate: f64::INFINITY, ..*case };
    let setup = case.setup().with("window.max_memory", r#""1MiB""#).with("pipeline.prefetch_memory", r#""16MiB""#);
    let mut trial = Trial::begin(case, setup);
    trial.wait_committed(0.5);
    let capacity = trial.daemon().metric("pagesieve_index_capacity_pages");
    let mut highest = trial.daemon().resident_bytes().1;
    trial.kill();
    trial.start();
    let mut crawl = trial.drain();
    highest = highest.max(trial.daemon().resident_bytes().1);
    let evicted = trial.daemon().metric("pagesieve_index_evictions_total");
    trial.fault(format!("room for {capacity} pages, {evicted} evicted, {} MiB resident at most", highest / MIB));
    let (mut found, _) = trial.count(&mut crawl, false);
    if highest > MIB + BESIDE {
        found.report.wrong(format!("{} MiB resident", highest / MIB));
    }
    if evicted < capacity / 2.0 {
        found.report.wrong(format!("only {evicted} pages were evicted"));
    }
    Ok(found)
}

/// The output topic takes less than some pages need, from the beginning or since this share is committed.
fn limited(case: &Case, since: f64) -> Result<Found, Skipped> {
    let setup = case.setup();
    let limit = [("max.message.bytes", "20000")];
    if since == 0.0 {
        setup.cluster.set_topic(&setup.output(), &limit);
    }
    let mut trial = Trial::begin(case, setup);
    trial.wait_committed(since);
    if since > 0.0 {
        trial.setup.cluster.set_topic(&trial.setup.output(), &limit);
    }
    let large =
        |number: u64| Record::page(&format!("https://large.example/{number}"), &text(2_000_000 + number, 5_000));
    let records = (0..10).map(large).collect::<Vec<_>>();
    let origins = trial.setup.cluster.send(&trial.setup.inputs[0], &records);
    trial.fault("ten pages over 20,000 bytes");
    let mut crawl = trial.drain();
    crawl.add(&origins, &records);
    let (mut found, outcome) = trial.count(&mut crawl, true);
    expect(&mut found, &outcome, origins.iter().map(|origin| (origin, "sink_limit")));
    Ok(found)
}
