//! What each step of a page's way costs, from bytes to sketch.
//!
//! ```sh
//! cargo bench --bench stages
//! ```
//!
//! Figures of 2026-11 on one core of an AMD EPYC with AVX-512, µs a page of 4.5 KB of English (718 words): JSON 2.3, URL
//! 0.4, whole sketch 6.8, stage 1 9.5. Of the sketch, finding words is 1.9, hashing them 1.9, digest 0.8, shingles 0.4,
//! Fast Similarity Sketching 1.2, the odd sketch 1.8; the parts alone add up to more than the whole, where they overlap.
//!
//! Conclusion: the sketch with all its parts costs a twentieth of 128 permutations alone (144), which is what most
//! programs take. A page of 500 words takes 3.7 of the 8 µs that it may. AVX2 needs 1.6 times as long as AVX-512, no vectors
//! at all 2.2 times. Fast Similarity Sketching is cheap up to some hundred slots, since a page then needs few rounds.

#[path = "support/pages.rs"]
mod pages;

use pages::Page;
use pagesieve::config::{Config, Key};
use pagesieve::cpu::Cpu;
use pagesieve::page::decode::Decoder;
use pagesieve::page::words::{self, scan};
use pagesieve::page::{Decoded, url_key};
use pagesieve::pipeline::sketch_stage::SketchStage;
use pagesieve::sketch::fss::{self, Slots};
use pagesieve::sketch::keyed::Keys;
use pagesieve::sketch::odd::{self, OddSketch};
use pagesieve::sketch::shingle::Shingler;
use pagesieve::sketch::word_hashes::WordHashes;
use pagesieve::sketch::{Shape, Sketcher, Sketches, minhash};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// As the program.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// So many that no processor foresees the branches of one by having seen the same page before.
const NUM_PAGES: usize = 1_000;

/// Other work on the machine disturbs some rounds, hardly all.
const ROUNDS: usize = 25;

/// What the whole sketch of a page of 500 words may cost.
const MAX_MICROSECONDS: f64 = 8.0;

/// One line of the table.
struct Row<'a> {
    name: String,
    num_pages: usize,
    text_bytes: usize,
    work: Box<dyn FnMut() + 'a>,
    least: Duration,
}

impl<'a> Row<'a> {
    /// `work` on each of `inputs`, which stand for pages with these texts.
    fn new<T>(name: impl Into<String>, texts: &[String], inputs: &'a [T], mut work: impl FnMut(&'a T) + 'a) -> Self {
        Self::whole(name, texts, move || inputs.iter().for_each(&mut work))
    }

    /// `work` on all pages at once.
    fn whole(name: impl Into<String>, texts: &[String], work: impl FnMut() + 'a) -> Self {
        Self {
            name: name.into(),
            num_pages: texts.len(),
            text_bytes: texts.iter().map(String::len).sum(),
            work: Box::new(work),
            least: Duration::MAX,
        }
    }

    fn microseconds(&self) -> f64 {
        self.least.as_secs_f64() * 1e6 / self.num_pages as f64
    }
}

/// The pages in all the shapes that the steps take them in.
struct Inputs {
    pages: Vec<Page>,
    texts: Vec<String>,
    of_500_words: Vec<String>,
    cyrillic: Vec<String>,
    chinese: Vec<String>,
    words: Vec<Vec<String>>,
    word_hashes: Vec<Vec<u64>>,
    shingles: Vec<Vec<u64>>,
}

impl Inputs {
    fn new(keys: &Keys) -> Self {
        let pages = pages::english(NUM_PAGES);
        let texts: Vec<String> = pages.iter().map(|page| page.text.clone()).collect();
        let all_text = texts.join("\n");
        let mut rest = &all_text[..];
        let of_500_words = std::iter::from_fn(|| {
            let (page, left) = rest.split_at(pages::first_words(rest, 500).len());
            rest = left;
            (!left.is_empty()).then(|| page.to_owned())
        });
        let words: Vec<Vec<String>> = texts.iter().map(|text| words::plain(text)).collect();
        let hash = |words: &Vec<String>| words.iter().map(|word| keys.word(word.as_bytes())).collect();
        let word_hashes: Vec<Vec<u64>> = words.iter().map(hash).collect();
        let shingles = word_hashes.iter().map(|word_hashes| {
            let mut shingler = Shingler::new(keys.multipliers.clone());
            shingler.push(word_hashes, &mut Slots::new(64));
            shingler.shingles().0.to_vec()
        });
        Self {
            of_500_words: of_500_words.take(NUM_PAGES).collect(),
            cyrillic: texts.iter().map(|text| pages::cyrillic(text)).collect(),
            chinese: texts.iter().map(|text| pages::chinese(text)).collect(),
            shingles: shingles.collect(),
            words,
            word_hashes,
            texts,
            pages,
        }
    }
}

