//! A page's text → its sketch: words ▸ shingles ▸ slots ▸ bands and bits.
//!
//! ```text
//! text ─▶ words ─SipHash-1-3─▶ word hashes ─multilinear─▶ shingles ─FSS─▶ slots (64 bits each)
//!                                   │                                      ├─▶ 12 band keys (5 slots each)
//!                                   └─SipHash─▶ digest of all words        └─▶ 1 bit a slot, to verify with
//! ```
//!
//! Everything is keyed: word hashes, multipliers and digest hang on one secret 128-bit key, so that
//! nobody without it can make a page that collides with another. The sketch is a pure function of
//! (text, settings, key).

pub mod bbit;
pub mod fss;
pub mod keyed;
pub mod minhash;
pub mod shingle;

use crate::config::{Key, SketchSettings};
use crate::page::words;
use keyed::Keys;

/// The key of one band: equal iff (but for 32-bit collisions) all the band's slots are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BandKey(pub u32);

/// The shape of a sketch: what two pages must share to be comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Words in a shingle.
    pub shingle_words: usize,
    /// Slots of a sketch.
    pub slots: usize,
    /// Bits kept of each slot for verification.
    pub bits: usize,
    /// Bands.
    pub bands: usize,
    /// Slots in a band.
    pub rows: usize,
    /// Distinct shingles below which only the digest counts.
    pub min_shingles: usize,
}

impl Shape {
    /// The shape that the settings ask for.
    pub fn new(settings: &SketchSettings) -> Self {
        Self {
            shingle_words: settings.shingle_words,
            slots: settings.slots,
            bits: usize::from(settings.bits),
            bands: settings.bands,
            rows: settings.rows,
            min_shingles: settings.min_shingles,
        }
    }

    /// 64-bit words of the bits kept for verification.
    pub fn bit_words(&self) -> usize {
        self.slots * self.bits / 64
    }
}

/// What the sketcher says of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of words; 0 means that there is nothing to judge.
    pub num_words: u64,
    /// Fewer distinct shingles than `min_shingles`: bands and bits are all zero, only the digest counts.
    pub short: bool,
    /// Keyed 64-bit digest: over the words, or over the text with white space collapsed if short.
    pub digest: u64,
}

/// Sketches texts. One per thread: it keeps its scratch space, and allocates nothing per page
/// once that has grown to the largest page seen.
#[derive(Debug, Clone)]
pub struct Sketcher {
    shape: Shape,
    keys: Keys,
    shingler: shingle::Shingler,
    slots: fss::Slots,
    word: Vec<u8>,
}

impl Sketcher {
    /// A sketcher of this shape under this key.
    pub fn new(shape: Shape, key: &Key) -> Self {
        let keys = Keys::new(key, shape.shingle_words);
        Self {
            shape,
            shingler: shingle::Shingler::new(keys.multipliers.clone()),
            slots: fss::Slots::new(shape.slots),
            keys,
            word: Vec::with_capacity(64),
        }
    }

    /// The shape of every sketch made here.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Sketches `text`, appending [`Shape::bands`] band keys to `bands` and [`Shape::bit_words`]
    /// words to `bits`.
    pub fn sketch(&mut self, text: &str, bands: &mut Vec<BandKey>, bits: &mut Vec<u64>) -> Summary {
        let Self { shape, keys, shingler, slots, word } = self;
        let mut digest = keys.digest();
        let mut num_words = 0;
        shingler.clear();
        slots.clear();
        words::for_each(text, word, |word| {
            let hash = keys.word(word);
            digest.write(hash);
            num_words += 1;
            shingler.push(hash, slots);
        });
        let num_distinct = shingler.finish(slots, shape.min_shingles);
        let short = num_distinct < shape.min_shingles;
        if short {
            bands.resize(bands.len() + shape.bands, BandKey(0));
            bits.resize(bits.len() + shape.bit_words(), 0);
            return Summary { num_words, short, digest: keys.short_digest(text, word) };
        }
        let values = slots.values();
        for band in 0..shape.bands {
            bands.push(keys.band(band, &values[band * shape.rows..(band + 1) * shape.rows]));
        }
        bbit::pack(values, shape.bits, bits);
        Summary { num_words, short, digest: digest.finish() }
    }

    /// The slots of the last text that was not short: full width, for tests and `explain`.
    pub fn values(&self) -> &[u64] {
        self.slots.values()
    }

    /// The keyed 64-bit hash of a normalised URL.
    pub fn url_key(&self, url: &str) -> u64 {
        self.keys.url(url)
    }

    /// The keyed 16-bit hash of a host, for its quota.
    pub fn host_key(&self, host: &str) -> u16 {
        (self.keys.url(host) >> 48) as u16
    }
}
