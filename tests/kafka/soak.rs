//! Half of what the daemon can take, for a long while, with a fault every half minute: nothing is lost, nothing comes
//! twice, nothing piles up.
//!
//! `make soak MINUTES=30`. Resident size is sampled four times a second over all processes that follow one another; its
//! median over a stretch counts, for each process starts anew and a restore or a backlog is not the daily state. The window
//! is small enough to be full early, or its growth would be taken for a leak.

use crate::broker::Cluster;
use crate::daemon::{Daemon, SOON, Setup};
use crate::feeding::{Feed, Terms, crawl_settings};
use crate::flow::alone;
use crate::oracle::{Outcome, Repeats};
use crate::topics::{Progress, Record};
use pagesieve::sketch::keyed::mix;
use std::time::{Duration, Instant};

const FAULT_EVERY: Duration = Duration::from_secs(30);
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Long after the last fault: what piled up is worked off at the full rate.
const DRAINED_WITHIN: Duration = Duration::from_secs(600);

/// Pages whose time to the end says what the daemon can take.
const PAGES_TO_MEASURE: u64 = 40_000;

/// The same faults each time.
const SEED: u64 = 7;

/// How far the resident size may be from that of the fifth minute, as a share of it.
const RESIDENT_WITHIN: f64 = 0.05;

const MIB: f64 = 1_048_576.0;

/// What is harmed.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Terminate,
    /// For less than its session lasts.
    Hang,
    HangPastSession,
    KillBroker,
    RemoveSnapshot,
}

const FAULTS: [Fault; 6] =
    [Fault::Kill, Fault::Terminate, Fault::Hang, Fault::HangPastSession, Fault::KillBroker, Fault::RemoveSnapshot];

/// Of what is sent and read, this much is kept for the oracle: a crawl of half an hour does not fit into memory.
fn shorten(record: &mut Record) {
    let value = record.value.take().unwrap_or_default();
    let mixed = value.iter().fold(value.len() as u64, |sum, byte| mix(sum ^ u64::from(*byte)));
    record.value = Some(mixed.to_le_bytes().to_vec());
}

