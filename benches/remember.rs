//! How many pages does `filter` remember in how much resident memory?
//!
//! Feeds `filter --max-memory` distinct pages of 30 words through a pipe, ids and URLs not kept, and prints what it remembers
//! at the end, its peak resident size, and bytes a remembered page: of that peak, not a sum of sizes.
//!
//! ```text
//! cargo bench --bench remember [-- PAGES MEMORY SKETCH_BYTES]      default: 20000000 2GiB 64
//! ```

use pagesieve::sketch::keyed::mix;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

const WORDS: usize = 30;

/// 4,096 made-up words of five letters.
fn word(number: u64) -> [u8; 6] {
    const CONSONANTS: &[u8; 16] = b"bcdfghjklmnprstv";
    const VOWELS: &[u8; 4] = b"aeio";
    let pick = |from: &[u8], at: u64| from[at as usize % from.len()];
    [
        pick(CONSONANTS, number),
        pick(VOWELS, number >> 4),
        pick(CONSONANTS, number >> 6),
        pick(VOWELS, number >> 10),
        b'n',
        b' ',
    ]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let argument = |at: usize, default: &str| arguments.get(at).map_or(default, String::as_str).to_owned();
    let num_pages: u64 = argument(0, "20000000").parse().expect("a number of pages");
    let (memory, sketch_bytes) = (argument(1, "2GiB"), argument(2, "64"));
    let report = std::env::temp_dir().join(format!("pagesieve-remember-{}.json", std::process::id()));
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_pagesieve"))
        .args(["filter", "-q", "-o", "/dev/null", "--max-memory", &memory, "--report"])
        .arg(&report)
        .env("PAGESIEVE__WINDOW__NAMES_SHARE", "0")
        .env("PAGESIEVE__SKETCH__BYTES", &sketch_bytes)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = BufWriter::with_capacity(1 << 20, child.stdin.take().expect("it is piped"));
    let mut line = Vec::new();
    for number in 0..num_pages {
        line.clear();
        write!(line, r#"{{"url":"https://site.example/{number}","text":""#).expect("memory can be written");
        for place in 0..WORDS as u64 / 5 {
            let random = mix(number * 8 + place);
            (0..5).for_each(|at| line.extend_from_slice(&word(random >> (12 * at))));
        }
        line.extend_from_slice(b"\"}\n");
        input.write_all(&line).expect("all is read");
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());
    let seconds = started.elapsed().as_secs_f64();

    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).expect("there is a report")).expect("the report is JSON");
    std::fs::remove_file(std::env::temp_dir().join(format!("pagesieve-remember-{}.json", std::process::id())))
        .expect("the report can be removed");
    let index = &report["index"];
    let count = |value: &serde_json::Value| value.as_u64().expect("a count");
    let (remembered, peak) = (count(&index["pages"]), peak_of_children());
    println!("{:>12} pages of {WORDS} words into {memory}, {sketch_bytes} bytes a sketch", num_pages);
    println!("{:>12} unique, {} near-duplicates", count(&report["unique"]), count(&report["near_duplicates"]));
    println!("{remembered:>12} remembered at the end, capacity {}", count(&index["capacity_pages"]));
    println!("{:>12.1} MiB resident at most", peak as f64 / f64::from(1 << 20));
    println!("{:>12.1} bytes a remembered page", peak as f64 / remembered as f64);
    println!("{:>12.0} pages a second, both threads and the pipe included", num_pages as f64 / seconds);
}

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
