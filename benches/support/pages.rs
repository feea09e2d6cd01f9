//! The pages that the benches work on: a generated crawl, the same on every machine, as lines and as texts.

#![allow(dead_code, reason = "each bench uses the part it needs")]

use pagesieve::batch::{Delivery, JudgedBatch, ReceivedBatch, SketchedBatch};
use pagesieve::config::Config;
use pagesieve::generate::{Generator, Settings};
use pagesieve::index::Origin;
use pagesieve::page::Decoded;
use pagesieve::page::decode::Decoder;
use pagesieve::sketch::keyed::mix;

/// When `filter` hands a batch on.
pub const FILTER: Full = Full { pages: 1024, bytes: 512 << 10 };

/// A page of the crawl.
#[derive(Debug, Clone)]
pub struct Page {
    /// The record as a crawler writes it.
    pub line: Vec<u8>,
    /// Its address.
    pub url: String,
    /// Its text without the escapes of JSON.
    pub text: String,
}

/// The first `count` English pages of a crawl without copies: ASCII but for a © or a dash here and there. Lengths are
/// spread as on the Web.
pub fn english(count: usize) -> Vec<Page> {
    let settings = Settings {
        near_copies: 0.0,
        exact_copies: 0.0,
        revisits: 0.0,
        short: 0.0,
        late: 0.0,
        skipped: 0.0,
        bad: 0.0,
        ..Settings::default()
    };
    let decoder = Decoder::new(&Config::default().input);
    let mut scratch = String::new();
    let pages = Generator::new(settings).filter_map(|record| {
        let Decoded::Page(page) = decoder.decode(&record.line, &mut scratch) else { panic!("all are pages") };
        let (text, url) = (page.text.to_owned(), page.url.expect("every page has one").into_owned());
        let is_english = memchr::memmem::find(&record.line, br#""language":"en""#).is_some();
        is_english.then_some(Page { line: record.line, url, text })
    });
    pages.take(count).collect()
}

/// The text in Cyrillic letters, of about the same sound: as many words, twice the bytes.
pub fn cyrillic(text: &str) -> String {
    const LETTERS: [char; 26] = [
        'а', 'б', 'ц', 'д', 'е', 'ф', 'г', 'х', 'и', 'й', 'к', 'л', 'м', 'н', 'о', 'п', 'я', 'р', 'с', 'т', 'у', 'в',
        'ш', 'ж', 'ы', 'з',
    ];
    let letter = |c: char| match c {
        'a'..='z' => LETTERS[c as usize - 'a' as usize],
        'A'..='Z' => LETTERS[c as usize - 'A' as usize].to_uppercase().next().expect("a letter has a capital"),
        other => other,
    };
    text.chars().map(letter).collect()
}

/// The text in Chinese characters, one or two for each word and no spaces between them.
pub fn chinese(text: &str) -> String {
    let mut out = String::new();
    for word in text.split(' ') {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_punctuation());
        let hash = letters.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        let num_chars = if letters.len() <= 3 { 1 } else { 2 };
        out.extend((0..num_chars).filter_map(|n| char::from_u32(0x4E00 + (hash >> (13 * n)) as u32 % 8_192)));
        match word.as_bytes().last() {
            Some(b',') => out.push('，'),
            Some(b'.' | b'!' | b'?') => out.push('。'),
            _ => {}
        }
    }
    out
}

/// The first `num_words` words of a text, whatever stands between them included.
pub fn first_words(text: &str, num_words: usize) -> &str {
    let mut ends = text.match_indices(|c: char| !c.is_ascii_alphanumeric()).map(|(at, _)| at);
    let mut start = 0;
    let ends = ends.by_ref().filter(|end| std::mem::replace(&mut start, end + 1) < *end);
    ends.take(num_words).last().map_or(text, |end| &text[..end])
}

/// When a batch is full: with this many pages, or as soon as it holds so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Full {
    pub pages: usize,
    pub bytes: usize,
}

/// Lines in batches, as `filter` makes them.
pub fn batches<'a>(lines: impl IntoIterator<Item = &'a [u8]>, full: Full) -> Vec<ReceivedBatch> {
    let mut batches: Vec<ReceivedBatch> = Vec::new();
    for (number, line) in (1..).zip(lines) {
        let has_room =
            |batch: &mut ReceivedBatch| batch.deliveries.len() < full.pages && batch.buffer.len() < full.bytes;
        if !batches.last_mut().is_some_and(has_room) {
            batches.push(ReceivedBatch::default());
        }
        let batch = batches.last_mut().expect("there is one");
        let value = batch.push(line);
        batch.deliveries.push(Delivery {
            origin: Origin { source: 0, offset: number },
            value: Some(value),
            cut_from: None,
            key: None,
            headers: 0..0,
            timestamp_ms: None,
        });
    }
    batches
}

/// The batch as it came, with the memory of the stages behind it.
pub fn again(batch: SketchedBatch) -> ReceivedBatch {
    let judged = JudgedBatch { batch: Some(batch), ..JudgedBatch::end_of_transaction() };
    judged.recycle().expect("it holds a batch")
}
