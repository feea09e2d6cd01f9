//! The daemon, from topics to topics, on a real broker: nothing is lost, nothing comes twice, every page is treated as
//! promised, and what is wrong with a cluster is said.

use crate::daemon::{SOON, Setup};
use crate::feeding::{Crawl, crawl_settings, feed, feed_most};
use crate::oracle::{Fate, Outcome, Repeats};
use crate::topics::Record;
use crate::{edited, judged, text};
use pagesieve::generate::Settings;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Tests that load the machine take turns; the others may run beside them.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Faster than any feed of these tests, by far.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);

/// How a daemon is stopped in the middle.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stop {
    Terminate,
    Kill,
}

/// A crawl over four partitions, `rate` pages a second; stopped when a part is committed and the rest is still
/// coming, started again, drained and stopped.
fn stopped_in_the_middle(setup: &Setup, settings: Settings, rate: f64, stop: Stop) -> (Crawl, Outcome) {
    let pages = settings.pages as i64;
    let mut daemon = setup.start_ready();
    let feeding = feed_most(setup, 0..4, settings, rate);
    let progress = setup.progress();
    let enough = pages * 3 / 20;
    daemon.wait("a part is committed", SOON, |_| progress.committed() >= enough);
    match stop {
        Stop::Terminate => {
            let log = daemon.terminate();
            assert!(log.contains("drained"), "{log}");
        }
        Stop::Kill => daemon.kill(),
    }
    let committed = progress.committed();
    assert!((enough..pages).contains(&committed), "{committed} of {pages} committed");
    let mut daemon = setup.start_ready();
    let crawl = feeding.finish();
    setup.wait_drained(&mut daemon, DRAINED_WITHIN);
    daemon.terminate();
    assert_eq!(progress.committed(), pages);
    let outcome = Outcome::read(setup);
    println!("{}: {pages} pages, {committed} committed at the stop, {:?}", setup.name, outcome.counts());
    (crawl, outcome)
}

#[test]
fn a_drain_in_the_middle_loses_nothing_and_doubles_nothing() {
    let _turn = alone();
    for delivery in ["exactly_once", "at_least_once"] {
        let setup = Setup::new(&format!("drain-{delivery}"), 4).with("kafka.delivery", format!("{delivery:?}"));
        let (crawl, outcome) = stopped_in_the_middle(&setup, crawl_settings(20_000, 7), 8_000.0, Stop::Terminate);
        // Whatever was received was committed, so not even at least once repeats anything.
        crawl.check(&outcome, Repeats::Never);
    }
}

#[test]
fn a_kill_in_the_middle_loses_nothing() {
    let _turn = alone();
    for (delivery, repeats) in [("exactly_once", Repeats::Never), ("at_least_once", Repeats::After(1))] {
        let setup = Setup::new(&format!("kill-{delivery}"), 4).with("kafka.delivery", format!("{delivery:?}"));
        let (crawl, outcome) = stopped_in_the_middle(&setup, crawl_settings(20_000, 8), 8_000.0, Stop::Kill);
        crawl.check(&outcome, repeats);
    }
}

#[test]
#[ignore = "takes a minute or two: for a release, not for every change"]
fn a_hundred_thousand_pages_and_a_drain_in_the_middle() {
    let _turn = alone();
    let setup = Setup::new("hundred-thousand", 4);
    let settings = Settings { pages: 100_000, ..Settings::default() };
    let (crawl, outcome) = stopped_in_the_middle(&setup, settings, f64::INFINITY, Stop::Terminate);
    crawl.check(&outcome, Repeats::Never);
}

