//! What happens to the process: killed at each step, stopped for longer than its session, joined and left by others.

use super::{Case, Found, Run, Skipped, Trial, with_short_session};
use crate::daemon::{Daemon, SOON, Setup};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

pub const ROWS: &[(&str, Run, bool)] = &[
    ("SIGKILL after poll", |case| crash(case, "poll", [6, 2]), false),
    ("SIGKILL after sketch", |case| crash(case, "sketch", [6, 2]), false),
    ("SIGKILL after insert", |case| crash(case, "insert", [6, 2]), false),
    ("SIGKILL in the middle of produce", |case| crash(case, "produce", [700, 300]), false),
    ("SIGKILL before offsets are sent", |case| crash(case, "send-offsets", [4, 2]), false),
    ("SIGKILL before commit", |case| crash(case, "before-commit", [4, 2]), false),
    ("SIGKILL after commit", |case| crash(case, "after-commit", [3, 1]), false),
    ("SIGKILL in the middle of a snapshot", |case| crash(case, "segment", [700, 300]), false),
    ("SIGKILL before a snapshot's rename", |case| crash(case, "rename", [2, 1]), false),
    ("SIGKILL after a snapshot's rename", |case| crash(case, "renamed", [1, 1]), false),
    ("SIGKILL at any moment, four times", killed_at_any_moment, false),
    ("SIGTERM, twice", terminated, false),
    ("SIGSTOP past the session timeout, SIGCONT", stopped, false),
    ("the same, another member took over", stopped_and_replaced, false),
    ("rebalances in transactions, two members", rebalanced, false),
];

/// The setup with a snapshot that is written every second.
pub fn with_snapshot(setup: Setup) -> (Setup, PathBuf) {
    let directory = setup.directory().join("snapshot");
    let setup = setup.with("snapshot.directory", format!("{:?}", directory.display().to_string()));
    (setup.with("snapshot.interval", r#""1s""#), directory)
}

/// Dies at a step, and once more after the next start.
fn crash(case: &Case, step: &str, times: [u64; 2]) -> Result<Found, Skipped> {
    // Long enough for two segments to be written one after the other.
    let case = &if step.starts_with("rename") { case.lasting(8.0) } else { case.lasting(3.0) };
    let (setup, _) = with_snapshot(case.setup());
    // Small steps, so that there are as many after the first crash, when pages wait in the topic.
    let setup = setup.with("pipeline.batch_pages", "200").with("kafka.commit_interval", r#""10ms""#);
    let mut trial = Trial::without_daemon(case, setup, |_, _| {});
    for times in times {
        let at = format!("{step}:{times}");
        let mut daemon = trial.setup.start_in(&[("PAGESIEVE_CRASH_AT", &at)]);
        let status = daemon.wait_exit(SOON);
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}\n{}", daemon.log());
        trial.fault(format!("SIGKILL at {at}"));
    }
    trial.start();
    trial.end()
}

fn killed_at_any_moment(case: &Case) -> Result<Found, Skipped> {
    let mut trial = Trial::begin(case, case.setup());
    for share in [0.1, 0.25, 0.4, 0.55] {
        trial.wait_committed(share);
        trial.kill();
        trial.start();
    }
    trial.end()
}

fn terminated(case: &Case) -> Result<Found, Skipped> {
    let mut trial = Trial::begin(case, case.setup());
    for share in [0.2, 0.4] {
        trial.wait_committed(share);
        trial.daemon.take().expect("it runs").terminate();
        trial.fault("SIGTERM");
        trial.start();
    }
    trial.end()
}

/// Stops the daemon until its group has struck it off.
fn stop_past_session(trial: &mut Trial) {
    let (cluster, group) = (trial.setup.cluster.clone(), trial.setup.name.clone());
    let daemon = trial.daemon();
    daemon.signal(libc::SIGSTOP);
    daemon.wait("its session has ended", SOON, |_| cluster.num_members(&group) == 0);
}

fn stopped(case: &Case) -> Result<Found, Skipped> {
    let mut trial = Trial::begin(case, with_short_session(case.setup()));
    trial.wait_committed(0.2);
    stop_past_session(&mut trial);
    trial.daemon().signal(libc::SIGCONT);
    trial.fault("SIGSTOP, session over, SIGCONT");
    trial.end()
}

/// A second member of the group.
fn second_member(trial: &mut Trial) -> Daemon {
    let first = format!("{:?}", trial.setup.name);
    trial.setup.set("kafka.instance", format!("{:?}", format!("{}-second", trial.setup.name)));
    let daemon = trial.setup.start_ready();
    trial.setup.set("kafka.instance", first);
    daemon
}

fn stopped_and_replaced(case: &Case) -> Result<Found, Skipped> {
    // Short of the first member's patience with its open transaction, which stops its readers.
    let setup = with_short_session(case.setup()).with("kafka.commit_interval", r#""500ms""#);
    let mut trial = Trial::begin(case, setup);
    trial.wait_committed(0.2);
    stop_past_session(&mut trial);
    let mut second = second_member(&mut trial);
    second.wait("it has taken over", SOON, |daemon| daemon.metric("pagesieve_pages_total") >= 500.0);
    trial.daemon().signal(libc::SIGCONT);
    trial.fault("SIGSTOP, another member reads on, SIGCONT");
    let mut crawl = trial.drain();
    second.terminate();
    Ok(trial.count(&mut crawl, false).0)
}

fn rebalanced(case: &Case) -> Result<Found, Skipped> {
    let case = &case.lasting(10.0);
    let setup = with_short_session(case.setup()).with("kafka.commit_interval", r#""500ms""#);
    // What the killed one leaves open is in the readers' way for so long.
    let setup = setup.with("kafka.transaction_timeout", r#""10s""#);
    let mut trial = Trial::begin(case, setup);
    trial.wait_committed(0.1);
    let mut second = second_member(&mut trial);
    trial.fault("a member joins");
    second.wait("it takes part", SOON, |daemon| daemon.metric("pagesieve_pages_total") >= 100.0);
    second.terminate();
    trial.fault("leaves");
    trial.wait_committed(0.4);
    let mut second = second_member(&mut trial);
    trial.fault("joins");
    let group = trial.setup.name.clone();
    let cluster = trial.setup.cluster.clone();
    second.wait("there are two", SOON, |_| cluster.num_members(&group) == 2);
    second.kill();
    trial.fault("is killed");
    trial.daemon().wait("it is struck off", SOON, |_| cluster.num_members(&group) == 1);
    let mut crawl = trial.drain();
    Ok(trial.count(&mut crawl, false).0)
}
