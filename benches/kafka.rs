//! How fast is `run` on a broker, what does exactly once cost, and how long does a page take?
//!
//! One broker, a topic of four partitions full of generated pages, and over the same topic in turns: `run` in
//! `exactly_once`, `run` in `at_least_once`, and a plain loop that consumes and produces every page with the same client
//! settings and the same guarantee and does nothing else. Then `run` at half of what it did, for the time from a page's
//! receipt to its commit. All of it shares the machine with the broker.
//!
//! ```text
//! cargo bench --bench kafka [-- PAGES ROUNDS]      default: 60000 5
//! ```

#[path = "../tests/support/broker.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod broker;
#[path = "../tests/support/daemon.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod daemon;
#[path = "../tests/support/topics.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod topics;

use broker::Cluster;
use daemon::{Daemon, Setup};
use pagesieve::config::{self, Config};
use pagesieve::generate::{Generator, Settings};
use pagesieve::transport::kafka::client;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topics::Record;

const PARTITIONS: i32 = 4;
const TIMEOUT: Duration = Duration::from_secs(30);
const DRAINED_WITHIN: Duration = Duration::from_secs(600);

/// A broker that has just started runs its first transactions in slow code.
const WARM_UP: Duration = Duration::from_secs(10);

const LATENCY: &str = "pagesieve_processing_seconds";
const COMMITS: &str = "pagesieve_transactions_total";

/// What starts up is not measured: the clock runs from this share of the pages on.
const WARM_SHARE: f64 = 0.2;

fn pages(count: u64, seed: u64) -> impl Iterator<Item = (i32, Record)> {
    let generator = Generator::new(Settings { pages: count, seed, ..Settings::default() });
    generator.enumerate().map(|(number, page)| {
        let record = Record {
            key: page.url.map(String::into_bytes),
            value: Some(page.line),
            timestamp_ms: page.event_time_ms,
            headers: Vec::new(),
        };
        (number as i32 % PARTITIONS, record)
    })
}

