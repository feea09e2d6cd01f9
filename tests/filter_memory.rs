//! Guards the bound on memory: `--max-memory` holds the index whatever comes, pages beyond it are forgotten one for one
//! and counted, and a backfill of late pages forgets none. A test binary of its own: the peak is that of all its
//! children.

use pagesieve::sketch::keyed::mix;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// The index, and beside it program, threads, batches and the allocator's slack.
const MAX_RESIDENT_BYTES: u64 = 64 * MIB + 100 * MIB;

const NUM_PAGES: u64 = 400_000;
const NUM_LATE: u64 = 100_000;
const START: u64 = 1_700_000_000;
const MONTH: u64 = 30 * 86_400;

/// Most memory that a child of this process ever had resident, in bytes.
fn peak_of_children() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is large enough for what the call writes, and all-zero bytes are a value of it should the call
    // fail.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_maxrss as u64 * 1024
}

#[test]
fn memory_is_bounded_and_late_pages_forget_nothing() {
    let files = TempDir::new().expect("a temporary directory");
    let report = files.path().join("report");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagesieve"));
    command
        .args(["filter", "-q", "-o", "/dev/null", "--threads", "2", "--max-memory", "64MiB", "--report"])
        .arg(&report);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the program starts");
    let mut input = BufWriter::with_capacity(1 << 16, child.stdin.take().expect("it is piped"));
    for number in 0..NUM_PAGES + NUM_LATE {
        let time = START + number / 1000 - if number >= NUM_PAGES { MONTH } else { 0 };
        let [a, b] = [mix(number), mix(!number)];
        // Nine words: only the digest counts.
        writeln!(
            input,
            r#"{{"url":"https://site.example/{number}","fetched_at":{time},"text":"page {a:x} of {b:x} with a few words more"}}"#
        )
        .expect("all is read");
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());

    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).expect("there is a report")).unwrap();
    let index = &report["index"];
    let capacity = index["capacity_pages"].as_u64().expect("the capacity is told");
    assert_eq!(report["unique"], NUM_PAGES + NUM_LATE, "all are distinct");
    assert!((250_000..NUM_PAGES).contains(&capacity), "{capacity}");
    assert_eq!(index["pages"], capacity);
    // One for one, and none for the late pages.
    assert_eq!(index["evicted"]["capacity"], NUM_PAGES - capacity);
    assert_eq!(index["evicted"]["age"], 0);
    assert!(index["bytes"].as_u64() <= Some(64 * MIB), "{index}");
    let peak = peak_of_children();
    println!("peak {} MiB, {capacity} pages", peak / MIB);
    assert!(peak <= MAX_RESIDENT_BYTES, "{} MiB resident", peak / MIB);
}
