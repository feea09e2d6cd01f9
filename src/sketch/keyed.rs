//! Everything that hangs on the secret key: word hashes, multipliers, digests, band keys.
//!
//! SipHash-1-3 (Aumasson & Bernstein, 2012) is a pseudo-random function under a 128-bit key. Each use
//! has a key of its own, derived by hashing a label under the user's.

use super::BandKey;
use crate::config::Key;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// The derived keys.
#[derive(Clone)]
pub struct Keys {
    word: SipHasher13,
    digest: SipHasher13,
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
        let hasher = |label: &str| SipHasher13::new_with_keys(derive(label, 0), derive(label, 1));
        Self {
            word: hasher("word"),
            digest: hasher("digest"),
            short: hasher("short page"),
            url: hasher("url"),
            multipliers: (0..shingle_words).map(|place| derive("multiplier", place) | 1).collect(),
            band: derive("band", 0),
        }
    }

    /// The hash of one lower-cased word.
    #[inline]
    pub fn word(&self, word: &[u8]) -> u64 {
        self.word.hash(word)
    }

    /// The hash of a normalised URL or a host.
    pub fn url(&self, url: &str) -> u64 {
        self.url.hash(url.as_bytes())
    }

    /// Starts the digest over a page's word hashes.
    pub fn digest(&self) -> Digest {
        Digest(self.digest)
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

/// The digest of a sequence of word hashes.
#[derive(Clone)]
pub struct Digest(SipHasher13);

impl Digest {
    /// Adds the next word.
    #[inline]
    pub fn write(&mut self, word_hash: u64) {
        self.0.write_u64(word_hash);
    }

    /// The digest of the words so far.
    pub fn finish(&self) -> u64 {
        self.0.finish()
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
    fn bands_are_told_apart_by_number_and_order() {
        let keys = keys("00112233445566778899aabbccddeeff");
        assert_ne!(keys.band(0, &[1, 2]), keys.band(1, &[1, 2]));
        assert_ne!(keys.band(0, &[1, 2]), keys.band(0, &[2, 1]));
    }
}