fn setup(cluster: &Cluster, name: &str) -> Setup {
    let setup = Setup::on(cluster.clone(), name, 4);
    let directory = setup.directory().join("snapshot").display().to_string();
    setup
        .with("window.max_memory", r#""32MiB""#)
        .with("snapshot.directory", format!("{directory:?}"))
        .with("snapshot.interval", r#""10s""#)
        .with("kafka.options.\"session.timeout.ms\"", "\"6000\"")
}

fn feed(pages: u64, rate: f64) -> Feed {
    let settings = crawl_settings(pages, SEED);
    Feed { settings, partitions: 0..4, rate, at_first: 1.0, alter: |_, _| {}, keep: shorten }
}

/// Pages a second from a full topic to a committed one, the broker at work beside it.
fn capacity(cluster: &Cluster) -> f64 {
    let setup = setup(cluster, "capacity");
    feed(PAGES_TO_MEASURE, f64::INFINITY).start(&setup).finish();
    let mut daemon = setup.start_ready();
    let started = Instant::now();
    setup.wait_drained(&mut daemon, DRAINED_WITHIN);
    let rate = PAGES_TO_MEASURE as f64 / started.elapsed().as_secs_f64();
    daemon.terminate();
    rate
}

fn harm(fault: Fault, setup: &Setup, mut daemon: Daemon) -> Daemon {
    match fault {
        Fault::Kill => {
            daemon.kill();
            return setup.start_ready();
        }
        Fault::Terminate => {
            daemon.terminate();
            return setup.start_ready();
        }
        Fault::Hang => {
            let seconds = Instant::now() + Duration::from_secs(2);
            daemon.signal(libc::SIGSTOP);
            daemon.wait("it hangs", SOON, |_| Instant::now() >= seconds);
            daemon.signal(libc::SIGCONT);
        }
        Fault::HangPastSession => {
            daemon.signal(libc::SIGSTOP);
            daemon.wait("its session has ended", SOON, |_| setup.cluster.num_members(&setup.name) == 0);
            daemon.signal(libc::SIGCONT);
        }
        Fault::KillBroker => {
            setup.cluster.command("kill", &["1"]);
            setup.cluster.command("restart", &["1"]);
        }
        Fault::RemoveSnapshot => {
            let _ = std::fs::remove_dir_all(setup.directory().join("snapshot"));
            daemon.kill();
            return setup.start_ready();
        }
    }
    daemon
}

/// Records committed, and not yet.
fn committed_and_lag(progress: &Progress) -> Option<(i64, i64)> {
    let look = progress.try_look().ok()?;
    Some(look.values().fold((0, 0), |(sum, lag), (committed, end)| (sum + committed, lag + end - committed)))
}

/// The median of samples taken in a stretch of time.
fn median(samples: &[(Duration, u64)], from: Duration, to: Duration) -> f64 {
    let within = samples.iter().filter(|(at, _)| (from..to).contains(at));
    let mut bytes = within.map(|(_, bytes)| *bytes).collect::<Vec<_>>();
    bytes.sort_unstable();
    assert!(!bytes.is_empty(), "no sample from {from:?} to {to:?}");
    bytes[bytes.len() / 2] as f64
}

#[test]
#[ignore = "takes MINUTES and a few more: make soak"]
fn soak() {
    let minutes = std::env::var("MINUTES").ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(30).max(2);
    let _turn = alone();
    let cluster = Cluster::start("soak", &[]);
    let capacity = capacity(&cluster);
    let rate = capacity / 2.0;
    let time = Duration::from_secs(60) * minutes;
    let pages = (rate * time.as_secs_f64()) as u64;
    println!("capacity {capacity:.0} pages/s; {pages} pages at {rate:.0} pages/s for {minutes} min, seed {SEED}\n");
    println!("   at s | fault           | ready after s | committed | lag before |  after | resident MiB");

    let setup = setup(&cluster, "soak");
    let mut daemon = setup.start_ready();
    let progress = setup.progress();
    let feeding = feed(pages, rate).start(&setup);
    let started = Instant::now();
    let (mut samples, mut counts) = (Vec::new(), [0usize; FAULTS.len()]);
    for number in 1.. {
        let next = FAULT_EVERY * number;
        if next >= time {
            break;
        }
        while started.elapsed() < next {
            samples.push((started.elapsed(), daemon.resident_bytes().0));
            std::thread::sleep(SAMPLE_EVERY);
        }
        let which = (mix(SEED + u64::from(number)) % FAULTS.len() as u64) as usize;
        counts[which] += 1;
        let (at, before) = (started.elapsed(), committed_and_lag(&progress));
        daemon = harm(FAULTS[which], &setup, daemon);
        let took = started.elapsed() - at;
        let after = committed_and_lag(&progress);
        let lag = |look: Option<(i64, i64)>| look.map_or("?".to_owned(), |(_, lag)| lag.to_string());
        println!(
            "{:>7.0} | {:<15} | {:>13.1} | {:>9} | {:>10} | {:>6} | {:>12.1}",
            at.as_secs_f64(),
            format!("{:?}", FAULTS[which]),
            took.as_secs_f64(),
            before.map_or(0, |(committed, _)| committed),
            lag(before),
            lag(after),
            daemon.resident_bytes().0 as f64 / MIB
        );
    }
    while started.elapsed() < time {
        samples.push((started.elapsed(), daemon.resident_bytes().0));
        std::thread::sleep(SAMPLE_EVERY);
    }
    let mut crawl = feeding.finish();
    setup.wait_drained(&mut daemon, DRAINED_WITHIN);
    let drained = started.elapsed();
    let (_, lag) = committed_and_lag(&progress).expect("the cluster answers");
    let evicted = daemon.metric("pagesieve_index_evictions_total");
    daemon.terminate();

    // The fifth minute of thirty, or the same share of less.
    let (early, minute) = (time / 6, Duration::from_secs(60).min(time / 6));
    let (was, is) = (median(&samples, early, early + minute), median(&samples, time - minute, time));
    // A broker that is killed may take a record twice from the test's own producer.
    let (there, records): (Vec<_>, Vec<_>) = cluster.read_with(&setup.inputs[0], shorten).into_iter().unzip();
    let fed_twice = crawl.add(&there, &records);
    let outcome = Outcome::read_with(&setup, shorten);
    let mut report = crawl.report(&outcome, Terms { repeats: Repeats::Never, whole_window: false });
    if lag != 0 {
        report.wrong(format!("a lag of {lag}"));
    }
    if (is - was).abs() > was * RESIDENT_WITHIN {
        report.wrong(format!("{:.1} MiB resident at the end, {:.1} early", is / MIB, was / MIB));
    }
    let faults = FAULTS.iter().zip(counts).map(|(fault, count)| format!("{fault:?} {count}")).collect::<Vec<_>>();
    println!("\npages                      {}, {fed_twice} of them in the input twice", report.pages);
    println!("faults                     {}: {}", counts.iter().sum::<usize>(), faults.join(", "));
    println!("lost                       {}", report.lost);
    println!("doubled                    {}", report.doubled);
    println!("clusters gone              {}", report.clusters_gone);
    println!("drops of pages not emitted {}", report.orphans);
    println!(
        "surplus survivors          {} (the window held a part: {evicted} evicted since the last start)",
        report.surplus
    );
    println!(
        "lag at the end             {lag}, {:.1} s after the last page",
        (drained.saturating_sub(time)).as_secs_f64()
    );
    println!(
        "resident, median           {:.1} MiB in the minute from {} s, {:.1} MiB in the last ({:+.1} %)",
        was / MIB,
        early.as_secs(),
        is / MIB,
        (is / was - 1.0) * 100.0
    );
    println!("verdict                    {}", if report.wrong.is_empty() { "ok" } else { "FAILED" });
    report.assert_sound();
}