/// A setup of its own that reads the shared topic.
fn setup(name: &str, input: &str, delivery: &str) -> Setup {
    let mut setup = Setup::new(name, PARTITIONS).with("kafka.delivery", format!("{delivery:?}"));
    setup.set("input.topics", format!("[{input:?}]"));
    setup.set("window.max_memory", r#""256MiB""#);
    setup.inputs = vec![input.to_owned()];
    setup
}

/// Pages a second from the warm share to the end, as `committed` counts.
fn rate(pages: u64, mut committed: impl FnMut() -> u64) -> f64 {
    let warm = (pages as f64 * WARM_SHARE) as u64;
    let (mut from, deadline) = (None::<(Instant, u64)>, Instant::now() + DRAINED_WITHIN);
    loop {
        assert!(Instant::now() < deadline, "not done after {DRAINED_WITHIN:?}");
        let count = committed();
        let now = Instant::now();
        if count >= pages {
            let (from, at) = from.expect("it took longer than one look");
            return (count - at) as f64 / (now - from).as_secs_f64();
        }
        if count >= warm && from.is_none() {
            from = Some((now, count));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `run` over the whole topic.
fn run(setup: &Setup, pages: u64) -> f64 {
    let daemon = setup.start();
    let progress = setup.progress();
    let rate = rate(pages, || progress.committed() as u64);
    daemon.terminate();
    rate
}

/// Consumes and produces, in transactions that end after the commit interval or by committing offsets behind a flush.
fn plain_loop(setup: &Setup, pages: u64) -> f64 {
    let config: Config = config::parse(&setup.toml(), "bench", std::iter::empty()).expect("the configuration is sound");
    let transactional = setup.toml().contains("exactly_once");
    let consumer: BaseConsumer = client::consumer(&config).create().expect("a consumer");
    let mut settings = client::producer(&config, 1_048_588, 1_048_588);
    settings.set("message.max.bytes", "2000000");
    let producer: ThreadedProducer<DefaultProducerContext> = settings.create().expect("a producer");
    if transactional {
        producer.init_transactions(TIMEOUT).expect("transactions");
    }
    consumer.subscribe(&[&setup.inputs[0]]).expect("the topic is there");
    let output = setup.output();
    let (mut done, mut offsets, mut open) = (0, BTreeMap::new(), None::<Instant>);
    let mut step = || loop {
        let message = consumer.poll(Duration::from_millis(10)).transpose().expect("records come");
        if let Some(message) = message {
            if open.is_none() {
                open = Some(Instant::now());
                if transactional {
                    producer.begin_transaction().expect("a transaction");
                }
            }
            let mut record = BaseRecord::<[u8], [u8]>::to(&output).partition(message.partition());
            record.key = message.key();
            record.payload = message.payload();
            while let Err((error, returned)) = producer.send(record) {
                assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
                record = returned;
                std::thread::sleep(Duration::from_millis(1));
            }
            offsets.insert(message.partition(), message.offset() + 1);
            done += 1;
        }
        if open.is_some_and(|since| since.elapsed() >= config.kafka.commit_interval) {
            open = None;
            let mut list = TopicPartitionList::new();
            for (partition, offset) in &offsets {
                list.add_partition_offset(&setup.inputs[0], *partition, Offset::Offset(*offset)).expect("an offset");
            }
            offsets.clear();
            // Not in one call, which waits in steps of 100 ms: the loop is to be as good as it can be.
            while producer.flush(Duration::ZERO).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if transactional {
                let group = consumer.group_metadata().expect("it is a member");
                producer.send_offsets_to_transaction(&list, &group, TIMEOUT).expect("offsets");
                producer.commit_transaction(TIMEOUT).expect("the commit");
            } else {
                consumer.commit(&list, CommitMode::Sync).expect("the commit");
            }
            return done;
        }
    };
    rate(pages, &mut step)
}

/// The buckets of one of the daemon's histograms: bound and count of everything below.
fn histogram(daemon: &Daemon, name: &str) -> Vec<(f64, f64)> {
    let (_, body) = daemon.get("/metrics").expect("it answers");
    let prefix = format!("{name}_bucket{{le=\"");
    let buckets = body.lines().filter_map(|line| {
        let (bound, count) = line.strip_prefix(&prefix)?.split_once("\"} ")?;
        Some((bound.parse::<f64>().unwrap_or(f64::INFINITY), count.parse::<f64>().ok()?))
    });
    buckets.collect()
}

/// A quantile of what came into a histogram since `before`, interpolated within its bucket.
fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> f64 {
    let buckets = after.iter().zip(before).map(|((bound, count), (_, old))| (*bound, count - old)).collect::<Vec<_>>();
    let wanted = buckets.last().expect("the histogram is there").1 * share;
    let at = buckets.iter().position(|(_, count)| *count >= wanted).expect("the last has all");
    let (below, before) = at.checked_sub(1).map_or((0.0, 0.0), |at| buckets[at]);
    let (bound, count) = buckets[at];
    below + (bound - below) * (wanted - before) / (count - before)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() {
    let arguments = std::env::args().skip(1).filter(|it| it != "--bench").collect::<Vec<_>>();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |it| it.parse().expect("a number"));
    let (num_pages, rounds) = (number(0, 60_000), number(1, 5));

    let input = format!("bench-{}.pages", std::process::id());
    let cluster = Cluster::shared();
    cluster.create_topic(&input, PARTITIONS, &[]);
    let mut feeder = cluster.feeder_with("lz4");
    let mut bytes = 0;
    for (partition, record) in pages(num_pages, 1) {
        bytes += record.value.as_ref().map_or(0, Vec::len);
        feeder.send(&input, partition, &record);
    }
    feeder.finish();
    println!(
        "{num_pages} pages of {} bytes on average, {PARTITIONS} partitions, one broker\n",
        bytes as u64 / num_pages
    );

    let kinds = ["run, exactly once", "run, at least once", "plain loop, exactly once", "plain loop, at least once"];
    println!("{:>6}{:>26}{:>26}{:>26}{:>27}", "round", kinds[0], kinds[1], kinds[2], kinds[3]);
    let mut rates = [const { Vec::new() }; 4];
    for round in 0..rounds {
        let delivery = ["exactly_once", "at_least_once"];
        for at in 0..4 {
            let setup = setup(&format!("bench-{round}-{at}"), &input, delivery[at % 2]);
            rates[at].push(if at < 2 { run(&setup, num_pages) } else { plain_loop(&setup, num_pages) });
        }
        let of = |at: usize| format!("{:.0} pages/s", rates[at][round as usize]);
        println!("{:>6}{:>26}{:>26}{:>26}{:>27}", round + 1, of(0), of(1), of(2), of(3));
    }
    let of = |at: usize, to: usize| {
        let ratios = rates[at].iter().zip(&rates[to]).map(|(a, b)| a / b).collect::<Vec<_>>();
        median(&ratios)
    };
    println!("\nmedians of the ratios in one round");
    println!("  exactly once / at least once          {:.2}   (wanted: at least 0.85)", of(0, 1));
    println!("  run / plain loop, exactly once        {:.2}   (wanted: at least 0.7)", of(0, 2));
    println!("  run / plain loop, at least once       {:.2}   (wanted: at least 0.7)", of(1, 3));

    // What the rounds left to be written would stall the broker now.
    let _ = std::process::Command::new("sync").status();
    let half = median(&rates[0]) / 2.0;
    let seconds = 30;
    let own = Setup::new("bench-latency", PARTITIONS).with("window.max_memory", r#""256MiB""#);
    let mut daemon = own.start_ready();
    let mut feeder = own.cluster.feeder_with("lz4");
    let pages = pages((half * f64::from(seconds)) as u64, 2).collect::<Vec<_>>();
    let started = Instant::now();
    // A new record's time is now, or the clock of the crawl would be behind the broker's.
    let (mut before, mut commits) = (None, 0.0);
    for (number, (partition, record)) in pages.into_iter().enumerate() {
        if before.is_none() && started.elapsed() >= WARM_UP {
            before = Some(histogram(&daemon, LATENCY));
            commits = daemon.metric(COMMITS);
        }
        let due = Duration::from_secs_f64(number as f64 / half);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        feeder.send(&own.inputs[0], partition, &Record { timestamp_ms: None, ..record });
    }
    feeder.finish();
    own.wait_drained(&mut daemon, DRAINED_WITHIN);
    let (before, after) = (before.expect("it took longer"), histogram(&daemon, LATENCY));
    let measured = f64::from(seconds) - WARM_UP.as_secs_f64();
    println!("\nexactly once at {half:.0} pages/s, from receipt to commit, in the last {measured:.0} of {seconds} s");
    println!("  {:.0} pages a transaction", half * measured / (daemon.metric(COMMITS) - commits));
    for share in [0.5, 0.9, 0.99, 0.999] {
        let millis = quantile(&before, &after, share) * 1000.0;
        let wanted = if share == 0.99 { "   (wanted: at most 250)" } else { "" };
        println!("  p{:<6} {millis:>7.0} ms{wanted}", share * 100.0);
    }
    daemon.terminate();
}
