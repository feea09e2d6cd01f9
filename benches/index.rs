//! How fast is the judge with its index, how even, and how large, from an empty window to one that has turned over?
//!
//! ```text
//! cargo bench --bench index                  1 and 10 million pages resident
//! cargo bench --bench index -- --full        30 million too (5 GB)
//! cargo bench --bench index -- --pages 3     3 million alone
//! ```
//!
//! The pages are made without text: keys, digests and bits by a mixer. Of 20, 13 are new and remembered, one is new and
//! not remembered, five are near-copies of a page in the window (each band kept with probability 0.59, some 50 of 496
//! bits flipped: what J ≈ 0.9 looks like at 500 words) and one is an exact copy. They come in batches of 1,024, made while the clock stands
//! still; a transaction is sealed and committed behind every batch. Every other batch is timed as a whole (pages a second
//! of processor time), those between are timed page by page, with one look at the clock a page (some 30 ns, included). Each size is measured in a
//! process of its own; resident bytes are the process's growth since before the index was made, over the pages remembered.
//!
//! Behind the sizes, streams that someone might send to slow the judge down, at a full window of a million pages.
//!
//! Conclusion (AMD EPYC with 32 MiB of shared L3, a virtual machine of 2 cores, 2026-11): at 1 and 10 million pages 870,000 to
//! 930,000 and 406,000 to 553,000 pages a second in a window that has turned over, over five runs; while it fills 787,000 to
//! 1,077,000 and 566,000 to 780,000, at 30 million 404,000 to 531,000, and 312,000 once it has
//! turned over. The spread is the machine's: whether what it takes for huge pages of 2 MiB is
//! backed by such, which a guest cannot see, makes an address that is not at hand cost 5 or 20 ns even with many on their way.
//! So what counts is how many pages of memory a page touches, and all buckets of a key are in one: before that it was 282,000 at 10 million
//! on the same day. A page is still not of flat cost. Of what it reads from main memory, some 4 lines at
//! 10 million and 7 at 30 are for tags, of 7 and 6 bits, that are equal by chance. Inserting has its p99.9 at 3.5 and 8 times
//! its median at 1 and 10 million; in the first 0.3 % of a
//! fill a huge page is made every 64 pages, 0.5 ms each and several where the machine must find the memory first. Resident:
//! 158.2 and 159.7 bytes a page. The dearest hostile stream, all twelve band keys in common, costs 5.0 times the
//! ordinary one; it met 174 candidates a page, and the bound is 384.

use pagesieve::batch::{self, Delivery, PageNames, PageSketch, ReceivedBatch, Sketch, SketchedBatch};
use pagesieve::config::{Config, Window};
use pagesieve::index::Origin;
use pagesieve::index::judge::{Judge, Judged, Rules};
use pagesieve::index::plan::Plan;
use pagesieve::page::EventTime;
use pagesieve::sketch::keyed::mix;
use pagesieve::sketch::{BandKey, Shape};
use pagesieve::verdict::Verdict;
use std::process::Command;
use std::time::Instant;

const BATCH_PAGES: u64 = 1024;
const MILLION: u64 = 1_000_000;
/// Pages judged to say what a stream costs in a full window.
const STEADY_PAGES: u64 = 2 * MILLION;
/// Bits in which a near-copy differs.
const FLIPPED_BITS: u64 = 50;
/// What the last 16 bits of a row say: an odd sketch of 500 shingles (see `sketch::odd`).
const HEADER: u64 = 1 << 60 | 500 << 48;
const START_MILLIS: i64 = 1_700_000_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--measure", millions] => return measure(millions.parse().expect("millions of pages")),
        ["--hostile"] => return hostile(),
        _ => {}
    }
    let sizes = match arguments[..] {
        [] => vec!["1", "10"],
        ["--full"] => vec!["1", "10", "30"],
        ["--pages", millions] => vec![millions],
        _ => panic!("usage: cargo bench --bench index -- [--full | --pages MILLIONS]"),
    };
    let this = std::env::current_exe().expect("this program has a path");
    let run = |arguments: &[&str]| {
        let status = Command::new(&this).args(arguments).status().expect("this program starts");
        assert!(status.success(), "{arguments:?}");
    };
    println!(
        "{:>9} {:<14} {:>9} {:>6} │ {:>27} │ {:>27} │ {:>27} │ {:>21} │ {:>9}",
        "", "", "", "", "inserted, ns", "new, not remembered, ns", "copies, ns", "batches, µs", "resident"
    );
    let percentiles = format!("{:>6} {:>6} {:>6} {:>6}", "p50", "p99", "p99.9", "max");
    println!(
        "{:>9} {:<14} {:>9} {:>6} │ {percentiles} │ {percentiles} │ {percentiles} │ {:>6} {:>6} {:>7} │ {:>9}",
        "pages", "window", "pages/s", "ns", "p50", "p99.9", "max", "bytes/pg"
    );
    sizes.iter().for_each(|size| run(&["--measure", size]));
    if arguments.is_empty() || arguments == ["--full"] {
        run(&["--hostile"]);
    }
}