#[test]
fn a_partition_added_under_load_is_judged_from_its_beginning() {
    let _turn = alone();
    let setup = Setup::new("added", 2);
    let mut daemon = setup.start_ready();
    let feeding = feed(&setup, 0..2, crawl_settings(10_000, 3), 1_000.0);
    let progress = setup.progress();
    daemon.wait("pages are committed", SOON, |_| progress.committed() >= 1_000);
    setup.cluster.add_partitions(&setup.inputs[0], 3);
    let mut added = feed(&setup, 2..3, crawl_settings(3_000, 4), f64::INFINITY).finish();
    let crawl = feeding.finish();
    setup.wait_drained(&mut daemon, DRAINED_WITHIN);
    let outcome = Outcome::read(&setup);
    let mut sent = crawl.sent.clone();
    sent.append(&mut added.sent);
    outcome.check(&sent, Repeats::Never);
    assert_eq!(outcome.fates.keys().filter(|(_, partition, _)| *partition == 2).count(), 3_000);
    daemon.terminate();
}

#[test]
fn members_share_the_input_and_take_over_from_each_other() {
    let _turn = alone();
    let mut setup = Setup::new("members", 4).with("kafka.options.\"session.timeout.ms\"", "\"6000\"");
    let mut first = setup.start_ready();
    let feeding = feed(&setup, 0..4, crawl_settings(20_000, 5), 1_000.0);
    let progress = setup.progress();
    first.wait("pages are committed", SOON, |_| progress.committed() >= 1_000);
    setup.set("kafka.instance", format!("{:?}", format!("{}-second", setup.name)));
    let mut second = setup.start_ready();
    second.wait("it takes part", SOON, |daemon| daemon.metric("pagesieve_pages_total") >= 500.0);
    first.wait("it knows of the other", SOON, |daemon| daemon.metric("pagesieve_window_partial") == 1.0);
    first.terminate();
    let crawl = feeding.finish();
    setup.wait_drained(&mut second, DRAINED_WITHIN);
    let outcome = Outcome::read(&setup);
    println!("members: {:?}", outcome.counts());
    crawl.check_without_window(&outcome, Repeats::Never);
    second.terminate();
}

#[test]
fn a_restart_remembers_what_was_there_before_a_kill() {
    let setup = Setup::new("remembers", 1);
    let mut daemon = setup.start_ready();
    let url = |number: u64| format!("https://www.example/{number}");
    let pages = (0..5).map(|number| Record::page(&url(number), &text(number, 200))).collect::<Vec<_>>();
    let first = judged(&setup, &mut daemon, &pages);
    daemon.kill();

    let mut daemon = setup.start_ready();
    let later = [
        (Record::page(&url(10), &text(0, 200)), "exact_duplicate"),
        (Record::page(&url(11), &edited(&text(1, 200))), "near_duplicate"),
        (Record::page(&url(2), &text(2, 200)), "unchanged"),
        (Record::page(&url(3), &text(33, 200)), "updated"),
        (Record::page(&url(14), &text(44, 200)), "unique"),
    ];
    let second = judged(&setup, &mut daemon, &later.clone().map(|(record, _)| record));
    let outcome = Outcome::read(&setup);
    for (at, (_, verdict)) in later.iter().enumerate() {
        let canonical = (*verdict != "unique").then(|| first[at].clone());
        assert_eq!((outcome.verdict(&second[at]), outcome.canonical(&second[at])), (*verdict, canonical));
    }
    let Fate::Recorded { record, .. } = outcome.of(&second[0]) else { panic!("it is dropped") };
    assert_eq!(record["canonical"]["url"], url(0), "names come back with the window");
    daemon.terminate();

    // The page of URL 3 was replaced: its first text is free again, its second is not.
    let mut daemon = setup.start_ready();
    let records = [Record::page(&url(20), &text(3, 200)), Record::page(&url(21), &text(33, 200))];
    let third = judged(&setup, &mut daemon, &records);
    let outcome = Outcome::read(&setup);
    assert_eq!(third.iter().map(|origin| outcome.verdict(origin)).collect::<Vec<_>>(), ["unique", "exact_duplicate"]);
    assert_eq!(outcome.canonical(&third[1]).as_ref(), Some(&second[3]));
}

