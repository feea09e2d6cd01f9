//! Delivery under faults, simulated: the real judge, source, sink, transactions and recovery against a cluster in
//! memory that crashes, refuses and stays silent by plan. A seed is a run; the same seed is the same run.
//!
//! ```sh
//! make simulate SEEDS=10000                                     # many runs, and a table
//! SEED=4711 cargo test --test simulate seeds_hold -- --nocapture  # one of them again
//! ```
//!
//! With one of the rules of delivery switched off, the oracle has to find violations: otherwise it proves nothing.

mod clients;
mod faults;
mod log;
mod oracle;
mod pages;
mod process;
mod run;
#[path = "../support/text.rs"]
#[allow(dead_code)]
mod text;

use faults::Kind;
use oracle::Verdicts;
use pagesieve::batch::{Delivery, ReceivedBatch};
use pagesieve::config::{self, Config, Key};
use pagesieve::index::Origin;
use pagesieve::index::plan::Plan;
use pagesieve::metrics::Metrics;
use pagesieve::sketch::Shape;
use pagesieve::state::SketchId;
use pagesieve::transport::kafka::connect::Cluster;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use text::Random;

/// A rule of delivery, switched off to see whether that is found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Rule 1: a page that is delivered again is not known for itself.
    SelfUnknown,
    /// Rule 3: what an aborted transaction did to the index stays.
    OverlayKept,
    /// Rule 4: a restart judges the input again.
    RecoveryJudges,
    /// Rule 6: a commit without an answer is taken for done.
    DoubtTrusted,
}

/// The settings of a run.
#[allow(missing_docs)]
pub struct Scene {
    pub config: Config,
    pub cluster: Cluster,
    pub key: Key,
    pub shape: Shape,
    pub plan: Plan,
    pub sketch: SketchId,
    pub metrics: Arc<Metrics>,
    pub partitions: i32,
    pub members: usize,
    pub exactly_once: bool,
    pub batch_pages: usize,
    /// The window holds all pages of the run.
    roomy: bool,
    pub broken: Option<Broken>,
}

impl Scene {
    fn new(random: &mut Random, broken: Option<Broken>) -> Self {
        static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();
        let exactly_once = random.below(3) > 0;
        let roomy = random.below(4) > 0;
        let members = if random.below(4) == 0 { 2 } else { 1 };
        let delivery = if exactly_once { "exactly_once" } else { "at_least_once" };
        let max_age = ["7d", "2d", "12h"][random.below(3)];
        let commit_interval = [10, 100, 400][random.below(3)];
        let text = format!(
            r#"
            input.topics = ["pages"]
            input.max_page_bytes = "8KiB"
            sketch.key = "00112233445566778899aabbccddeeff"
            window.max_memory = "1MiB"
            window.max_age = "{max_age}"
            output.topic = "out"
            output.verdict_topic = "verdicts"
            output.dead_letter_topic = "dead"
            output.state_topic = "state"
            kafka.brokers = ["simulated:1"]
            kafka.delivery = "{delivery}"
            kafka.commit_interval = "{commit_interval}ms"
            "#
        );
        let config = config::parse(&text, "simulated", std::iter::empty()).expect("the configuration is sound");
        let key = Key::from_hex("00112233445566778899aabbccddeeff").expect("a key");
        let shape = Shape::new(&config.sketch);
        let mut plan = Plan::new(&config.window, &shape);
        if !roomy {
            plan.capacity_pages = 100 + random.below(100);
        }
        let partitions = 2 + random.below(3) as i32;
        let cluster = Cluster {
            partitions: ["out", "verdicts", "dead"].map(|topic| (topic.to_owned(), partitions + 16)).into(),
            max_message_bytes: [("out".to_owned(), 4_000)].into(),
        };
        Self {
            sketch: SketchId::new(&config, &key),
            metrics: METRICS.get_or_init(|| Arc::new(Metrics::new("simulated"))).clone(),
            batch_pages: 1 + random.below(24),
            config,
            cluster,
            key,
            shape,
            plan,
            partitions,
            members,
            exactly_once,
            roomy,
            broken,
        }
    }

    /// A record as a batch of its own.
    pub fn received(&self, record: &log::Record, origin: Origin) -> ReceivedBatch {
        let mut batch = ReceivedBatch::default();
        let key = record.key.as_ref().map(|key| batch.push(key));
        let value = record.value.as_ref().map(|value| batch.push(value));
        let timestamp_ms = record.timestamp_ms;
        batch.deliveries.push(Delivery { origin, value, cut_from: None, key, headers: 0..0, timestamp_ms });
        batch
    }

