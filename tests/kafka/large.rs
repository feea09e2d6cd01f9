//! A window of millions of pages, killed and gone on with: as quick as promised, and the verdicts are those of a judge
//! that was never interrupted. For a release, not for every change.

use crate::daemon::{SOON, Setup};
use crate::snapshot::{wait_kept, with_snapshot};
use crate::topics::{Feeder, Origin, Record, origin_of};
use crate::{edited, text};
use pagesieve::batch::{self, Delivery, ReceivedBatch};
use pagesieve::config;
use pagesieve::index::judge::{Judge, Rules};
use pagesieve::index::plan::Plan;
use pagesieve::page::decode::Decoder;
use pagesieve::pipeline::sketch_stage::SketchStage;
use pagesieve::sketch::{Shape, Sketcher};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Pages before the kill. All are different and all are remembered.
const BEFORE: u64 = 5_000_000;
/// Pages after it: new, copies, edited copies and revisits of those before.
const AFTER: u64 = 20_000;
const WORDS: usize = 30;
const JUDGED_WITHIN: Duration = Duration::from_secs(1_800);

fn url(number: u64) -> String {
    format!("https://www.example/{number}")
}

/// Page number `number` of the stream.
fn page(number: u64) -> Record {
    if number < BEFORE {
        return Record::page(&url(number), &text(number, WORDS));
    }
    // Scattered over all that came before.
    let old = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % BEFORE;
    match number % 5 {
        0 => Record::page(&url(number), &text(number, WORDS)),
        1 => Record::page(&url(number), &text(old, WORDS)),
        2 => Record::page(&url(number), &edited(&text(old, WORDS))),
        3 => Record::page(&url(old), &text(old, WORDS)),
        _ => Record::page(&url(old), &edited(&text(old, WORDS))),
    }
    .at(1_790_000_000_000)
}

/// Verdict and offset of the canonical of every page from `BEFORE` on, judged in one go.
fn uninterrupted(setup: &Setup) -> Vec<(String, Option<i64>)> {
    let config = config::parse(&setup.toml(), "test", std::iter::empty()).expect("it is valid");
    let shape = Shape::new(&config.sketch);
    let key = config.sketch.key.as_ref().expect("a key");
    let mut stage = SketchStage::new(Decoder::new(&config.input), Sketcher::new(shape, key)).with_record_timestamps();
    let mut judge = Judge::new(Rules::new(&config.policy, &config.window, &shape), Plan::new(&config.window, &shape));
    let (mut received, mut verdicts) = (ReceivedBatch::default(), Vec::new());
    for number in 0..BEFORE + AFTER {
        let record = page(number);
        let value = record.value.map(|value| received.push(&value));
        let origin = pagesieve::index::Origin { source: 0, offset: number };
        let timestamp_ms = record.timestamp_ms;
        received.deliveries.push(Delivery { origin, value, cut_from: None, key: None, headers: 0..0, timestamp_ms });
        if received.deliveries.len() < 1024 && number + 1 < BEFORE + AFTER {
            continue;
        }
        let judged = batch::judge(&mut judge, stage.run(received));
        judge.seal();
        judge.commit();
        let first = number + 1 - judged.judged.len() as u64;
        for (number, page) in (first..).zip(&judged.judged).filter(|(number, _)| *number >= BEFORE) {
            let _ = number;
            let canonical = page.canonical.as_ref().map(|canonical| canonical.origin.offset as i64);
            verdicts.push((page.verdict.name().to_owned(), canonical));
        }
        received = judged.recycle().expect("it has pages");
        received.clear();
    }
    verdicts
}

/// The same, as the topics say it.
fn from_topics(setup: &Setup, output: &str, verdicts: &str) -> BTreeMap<i64, (String, Option<i64>)> {
    let offset = |(_, _, offset): Origin| offset;
    let survivors = setup.cluster.read_all(output).into_iter().map(|(_, record)| {
        let header = |name: &str| record.header(name);
        let canonical = header("pagesieve-canonical-position").map(|at| offset(origin_of(at)));
        let origin = offset(origin_of(header("pagesieve-origin").expect("an origin")));
        (origin, (header("pagesieve-verdict").expect("a verdict").to_owned(), canonical))
    });
    let dropped = setup.cluster.read_all(verdicts).into_iter().map(|(_, record)| {
        let record = record.json();
        let canonical = record["canonical"]["position"].as_str().map(|at| offset(origin_of(at)));
        let origin = offset(origin_of(record["origin"].as_str().expect("an origin")));
        (origin, (record["verdict"].as_str().expect("a verdict").to_owned(), canonical))
    });
    survivors.chain(dropped).collect()
}

#[test]
#[ignore = "writes 8 GB and takes some minutes: for a release, not for every change"]
fn after_a_kill_with_five_million_pages_verdicts_are_as_if_nothing_had_happened() {
    let (setup, directory): (Setup, PathBuf) = with_snapshot("large");
    let mut setup = setup.with("window.max_memory", r#""2GiB""#).with("window.max_age", r#""none""#);
    let mut daemon = setup.start_ready();
    let mut feeder: Feeder = setup.cluster.feeder();
    let started = Instant::now();
    for number in 0..BEFORE {
        feeder.send(&setup.inputs[0], 0, &page(number).at(1_790_000_000_000));
    }
    feeder.finish();
    setup.wait_drained(&mut daemon, JUDGED_WITHIN);
    println!("{BEFORE} pages judged, {:.0} a second", BEFORE as f64 / started.elapsed().as_secs_f64());
    assert_eq!(daemon.metric("pagesieve_index_pages"), BEFORE as f64);
    wait_kept(&setup, &mut daemon, &directory);
    daemon.kill();

    // Into other topics, so that what was said before need not be read.
    let (output, verdicts) = (format!("{}-after", setup.output()), format!("{}-after", setup.verdicts()));
    for topic in [&output, &verdicts] {
        setup.cluster.create_topic(topic, 1, &[("max.message.bytes", "2000000")]);
    }
    setup.set("output.topic", format!("{output:?}"));
    setup.set("output.verdict_topic", format!("{verdicts:?}"));
    let mut daemon = setup.start_ready();
    let ready = daemon.started.elapsed().as_secs_f64();
    let line = daemon.logged("INFO").into_iter().find(|line| line.contains("window restored")).expect("it restores");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    println!("{} pages restored in {} s, ready {ready:.1} s after the start", line["pages"], line["seconds"]);

    let records = (BEFORE..BEFORE + AFTER).map(page).collect::<Vec<_>>();
    setup.cluster.send(&setup.inputs[0], &records);
    setup.wait_drained(&mut daemon, SOON);
    daemon.terminate();
    let is = from_topics(&setup, &output, &verdicts);
    let expected = uninterrupted(&setup);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (offset, (verdict, canonical)) in (BEFORE as i64..).zip(&expected) {
        let (is, of) = is.get(&offset).unwrap_or_else(|| panic!("{offset} is lost"));
        // A survivor that is not tagged does not name the page that it was held against.
        assert!(
            is == verdict && (of.is_none() || of == canonical),
            "{offset}: {is} of {of:?}, uninterrupted {verdict} of {canonical:?}"
        );
        *counts.entry(verdict).or_default() += 1;
    }
    println!("{AFTER} pages after the kill have the verdicts of an uninterrupted run: {counts:?}");
}
