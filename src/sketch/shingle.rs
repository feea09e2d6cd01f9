//! Word hashes → shingles, and the rounds of the sketch over them.
//!
//! A shingle is the multilinear combination Σ aᵢ·wᵢ (mod 2⁶⁴) of consecutive word hashes with secret
//! odd multipliers, finished by a full mixer, since the low bits of such a sum do not see the order
//! of the words.

use super::fss::Slots;
use super::keyed::mix;

/// Shingles kept for later rounds. A page with more is compacted to its distinct ones, so memory
/// is bounded whatever the page: 512 KiB a thread.
const MAX_KEPT: usize = 65_536;

/// Rounds that run over all kept shingles before they are compacted to the distinct ones: a page
/// with many distinct shingles has no empty slot left by then, one word repeated does.
const ROUNDS_BEFORE_COMPACTING: u32 = 4;

/// Makes the shingles of one page at a time.
#[derive(Debug, Clone)]
pub struct Shingler {
    multipliers: Vec<u64>,
    /// The last `multipliers.len()` word hashes, oldest first once full.
    recent: Vec<u64>,
    kept: Vec<u64>,
    /// More than `MAX_KEPT / 2` distinct shingles came: they went into the first two rounds and
    /// were let go. Then no slot is empty: the chance is below 1,024·e⁻⁶⁴.
    spilled: bool,
}

impl Shingler {
    /// A shingler with one multiplier for each word of a shingle.
    pub fn new(multipliers: Vec<u64>) -> Self {
        Self { recent: Vec::with_capacity(multipliers.len()), multipliers, kept: Vec::new(), spilled: false }
    }

    /// Forgets the page before.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.kept.clear();
        self.spilled = false;
    }

    /// Takes the next word of the page; the shingle that it ends, if any, is kept.
    #[inline]
    pub fn push(&mut self, word_hash: u64, slots: &mut Slots) {
        if self.recent.len() == self.multipliers.len() {
            self.recent.rotate_left(1);
            self.recent.pop();
        }
        self.recent.push(word_hash);
        if self.recent.len() < self.multipliers.len() {
            return;
        }
        let sum =
            self.recent.iter().zip(&self.multipliers).fold(0u64, |sum, (w, a)| sum.wrapping_add(w.wrapping_mul(*a)));
        self.kept.push(mix(sum));
        if self.kept.len() == MAX_KEPT {
            self.compact();
            if self.kept.len() > MAX_KEPT / 2 {
                slots.round(0, &self.kept);
                slots.round(1, &self.kept);
                self.kept.clear();
                self.spilled = true;
            }
        }
    }

    /// Runs the rounds until no slot is empty. Returns the number of distinct shingles: exact below
    /// `exact_below`, otherwise any number from there on.
    pub fn finish(&mut self, slots: &mut Slots, exact_below: usize) -> usize {
        if self.spilled {
            slots.round(0, &self.kept);
            slots.round(1, &self.kept);
            debug_assert!(!slots.any_empty(), "tens of thousands of shingles leave no slot empty");
            return MAX_KEPT;
        }
        if self.kept.len() < exact_below.max(1) {
            self.compact();
            if self.kept.len() < exact_below.max(1) {
                return self.kept.len();
            }
        }
        let mut compacted = false;
        // Slots that four rounds have filled stand for at least a quarter as many distinct shingles.
        if exact_below > slots.len() / ROUNDS_BEFORE_COMPACTING as usize {
            self.compact();
            compacted = true;
            if self.kept.len() < exact_below {
                return self.kept.len();
            }
        }
        for round in 0.. {
            slots.round(round, &self.kept);
            if !slots.any_empty() {
                break;
            }
            if round + 1 == ROUNDS_BEFORE_COMPACTING && !compacted {
                self.compact();
                if self.kept.len() < exact_below {
                    return self.kept.len();
                }
            }
        }
        self.kept.len()
    }

    fn compact(&mut self) {
        self.kept.sort_unstable();
        self.kept.dedup();
    }
}