/// A row of the table for each part of a window's life.
fn measure(millions: u64) {
    let capacity = millions * MILLION;
    let mut bench = Bench::new(capacity, 1.0);
    let judge = |bench: &Bench| bench.judge.index().num_pages() as u64;
    let mut run = |name: &str, until: &dyn Fn(&Bench) -> bool| {
        let mut seen = Seen::default();
        while !until(&bench) {
            bench.batch(Stream::Ordinary, &mut seen);
        }
        let pages = judge(&bench);
        let resident = resident_bytes().saturating_sub(bench.resident_before) as f64 / pages as f64;
        seen.print(&format!("{:.1} M", pages as f64 / 1e6), name, resident);
    };
    run("first 100,000", &|bench| judge(bench) >= 100_000);
    run("filling", &|bench| judge(bench) >= capacity);
    run("first turnover", &|bench| bench.originals >= 2 * capacity);
    if millions <= 10 {
        run("second", &|bench| bench.originals >= 3 * capacity);
    }
    let from = std::cell::Cell::new(0);
    run("steady", &|bench| {
        from.set(if from.get() == 0 { bench.next } else { from.get() });
        bench.next >= from.get() + STEADY_PAGES
    });
}

/// What hostile streams cost, beside the ordinary one in the same window.
fn hostile() {
    println!(
        "\n{:<56} {:>9} {:>9} {:>10}",
        "a stream into a full window of a million", "ns/page", "p99.9 ns", "candidates"
    );
    for stream in Stream::ALL {
        // A quota that the one host reaches long before the window is full of it.
        let mut bench = Bench::new(MILLION, if matches!(stream, Stream::OneHost) { 0.01 } else { 1.0 });
        while bench.judge.index().num_pages() < MILLION as usize {
            bench.batch(Stream::Ordinary, &mut Seen::default());
        }
        let mut seen = Seen::default();
        let before = bench.next;
        while bench.next < before + MILLION {
            bench.batch(stream, &mut seen);
        }
        let worst = seen.pages.iter().map(|of_kind| of_kind.at(0.999)).max().expect("there are three kinds");
        let candidates = seen.candidates as f64 / seen.judged as f64;
        println!("{:<56} {:>9.0} {worst:>9} {candidates:>10.1}", stream.name(), seen.nanos_a_page());
    }
}

/// What kind of pages come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stream {
    Ordinary,
    OneBand,
    AllBands,
    OneDigest,
    OneUrl,
    OneHost,
}

impl Stream {
    const ALL: [Self; 6] =
        [Self::Ordinary, Self::OneBand, Self::AllBands, Self::OneDigest, Self::OneUrl, Self::OneHost];

    fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::OneBand => "distinct pages, all with one band key in common",
            Self::AllBands => "distinct pages, all with all twelve in common",
            Self::OneDigest => "the same page at ever new URLs",
            Self::OneUrl => "ever new pages at the same URL",
            Self::OneHost => "new pages of one host far over its quota",
        }
    }
}

/// What the clock said.
#[derive(Default)]
struct Seen {
    /// By kind: remembered, new but not remembered, copies.
    pages: [Histogram; 3],
    batches: Histogram,
    whole_nanos: u64,
    whole_pages: u64,
    candidates: u64,
    judged: u64,
}

impl Seen {
    fn nanos_a_page(&self) -> f64 {
        self.whole_nanos as f64 / self.whole_pages as f64
    }

