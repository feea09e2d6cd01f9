//! Record bytes ─▶ decode ─▶ words ─▶ sketch. The first byte chooses one of the configurations, the rest is the record.
//!
//! Beside the fast code runs whatever says the same more plainly: `serde_json` with a tree of values, words found character by
//! character, a URL that cannot be taken for a plain one, a sketcher without a past, every processor.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pagesieve_fuzz::config::{Config, Key, parse};
use pagesieve_fuzz::cpu::Cpu;
use pagesieve_fuzz::memory;
use pagesieve_fuzz::page::{Decoded, Page, decode::Decoder, url_key, words};
use pagesieve_fuzz::sketch::{Shape, Sketcher, Sketches, keyed::Keys};
use serde_json::Value;
use std::cell::RefCell;

const CONFIGURATIONS: [&str; 4] = [
    "",
    "[input.fields]
     text = ''
     [sketch]
     shingle_words = 1
     bands = 1
     rows = 1
     min_shingles = 1
     bytes = 32",
    "[input.fields]
     url = '/metadata/sourceURL'
     text = '/data/markdown'
     html = '/data/html'
     id = '/metadata/id'
     fetched_at = '/metadata/times/fetched'
     status = '/metadata/statusCode'
     content_type = '/metadata/contentType'
     [sketch]
     shingle_words = 16
     bands = 32
     rows = 16
     min_shingles = 8
     bytes = 256",
    "[input]
     max_page_bytes = '1KiB'
     [input.skip]
     non_2xx = false
     content_types = ['text/*', 'application/xhtml+xml']
     url_patterns = ['^ftp:', 'page=\\d+$']
     headers = ['crawl=no', 'kind=']",
];

/// What a decoder and a sketcher hold before they have seen anything long, and the markup strip at most.
const FIXED_BYTES: usize = 8 << 20;

/// A number in the place of a name is written out: `1e308` has 309 digits.
const LONGEST_NUMBER: usize = 330;

struct Bench {
    config: Config,
    decoder: Decoder,
    /// Has seen every page so far, as a thread of the program has.
    sketcher: Sketcher,
    fresh: Sketcher,
    keys: Keys,
}

impl Bench {
    fn new(text: &str) -> Self {
        let config = parse(text, "configuration", std::iter::empty()).expect("it is right");
        let key = Key::from_bytes(*b"any key will do.");
        let sketcher = Sketcher::new(Shape::new(&config.sketch), &key);
        Self {
            decoder: Decoder::new(&config.input),
            fresh: sketcher.clone(),
            sketcher,
            keys: Keys::new(&key, config.sketch.shingle_words),
            config,
        }
    }

    fn record(&mut self, record: &[u8]) {
        let header = record.split(|byte| *byte == b'=').collect::<Vec<_>>();
        if let [name, value] = header[..]
            && let Ok(name) = std::str::from_utf8(name)
        {
            let is_listed = matches!((name, value), ("crawl", b"no") | ("kind", b""));
            let rules = !self.config.input.skip.headers.is_empty();
            assert_eq!(self.decoder.header_rule([(name, value)].into_iter()).is_some(), rules && is_listed);
        }

        let (decoder, mut scratch) = (self.decoder.clone(), String::new());
        let most_bytes = FIXED_BYTES + 64 * record.len();
        match memory::within(most_bytes, || decoder.decode(record, &mut scratch)) {
            Decoded::Rejected(reject) => {
                // Short and ASCII: it repeats nothing of the page.
                assert!(reject.detail.len() < 150 && reject.detail.is_ascii(), "{}", reject.detail);
                assert!(!self.is_sound(record), "{reject:?}");
            }
            Decoded::Skipped { names, .. } => {
                assert!([names.url, names.id].iter().flatten().all(|name| name.len() <= record.len() + LONGEST_NUMBER));
            }
            Decoded::Page(page) => {
                assert!(record.len() <= self.config.input.max_page_bytes);
                // The longest characters that entities stand for are longer than these: `&nGt;`.
                assert!(page.text.len() <= 2 * record.len());
                let names = [page.url.as_deref(), page.id.as_deref()];
                assert!(names.iter().flatten().all(|name| name.len() <= record.len() + LONGEST_NUMBER));
                self.same_as_a_tree(record, &page);
                page.url.as_deref().into_iter().for_each(url);
                memory::within(most_bytes + 64 * page.text.len(), || self.text(page.text));
            }
        }
    }

