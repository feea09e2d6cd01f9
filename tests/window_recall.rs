//! Guards what a full window is worth: after it has turned over three times and one or two band keys in a hundred found no
//! room, copies of the pages in it are still found, as often as with a table that loses none; and however many pages share
//! a band, the judge looks at a bounded number of them.
//!
//! Pages are sketched as in the daemon. Their resemblance is known by how they are made: a page is 200 words that no other
//! page has, so it has 196 shingles of 5 words; a copy of it with n words in a row replaced shares 192 − n of them, and the two
//! have 200 + n in all.

use pagesieve::config::{Config, Key, Window};
use pagesieve::index::Origin;
use pagesieve::index::judge::{Judge, Judged, Rules, Sketched};
use pagesieve::index::names::Named;
use pagesieve::index::plan::Plan;
use pagesieve::page::EventTime;
use pagesieve::sketch::keyed::mix;
use pagesieve::sketch::{BandKey, Shape, Sketcher, Sketches};
use pagesieve::verdict::Verdict;

const NUM_WORDS: u64 = 200;
/// Most words replaced: (192 − 11) / (200 + 11) = 0.858.
const MAX_REPLACED: u64 = 11;
const CAPACITY: u64 = 10_000;
const TURNOVERS: u64 = 3;

struct Page {
    digest: u64,
    sketch: Sketches,
}

struct Pages {
    sketcher: Sketcher,
    text: String,
}

impl Pages {
    fn new() -> Self {
        let shape = Shape::new(&Config::default().sketch);
        Self { sketcher: Sketcher::new(shape, &Key::from_bytes(*b"a key of a test.")), text: String::new() }
    }

    /// Page number `number`, with `replaced` of its words, in a row, another's.
    fn page(&mut self, number: u64, replaced: u64) -> Page {
        use std::fmt::Write;
        let first = 10 + mix(number) % 100;
        self.text.clear();
        for at in 0..NUM_WORDS {
            let other = if (first..first + replaced).contains(&at) { "x" } else { "w" };
            write!(self.text, "{other}{number}n{at} ").expect("a string takes all");
        }
        let mut sketch = Sketches::default();
        let summary = self.sketcher.sketch(&self.text, &mut sketch);
        assert!(!summary.short);
        Page { digest: summary.digest, sketch }
    }
}

/// A judge of [`CAPACITY`] pages; its table is sized for pages of this many keys.
fn judge(keys_per_page: usize) -> Judge {
    let config = Config::default();
    let shape = Shape::new(&config.sketch);
    let window = Window { names_share: 0.0, ..config.window };
    let plan = Plan {
        num_slots: CAPACITY as usize + 65,
        capacity_pages: CAPACITY as usize,
        max_changes: 1 << 16,
        keys_per_page,
        ..Plan::new(&window, &shape)
    };
    Judge::new(Rules::new(&config.policy, &window, &shape), plan)
}

fn judge_page(judge: &mut Judge, page: &Page, offset: u64, remember: bool) -> Judged {
    let page = Sketched {
        origin: Origin { source: 0, offset },
        event_time: EventTime::At(1_700_000_000_000 + offset as i64),
        url_key: Some(mix(!offset)),
        host_key: None,
        digest: page.digest,
        short: false,
        remember,
        bands: &page.sketch.bands,
        bits: &page.sketch.bits,
        neighbours: &page.sketch.neighbours,
        names: Named::default(),
    };
    let judged = judge.judge(&page, &mut String::new());
    if offset % 32 == 31 {
        judge.seal();
        judge.commit();
    }
    judged
}

#[test]
fn a_window_that_turned_over_still_finds_its_copies() {
    let keys = Plan::new(&Config::default().window, &Shape::new(&Config::default().sketch)).keys_per_page;
    // The second table is so empty that it loses nothing.
    let mut judges = [judge(keys), judge(keys * 4)];
    let mut pages = Pages::new();
    let num_originals = CAPACITY * (1 + TURNOVERS);
    for number in 0..num_originals {
        let page = pages.page(number, 0);
        for judge in &mut judges {
            assert_eq!(judge_page(judge, &page, number, true).verdict, Verdict::Unique);
        }
    }
    let overflows = judges.each_ref().map(|judge| judge.tally.bucket_overflows);
    assert!(overflows[0] > CAPACITY * TURNOVERS / 20, "the window is full: {overflows:?}");
    assert_eq!(overflows[1], 0);
    let mut found = [0, 0];
    for number in num_originals - CAPACITY..num_originals {
        // Matches move to the front and nothing is inserted: all originals stay.
        let copy = pages.page(number, 1 + mix(number ^ 1) % MAX_REPLACED);
        for (judge, found) in judges.iter_mut().zip(&mut found) {
            let judged = judge_page(judge, &copy, num_originals + number, false);
            let canonical = judged.canonical.map(|it| it.origin.offset);
            assert!(canonical.is_none_or(|it| it == number), "a copy of {number} and not of {canonical:?}");
            *found += u64::from(judged.verdict == Verdict::NearDuplicate);
        }
    }
    let recall = found.map(|found| found as f64 / CAPACITY as f64);
    println!("recall {recall:?}, keys lost {overflows:?} of {}", num_originals * keys as u64);
    assert!(recall[0] >= 0.98, "{recall:?}");
    assert!(recall[1] - recall[0] <= 0.002, "{recall:?}");
}

/// Forged pages, or a template's: they share band keys and nothing else.
#[test]
fn shared_bands_bring_a_bounded_number_of_candidates() {
    let shape = Shape::new(&Config::default().sketch);
    for shared in [1, shape.bands] {
        let mut judge = judge(shape.bands + 2);
        let mut pages = Pages::new();
        let mut most = 0;
        for number in 0..CAPACITY * 2 {
            let mut page = pages.page(number, 0);
            (0..shared).for_each(|band| page.sketch.bands[band] = BandKey(mix(!(band as u64)) as u32));
            assert_eq!(judge_page(&mut judge, &page, number, true).verdict, Verdict::Unique);
            let tally = &judge.tally;
            most = most.max(u64::from(tally.candidates.iter().sum::<u32>()) + tally.candidates_unrelated);
            judge.tally.clear();
        }
        // Two buckets of 16 a band, mostly with the same pages, and a few by equal tags.
        let bound = shared as u64 * 32;
        println!("{shared} bands shared: {most} candidates at most");
        assert!((24..=bound + 8).contains(&most), "{most} candidates");
        assert_eq!(judge.index().num_pages() as u64, CAPACITY);
    }
}