/// The steps that `run` and `filter` take.
fn steps<'a>(inputs: &'a Inputs, keys: &'a Keys, sketcher: &Sketcher) -> Vec<Row<'a>> {
    let Inputs { pages, texts, word_hashes, shingles, .. } = inputs;
    let cpu = Cpu::detect();
    let config = Config::default();
    let (decoder, mut text) = (Decoder::new(&config.input), String::new());
    let decode = move |page: &Page| {
        assert!(matches!(black_box(decoder.decode(&page.line, &mut text)), Decoded::Page(_)));
    };
    let url_sketcher = sketcher.clone();
    let url = move |page: &Page| {
        let (normal, host) = url_key::normalise(&page.url);
        black_box((url_sketcher.url_key(&normal), host.map(|host| url_sketcher.host_key(&host))));
    };
    let find = move |text: &String| {
        let mut found = 0;
        cpu.run(
            #[inline(always)]
            || scan::spans(cpu, text.as_bytes(), |start, end, ascii| found += start ^ end ^ usize::from(ascii)),
        );
        black_box(found);
    };
    let mut hashes = WordHashes::new(keys.word_key());
    let mut hashes_to_shingle = hashes.clone();
    let hash = move |text: &String| {
        cpu.run(
            #[inline(always)]
            || hashes.for_each_run(cpu, text, |run| _ = black_box(run)),
        );
    };
    let (mut shingler, mut slots) = (Shingler::new(keys.multipliers.clone()), Slots::new(64));
    let shingle = move |text: &String| {
        cpu.run(
            #[inline(always)]
            || {
                shingler.clear();
                hashes_to_shingle.for_each_run(
                    cpu,
                    text,
                    #[inline(always)]
                    |run| shingler.push(run, &mut slots),
                );
            },
        );
        black_box(shingler.shingles());
    };
    let mut digest = keys.digest();
    let digest = move |word_hashes: &Vec<u64>| {
        digest.clear();
        cpu.run(
            #[inline(always)]
            || digest.write(word_hashes),
        );
        black_box(digest.finish());
    };
    let mut stage = SketchStage::new(Decoder::new(&config.input), sketcher.clone());
    let mut received = pages::batches(pages.iter().map(|page| &page.line[..]), pages::FILTER);
    let stage_1 = move || {
        for batch in &mut received {
            *batch = pages::again(stage.run(std::mem::take(batch)));
        }
    };
    vec![
        Row::new("JSON decoded", texts, pages, decode),
        Row::new("URL normalised, keys of it and its host", texts, pages, url),
        Row::new("words found", texts, texts, find),
        Row::new("words found and hashed", texts, texts, hash),
        Row::new("words found, hashed and shingled", texts, texts, shingle),
        Row::new("digest of word hashes", texts, word_hashes, digest),
        Row::new("Fast Similarity Sketching, 64 slots", texts, shingles, fast_similarity(64)),
        Row::new("odd sketch, 64 bytes", texts, shingles, odd_sketch(64)),
        Row::new("whole sketch", texts, texts, sketch(sketcher)),
        Row::whole("stage 1: batches to sketched batches", texts, stage_1),
    ]
}

fn fast_similarity<'a>(num_slots: usize) -> impl FnMut(&'a Vec<u64>) {
    let (cpu, mut slots) = (Cpu::detect(), Slots::new(num_slots));
    move |shingles| {
        slots.clear();
        cpu.run(
            #[inline(always)]
            || {
                for round in 0.. {
                    slots.round(round, shingles);
                    if !slots.any_empty() {
                        break;
                    }
                }
            },
        );
        black_box(slots.values());
    }
}

fn odd_sketch<'a>(bytes: usize) -> impl FnMut(&'a Vec<u64>) {
    let (cpu, mut odd) = (Cpu::detect(), OddSketch::new(bytes));
    let (mut row, mut neighbours) = (Vec::new(), Vec::new());
    move |shingles| {
        row.clear();
        neighbours.clear();
        cpu.run(
            #[inline(always)]
            || odd.pack(shingles, 0, &mut row, &mut neighbours),
        );
        black_box((&row, &neighbours));
    }
}

fn sketch<'a>(sketcher: &Sketcher) -> impl FnMut(&'a String) + use<'a> {
    let (mut sketcher, mut sketches) = (sketcher.clone(), Sketches::default());
    move |text| {
        sketches.clear();
        black_box(sketcher.sketch(text, &mut sketches));
        black_box(&sketches);
    }
}