    /// Is this, for certain, a page by the default configuration?
    fn is_sound(&self, record: &[u8]) -> bool {
        let by_default = !self.config.is_given("input.fields.text") && record.len() <= self.config.input.max_page_bytes;
        by_default
            && matches!(serde_json::from_slice(record), Ok(Value::Object(page))
            if page.len() == 1 && page.get("text").is_some_and(Value::is_string))
    }

    /// What is read in passing is what a tree of values has in its place.
    fn same_as_a_tree(&self, record: &[u8], page: &Page) {
        let text = std::str::from_utf8(record).expect("a page is UTF-8");
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        serde_json::from_str::<serde::de::IgnoredAny>(text).expect("a page is JSON");
        // The tree takes neither half a surrogate pair nor numbers out of range.
        let Ok(tree) = serde_json::from_str::<Value>(text) else { return };
        let fields = &self.config.input.fields;
        // Of two members of one name the last counts; what is below both is another matter.
        let at = |path: &[String]| match path {
            [name] => tree.get(name)?.as_str(),
            _ => None,
        };
        if let Some(text) = at(&fields.text.0).filter(|text| !text.is_empty()) {
            assert_eq!(page.text, text);
        }
        if let Some(url) = at(&fields.url.0) {
            assert_eq!(page.url.as_deref(), Some(url));
        }
    }

    fn text(&mut self, text: &str) {
        let plain = words::plain(text);
        let mut fast = plain.iter();
        words::for_each(text, &mut Vec::new(), |word| {
            assert_eq!(fast.next().map(String::as_bytes), Some(word));
        });
        assert_eq!(fast.next(), None);

        let shape = self.sketcher.shape();
        let mut sketch = Sketches::default();
        let summary = self.sketcher.sketch(text, &mut sketch);
        assert_eq!(summary.num_words, plain.len() as u64);
        assert_eq!((sketch.bands.len(), sketch.bits.len()), (shape.bands, shape.bit_words()));
        assert_eq!(sketch.neighbours.len(), 2 * shape.bit_words());
        if !summary.short {
            let mut digest = self.keys.digest();
            plain.iter().for_each(|word| digest.write(&[self.keys.word(word.as_bytes())]));
            assert_eq!(summary.digest, digest.finish());
        }
        for cpu in Cpu::all() {
            let mut again = Sketches::default();
            assert_eq!(self.fresh.clone().on(cpu).sketch(text, &mut again), summary, "{cpu:?}");
            assert_eq!((&again.bands, &again.bits), (&sketch.bands, &sketch.bits), "{cpu:?}");
            assert_eq!(again.neighbours, sketch.neighbours, "{cpu:?}");
        }
    }
}

/// A URL that is normal as it stands is the one that it is with a fragment, which has to be parsed to be taken off.
fn url(url: &str) {
    let (normal, host) = url_key::normalise(url);
    if matches!(host, Some(std::borrow::Cow::Borrowed(_))) {
        let with_fragment = format!("{normal}#fragment");
        assert_eq!(url_key::normalise(&with_fragment), (normal, host));
    }
}

thread_local! {
    static BENCHES: RefCell<[Bench; 4]> = RefCell::new(CONFIGURATIONS.map(Bench::new));
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, record)) = data.split_first() else { return };
    // A digit, so that seeds can be read and written.
    BENCHES.with_borrow_mut(|benches| benches[usize::from(*choice) % 4].record(record));
});
