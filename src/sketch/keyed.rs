//! Everything that hangs on the secret key: word hashes, multipliers, digests, band keys.
//!
//! SipHash-1-3 (Aumasson & Bernstein, 2012) is a pseudo-random function under a 128-bit key. Each use
//! has a key of its own, derived by hashing a label under the user's.

use super::BandKey;
use super::siphash::State;
use crate::config::Key;
use siphasher::sip::SipHasher13;

/// The derived keys.
#[derive(Clone)]
pub struct Keys {
    word: [u64; 2],
    digest: [[u64; 2]; 2],
    short: SipHasher13,
    url: SipHasher13,
    /// Secret odd multipliers, one for each word of a shingle.
    pub multipliers: Vec<u64>,
    band: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Keys(secret)")
    }
}

impl Keys {
    /// Derives all keys from the user's, for shingles of `shingle_words`.
    pub fn new(key: &Key, shingle_words: usize) -> Self {
        let root = SipHasher13::new_with_key(key.bytes());
        let derive = |label: &str, number: usize| root.hash(format!("pagesieve {label} {number}").as_bytes());
        let pair = |label: &str| [derive(label, 0), derive(label, 1)];
        let hasher = |label: &str| SipHasher13::new_with_keys(derive(label, 0), derive(label, 1));
        Self {
            word: pair("word"),
            digest: [pair("digest lane"), pair("digest")],
            short: hasher("short page"),
            url: hasher("url"),
            multipliers: (0..shingle_words).map(|place| derive("multiplier", place) | 1).collect(),
            band: derive("band", 0),
        }
    }

    /// The hash of one lower-cased word: the definition; [`super::word_hashes`] does several at once.
    pub fn word(&self, word: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.word[0], self.word[1]).hash(word)
    }

    /// The key of word hashes.
    pub fn word_key(&self) -> [u64; 2] {
        self.word
    }

    /// The hash of a normalised URL or a host.
    pub fn url(&self, url: &str) -> u64 {
        self.url.hash(url.as_bytes())
    }

    /// Starts the digest over a page's word hashes.
    pub fn digest(&self) -> Digest {
        Digest::new(self.digest)
    }

    /// The digest of a short page: its text with white space (NULs too) collapsed and nothing else
    /// changed. `scratch` is cleared and used.
    pub fn short_digest(&self, text: &str, scratch: &mut Vec<u8>) -> u64 {
        scratch.clear();
        for part in text.split(|c: char| c.is_whitespace() || c == '\0').filter(|part| !part.is_empty()) {
            scratch.extend_from_slice(part.as_bytes());
            scratch.push(b' ');
        }
        self.short.hash(scratch)
    }

    /// The key of band number `band` with these slots.
    pub fn band(&self, band: usize, slots: &[u64]) -> BandKey {
        let start = mix(self.band ^ (band as u64 + 1));
        BandKey((slots.iter().fold(start, |state, slot| mix(state ^ slot)) >> 32) as u32)
    }
}

/// Hashes that the words of a page are dealt to for its digest.
const LANES: usize = 8;

/// The digest of a sequence of word hashes.
///
/// The words are dealt to eight hashes in turn, the last deal filled up with zeros; the digest is the hash of those and
/// of the number of words. One hash would wait for itself at every word.
#[derive(Clone)]
pub struct Digest {
    keys: [[u64; 2]; 2],
    lanes: State<LANES>,
    /// Words that wait for a full deal.
    waiting: [u64; LANES],
    num_words: u64,
}

impl Digest {
    fn new(keys: [[u64; 2]; 2]) -> Self {
        Self { keys, lanes: State::new(keys[0]), waiting: [0; LANES], num_words: 0 }
    }

    /// Forgets the page before.
    #[inline(always)]
    pub fn clear(&mut self) {
        *self = Self::new(self.keys);
    }