    fn print(&self, pages: &str, name: &str, resident: f64) {
        let nanos = self.nanos_a_page();
        let kinds = self
            .pages
            .each_ref()
            .map(|times| format!("{:>6} {:>6} {:>6} {:>6}", times.at(0.5), times.at(0.99), times.at(0.999), times.max));
        let batches = format!(
            "{:>6} {:>6} {:>7}",
            self.batches.at(0.5) / 1000,
            self.batches.at(0.999) / 1000,
            self.batches.max / 1000
        );
        println!(
            "{pages:>9} {name:<14} {:>9.0} {nanos:>6.0} │ {} │ {} │ {} │ {batches} │ {resident:>9.1}",
            1e9 / nanos,
            kinds[0],
            kinds[1],
            kinds[2]
        );
    }
}

/// Times in nanoseconds, to a thirty-second of themselves.
struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 64 * 32], total: 0, max: 0 }
    }
}

impl Histogram {
    fn add(&mut self, nanos: u64) {
        let nanos = nanos.max(32);
        let shift = nanos.ilog2() - 5;
        self.counts[(shift as usize) * 32 + (nanos >> shift) as usize - 32] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    fn at(&self, share: f64) -> u64 {
        let (mut left, mut place) = ((self.total as f64 * share) as u64, 0);
        while place + 1 < self.counts.len() && self.counts[place] <= left {
            left -= self.counts[place];
            place += 1;
        }
        ((place as u64 % 32 + 32) << (place / 32)).min(self.max)
    }
}

/// A judge, and the stream of pages it is given.
struct Bench {
    shape: Shape,
    judge: Judge,
    capacity: u64,
    resident_before: u64,
    spare: Option<ReceivedBatch>,
    /// Pages made so far.
    next: u64,
    /// Those of them that are no copies.
    originals: u64,
}

impl Bench {
    fn new(capacity: u64, max_share_per_host: f64) -> Self {
        let config = Config::default();
        let shape = Shape::new(&config.sketch);
        let window = Window { names_share: 0.0, max_share_per_host, ..config.window };
        let plan_of = |max_memory| Plan::new(&Window { max_memory, ..window.clone() }, &shape);
        let (mut too_little, mut enough) = (1 << 20, capacity * 400 + (64 << 20));
        while enough - too_little > 4096 {
            let middle = (too_little + enough) / 2;
            let is_enough = plan_of(middle).capacity_pages as u64 >= capacity;
            *(if is_enough { &mut enough } else { &mut too_little }) = middle;
        }
        let rules = Rules::new(&config.policy, &window, &shape);
        let mut bench = Self {
            shape,
            judge: Judge::new(rules.clone(), plan_of(2 << 20)),
            capacity,
            resident_before: 0,
            spare: None,
            next: 0,
            originals: 0,
        };
        // A batch's memory is there before the index is.
        (0..8).for_each(|_| bench.batch(Stream::Ordinary, &mut Seen::default()));
        (bench.next, bench.originals) = (0, 0);
        bench.resident_before = resident_bytes();
        bench.judge = Judge::new(rules, plan_of(enough));
        bench
    }

    /// Makes a batch, judges it and commits.
    fn batch(&mut self, stream: Stream, seen: &mut Seen) {
        let batch = self.make(stream);
        let by_page = (self.next / BATCH_PAGES).is_multiple_of(2);
        let judge = &mut self.judge;
        let (start, cpu_start) = (Instant::now(), cpu_nanos());
        let judged = if by_page {
            let mut last = start;
            batch::judge_each(judge, batch, |judged| {
                let now = Instant::now();
                seen.pages[kind(judged)].add((now - last).as_nanos() as u64);
                last = now;
            })
        } else {
            batch::judge(judge, batch)
        };
        judge.seal();
        judge.commit();
        let nanos = start.elapsed().as_nanos() as u64;
        if !by_page {
            seen.whole_nanos += cpu_nanos() - cpu_start;
            seen.whole_pages += BATCH_PAGES;
            seen.batches.add(nanos);
        }
        let tally = &self.judge.tally;
        seen.candidates += u64::from(tally.candidates.iter().sum::<u32>()) + tally.candidates_unrelated;
        seen.judged += BATCH_PAGES;
        self.judge.tally.clear();
        self.spare = judged.recycle();
    }