    /// Must verdicts be those of an uninterrupted run? One member, and nothing forgotten: after a restart the window's
    /// clock is that of the pages remembered.
    pub fn is_comparable(&self, world: &clients::Shared) -> bool {
        let apart = [Kind::Rebalance, Kind::RebalanceInHaste, Kind::ClockStep];
        let plain = apart.iter().all(|kind| !world.faults.struck.contains_key(kind));
        self.exactly_once && self.roomy && self.members == 1 && plain
    }
}

/// What all runs came to.
#[derive(Default)]
struct Summary {
    runs: u64,
    pages: u64,
    partitions: (usize, usize),
    fewest_faults: u64,
    struck: BTreeMap<Kind, u64>,
    asked: Verdicts,
    failed: Vec<(u64, Vec<String>)>,
}

impl Summary {
    fn add(&mut self, seed: u64, report: run::Report) {
        let num_struck = report.struck.values().sum::<u64>();
        self.fewest_faults = if self.runs == 0 { num_struck } else { self.fewest_faults.min(num_struck) };
        let (fewest, most) = if self.runs == 0 { (usize::MAX, 0) } else { self.partitions };
        self.partitions = (fewest.min(report.partitions), most.max(report.partitions));
        self.runs += 1;
        self.pages += report.pages;
        report.struck.iter().for_each(|(kind, count)| *self.struck.entry(*kind).or_default() += count);
        let (sum, one) = (&mut self.asked, &report.verdicts);
        sum.clusters += one.clusters;
        sum.fates += one.fates;
        sum.singles += one.singles;
        sum.drops += one.drops;
        sum.verdicts += one.verdicts;
        sum.received_again += one.received_again;
        if !report.violations.is_empty() {
            self.failed.push((seed, report.violations));
        }
    }

    fn print(&self, seconds: f64) {
        let Verdicts { clusters, fates, singles, drops, verdicts, received_again } = self.asked;
        let (fewest, most) = self.partitions;
        println!("{} runs, {} pages, {received_again} of them received again, {seconds:.1} s", self.runs, self.pages);
        println!("partitions {fewest} to {most}, at least {} faults a run\n", self.fewest_faults);
        println!("{:<24}{:>10}", "fault", "times");
        for kind in Kind::ALL {
            println!("{:<24}{:>10}", format!("{kind:?}"), self.struck.get(&kind).copied().unwrap_or(0));
        }
        println!("\n{:<58}{:>10}{:>12}", "rule of the oracle", "asked", "violations");
        let rules = [
            ("(a)", "every cluster of copies has a survivor", clusters),
            ("(b)", "every page has a fate", fates),
            ("(c)", "no page has two (exactly once)", singles),
            ("(d)", "every drop names a page that was emitted", drops),
            ("(e)", "verdicts are those of an uninterrupted run", verdicts),
        ];
        for (mark, rule, asked) in rules {
            let of_rule = |violation: &&String| violation.starts_with(mark);
            let violations = self.failed.iter().flat_map(|(_, all)| all).filter(of_rule).count();
            println!("{:<58}{asked:>10}{violations:>12}", format!("{mark} {rule}"));
        }
        println!();
    }
}

/// Runs seeds on every core.
fn simulate(seeds: std::ops::Range<u64>, broken: Option<Broken>) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let summary = Mutex::new(Summary::default());
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let report = run::run(seed, broken);
                    summary.lock().expect("nobody panics with the lock").add(seed, report);
                }
            });
        }
    });
    summary.into_inner().expect("nobody panics with the lock")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn seeds_hold() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(300),
    };
    let started = Instant::now();
    let summary = simulate(seeds, None);
    summary.print(started.elapsed().as_secs_f64());
    for (seed, violations) in summary.failed.iter().take(5) {
        println!("seed {seed}:\n  {}", violations.join("\n  "));
        println!("  again: SEED={seed} cargo test --test simulate seeds_hold -- --nocapture");
    }
    assert!(summary.failed.is_empty(), "{} of {} runs violate the oracle", summary.failed.len(), summary.runs);
    assert!(summary.fewest_faults >= 5, "a run had only {} faults", summary.fewest_faults);
}

#[test]
fn a_rule_switched_off_is_found_out() {
    for broken in [Broken::SelfUnknown, Broken::OverlayKept, Broken::RecoveryJudges, Broken::DoubtTrusted] {
        let summary = simulate(0..number("SEEDS").unwrap_or(300).min(1_000), Some(broken));
        let first = summary.failed.iter().min().map(|(seed, violations)| format!("seed {seed}: {}", violations[0]));
        println!("{broken:?}: {} of {} runs, {}", summary.failed.len(), summary.runs, first.as_deref().unwrap_or("-"));
        assert!(!summary.failed.is_empty(), "nobody notices {broken:?}");
    }
}
