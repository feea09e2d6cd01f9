//! Text → the keyed hash of every word, in order: SipHash-1-3 of several words at once.
//!
//! ```text
//!            ┌─▶ words of 0 to 7 bytes   one block, in the place of the word ──┐
//! spans ─────┼─▶ words of 8 to 15 bytes  two blocks, in a queue ───────────────┼─▶ hashes in order ─▶ run
//!            └─▶ longer words            hashed one by one ────────────────────┘
//! ```
//!
//! Words wait until there are enough to fill all lanes. ASCII words are read straight from the text: setting bit 5 of a
//! letter or a digit is lower case.

use super::siphash::{last_block, one_block, two_blocks};
use crate::cpu::Cpu;
use crate::page::words::{scan, unicode};
use siphasher::sip::SipHasher13;

/// Words of a run: their hashes and blocks fit the first-level cache.
const RUN_WORDS: usize = 512;

/// Bit 5 of every byte.
const LOWER_CASE: u64 = 0x2020_2020_2020_2020;

/// By the length of a word, which bytes of its first and its second eight belong to it.
const LOW: [u64; 16] = owned(0);
const HIGH: [u64; 16] = owned(8);

const fn owned(from: usize) -> [u64; 16] {
    let mut masks = [0; 16];
    let mut length = from + 1;
    while length < 16 {
        masks[length] = if length < from + 8 { (1 << (8 * (length - from))) - 1 } else { u64::MAX };
        length += 1;
    }
    masks
}

/// Hashes the words of one page at a time.
#[derive(Clone)]
pub struct WordHashes {
    key: [u64; 2],
    long: SipHasher13,
    queues: Box<Queues>,
    scratch: Vec<u8>,
}

#[derive(Clone)]
struct Queues {
    num_words: usize,
    /// The block of every word; of a longer one it means nothing, and its hash is put right afterwards.
    short: [u64; RUN_WORDS],
    num_medium: usize,
    // Written for every word, the last one too: one place more.
    medium: [[u64; RUN_WORDS + 1]; 2],
    medium_at: [u16; RUN_WORDS + 1],
    num_long: usize,
    long: [u64; RUN_WORDS],
    long_at: [u16; RUN_WORDS],
    hashes: [u64; RUN_WORDS],
    /// Hashes in the order of the queue of two blocks.
    out: [u64; RUN_WORDS],
}

impl WordHashes {
    /// Under this key.
    pub fn new(key: [u64; 2]) -> Self {
        let queues = Queues {
            num_words: 0,
            short: [0; RUN_WORDS],
            num_medium: 0,
            medium: [[0; RUN_WORDS + 1]; 2],
            medium_at: [0; RUN_WORDS + 1],
            num_long: 0,
            long: [0; RUN_WORDS],
            long_at: [0; RUN_WORDS],
            hashes: [0; RUN_WORDS],
            out: [0; RUN_WORDS],
        };
        Self { key, long: SipHasher13::new_with_keys(key[0], key[1]), queues: Box::new(queues), scratch: Vec::new() }
    }

    /// Calls `run` with the hashes of the words of `text`, up to [`RUN_WORDS`] at a time and in order.
    #[inline(always)]
    pub fn for_each_run(&mut self, cpu: Cpu, text: &str, mut run: impl FnMut(&[u64])) {
        let Self { key, long, queues, scratch } = self;
        scan::spans(
            cpu,
            text.as_bytes(),
            #[inline(always)]
            |start, end, ascii| {
                if queues.num_words == RUN_WORDS {
                    run(queues.hash(*key));
                }
                let word = &text.as_bytes()[start..end];
                if ascii && word.len() < 16 {
                    let (low, high) = match text.as_bytes()[start..].first_chunk::<16>() {
                        Some(bytes) => halves(bytes),
                        None => halves(&padded(word)),
                    };
                    queues.push(low | LOWER_CASE, high | LOWER_CASE, word.len());
                } else if ascii {
                    scratch.clear();
                    scratch.extend(word.iter().map(|byte| byte | 0x20));
                    queues.push_hash(long.hash(scratch));
                } else {
                    unicode::for_each(&text[start..end], scratch, |word| {
                        if queues.num_words == RUN_WORDS {
                            run(queues.hash(*key));
                        }
                        if word.len() < 16 {
                            let (low, high) = halves(&padded(word));
                            queues.push(low, high, word.len());
                        } else {
                            queues.push_hash(long.hash(word));
                        }
                    });
                }
            },
        );
        if queues.num_words > 0 {
            run(queues.hash(*key));
        }
    }
}

impl Queues {
    /// Adds a word of less than 16 bytes: `low` and `high` are its bytes and whatever follows them.
    #[inline(always)]
    fn push(&mut self, low: u64, high: u64, length: usize) {
        // Both forms are written, and the queue of two blocks moves on or does not: the lengths of words are nothing that
        // a branch could foresee.
        let (word, medium) = (self.num_words, self.num_medium);
        self.short[word] = last_block(low & LOW[length & 15], length);
        self.medium[0][medium] = low;
        self.medium[1][medium] = last_block(high & HIGH[length & 15], length);
        self.medium_at[medium] = word as u16;
        self.num_medium = medium + usize::from(length >= 8);
        self.num_words = word + 1;
    }

    fn push_hash(&mut self, hash: u64) {
        self.long[self.num_long] = hash;
        self.long_at[self.num_long] = self.num_words as u16;
        self.num_long += 1;
        self.num_words += 1;
    }

    /// Hashes all words that wait, and empties the queues.
    #[inline(always)]
    fn hash(&mut self, key: [u64; 2]) -> &[u64] {
        let Self { num_words, short, num_medium, medium, medium_at, num_long, long, long_at, hashes, out } = self;
        one_block(key, &short[..*num_words], hashes);
        two_blocks(key, &medium[0][..*num_medium], &medium[1][..*num_medium], out);
        let medium = out.iter().zip(&medium_at[..*num_medium]);
        for (hash, place) in medium.chain(long.iter().zip(&long_at[..*num_long])) {
            hashes[usize::from(*place)] = *hash;
        }
        let run = &hashes[..*num_words];
        (*num_words, *num_medium, *num_long) = (0, 0, 0);
        run
    }
}

#[inline(always)]
fn halves(bytes: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*bytes);
    (both as u64, (both >> 64) as u64)
}

/// A word of less than 16 bytes, and zeros.
fn padded(word: &[u8]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..word.len()].copy_from_slice(word);
    bytes
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
