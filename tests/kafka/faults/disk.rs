//! What happens to the disk that the snapshot is on: no room, no right, damage, another window's files, nothing left.

use super::process::with_snapshot;
use super::{Case, Found, Run, Skipped, Trial};
use crate::daemon::SOON;
use crate::snapshot::{end_of_state, segments, wait_kept};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const ROWS: &[(&str, Run, bool)] = &[
    ("disk full, room again", full, true),
    ("snapshot directory read-only, writable again", read_only, false),
    ("snapshot with a bit flipped", |case| damaged(case, "a bit is flipped", flip), false),
    ("snapshot truncated", |case| damaged(case, "a segment is cut short", cut), false),
    ("snapshot volume deleted, source trimmed", |case| damaged(case, "the volume is deleted", gone), false),
    ("snapshot under another key", another_key, false),
];

/// A file system of a few kibibytes, gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, options: &str) -> Result<Self, Skipped> {
        fs::create_dir_all(at).expect("a directory can be made");
        // SAFETY: no memory is involved.
        if unsafe { libc::geteuid() } != 0 {
            return Err(Skipped("needs root, to mount a small tmpfs".into()));
        }
        mount(&["-t", "tmpfs", "-o", options, "pagesieve-test"], at)
            .map_err(|why| Skipped(format!("no tmpfs: {why}")))?;
        Ok(Self(at.to_owned()))
    }

    fn remount(&self, options: &str) {
        mount(&["-o", &format!("remount,{options}")], &self.0).expect("what is mounted can be mounted otherwise");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a daemon that is being killed may still have files there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(at).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// The disk is of no use while pages come, is of use again, and a restart has the whole window from it.
fn of_no_use(case: &Case, at_first: &str, later: &str, fault: &str) -> Result<Found, Skipped> {
    let (setup, directory) = with_snapshot(case.setup());
    let disk = SmallDisk::mount(&directory, at_first)?;
    let mut trial = Trial::begin(case, setup);
    trial.daemon().wait("it is told", SOON, |daemon| daemon.metric("pagesieve_snapshot_errors_total") >= 1.0);
    trial.fault(fault);
    trial.wait_committed(0.5);
    disk.remount(later);
    let (setup, daemon) = (&trial.setup, trial.daemon.as_mut().expect("it runs"));
    wait_kept(setup, daemon, &directory);
    trial.kill();
    trial.setup.cluster.trim(&trial.setup.state(), &[(0, end_of_state(&trial.setup))]);
    trial.fault("the state topic is trimmed");
    trial.start();
    assert_eq!(trial.daemon().metric("pagesieve_gap_offsets_total"), 0.0, "the disk has the whole window");
    let found = trial.end();
    drop(disk);
    found
}

fn full(case: &Case) -> Result<Found, Skipped> {
    of_no_use(case, "size=64k", "size=64m", "ENOSPC after 64 KiB")
}

fn read_only(case: &Case) -> Result<Found, Skipped> {
    of_no_use(case, "size=64m,ro", "rw", "EROFS")
}

/// What is done to the directory.
type Harm = fn(&Path);

fn flip(directory: &Path) {
    let path = segments(directory).pop().expect("a segment");
    let mut bytes = fs::read(&path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 16;
    fs::write(&path, bytes).expect("it can be written");
}

fn cut(directory: &Path) {
    let path = segments(directory).pop().expect("a segment");
    let bytes = fs::read(&path).expect("it is there");
    fs::write(&path, &bytes[..bytes.len() * 2 / 3]).expect("it can be written");
}

fn gone(directory: &Path) {
    fs::remove_dir_all(directory).expect("it can be removed");
}

/// A daemon that is killed with a part of its window on disk.
fn killed_with_a_segment(case: &Case) -> (Trial<'_>, PathBuf) {
    let (setup, directory) = with_snapshot(case.setup());
    let mut trial = Trial::begin(case, setup);
    trial.wait_committed(0.4);
    trial.daemon().wait("a segment is written", SOON, |_| !segments(&directory).is_empty());
    trial.kill();
    (trial, directory)
}

/// Killed; then the disk is harmed, and the source loses all that is committed: nothing can be judged again.
fn damaged(case: &Case, fault: &str, harm: Harm) -> Result<Found, Skipped> {
    let (mut trial, directory) = killed_with_a_segment(case);
    harm(&directory);
    trial.fault(fault);
    let committed = trial.setup.progress().look();
    let committed = committed.into_iter().map(|((_, partition), (committed, _))| (partition, committed));
    trial.setup.cluster.trim(&trial.setup.inputs[0], &committed.collect::<Vec<_>>());
    trial.fault("the source is trimmed");
    trial.start();
    assert_eq!(trial.daemon().metric("pagesieve_gap_offsets_total"), 0.0, "the state topic has the whole window");
    trial.end()
}

/// Refused; with a new window the disk's old one is of no use and in nobody's way.
fn another_key(case: &Case) -> Result<Found, Skipped> {
    let (mut trial, _) = killed_with_a_segment(case);
    trial.setup.set("sketch.key", r#""ffeeddccbbaa99887766554433221100""#);
    let mut refused = trial.setup.start();
    let status = refused.wait_exit(SOON);
    assert!(status.code() == Some(1) && refused.log().contains("--new-window"), "{status}\n{}", refused.log());
    trial.fault("another key: refused, then a new window");
    let mut daemon = trial.setup.start_with(&["--new-window"]);
    daemon.wait_ready();
    trial.daemon = Some(daemon);
    // The new window knows nothing of the old one's pages.
    let mut crawl = trial.drain();
    Ok(trial.count(&mut crawl, false).0)
}
