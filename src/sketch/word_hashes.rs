//! Text → the keyed hash of every word, in order: SipHash-1-3 of several words at once.
//!
//! ```text
//!            ┌─▶ words of 0 to 15 bytes  one or two blocks ─┐
//! spans ─────┤                                              ├─▶ hashes, each in the place of its word ─▶ run
//!            └─▶ longer words            one by one ────────┘
//! ```
//!
//! Words wait in a queue until there are enough for all lanes. ASCII words are read straight from the text: setting bit 5
//! of a letter or a digit is lower case.

use super::siphash::{last_block, up_to_two_blocks};
use crate::cpu::Cpu;
use crate::page::words::scan::{Found, MAX_SPANS, Scanner};
use crate::page::words::unicode;
use siphasher::sip::SipHasher13;

/// Words of a run: their hashes and blocks fit the first-level cache.
const RUN_WORDS: usize = 2 * MAX_SPANS;

/// Bit 5 of every byte.
const LOWER_CASE: u64 = 0x2020_2020_2020_2020;

/// Hashes the words of one page at a time.
#[derive(Clone)]
pub struct WordHashes {
    key: [u64; 2],
    long: SipHasher13,
    queue: Box<Queue>,
    scratch: Vec<u8>,
}

/// Words that wait for their hashes.
#[derive(Clone)]
struct Queue {
    num_words: usize,
    /// The blocks of each word; of a word of less than 8 bytes only the last counts.
    first: [u64; RUN_WORDS],
    last: [u64; RUN_WORDS],
    hashes: [u64; RUN_WORDS],
    /// Longer words, hashed already, and their places.
    num_long: usize,
    long: [(u64, usize); RUN_WORDS],
}

impl WordHashes {
    /// Under this key.
    pub fn new(key: [u64; 2]) -> Self {
        let queue = Queue {
            num_words: 0,
            first: [0; RUN_WORDS],
            last: [0; RUN_WORDS],
            hashes: [0; RUN_WORDS],
            num_long: 0,
            long: [(0, 0); RUN_WORDS],
        };
        Self { key, long: SipHasher13::new_with_keys(key[0], key[1]), queue: Box::new(queue), scratch: Vec::new() }
    }

    /// Calls `run` with the hashes of the words of `text`, up to [`RUN_WORDS`] at a time and in order.
    #[inline(always)]
    pub fn for_each_run(&mut self, cpu: Cpu, text: &str, mut run: impl FnMut(&[u64])) {
        let Self { key, long, queue, scratch } = self;
        // Words of a page that was given up are none of this one's.
        (queue.num_words, queue.num_long) = (0, 0);
        let mut scanner = Scanner::new(text.as_bytes());
        while let Some(found) = scanner.find_next(cpu) {
            if queue.num_words > RUN_WORDS - MAX_SPANS {
                run(queue.hash(*key));
            }
            match found {
                Found::Words(spans) => queue.push_ascii(text.as_bytes(), spans, long, scratch),
                Found::Mixed(start, end) => {
                    let mut words = unicode::Words::new(&text[start..end], scratch);
                    while let Some(word) = words.next_word() {
                        if queue.num_words == RUN_WORDS {
                            run(queue.hash(*key));
                        }
                        queue.push(word, long);
                    }
                }
            }
        }
        if queue.num_words > 0 {
            run(queue.hash(*key));
        }
    }
}

