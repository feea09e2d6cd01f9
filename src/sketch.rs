//! A page's text → its sketch: words ▸ shingles ▸ slots and bits.
//!
//! ```text
//! text ─▶ words ─SipHash-1-3─▶ word hashes ─multilinear─▶ shingles ─┬─FSS─▶ 64 slots ─▶ 12 band keys (5 slots each)
//!                                   │                               └─odd sketch─▶ 512 bits, to verify with
//!                                   └─SipHash─▶ digest of all words
//! ```
//!
//! Everything is keyed: word hashes, multipliers and digest hang on one secret 128-bit key, so that
//! nobody without it can make a page that collides with another. The sketch is a pure function of
//! (text, settings, key).

pub mod fss;
pub mod keyed;
pub mod minhash;
pub mod odd;
pub mod shingle;
pub mod siphash;
pub mod word_hashes;

use crate::config::{Key, SketchSettings};
use crate::cpu::Cpu;
use keyed::Keys;

/// The key of one band: equal iff (but for 32-bit collisions) all the band's slots are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BandKey(pub u32);

/// The shape of a sketch: what two pages must share to be comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Words in a shingle.
    pub shingle_words: usize,
    /// Bands.
    pub bands: usize,
    /// Slots in a band.
    pub rows: usize,
    /// Distinct shingles below which only the digest counts.
    pub min_shingles: usize,
    /// Bytes kept of a page for verification: 32, 64, 128 or 256.
    pub bytes: usize,
}

impl Shape {
    /// The shape that the settings ask for.
    pub fn new(settings: &SketchSettings) -> Self {
        Self {
            shingle_words: settings.shingle_words,
            bands: settings.bands,
            rows: settings.rows,
            min_shingles: settings.min_shingles,
            bytes: settings.bytes,
        }
    }

    /// 64-bit words of the bits kept for verification.
    pub fn bit_words(&self) -> usize {
        self.bytes / 8
    }

    /// Slots of Fast Similarity Sketching: as many as the bands take, rounded up to a power of two.
    pub fn slots(&self) -> usize {
        (self.bands * self.rows).next_power_of_two().max(64)
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

/// Where sketches are appended to: each part may be one page's or a batch's.
#[derive(Debug, Clone, Default)]
pub struct Sketches {
    /// [`Shape::bands`] keys a page.
    pub bands: Vec<BandKey>,
    /// [`Shape::bit_words`] words a page: what is remembered of it to verify with.
    pub bits: Vec<u64>,
    /// Twice as many: the bits at the neighbouring levels (see [`odd`]).
    pub neighbours: Vec<u64>,
}

impl Sketches {
    /// Empties them, keeping their memory.
    pub fn clear(&mut self) {
        self.bands.clear();
        self.bits.clear();
        self.neighbours.clear();
    }

    /// Makes them those of exactly `pages` pages: what is missing is zero.
    pub fn resize(&mut self, pages: usize, shape: &Shape) {
        self.bands.resize(pages * shape.bands, BandKey(0));
        self.bits.resize(pages * shape.bit_words(), 0);
        self.neighbours.resize(2 * pages * shape.bit_words(), 0);
    }
}

/// Sketches texts. One per thread: it keeps its scratch space, and allocates nothing per page
/// once that has grown to the largest page seen.
#[derive(Clone)]
pub struct Sketcher {
    shape: Shape,
    cpu: Cpu,
    keys: Keys,
    words: word_hashes::WordHashes,
    digest: keyed::Digest,
    shingler: shingle::Shingler,
    slots: fss::Slots,
    odd: odd::OddSketch,
    scratch: Vec<u8>,
}

impl Sketcher {
    /// A sketcher of this shape under this key.
    pub fn new(shape: Shape, key: &Key) -> Self {
        let keys = Keys::new(key, shape.shingle_words);
        Self {
            cpu: Cpu::detect(),
            words: word_hashes::WordHashes::new(keys.word_key()),
            digest: keys.digest(),
            shingler: shingle::Shingler::new(keys.multipliers.clone()),
            slots: fss::Slots::new(shape.slots()),
            odd: odd::OddSketch::new(shape.bytes),
            shape,
            keys,
            scratch: Vec::with_capacity(64),
        }
    }

    /// The same, compiled for that processor: for tests and benches.
    pub fn on(mut self, cpu: Cpu) -> Self {
        self.cpu = cpu;
        self
    }

    /// The shape of every sketch made here.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Sketches `text`, appending one page to `out`.
    pub fn sketch(&mut self, text: &str, out: &mut Sketches) -> Summary {
        self.cpu.run(
            #[inline(always)]
            || self.sketch_here(text, out),
        )
    }

    #[inline(always)]
    fn sketch_here(&mut self, text: &str, out: &mut Sketches) -> Summary {
        let Self { shape, cpu, keys, words, digest, shingler, slots, odd, scratch, .. } = self;
        digest.clear();
        shingler.clear();
        slots.clear();
        words.for_each_run(
            *cpu,
            text,
            #[inline(always)]
            |run| {
                digest.write(run);
                shingler.push(run, slots);
            },
        );
        let num_words = digest.num_words();
        let num_distinct = shingler.finish(slots, shape.min_shingles);
        let short = num_distinct < shape.min_shingles;
        if short {
            out.resize(out.bands.len() / shape.bands + 1, shape);
            return Summary { num_words, short, digest: keys.short_digest(text, scratch) };
        }
        let values = slots.values();
        for band in 0..shape.bands {
            out.bands.push(keys.band(band, &values[band * shape.rows..(band + 1) * shape.rows]));
        }
        let (shingles, level) = shingler.shingles();
        odd.pack(shingles, level, &mut out.bits, &mut out.neighbours);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_processor_makes_the_same_sketch(
            text in "(([a-zA-Z]{1,12}|[0-9]{1,4}|[éßЖ水東ไ]{1,9})[ ,.\n]){0,700}", wide in 0u32..4,
        ) {
            let shape = Shape { bytes: 32 << wide, ..Shape::new(&Config::default().sketch) };
            let sketcher = Sketcher::new(shape, &Key::from_bytes([9; 16]));
            let mut sketches = Cpu::all().into_iter().map(|cpu| {
                let mut sketch = Sketches::default();
                let summary = sketcher.clone().on(cpu).sketch(&text, &mut sketch);
                (summary, sketch.bands, sketch.bits, sketch.neighbours)
            });
            let portable = sketches.next_back().expect("there is always the portable one");
            for found in sketches {
                prop_assert_eq!(&found, &portable);
            }
        }
    }
}