/// Sketches of other sizes, beside what most programs use.
fn sizes(inputs: &Inputs) -> Vec<Row<'_>> {
    let Inputs { texts, shingles, .. } = inputs;
    let fss = [256, 512, 1024].map(|slots| {
        Row::new(format!("Fast Similarity Sketching, {slots} slots"), texts, shingles, fast_similarity(slots))
    });
    let odd =
        [32, 128, 256].map(|bytes| Row::new(format!("odd sketch, {bytes} bytes"), texts, shingles, odd_sketch(bytes)));
    let minhash = |shingles: &Vec<u64>| _ = black_box(minhash::slots(shingles, 128));
    let minhash = Row::new("k-permutation MinHash, 128 slots", texts, shingles, minhash);
    fss.into_iter().chain(odd).chain([minhash]).collect()
}

/// The whole sketch, compiled for each kind of processor.
fn processors<'a>(inputs: &'a Inputs, sketcher: &Sketcher) -> Vec<Row<'a>> {
    let row = |cpu: Cpu| {
        let name = format!("{cpu:?}");
        let name = name.split('(').next().unwrap_or_default().to_owned();
        Row::new(name, &inputs.texts, &inputs.texts, sketch(&sketcher.clone().on(cpu)))
    };
    Cpu::all().into_iter().map(row).collect()
}

/// The whole sketch of other pages; the first row has a limit.
fn kinds<'a>(inputs: &'a Inputs, sketcher: &Sketcher) -> Vec<Row<'a>> {
    let Inputs { of_500_words, cyrillic, chinese, .. } = inputs;
    vec![
        Row::new("500 words of English", of_500_words, of_500_words, sketch(sketcher)),
        Row::new("Cyrillic", cyrillic, cyrillic, sketch(sketcher)),
        Row::new("Chinese", chinese, chinese, sketch(sketcher)),
    ]
}

/// The definitions that the tests hold the fast forms to.
fn plain<'a>(inputs: &'a Inputs, keys: &'a Keys) -> Vec<Row<'a>> {
    let Inputs { texts, words, shingles, .. } = inputs;
    let find = |text: &String| _ = black_box(words::plain(text));
    let hash = |words: &Vec<String>| words.iter().for_each(|word| _ = black_box(keys.word(word.as_bytes())));
    let fss = |shingles: &Vec<u64>| _ = black_box(fss::plain(64, shingles));
    let odd = |shingles: &Vec<u64>| _ = black_box(odd::plain(shingles, 1, 64));
    vec![
        Row::new("words found", texts, texts, find),
        Row::new("words hashed", texts, words, hash),
        Row::new("Fast Similarity Sketching, 64 slots", texts, shingles, fss),
        Row::new("odd sketch, 64 bytes", texts, shingles, odd),
    ]
}

fn main() {
    let shape = Shape::new(&Config::default().sketch);
    let key = Key::from_bytes(*b"pagesieve public");
    let (keys, sketcher) = (Keys::new(&key, shape.shingle_words), Sketcher::new(shape, &key));
    let inputs = Inputs::new(&keys);
    let mut sections = [
        ("Steps", steps(&inputs, &keys, &sketcher)),
        ("Other sketches of the same shingles", sizes(&inputs)),
        ("Whole sketch by processor", processors(&inputs, &sketcher)),
        ("Whole sketch of other pages", kinds(&inputs, &sketcher)),
        ("Plain forms, for comparison", plain(&inputs, &keys)),
    ];
    // `cargo test --benches` only wants to know that it runs.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { ROUNDS } else { 1 };
    for _ in 0..rounds {
        for row in sections.iter_mut().flat_map(|(_, rows)| rows) {
            let start = Instant::now();
            (row.work)();
            row.least = row.least.min(start.elapsed());
        }
    }
    let of = |count: fn(&Inputs) -> usize| count(&inputs) as f64 / NUM_PAGES as f64;
    println!(
        "{NUM_PAGES} pages of {:.1} KB: text of {:.1} KB, {:.0} words. The least of {rounds} rounds, one thread.\n",
        of(|inputs| inputs.pages.iter().map(|page| page.line.len()).sum()) / 1e3,
        of(|inputs| inputs.texts.iter().map(String::len).sum()) / 1e3,
        of(|inputs| inputs.words.iter().map(Vec::len).sum()),
    );
    println!("{:<44} {:>9} {:>14}", "", "µs/page", "MB/s of text");
    for (heading, rows) in &sections {
        println!("{heading}");
        for row in rows {
            let speed = row.text_bytes as f64 / row.least.as_secs_f64() / 1e6;
            println!("  {:<42} {:>9.3} {speed:>14.0}", row.name, row.microseconds());
        }
    }
    let needed = sections[3].1[0].microseconds();
    let verdict = if needed <= MAX_MICROSECONDS { "within" } else { "OVER" };
    println!("\nA page of 500 words takes {needed:.2} µs, {verdict} the {MAX_MICROSECONDS} µs that it may.");
}