impl Queue {
    /// Adds words of ASCII; there must be room for them.
    #[inline(always)]
    fn push_ascii(&mut self, text: &[u8], spans: &[[usize; 2]], long: &SipHasher13, scratch: &mut Vec<u8>) {
        let places = self.num_words..self.num_words + spans.len();
        let blocks = self.first[places.clone()].iter_mut().zip(&mut self.last[places.clone()]);
        for (([start, end], (first, last)), place) in spans.iter().zip(blocks).zip(places.clone()) {
            let (word, length) = (&text[*start..*end], end - start);
            if length >= 16 {
                scratch.clear();
                scratch.extend(word.iter().map(|byte| byte | 0x20));
                self.long[self.num_long] = (long.hash(scratch), place);
                self.num_long += 1;
                continue;
            }
            let (low, high) = match text[*start..].first_chunk::<16>() {
                Some(bytes) => {
                    let both = u128::from_le_bytes(*bytes);
                    (both as u64, (both >> 64) as u64)
                }
                None => padded(word),
            };
            *first = low | LOWER_CASE;
            *last = last_of(low | LOWER_CASE, high | LOWER_CASE, length);
        }
        self.num_words = places.end;
    }

    /// Adds one word; there must be room for it.
    #[inline(always)]
    fn push(&mut self, word: &[u8], long: &SipHasher13) {
        let place = self.num_words;
        if word.len() < 16 {
            let (low, high) = padded(word);
            self.first[place] = low;
            self.last[place] = last_of(low, high, word.len());
        } else {
            self.long[self.num_long] = (long.hash(word), place);
            self.num_long += 1;
        }
        self.num_words += 1;
    }

    /// Hashes all words that wait, and empties the queue.
    #[inline(always)]
    fn hash(&mut self, key: [u64; 2]) -> &[u64] {
        let Self { num_words, first, last, hashes, num_long, long } = self;
        up_to_two_blocks(key, &first[..*num_words], &last[..*num_words], hashes);
        for (hash, place) in &long[..*num_long] {
            hashes[*place] = *hash;
        }
        let run = &hashes[..*num_words];
        (*num_words, *num_long) = (0, 0);
        run
    }
}

/// The last block of a word of less than 16 bytes: `low` and `high` are its bytes and whatever follows them.
#[inline(always)]
fn last_of(low: u64, high: u64, length: usize) -> u64 {
    let owned = (1 << (length % 8 * 8)) - 1;
    last_block(if length < 8 { low } else { high } & owned, length)
}

/// A word of less than 16 bytes, and zeros, in two halves.
#[inline(always)]
fn padded(word: &[u8]) -> (u64, u64) {
    let eight = |at: usize| u64::from_le_bytes(word[at..at + 8].try_into().expect("eight bytes"));
    let four = |at: usize| u64::from(u32::from_le_bytes(word[at..at + 4].try_into().expect("four bytes")));
    // Two loads that overlap, since a copy of unknown length is a call.
    match word.len() {
        0 => (0, 0),
        length @ 1..4 => {
            let byte = |at: usize| u64::from(word[at]) << (at * 8);
            (byte(0) | byte(length / 2) | byte(length - 1), 0)
        }
        length @ 4..8 => (four(0) | four(length - 4) << ((length - 4) * 8), 0),
        // What `eight` reads twice is shifted out, in two steps since it may be all.
        length => (eight(0), eight(length - 8) >> 8 >> ((15 - length) * 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::words;
    use proptest::prelude::*;

    fn check(text: &str) {
        let key = [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210];
        let plain = SipHasher13::new_with_keys(key[0], key[1]);
        let expected: Vec<u64> = words::plain(text).iter().map(|word| plain.hash(word.as_bytes())).collect();
        let mut found = Vec::new();
        WordHashes::new(key).for_each_run(Cpu::detect(), text, |run| found.extend_from_slice(run));
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn words_of_every_length_at_every_place() {
        for length in 0..40 {
            let text = "aZ09".repeat(10)[..length].to_owned();
            check(&text);
            check(&format!("x {text}"));
            check(&format!("{text} some more text, longer than a block"));
            check(&format!("é{text} и ещё"));
        }
        check(&"One two three, four-and-twenty ".repeat(200));
        check(&"吾輩は猫である".repeat(400));
    }

    proptest! {
        #[test]
        fn fast_is_plain(text in "([a-zA-Z0-9 .,'é水東ไß\u{0}\u{300}-]|\\PC| [a-zA-Z]{5,18} ){0,120}") {
            check(&text);
        }
    }
}