    /// Adds the next words.
    #[inline(always)]
    pub fn write(&mut self, word_hashes: &[u64]) {
        let held = self.num_words as usize % LANES;
        self.num_words += word_hashes.len() as u64;
        let (first, rest) = word_hashes.split_at(word_hashes.len().min((LANES - held) % LANES));
        self.waiting[held..held + first.len()].copy_from_slice(first);
        if held > 0 && held + first.len() == LANES {
            self.lanes.absorb(&self.waiting);
        }
        let (deals, rest) = rest.as_chunks::<LANES>();
        for deal in deals {
            self.lanes.absorb(deal);
        }
        self.waiting[..rest.len()].copy_from_slice(rest);
    }

    /// Words so far.
    pub fn num_words(&self) -> u64 {
        self.num_words
    }

    /// The digest of the words so far.
    pub fn finish(&self) -> u64 {
        let mut lanes = self.lanes;
        let held = self.num_words as usize % LANES;
        if held > 0 {
            let mut last = [0; LANES];
            last[..held].copy_from_slice(&self.waiting[..held]);
            lanes.absorb(&last);
        }
        let mut bytes = [0; 8 * (LANES + 1)];
        let words = lanes.finish().into_iter().chain([self.num_words]);
        bytes.chunks_exact_mut(8).zip(words).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
        SipHasher13::new_with_keys(self.keys[1][0], self.keys[1][1]).hash(&bytes)
    }
}

/// A full 64-bit mixer: a bijection in which every bit of the input moves every bit of the output
/// (the finaliser of SplitMix64; Steele, Lea & Flood, 2014, with Stafford's constants).
#[inline]
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(hex: &str) -> Keys {
        Keys::new(&Key::from_hex(hex).expect("32 digits"), 5)
    }

    #[test]
    fn the_key_is_in_everything() {
        let (a, b) = (keys("00112233445566778899aabbccddeeff"), keys("00112233445566778899aabbccddeefe"));
        assert_ne!(a.word(b"word"), b.word(b"word"));
        assert_ne!(a.url("u"), b.url("u"));
        assert_ne!(a.multipliers, b.multipliers);
        assert_ne!(a.band(0, &[1, 2, 3]), b.band(0, &[1, 2, 3]));
        assert_ne!(a.short_digest("x", &mut vec![]), b.short_digest("x", &mut vec![]));
        assert!(a.multipliers.iter().all(|m| m % 2 == 1));
        assert!(!format!("{a:?}").contains("11"));
    }

    #[test]
    fn a_short_page_is_its_text_with_white_space_collapsed() {
        let keys = keys("00112233445566778899aabbccddeeff");
        let digest = |text| keys.short_digest(text, &mut Vec::new());
        assert_eq!(digest("Page  not\tfound\n"), digest("Page not found"));
        assert_eq!(digest("Page\0not found"), digest("Page not found"));
        assert_ne!(digest("Page not found"), digest("page not found"));
        assert_ne!(digest("Page not found"), digest("Page not found!"));
        assert_ne!(digest("ab c"), digest("a bc"));
    }

    #[test]
    fn a_digest_is_of_the_words_in_order_however_they_come() {
        let keys = keys("00112233445566778899aabbccddeeff");
        let words: Vec<u64> = (0..50).map(mix).collect();
        let digest = |words: &[u64], run: usize| {
            let mut digest = keys.digest();
            words.chunks(run).for_each(|run| digest.write(run));
            digest.finish()
        };
        let mut seen = std::collections::HashSet::new();
        for length in 0..50 {
            let whole = digest(&words[..length], 50);
            assert!(seen.insert(whole), "{length} words");
            for run in 1..20 {
                assert_eq!(digest(&words[..length], run), whole, "{length} words in runs of {run}");
            }
        }
        let mut swapped = words.clone();
        swapped.swap(3, 11);
        assert_ne!(digest(&swapped, 50), digest(&words, 50));
        let padded = [&words[..9], &[0]].concat();
        assert_ne!(digest(&padded, 50), digest(&words[..9], 50));
    }

    #[test]
    fn bands_are_told_apart_by_number_and_order() {
        let keys = keys("00112233445566778899aabbccddeeff");
        assert_ne!(keys.band(0, &[1, 2]), keys.band(1, &[1, 2]));
        assert_ne!(keys.band(0, &[1, 2]), keys.band(0, &[2, 1]));
    }
}
