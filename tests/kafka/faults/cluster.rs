//! What happens to the cluster: brokers that die and come back, a leader that changes, a sink that takes little.

use super::{Case, DRAINED_WITHIN, Found, Run, Skipped, Trial, with_short_session};
use crate::broker::Cluster;
use crate::daemon::{SOON, Setup};
use std::sync::OnceLock;
use std::time::Duration;

pub const ROWS: &[(&str, Run, bool)] = &[
    ("the broker is killed and started again", broker_killed, true),
    ("broker and daemon are killed together", both_killed, false),
    ("the broker hangs, requests time out", broker_paused, false),
    ("three brokers, the leader is killed", leader_killed, false),
    ("three brokers, restarted in turn", |case| rolling_restart(case, |setup| setup), false),
    ("the same, sessions of six seconds", |case| rolling_restart(case, with_short_session), false),
    ("a sink that is throttled", throttled, true),
    ("a sink that is throttled below one batch a minute", throttled_to_a_trickle, false),
];

/// A broker that may come to harm.
fn lone() -> Cluster {
    static LONE: OnceLock<Cluster> = OnceLock::new();
    LONE.get_or_init(|| Cluster::start("lone", &[])).clone()
}

/// Three of them. A broker that was killed may register again after three seconds.
fn three() -> Cluster {
    static THREE: OnceLock<Cluster> = OnceLock::new();
    let options = ["--brokers", "3", "--property", "broker.session.timeout.ms=3000"];
    THREE.get_or_init(|| Cluster::start("three", &options)).clone()
}

fn setup_on(case: &Case, cluster: Cluster) -> Setup {
    case.configured(Setup::on(cluster, &case.name(), 4))
}

fn broker_killed(case: &Case) -> Result<Found, Skipped> {
    let cluster = lone();
    let mut trial = Trial::begin(case, setup_on(case, cluster.clone()));
    for share in [0.15, 0.4].into_iter().take(case.rounds()) {
        trial.wait_committed(share);
        cluster.command("kill", &["1"]);
        cluster.command("restart", &["1"]);
        trial.fault("the broker is killed and started");
    }
    trial.end()
}

fn both_killed(case: &Case) -> Result<Found, Skipped> {
    let cluster = lone();
    let mut trial = Trial::begin(case, setup_on(case, cluster.clone()));
    trial.wait_committed(0.3);
    cluster.command("kill", &["1"]);
    trial.kill();
    trial.fault("the broker too");
    cluster.command("restart", &["1"]);
    trial.start();
    trial.end()
}

/// A broker that hangs until this is dropped: the next row needs it.
struct Paused<'a>(&'a Cluster);

impl<'a> Paused<'a> {
    fn begin(cluster: &'a Cluster) -> Self {
        cluster.command("pause", &["1"]);
        Self(cluster)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.command("resume", &["1"]);
    }
}

fn broker_paused(case: &Case) -> Result<Found, Skipped> {
    let cluster = lone();
    let setup = setup_on(case, cluster.clone()).with("kafka.options.\"socket.timeout.ms\"", "\"5000\"");
    let mut trial = Trial::begin(case, setup);
    trial.wait_committed(0.2);
    let paused = Paused::begin(&cluster);
    // Longer than the daemon waits for an answer.
    trial.daemon().wait("it answers nobody", SOON, |_| !cluster.answers_within(Duration::from_secs(8)));
    drop(paused);
    trial.fault("the broker hangs for eight seconds");
    trial.end()
}

fn leader_killed(case: &Case) -> Result<Found, Skipped> {
    let cluster = three();
    let case = &case.lasting(8.0 * case.rounds() as f64);
    let mut trial = Trial::begin(case, setup_on(case, cluster.clone()));
    let topics = [trial.setup.state(), trial.setup.output(), trial.setup.inputs[0].clone()];
    for (topic, share) in topics.into_iter().zip([0.1, 0.3, 0.5]).take(case.rounds()) {
        trial.wait_committed(share);
        let leader = cluster.leader(&topic).to_string();
        cluster.command("kill", &[&leader]);
        trial.fault(format!("the leader of {} is killed", topic.rsplit('.').next().unwrap_or_default()));
        let (setup, daemon) = (&trial.setup, trial.daemon.as_mut().expect("it runs"));
        let progress = setup.progress();
        let committed = || progress.try_look().map_or(0, |look| look.values().map(|it| it.0).sum::<i64>());
        let before = committed();
        daemon.wait("two brokers go on", DRAINED_WITHIN, |_| committed() > before || progress.is_drained());
        cluster.command("restart", &[&leader]);
    }
    trial.end()
}

fn rolling_restart(case: &Case, configured: fn(Setup) -> Setup) -> Result<Found, Skipped> {
    let cluster = three();
    let case = &case.lasting(15.0);
    let mut trial = Trial::begin(case, configured(setup_on(case, cluster.clone())));
    trial.wait_committed(0.1);
    for broker in ["1", "2", "3"] {
        cluster.command("restart", &[broker]);
        trial.fault("a broker is restarted");
    }
    trial.end()
}

/// The sink takes so many bytes a second for as long as most of the crawl lasts. The poll interval is the broker's
/// shortest but one, and the whole takes far longer.
fn throttle(case: &Case, bytes: &str, poll_interval_ms: &str) -> Result<Found, Skipped> {
    let cluster = lone();
    let client = format!("client-of-{}", case.name());
    let setup = setup_on(case, cluster.clone())
        .with("kafka.options.\"session.timeout.ms\"", "\"6000\"")
        .with("kafka.options.\"max.poll.interval.ms\"", format!("{poll_interval_ms:?}"))
        .with("kafka.options.\"client.id\"", format!("{client:?}"));
    cluster.command("quota", &[&client, bytes]);
    let mut trial = Trial::begin(case, setup);
    trial.fault(format!("{bytes} bytes/s"));
    let mut crawl = trial.drain();
    let log = trial.daemon().log();
    let took = trial.daemon().started.elapsed();
    cluster.command("quota", &[&client, "0"]);
    trial.fault(format!("for {} s", took.as_secs()));
    // librdkafka says that it leaves the group for want of polls.
    let starved = log.contains("MAXPOLL");
    let aborted = trial.daemon().metric("pagesieve_transactions_total{result=\"aborted\"}");
    let (mut found, _) = trial.count(&mut crawl, true);
    let limit = poll_interval_ms.parse::<u64>().expect("a number");
    if starved {
        found.report.wrong(format!("the poll interval of {limit} ms was starved:\n{log}"));
    }
    if aborted > 0.0 {
        found.faults.push(format!("{aborted} transactions aborted"));
    }
    if took.as_millis() < 2 * u128::from(limit) {
        found.report.wrong(format!("it took {took:?}, not far longer than the poll interval of {limit} ms"));
    }
    Ok(found)
}

fn throttled(case: &Case) -> Result<Found, Skipped> {
    // 2,000 pages are some 900 kB.
    throttle(case, &(case.pages * 20).to_string(), "10000")
}

fn throttled_to_a_trickle(case: &Case) -> Result<Found, Skipped> {
    throttle(&Case { pages: case.pages / 2, ..*case }, "10000", "40000")
}