#[test]
fn topics_headers_and_rules() {
    let mut setup = Setup::new("rules", 2);
    let other = format!("{}.more", setup.name);
    setup.cluster.create_topic(&other, 1, &[]);
    setup.inputs.push(other.clone());
    setup.set("input.topics", format!("{:?}", setup.inputs));
    setup.set("input.skip.headers", r#"["x-skip=yes"]"#);
    let mut daemon = setup.start_ready();
    let url = |number: u64| format!("https://www.example/{number}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let an_hour_ago = now.as_millis() as i64 - 3_600_000;

    let records = [
        (Record::page(&url(0), &text(0, 200)).with("a", "1").with("a", "2").with("", "").at(an_hour_ago), "unique"),
        // Not to be remembered, but judged.
        (Record::page(&url(1), &text(1, 200)).with("pagesieve-remember", "false"), "unique"),
        (Record::page(&url(2), &text(1, 200)), "unique"),
        (Record::page(&url(3), &text(1, 200)), "exact_duplicate"),
        (Record::page(&url(4), &text(0, 200)).with("pagesieve-remember", "false"), "exact_duplicate"),
        // Not to be judged.
        (Record::page(&url(5), &text(0, 200)).with("x-skip", "yes"), "skipped"),
        (Record::page(&url(6), &text(0, 200)).with("x-skip", "no"), "exact_duplicate"),
        (Record { key: None, ..Record::page(&url(7), &text(7, 200)) }, "unique"),
        (Record { key: Some(Vec::new()), ..Record::page(&url(0), &text(0, 200)) }, "unchanged"),
    ];
    let origins = judged(&setup, &mut daemon, &records.clone().map(|(record, _)| record));
    let [copy] = setup.cluster.send(&other, &[Record::page(&url(8), &text(0, 200))]).try_into().expect("one");
    setup.wait_drained(&mut daemon, SOON);

    let outcome = Outcome::read(&setup);
    for (origin, (_, verdict)) in origins.iter().zip(&records) {
        assert_eq!(outcome.verdict(origin), *verdict, "{origin:?}");
    }
    assert_eq!((outcome.verdict(&copy), outcome.canonical(&copy)), ("exact_duplicate", Some(origins[0].clone())));
    let sent = origins.iter().cloned().zip(records.iter().map(|(record, _)| record.clone()));
    let sent = sent.chain([(copy, Record::page(&url(8), &text(0, 200)))]);
    outcome.check(&sent.collect(), Repeats::Never);

    let Fate::Survived { record, .. } = outcome.of(&origins[0]) else { panic!("it survives") };
    let added = record.headers[3..].iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    assert_eq!(added, ["pagesieve-verdict", "pagesieve-origin", "pagesieve-event-time"]);
    let Fate::Survived { record, .. } = outcome.of(&origins[8]) else { panic!("a revisit is tagged") };
    assert_eq!(record.header("pagesieve-canonical"), Some(&*url(0)));
    assert_eq!(record.header("pagesieve-resemblance"), Some("1"));
    daemon.terminate();
}

#[test]
fn a_tombstone_forgets_its_page_for_good() {
    let setup = Setup::new("tombstone", 1);
    let mut daemon = setup.start_ready();
    let url = |number: u64| format!("https://www.example/{number}");
    let page = |at: u64, of: u64| Record::page(&url(at), &text(of, 200));
    // In one go, so that they share a batch.
    let before = judged(
        &setup,
        &mut daemon,
        &[
            page(0, 0),
            Record::tombstone(&url(0)),
            page(1, 1),
            Record::tombstone("something else"),
            page(2, 2),
            Record::tombstone(&url(2)),
            page(2, 22),
            page(3, 3),
            Record::tombstone(&url(3)),
            page(3, 3),
            Record::tombstone(&url(3)),
        ],
    );
    let after = [
        (page(10, 0), "unique", None),
        (page(11, 1), "exact_duplicate", Some(2)),
        (page(12, 2), "unique", None),
        (page(13, 22), "exact_duplicate", Some(6)),
        (page(14, 3), "unique", None),
    ];
    daemon.terminate();
    let mut daemon = setup.start_ready();
    let origins = judged(&setup, &mut daemon, &after.clone().map(|(record, ..)| record));
    let outcome = Outcome::read(&setup);
    for at in [1, 3, 5, 8, 10] {
        let Fate::Survived { verdict, record, .. } = outcome.of(&before[at]) else { panic!("a tombstone passes") };
        assert_eq!((verdict.as_str(), &record.value), ("skipped", &None));
    }
    let found = origins.iter().map(|origin| (outcome.verdict(origin), outcome.canonical(origin))).collect::<Vec<_>>();
    let expected = after.iter().map(|(_, verdict, of)| (*verdict, of.map(|of: usize| before[of].clone())));
    assert_eq!(found, expected.collect::<Vec<_>>());
    daemon.terminate();
}

/// Records that nobody can judge, and why.
pub fn bad_records() -> Vec<(Record, &'static str)> {
    let nested = format!(r#"{{"url":"u","text":"t","links":{}{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let large = Record::page("https://www.example/large", &text(1, 10_000));
    vec![
        (Record::bytes("no json"), "not_json"),
        (Record::bytes(""), "not_json"),
        (Record::bytes(r#"{"url":"https://www.example/"}"#), "no_text"),
        (Record::bytes(r#"{"url":"u","text":17}"#), "no_text"),
        (Record::bytes(b"{\"url\":\"u\",\"text\":\"caf\xe9\"}".to_vec()), "bad_utf8"),
        (Record::bytes(nested), "nesting"),
        (Record::bytes(b"\0\0\0\x01\x07{\"url\":\"u\",\"text\":\"t\"}".to_vec()), "schema_registry"),
        (large, "too_large"),
    ]
}

#[test]
fn dead_letters_keep_their_bytes_and_say_why() {
    let setup = Setup::without_topics("dead-letters").with("input.max_page_bytes", r#""64KiB""#);
    setup.cluster.create_topic(&setup.inputs[0], 1, &[]);
    setup.cluster.create_topic(&setup.output(), 1, &[("max.message.bytes", "20000")]);
    setup.cluster.create_topic(&setup.dead_letters(), 1, &[]);
    setup.cluster.create_topic(&setup.verdicts(), 1, &[]);
    setup.cluster.create_topic(&setup.state(), 1, &[]);
    let mut daemon = setup.start_ready();
    let mut records = bad_records();
    records.push((Record::page("https://www.example/sink", &text(2, 4_000)), "sink_limit"));
    records.iter_mut().for_each(|(record, _)| *record = record.clone().with("crawl", "7"));
    let records = records;
    let origins = judged(&setup, &mut daemon, &records.iter().map(|(record, _)| record.clone()).collect::<Vec<_>>());
    let outcome = Outcome::read(&setup);
    for (origin, (_, reason)) in origins.iter().zip(&records) {
        assert_eq!(outcome.verdict(origin), *reason);
        let Fate::Rejected { record, .. } = outcome.of(origin) else { panic!("{origin:?} is a dead letter") };
        assert_eq!(record.header("pagesieve-error-truncated-from-bytes"), None);
    }
    outcome.check(&origins.into_iter().zip(records.into_iter().map(|(record, _)| record)).collect(), Repeats::Never);
    daemon.terminate();
}

/// Topics that take less than what comes in: nothing stops the stream.
#[test]
fn what_topics_do_not_take_does_not_stop_the_stream() {
    let setup = Setup::without_topics("limits");
    setup.cluster.create_topic(&setup.inputs[0], 1, &[]);
    setup.cluster.create_topic(&setup.output(), 1, &[("max.message.bytes", "20000")]);
    setup.cluster.create_topic(&setup.dead_letters(), 1, &[("max.message.bytes", "4000")]);
    setup.cluster.create_topic(&setup.verdicts(), 1, &[]);
    setup.cluster.create_topic(&setup.state(), 1, &[]);
    let mut daemon = setup.start_ready();
    let large = Record::page("https://www.example/large", &text(1, 8_000));
    let many = |number: u64| Record::bytes(text(number, 300));
    let mut records = vec![large.clone(), Record::page("https://www.example/larger", &text(2, 9_000))];
    // Each fits, all together do not.
    records.extend((0..50).map(many));
    records
        .extend((0..50).map(|number| Record::page(&format!("https://www.example/{number}"), &text(100 + number, 300))));
    let origins = judged(&setup, &mut daemon, &records);
    let outcome = Outcome::read(&setup);
    println!("{:?}", outcome.counts());
    for (origin, sent) in origins.iter().zip(&records[..2]) {
        let Fate::Rejected { reason, record } = outcome.of(origin) else { panic!("it does not fit") };
        let cut = record.header("pagesieve-error-truncated-from-bytes").and_then(|it| it.parse().ok());
        assert_eq!((reason.as_str(), cut), ("sink_limit", Some(sent.value.as_ref().expect("a page").len())));
        assert!(record.value.as_ref().is_some_and(|value| value.len() > 2_000), "as much as fits is kept");
    }
    assert!(origins[2..52].iter().all(|origin| outcome.verdict(origin) == "not_json"));
    assert!(origins[52..].iter().all(|origin| outcome.verdict(origin) == "unique"));
    outcome.check(&origins.into_iter().zip(records).collect(), Repeats::Never);
    daemon.terminate();
}

/// Records that no sink topic takes, whatever is left out of their values.
#[test]
fn records_too_large_beside_their_value_do_not_stop_the_stream() {
    let setup = Setup::without_topics("beside").with("input.skip.headers", r#"["x-skip=yes"]"#);
    let setup = setup.with("output.verdict_records", r#""all""#);
    setup.cluster.create_topic(&setup.inputs[0], 1, &[]);
    setup.cluster.create_topic(&setup.output(), 1, &[("max.message.bytes", "20000")]);
    setup.cluster.create_topic(&setup.dead_letters(), 1, &[("max.message.bytes", "4000")]);
    setup.cluster.create_topic(&setup.verdicts(), 1, &[("max.message.bytes", "8000")]);
    setup.cluster.create_topic(&setup.state(), 1, &[]);
    let url = "https://www.example/";
    let with_key = |words| Record { key: Some(text(4, words).into()), ..Record::page(url, &text(4, 20)) };
    let cases = [
        (
            "a skipped page over the output topic's limit",
            Record::page(url, &text(1, 9_000)).with("x-skip", "yes"),
            "sink_limit",
        ),
        ("a tombstone with a large header", Record::tombstone(url).with("large", &text(2, 9_000)), "sink_limit"),
        (
            "a bad record with a header over the dead letters' limit",
            Record::bytes("x").with("large", &text(3, 3_000)),
            "not_json",
        ),
        ("a bad record with a key over it", Record { value: Some(b"x".to_vec()), ..with_key(3_000) }, "not_json"),
        ("a page with a key over every limit", with_key(9_000), "sink_limit"),
        ("a page with a key over the verdicts' limit", with_key(2_000), "updated"),
    ];
    let mut daemon = setup.start_ready();
    for (name, record, verdict) in cases {
        println!("{name}");
        let next = Record::page(url, "words enough to be a page of some kind");
        let origins = judged(&setup, &mut daemon, &[record, next]);
        let outcome = Outcome::read(&setup);
        // Dead letters are read last.
        let fate = outcome.fates[&origins[0]].last().expect("it has a fate");
        let is = match fate {
            Fate::Rejected { reason, .. } => reason,
            Fate::Survived { verdict, .. } | Fate::Recorded { verdict, .. } => verdict,
        };
        assert_eq!(is, verdict, "{name}");
    }
    daemon.terminate();
    let outcome = Outcome::read(&setup);
    let unrecorded = outcome.fates.iter().filter(|(_, fates)| fates.len() != 2).collect::<Vec<_>>();
    assert!(outcome.fates.len() == 12 && unrecorded.is_empty(), "each has a verdict record too: {unrecorded:?}");
}

#[test]
fn a_header_name_that_is_no_text_does_not_stop_the_stream() {
    let setup = Setup::new("header-name", 1);
    let mut daemon = setup.start_ready();
    let page = |at: u64| Record::page(&format!("https://www.example/{at}"), &text(at, 50));
    let sent = page(0).value;
    setup.cluster.send_with_header_name(&setup.inputs[0], c"caf\xe9", sent.as_deref().expect("a page"));
    judged(&setup, &mut daemon, &[page(1)]);
    let outcome = Outcome::read(&setup);
    assert_eq!(outcome.fates.len(), 2);
    let Some(Fate::Survived { record, .. }) = outcome.fates.values().flatten().next() else { panic!("it survives") };
    assert_eq!((&record.value, record.header("caf\u{fffd}")), (&sent, Some("c")));
    daemon.terminate();
}

#[test]
fn verdicts_only() {
    let setup = Setup::new("shadow", 1);
    let setup = setup.with("output.mode", r#""verdicts""#).with("output.verdict_records", r#""all""#);
    let mut daemon = setup.start_ready();
    let page = |at: u64, of: u64| Record::page(&format!("https://www.example/{at}"), &text(of, 200));
    let mut records = vec![(page(0, 0), "unique"), (page(1, 0), "exact_duplicate"), (page(0, 0), "unchanged")];
    records.push((Record::tombstone("u"), "skipped"));
    records.extend(
        bad_records().into_iter().filter(|(_, reason)| *reason != "too_large").map(|(record, _)| (record, "rejected")),
    );
    let origins = judged(&setup, &mut daemon, &records.iter().map(|(record, _)| record.clone()).collect::<Vec<_>>());
    assert_eq!(setup.cluster.read_all(&setup.output()), []);
    assert_eq!(setup.cluster.read_all(&setup.dead_letters()), []);
    let outcome = Outcome::read(&setup);
    assert_eq!(outcome.fates.values().map(Vec::len).sum::<usize>(), records.len());
    for (origin, (_, verdict)) in origins.iter().zip(&records) {
        assert_eq!(outcome.verdict(origin), *verdict);
    }
    let reasons = origins.iter().filter_map(|origin| match outcome.of(origin) {
        Fate::Recorded { record, .. } => record["reason"].as_str(),
        _ => None,
    });
    let expected = bad_records().into_iter().map(|(_, reason)| reason).filter(|reason| *reason != "too_large");
    assert_eq!(reasons.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    daemon.terminate();
}

#[test]
fn the_first_start_begins_where_it_is_told_and_later_ones_where_it_stopped() {
    let page =
        |number: u64, time: i64| Record::page(&format!("https://www.example/{number}"), &text(number, 50)).at(time);
    let noon = 1_780_000_000_000;
    for start in ["latest", "2026-05-28T20:26:40Z"] {
        let setup = Setup::new(&format!("start-{}", &start[..4]), 2).with("input.start", format!("{start:?}"));
        setup.cluster.send(&setup.inputs[0], &[page(0, noon - 2), page(1, noon - 1)]);
        if start != "latest" {
            setup.cluster.send(&setup.inputs[0], &[page(2, noon), page(3, noon + 1)]);
        }
        let mut daemon = setup.start_ready();
        if start == "latest" {
            setup.cluster.send(&setup.inputs[0], &[page(2, noon), page(3, noon + 1)]);
        }
        setup.wait_drained(&mut daemon, SOON);
        daemon.terminate();
        setup.cluster.send(&setup.inputs[0], &[page(4, noon + 2), page(0, noon + 3)]);
        let mut daemon = setup.start_ready();
        setup.wait_drained(&mut daemon, SOON);
        daemon.terminate();
        let outcome = Outcome::read(&setup);
        let offsets = outcome.fates.keys().map(|(_, _, offset)| *offset).collect::<Vec<_>>();
        assert_eq!(offsets, [2, 3, 4, 5], "{start}");
        assert!(outcome.fates.keys().all(|origin| outcome.verdict(origin) == "unique"), "{start}");
    }
}

/// Starts a daemon that has to give up, and returns what it says.
fn refused(setup: &Setup, limit: Duration) -> String {
    let mut daemon = setup.start();
    let status = daemon.wait_exit(limit);
    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    daemon.logged("ERROR").join("\n")
}

#[test]
fn missing_topics_are_named_at_once() {
    let setup = Setup::without_topics("missing");
    setup.cluster.create_topic(&setup.inputs[0], 1, &[]);
    setup.cluster.create_topic(&setup.state(), 3, &[("cleanup.policy", "compact")]);
    let said = refused(&setup, Duration::from_secs(15));
    for topic in [setup.output(), setup.verdicts(), setup.dead_letters()] {
        assert!(said.contains(&format!("topic {topic}: does not exist")), "{said}");
    }
    assert!(said.contains(&format!("state topic {}: has 3 partitions, must have one", setup.state())), "{said}");
}

#[test]
fn topics_are_created_where_that_is_allowed() {
    let setup = Setup::without_topics("creates").with("kafka.create_topics", "true");
    setup.cluster.create_topic(&setup.inputs[0], 3, &[]);
    let mut daemon = setup.start_ready();
    judged(&setup, &mut daemon, &[Record::page("https://www.example/", &text(0, 50))]);
    assert_eq!(setup.cluster.read_all(&setup.output()).len(), 1);
    let partitions = [setup.output(), setup.verdicts(), setup.dead_letters(), setup.state()];
    assert_eq!(partitions.map(|topic| setup.cluster.num_partitions(&topic)), [3, 3, 3, 1]);
    daemon.terminate();
}

#[test]
fn an_unreachable_cluster_is_given_up() {
    let setup = Setup::without_topics("unreachable").with("kafka.brokers", r#"["127.0.0.1:9"]"#);
    let said = refused(&setup, Duration::from_secs(40));
    assert!(said.contains("did not answer within 30 s"), "{said}");
}

#[test]
fn another_key_needs_a_new_window() {
    let mut setup = Setup::new("another-key", 1);
    let page = |at: u64| Record::page(&format!("https://www.example/{at}"), &text(0, 200));
    let mut daemon = setup.start_ready();
    let mut origins = judged(&setup, &mut daemon, &[page(0)]);
    daemon.terminate();
    setup.set("sketch.key", r#""ffeeddccbbaa99887766554433221100""#);
    let said = refused(&setup, Duration::from_secs(15));
    assert!(said.contains("--new-window"), "{said}");

    // Even a new window that has seen no page is one.
    let mut daemon = setup.start_with(&["--new-window"]);
    daemon.wait_ready();
    daemon.terminate();
    let mut daemon = setup.start_ready();
    origins.extend(judged(&setup, &mut daemon, &[page(1)]));
    daemon.terminate();
    let mut daemon = setup.start_ready();
    origins.extend(judged(&setup, &mut daemon, &[page(2)]));
    daemon.terminate();
    let outcome = Outcome::read(&setup);
    let verdicts = origins.iter().map(|origin| outcome.verdict(origin)).collect::<Vec<_>>();
    assert_eq!(verdicts, ["unique", "unique", "exact_duplicate"]);
}

#[test]
fn the_older_of_two_of_one_name_is_fenced() {
    let _turn = alone();
    for delivery in ["exactly_once", "at_least_once"] {
        let setup = Setup::new(&format!("fenced-{delivery}"), 4).with("kafka.delivery", format!("{delivery:?}"));
        let mut older = setup.start_ready();
        let feeding = feed(&setup, 0..4, crawl_settings(15_000, 9), 2_000.0);
        let progress = setup.progress();
        older.wait("pages are committed", SOON, |_| progress.committed() >= 3_000);
        let mut newer = setup.start();
        let status = older.wait_exit(SOON);
        assert_eq!(status.code(), Some(1), "{}", older.log());
        println!("{}: {}", setup.name, older.logged("ERROR").join("\n"));
        newer.wait_ready();
        let crawl = feeding.finish();
        setup.wait_drained(&mut newer, DRAINED_WITHIN);
        newer.terminate();
        let repeats = if delivery == "exactly_once" { Repeats::Never } else { Repeats::After(1) };
        Outcome::read(&setup).check(&crawl.sent, repeats);
    }
}

/// A process that hangs while another takes its name must write nothing when it comes back.
#[test]
fn a_zombie_that_wakes_up_writes_nothing_and_ends() {
    let _turn = alone();
    for delivery in ["exactly_once", "at_least_once"] {
        let setup = Setup::new(&format!("zombie-{delivery}"), 4).with("kafka.delivery", format!("{delivery:?}"));
        let mut zombie = setup.start_ready();
        let feeding = feed(&setup, 0..4, crawl_settings(10_000, 10), 2_000.0);
        let progress = setup.progress();
        zombie.wait("pages are committed", SOON, |_| progress.committed() >= 2_000);
        zombie.signal(libc::SIGSTOP);
        let mut newer = setup.start_ready();
        let crawl = feeding.finish();
        setup.wait_drained(&mut newer, DRAINED_WITHIN);
        zombie.signal(libc::SIGCONT);
        let status = zombie.wait_exit(SOON);
        assert_eq!(status.code(), Some(1), "{}", zombie.log());
        println!("{}: {}", setup.name, zombie.logged("ERROR").join("\n"));
        judged(&setup, &mut newer, &[Record::page("https://www.example/last", &text(1, 50))]);
        newer.terminate();
        let mut outcome = Outcome::read(&setup);
        outcome.fates.retain(|origin, _| crawl.sent.contains_key(origin));
        let repeats = if delivery == "exactly_once" { Repeats::Never } else { Repeats::After(1) };
        crawl.check(&outcome, repeats);
    }
}

#[test]
fn a_stop_during_the_start_is_heard() {
    let setup = Setup::new("early-stop", 1);
    for moment in ["starting", "partitions assigned"] {
        let mut daemon = setup.start();
        daemon.wait(moment, SOON, |daemon| daemon.log().contains(moment));
        daemon.signal(libc::SIGTERM);
        daemon.wait_exit(Duration::from_secs(10));
        assert!(daemon.log().contains("draining"), "{}", daemon.log());
    }
}

#[test]
fn memory_stays_flat_with_a_topic_full_of_pages() {
    let _turn = alone();
    let setup = Setup::new("backlog", 4).with("pipeline.prefetch_memory", r#""16MiB""#);
    let settings = Settings { mean_words: 60, ..crawl_settings(100_000, 11) };
    let crawl = feed(&setup, 0..4, settings, f64::INFINITY).finish();
    let mut daemon = setup.start_ready();
    let progress = setup.progress();
    let mut samples = BTreeMap::new();
    daemon.wait("everything is committed", DRAINED_WITHIN, |daemon| {
        samples.insert(progress.committed(), daemon.resident_bytes().0 >> 20);
        progress.is_drained()
    });
    let highest_mib = daemon.resident_bytes().1 >> 20;
    println!(
        "resident MiB by pages committed: {samples:?}, highest {highest_mib}, after {:?}",
        daemon.started.elapsed()
    );
    assert!(highest_mib < 64 + 200, "{highest_mib} MiB");
    daemon.terminate();
    assert_eq!(crawl.sent.len(), 100_000);
}
