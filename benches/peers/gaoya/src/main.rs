//! The job of `pagesieve filter` done with gaoya: drop every page that a remembered page resembles, remember the rest.
//!
//! ```text
//! peer-gaoya fnv|ahash PAGES SEED [DECISIONS]      text ─▶ words ─▶ shingles ─▶ signature ─▶ query ─▶ drop or insert
//! ```
//!
//! DECISIONS gets a line for each page: `-` if it survived, else the number of the page it was dropped for (from 0) and
//! the estimated resemblance. Standard output gets one JSON object with the time and the memory that it took.
//!
//! Reading the file and its JSON is not timed. The choices are those that are best for gaoya: its own banding for the
//! threshold, the container of ids that it recommends where nothing is removed, no text copied but for the lower case, and
//! a hash of shingles of one's choice: its own, FNV, or aHash, which is faster.

use fnv::FnvBuildHasher;
use gaoya::minhash::{MinHashIndex, MinHasher, MinHasher32, SmallVecContainer, calculate_minhash_params};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: peer-gaoya fnv|ahash PAGES SEED [DECISIONS]";

const THRESHOLD: f64 = 0.8;
const NUM_HASHES: usize = 128;
const SHINGLE_WORDS: usize = 5;

/// Pages with fewer words have fewer than 8 shingles and are compared by their exact text, as pagesieve does.
const MIN_WORDS: usize = 12;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// Resident bytes of this process.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [hasher, rest @ ..] if hasher == "fnv" => job(FnvBuildHasher::default(), rest),
        [hasher, rest @ ..] if hasher == "ahash" => job(ahash::RandomState::with_seeds(1, 1, 2, 3), rest),
        _ => Err(USAGE.into()),
    }
}

/// The whole job, with this hash of shingles.
fn job<H: BuildHasher>(hasher: H, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [pages, seed, rest @ ..] = arguments else { return Err(USAGE.into()) };
    let seed: u64 = seed.parse()?;
    let mut decisions: Box<dyn Write> = match rest {
        [file] => Box::new(BufWriter::new(File::create(file)?)),
        _ => Box::new(io::sink()),
    };

    let (num_bands, rows) = calculate_minhash_params(THRESHOLD, NUM_HASHES);
    let signer = MinHasher32::new_with_hasher_and_seed(num_bands * rows, hasher, seed);
    let mut index = MinHashIndex::<u32, u32, SmallVecContainer<u32, 4>>::new_index(num_bands, rows, THRESHOLD);
    let mut short: HashMap<String, u32> = HashMap::new();

    let (mut reader, mut line) = (BufReader::with_capacity(1 << 20, File::open(pages)?), String::new());
    let (mut num_pages, mut num_survivors) = (0, 0);
    let (mut shingling, mut indexing) = (Duration::ZERO, Duration::ZERO);
    let before = resident()?;
    while reader.read_line(&mut line)? > 0 {
        let page: Page = serde_json::from_str(&line)?;
        let start = Instant::now();
        let text = page.text.to_lowercase();
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let split = Instant::now();
        let canonical = if words.len() < MIN_WORDS {
            let exact = page.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let first = *short.entry(exact).or_insert(num_pages);
            (first != num_pages).then_some((first, 1.0))
        } else {
            let signature = signer.create_signature(words.windows(SHINGLE_WORDS));
            let best = index.query_owned_return_similarity(&signature).first().copied();
            if best.is_none() {
                index.insert(num_pages, signature);
            }
            best
        };
        indexing += split.elapsed();
        shingling += split - start;
        match canonical {
            Some((canonical, estimate)) => writeln!(decisions, "{canonical} {estimate:.6}")?,
            None => writeln!(decisions, "-")?,
        }
        num_survivors += u32::from(canonical.is_none());
        num_pages += 1;
        line.clear();
    }
    decisions.flush()?;
    let grown = resident()?.saturating_sub(before);
    let (shingling, indexing) = (shingling.as_secs_f64(), indexing.as_secs_f64());
    println!(
        "{{\"pages\":{num_pages},\"survivors\":{num_survivors},\"shingling_seconds\":{shingling},\
         \"indexing_seconds\":{indexing},\"resident_bytes\":{grown},\"banding\":\"{num_bands} × {rows}\"}}"
    );
    Ok(())
}
