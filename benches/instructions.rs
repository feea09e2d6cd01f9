//! The hot path, each part once and on the same pages for ever, so that its instructions can be counted.
//!
//! ```sh
//! benches/instructions.sh            # counts, beside the figures kept in instructions.txt
//! benches/instructions.sh --update   # keeps what it counts
//! ```
//!
//! Times differ by machine and by what else it does. Instructions do not: a change for the worse shows on any machine
//! and in one run. They are counted by callgrind, whose processor has AVX2 and no AVX-512, wherever it runs. It counts
//! what happens in [`counted`], one call after the other; this program only prints the parts' names and pages.
//!
//! Conclusion: two runs differ by less than one in a thousand, so that 3 % more is a change of the program. The figures
//! are in instructions.txt.

#[path = "support/pages.rs"]
mod pages;

use pages::{Full, Page};
use pagesieve::batch::{self, JudgedBatch, ReceivedBatch, SketchedBatch};
use pagesieve::config::{Config, Key, Window};
use pagesieve::cpu::Cpu;
use pagesieve::index::judge::{Judge, Rules};
use pagesieve::index::plan::Plan;
use pagesieve::page::decode::Decoder;
use pagesieve::page::url_key;
use pagesieve::pipeline::sketch_stage::SketchStage;
use pagesieve::sketch::keyed::mix;
use pagesieve::sketch::{Shape, Sketcher, Sketches};
use pagesieve::verdict::Verdict;
use std::hint::black_box;

/// As the program.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Pages of a part, and of a batch that is judged.
const NUM_PAGES: usize = 1024;

/// A window of so many bytes is full long before the pages in question come.
const WINDOW_BYTES: u64 = 3 << 20;
const NUM_PAGES_BEFORE: usize = 24 * NUM_PAGES;

/// Callgrind counts from here to the return, and writes down the sum. It knows the function by this very name.
// SAFETY: no library that the program is linked with has a symbol of this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
}

/// Has one part counted: `work` on each of `inputs`. It runs once before, since buffers grow and tables are made then.
fn part<T>(name: &str, inputs: &[T], mut work: impl FnMut(&T)) {
    inputs.iter().for_each(&mut work);
    counted(&mut || inputs.iter().for_each(&mut work));
    println!("{name} {}", inputs.len());
}

/// Has the judging of one batch counted, which must come to the same verdict for all its pages.
fn part_judged(name: &str, judge: &mut Judge, batch: SketchedBatch, expected: Verdict) {
    let num_pages = batch.pages.len();
    let (mut batch, mut judged) = (Some(batch), None);
    counted(&mut || judged = batch.take().map(|batch| batch::judge(judge, batch)));
    judge.seal();
    judge.commit();
    let judged: JudgedBatch = judged.expect("it was judged");
    let others = judged.judged.iter().filter(|page| page.verdict != expected).count();
    assert_eq!(others, 0, "pages whose verdict is not {}", expected.name());
    println!("{name} {num_pages}");
}

/// The page under another address, `text` its text.
fn copy(page: &Page, number: usize, text: String) -> Vec<u8> {
    let mut record: serde_json::Value = serde_json::from_slice(&page.line).expect("a line is JSON");
    record["url"] = format!("https://copies.example/{number}").into();
    record["text"] = text.into();
    serde_json::to_vec(&record).expect("it was JSON before")
}

/// A page of thirty words that no other page has.
fn filler(number: usize) -> Vec<u8> {
    let words: Vec<String> = (0..30).map(|at| format!("{:x}", mix((number * 32 + at) as u64))).collect();
    let time = 1_767_200_000 + number / 64;
    let url = format!("https://www.site-{}.example/{number}", number % 500);
    format!(r#"{{"url":"{url}","fetched_at":{time},"text":"{}"}}"#, words.join(" ")).into_bytes()
}

/// Batches: the pages before, then new pages, near copies of those, exact copies of those.
fn to_be_judged(pages: &[Page]) -> Vec<ReceivedBatch> {
    let before = (0..NUM_PAGES_BEFORE).map(filler);
    let new = pages.iter().map(|page| page.line.clone());
    let near = pages.iter().enumerate().map(|(number, page)| {
        let (start, end) = page.text.split_at(page.text.len() / 2);
        copy(page, number, format!("{start} inserted {end}"))
    });
    let exact = pages.iter().enumerate().map(|(number, page)| copy(page, NUM_PAGES + number, page.text.clone()));
    let lines: Vec<Vec<u8>> = before.chain(new).chain(near).chain(exact).collect();
    pages::batches(lines.iter().map(|line| &line[..]), Full { pages: NUM_PAGES, bytes: usize::MAX })
}

fn main() {
    let config = Config::default();
    let shape = Shape::new(&config.sketch);
    let mut sketcher = Sketcher::new(shape, &Key::from_bytes(*b"pagesieve public"));
    let decoder = Decoder::new(&config.input);
    if !std::env::args().any(|argument| argument == "--count") {
        eprintln!("run benches/instructions.sh: this program counts nothing by itself");
        return;
    }
    println!("processor {:?}", Cpu::detect());

    // Of copies of very short pages not all are certain to be found.
    let mut pages = pages::english(NUM_PAGES * 3 / 2);
    pages.retain(|page| page.text.len() > 1_500);
    pages.truncate(NUM_PAGES);
    assert_eq!(pages.len(), NUM_PAGES, "pages of the crawl that are long enough");

    let mut text = String::new();
    part("decode", &pages, |page| _ = black_box(decoder.decode(&page.line, &mut text)));
    let url_sketcher = sketcher.clone();
    part("url_key", &pages, |page| _ = black_box(url_sketcher.url_key(&url_key::normalise(&page.url).0)));

    let texts: Vec<String> = pages.iter().map(|page| page.text.clone()).collect();
    let mut sketches = Sketches::default();
    let mut sketch = |text: &String| {
        sketches.clear();
        black_box(sketcher.sketch(text, &mut sketches));
    };
    part("sketch_english", &texts, &mut sketch);
    let cyrillic: Vec<String> = texts.iter().map(|text| pages::cyrillic(text)).collect();
    part("sketch_cyrillic", &cyrillic, &mut sketch);
    let chinese: Vec<String> = texts.iter().map(|text| pages::chinese(text)).collect();
    part("sketch_chinese", &chinese, &mut sketch);

    let mut stage = SketchStage::new(decoder, sketcher);
    let window = Window { max_memory: WINDOW_BYTES, ..config.window.clone() };
    let mut judge = Judge::new(Rules::new(&config.policy, &window, &shape), Plan::new(&window, &shape));
    let mut batches = to_be_judged(&pages).into_iter().map(|received| stage.run(received));
    for batch in batches.by_ref().take(NUM_PAGES_BEFORE / NUM_PAGES) {
        batch::judge(&mut judge, batch);
        judge.seal();
        judge.commit();
    }
    for (name, expected) in [
        ("judge_unique", Verdict::Unique),
        ("judge_near_duplicate", Verdict::NearDuplicate),
        ("judge_exact_duplicate", Verdict::ExactDuplicate),
    ] {
        part_judged(name, &mut judge, batches.next().expect("there is one"), expected);
    }
}