    fn make(&mut self, stream: Stream) -> SketchedBatch {
        let (bands, bit_words) = (self.shape.bands, self.shape.bit_words());
        let mut received = self.spare.take().unwrap_or_default();
        received.clear();
        let mut batch = SketchedBatch::around(received, self.shape);
        for _ in 0..BATCH_PAGES {
            let number = self.next;
            self.next += 1;
            let dice = mix(number ^ 0xD1CE);
            // A hostile page is none of the others.
            let dice = if stream == Stream::Ordinary { dice } else { dice / 20 * 20 + 19 };
            // The last half of the window is there whatever was touched and moved in front of it.
            let window = (self.originals.min(self.capacity) / 2).max(1);
            let (original, kind) = match dice % 20 {
                0..6 if self.originals > 0 => (self.originals - 1 - (dice >> 32) % window, dice % 20),
                _ => {
                    self.originals += 1;
                    (self.originals - 1, dice % 20)
                }
            };
            let seed = mix(original ^ 0x0F_0F0F);
            let (near, remember) = (kind < 5, kind != 6);
            let mut sketch = Sketch {
                event_time: EventTime::At(START_MILLIS + number as i64),
                url_key: Some(mix(number ^ 0x0075_726C)),
                host_key: Some((mix(seed) >> 40) as u16),
                digest: if near { mix(seed ^ number) } else { seed },
                short: false,
                remember,
                names: PageNames::default(),
            };
            let first_band = batch.sketches.bands.len();
            batch.sketches.bands.extend((0..bands as u64).map(|band| BandKey((mix(seed ^ (band << 32)) >> 32) as u32)));
            let row = batch.sketches.bits.len();
            batch.sketches.bits.extend((0..bit_words as u64).map(|word| mix(seed ^ (word << 40))));
            batch.sketches.neighbours.resize(2 * (row + bit_words), 0);
            if near {
                let kept = 1 << (dice % bands as u64);
                for band in 0..bands {
                    let other = mix(dice ^ band as u64);
                    if other % 100 >= 59 && kept & 1 << band == 0 {
                        batch.sketches.bands[first_band + band] = BandKey((other >> 32) as u32);
                    }
                }
                for flip in 0..FLIPPED_BITS {
                    let at = mix(seed ^ number ^ flip) as usize % (bit_words * 64);
                    batch.sketches.bits[row + at / 64] ^= 1 << (at % 64);
                }
            }
            let digits = mix(number ^ 0xBAD);
            match stream {
                Stream::Ordinary => {}
                Stream::OneBand => batch.sketches.bands[first_band] = hostile_band(0),
                Stream::AllBands => {
                    (0..bands).for_each(|band| batch.sketches.bands[first_band + band] = hostile_band(band))
                }
                Stream::OneDigest => sketch.digest = 77,
                Stream::OneUrl => sketch.url_key = Some(77),
                Stream::OneHost => sketch.host_key = Some(77),
            }
            if matches!(stream, Stream::OneBand | Stream::AllBands | Stream::OneUrl | Stream::OneHost) {
                // Every page is new.
                sketch.digest = digits;
                (0..bit_words).for_each(|word| batch.sketches.bits[row + word] = mix(digits ^ word as u64));
            }
            let last = &mut batch.sketches.bits[row + bit_words - 1];
            *last = *last << 16 >> 16 | HEADER;
            batch.received.deliveries.push(Delivery {
                origin: Origin { source: 0, offset: number },
                value: None,
                cut_from: None,
                key: None,
                headers: 0..0,
                timestamp_ms: None,
            });
            batch.pages.push(PageSketch::Page(sketch));
        }
        batch
    }
}

/// A band key that all pages of a hostile stream share.
fn hostile_band(band: usize) -> BandKey {
    BandKey(mix(!(band as u64)) as u32)
}

/// Which histogram a page's time goes to.
fn kind(judged: &Judged) -> usize {
    match (judged.verdict, judged.remembered) {
        (Verdict::Unique | Verdict::Updated, true) => 0,
        (Verdict::Unique | Verdict::Updated, false) => 1,
        _ => 2,
    }
}

/// Processor time of this thread: what other programs take of the core meanwhile is not the judge's.
fn cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is what the call writes.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resident bytes of this process; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
