//! The window on disk: a restart uses as much of it as is sound, reads the rest from the state topic, says what is in
//! neither, and never depends on the disk.

use crate::daemon::{Daemon, SOON, Setup};
use crate::oracle::Outcome;
use crate::topics::{Origin, Record};
use crate::{edited, judged, text};
use pagesieve::config;
use pagesieve::sketch::BandKey;
use pagesieve::sketch::keyed::mix;
use pagesieve::state::SketchId;
use pagesieve::state::record::{self, NamedOrigin, Remembered, StateRecord};
use pagesieve::state::segment::Header;
use pagesieve::state::snapshot::{Directory, SEGMENT_BYTES};
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Pages remembered before the restart.
const PAGES: u64 = 400;

fn url(number: u64) -> String {
    format!("https://www.example/{number}")
}

pub fn with_snapshot(name: &str) -> (Setup, PathBuf) {
    let setup = Setup::new(name, 1);
    let directory = setup.directory().join("snapshot");
    let setup = setup.with("snapshot.directory", format!("{:?}", directory.display().to_string()));
    (setup.with("snapshot.interval", r#""1s""#), directory)
}

pub fn segments(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files = files.filter(|path| path.extension().is_some_and(|it| it == "segment")).collect::<Vec<_>>();
    files.sort_unstable();
    files
}

/// The end of the state topic.
pub fn end_of_state(setup: &Setup) -> i64 {
    let consumer: BaseConsumer = setup.cluster.client().create().expect("a consumer");
    consumer.fetch_watermarks(&setup.state(), 0, Duration::from_secs(30)).expect("the cluster answers").1
}

/// Waits until everything that is committed is in a segment.
pub fn wait_kept(setup: &Setup, daemon: &mut Daemon, directory: &Path) {
    let end = end_of_state(setup);
    let next = |path: &PathBuf| path.file_stem()?.to_str()?.rsplit('-').next()?.parse::<i64>().ok();
    daemon.wait("all is on disk", SOON, |_| segments(directory).last().and_then(next).is_some_and(|next| next >= end));
}

/// Judges pages that fill a window, forgets one and replaces one; then kills the daemon with all of that on disk.
fn filled(setup: &Setup, directory: &Path) -> Vec<Origin> {
    let mut daemon = setup.start_ready();
    let mut pages = (0..PAGES).map(|number| Record::page(&url(number), &text(number, 60))).collect::<Vec<_>>();
    pages.push(Record::tombstone(&url(5)));
    pages.push(Record::page(&url(6), &text(6_006, 60)));
    let origins = judged(setup, &mut daemon, &pages);
    wait_kept(setup, &mut daemon, directory);
    daemon.kill();
    origins
}

/// What each of some pages is judged after the restart, if the whole window is there.
fn check_whole(setup: &Setup, daemon: &mut Daemon, origins: &[Origin]) {
    let from = 100_000 + u64::from(std::process::id());
    let later = [
        (Record::page(&url(from), &text(0, 60)), "exact_duplicate", Some(0)),
        (Record::page(&url(from + 1), &edited(&text(1, 60))), "near_duplicate", Some(1)),
        (Record::page(&url(2), &text(2, 60)), "unchanged", Some(2)),
        (Record::page(&url(from + 2), &text(PAGES - 1, 60)), "exact_duplicate", Some(PAGES as usize - 1)),
        (Record::page(&url(from + 3), &text(PAGES / 2, 60)), "exact_duplicate", Some(PAGES as usize / 2)),
        (Record::page(&url(from + 4), &text(6_006, 60)), "exact_duplicate", Some(PAGES as usize + 1)),
        // Forgotten by its tombstone, and replaced.
        (Record::page(&url(from + 5), &text(5, 60)).with("pagesieve-remember", "false"), "unique", None),
        (Record::page(&url(from + 6), &text(6, 60)).with("pagesieve-remember", "false"), "unique", None),
    ];
    let records = later.clone().map(|(record, ..)| record);
    let second = judged(setup, daemon, &records);
    let outcome = Outcome::read(setup);
    for (at, (_, verdict, of)) in later.iter().enumerate() {
        let canonical = of.map(|of| origins[of].clone());
        assert_eq!((outcome.verdict(&second[at]), outcome.canonical(&second[at])), (*verdict, canonical), "page {at}");
    }
}

/// The log's line about the restore.
fn restored(daemon: &Daemon) -> (u64, u64) {
    let lines = daemon.logged("INFO");
    let line = lines.iter().find(|line| line.contains("window restored")).unwrap_or_else(|| panic!("{}", daemon.log()));
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let number = |name: &str| line[name].as_u64().expect("a number");
    (number("records"), number("from_disk"))
}

fn inspect(path: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pagesieve")).args(["snapshot", "inspect"]).arg(path).output();
    let output = output.expect("it runs");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text")).concat();
    (output.status.success(), said)
}

#[test]
fn a_restart_needs_no_topic_if_the_disk_has_the_window() {
    let (mut setup, directory) = with_snapshot("snapshot-whole");
    let origins = filled(&setup, &directory);
    let (sound, said) = inspect(&directory);
    assert!(sound && said.contains(&setup.state()) && said.contains("401 of them pages remembered"), "{said}");
    assert!(said.contains("tombstones  1\n"), "{said}");
    setup.cluster.trim(&setup.state(), &[(0, end_of_state(&setup))]);
    // Into another size, too.
    setup.set("window.max_memory", r#""16MiB""#);
    let mut daemon = setup.start_ready();
    assert_eq!(restored(&daemon), (402, 402));
    check_whole(&setup, &mut daemon, &origins);
    assert!(daemon.logged("ERROR").is_empty(), "{}", daemon.log());
    assert_eq!(daemon.metric("pagesieve_gap_offsets_total"), 0.0);
    daemon.wait("the disk is told of", SOON, |daemon| daemon.metric("pagesieve_snapshot_bytes") > 0.0);
    daemon.wait("and when", SOON, |daemon| daemon.metric("pagesieve_snapshot_last_success_timestamp_seconds") > 1e9);
    daemon.terminate();
}

/// What is done to the disk.
type Harm = fn(&Path);

#[test]
fn what_is_wrong_with_the_disk_is_named_and_read_from_the_topic() {
    let flip: Harm = |directory| {
        let path = segments(directory).pop().expect("a segment");
        let mut bytes = fs::read(&path).expect("it is there");
        let middle = 1024 + (bytes.len() - 1024) / 2;
        bytes[middle] ^= 16;
        fs::write(&path, bytes).expect("it can be written");
        assert!(!inspect(&path).0);
    };
    let cut: Harm = |directory| {
        let path = segments(directory).pop().expect("a segment");
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() * 2 / 3]).expect("it can be written");
        assert!(!inspect(&path).0);
    };
    let header: Harm = |directory| {
        let path = segments(directory).pop().expect("a segment");
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[60] ^= 1;
        fs::write(&path, bytes).expect("it can be written");
    };
    let other_file: Harm = |directory| fs::write(directory.join("x.segment"), "no segment").expect("it can be written");
    let gone: Harm = |directory| fs::remove_dir_all(directory).expect("it can be removed");
    let partial: Harm = |directory| fs::write(directory.join("0-0-0.partial"), "half").expect("it can be written");
    for (number, (name, harm, errors)) in (0..).zip([
        ("a bit flipped", flip, 1),
        ("a segment cut short", cut, 1),
        ("a header damaged", header, 1),
        ("another file", other_file, 1),
        ("the volume deleted", gone, 0),
        ("a crash in the middle of writing", partial, 0),
    ]) {
        println!("{name}");
        let (setup, directory) = with_snapshot(&format!("snapshot-harm-{number}"));
        let origins = filled(&setup, &directory);
        harm(&directory);
        let mut daemon = setup.start_ready();
        let said = daemon.logged("ERROR");
        assert_eq!(said.len(), errors, "{name}: {said:?}");
        assert!(said.iter().all(|line| line.contains("segment")), "{said:?}");
        assert_eq!(daemon.metric("pagesieve_snapshot_errors_total"), errors as f64);
        check_whole(&setup, &mut daemon, &origins);
        // It is whole again.
        wait_kept(&setup, &mut daemon, &directory);
        daemon.terminate();
        let (sound, said) = inspect(&directory);
        assert!(sound, "{name}: {said}");
        assert!(
            !fs::read_dir(&directory).expect("it is there").flatten().any(|it| it.path().ends_with("0-0-0.partial"))
        );
    }
}

#[test]
fn what_neither_disk_nor_topic_has_is_counted_and_on_gap_decides() {
    let (mut setup, directory) = with_snapshot("snapshot-gap");
    filled(&setup, &directory);
    let path = segments(&directory).pop().expect("a segment");
    let bytes = fs::read(&path).expect("it is there");
    let first_half = 1024 + (bytes.len() - 1024) / 2;
    fs::write(&path, [&bytes[..first_half], &[0; 100]].concat()).expect("it can be written");
    setup.cluster.trim(&setup.state(), &[(0, end_of_state(&setup))]);
    setup.set("recovery.on_gap", r#""exit""#);
    let mut daemon = setup.start();
    assert!(!daemon.wait_exit(SOON).success());
    assert!(daemon.log().contains("are gone"), "{}", daemon.log());
    setup.set("recovery.on_gap", r#""serve""#);
    let mut daemon = setup.start_ready();
    assert!(daemon.log().contains("serving without the whole window"), "{}", daemon.log());
    assert!(daemon.metric("pagesieve_gap_offsets_total") > 0.0);
    judged(&setup, &mut daemon, &[Record::page(&url(9_999), &text(9_999, 60))]);
    daemon.terminate();
}

#[test]
fn a_snapshot_of_another_key_is_refused_and_replaced_with_a_new_window() {
    let (mut setup, directory) = with_snapshot("snapshot-key");
    filled(&setup, &directory);
    setup.cluster.trim(&setup.state(), &[(0, end_of_state(&setup))]);
    setup.set("sketch.key", r#""ffeeddccbbaa99887766554433221100""#);
    let mut daemon = setup.start();
    assert!(!daemon.wait_exit(SOON).success());
    assert!(daemon.log().contains("--new-window"), "{}", daemon.log());
    let mut daemon = setup.start_with(&["--new-window"]);
    daemon.wait_ready();
    let origins = judged(&setup, &mut daemon, &[Record::page(&url(0), &text(0, 60))]);
    assert_eq!(Outcome::read(&setup).verdict(&origins[0]), "unique");
    wait_kept(&setup, &mut daemon, &directory);
    daemon.wait("the old segments go", SOON, |_| segments(&directory).len() == 1);
    daemon.kill();
    let mut daemon = setup.start_ready();
    let origins = judged(&setup, &mut daemon, &[Record::page(&url(1), &text(0, 60))]);
    assert_eq!(Outcome::read(&setup).verdict(&origins[0]), "exact_duplicate");
    daemon.terminate();
}

#[test]
fn pages_do_not_wait_for_a_disk_that_fails() {
    let (setup, directory) = with_snapshot("snapshot-no-disk");
    fs::write(&directory, "a file, not a directory").expect("it can be written");
    let mut daemon = setup.start_ready();
    judged(&setup, &mut daemon, &[Record::page(&url(0), &text(0, 60))]);
    assert!(daemon.log().contains("snapshot.directory cannot be used"), "{}", daemon.log());
    daemon.kill();

    fs::remove_file(&directory).expect("it can be removed");
    let mut daemon = setup.start_ready();
    wait_kept(&setup, &mut daemon, &directory);
    // The directory goes while it is in use: a disk that was full or taken away, and comes back.
    fs::remove_dir_all(&directory).expect("it can be removed");
    fs::write(&directory, "in the way").expect("it can be written");
    judged(&setup, &mut daemon, &[Record::page(&url(1), &text(1, 60))]);
    daemon.wait("it is told", SOON, |daemon| daemon.metric("pagesieve_snapshot_errors_total") > 0.0);
    judged(&setup, &mut daemon, &[Record::page(&url(2), &text(2, 60))]);
    fs::remove_file(&directory).expect("it can be removed");
    fs::create_dir(&directory).expect("it can be made");
    wait_kept(&setup, &mut daemon, &directory);
    daemon.terminate();
    let (sound, said) = inspect(&directory);
    assert!(sound && said.contains("3, 3 of them"), "{said}");
}

/// A state record of a page that nobody sent.
fn made_up(number: u64) -> Vec<u8> {
    let mixed = |salt: u64| mix(number.wrapping_mul(64).wrapping_add(salt));
    let url = format!("https://www.example/2026/11/21/{number}/some-article-with-a-usual-slug");
    let page = Remembered {
        origin: NamedOrigin { topic: "crawl.pages", partition: (number % 4) as i32, offset: number / 4 },
        updated: false,
        event_time: 1_780_000_000 + (number / 1_000) as u32,
        digest: mixed(0),
        url_key: Some(mixed(1)),
        host_key: None,
        replaced: None,
        short: false,
        bands: (2..14).map(|salt| BandKey(mixed(salt) as u32)).collect(),
        bits: (14..22).map(mixed).collect(),
        url: Some(&url),
        id: None,
    };
    let mut bytes = Vec::new();
    record::encode(&StateRecord::Remember(page), SketchId(0), &mut bytes);
    bytes
}

/// The figures are printed; how long it may take is for the release to say, not for a test.
#[test]
#[ignore = "writes 1.2 GB and takes a minute: for a release, not for every change"]
fn five_million_pages_come_back_from_the_disk() {
    const MANY: u64 = 5_000_000;
    let (setup, path) = with_snapshot("snapshot-many");
    let setup = setup.with("window.max_memory", r#""2GiB""#).with("window.max_age", r#""none""#);
    let config = config::parse(&setup.toml(), "test", std::iter::empty()).expect("it is valid");
    let sketch = SketchId::new(&config, config.sketch.key.as_ref().expect("a key"));
    let directory = Directory::open(&path, &setup.state()).expect("it can be made");
    let begin = |at| directory.begin(Header::new(sketch.to_string(), "made up", &setup.state(), 0, at), None);
    let mut draft = begin(0).expect("it can be written");
    for number in 0..MANY {
        let mut record = made_up(number);
        record[2..6].copy_from_slice(&sketch.0.to_le_bytes());
        draft.writer.push(number, &record, |header| header.remembered += 1).expect("it can be written");
        if draft.writer.bytes() >= SEGMENT_BYTES {
            directory.publish(draft).expect("it can be published");
            draft = begin(number + 1).expect("it can be written");
        }
    }
    directory.publish(draft).expect("it can be published");
    let mut daemon = setup.start_ready();
    let ready = daemon.started.elapsed();
    assert_eq!(restored(&daemon), (MANY, MANY));
    let line = daemon.logged("INFO").into_iter().find(|line| line.contains("window restored")).expect("it restores");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    println!(
        "{} pages: restored in {} s, ready {:.1} s after the start",
        line["pages"],
        line["seconds"],
        ready.as_secs_f64()
    );
    let origins = judged(&setup, &mut daemon, &[Record::page(&url(0), &text(0, 60))]);
    assert_eq!(Outcome::read(&setup).verdict(&origins[0]), "unique");
    daemon.kill();
}
