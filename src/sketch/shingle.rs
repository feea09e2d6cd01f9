//! Word hashes → shingles.
//!
//! A shingle is the multilinear combination Σ aᵢ·wᵢ (mod 2⁶⁴) of consecutive word hashes with secret
//! odd multipliers, finished by a full mixer, since the low bits of such a sum do not see the order
//! of the words.

use super::fss::Slots;
use super::keyed::mix;

/// Shingles kept at a time: 512 KiB a thread, whatever the page.
const MAX_KEPT: usize = 65_536;

/// Distinct shingles from which a page's are sampled: an eighth of that, and more than any row of an odd sketch holds.
const MAX_SAMPLE: usize = MAX_KEPT / 8;

/// Rounds that run over all shingles before they are reduced to the distinct ones: a page with many distinct shingles
/// has no empty slot left by then, one word repeated does.
const ROUNDS_BEFORE_COMPACTING: u32 = 4;

/// Makes the shingles of one page at a time.
#[derive(Debug, Clone)]
pub struct Shingler {
    multipliers: Vec<u64>,
    /// The last word hashes of the run before, one less than a shingle has, and the run at hand.
    words: Vec<u64>,
    kept: Vec<u64>,
    sample: Sample,
}

/// The distinct shingles of a very long page that are of a level: whose hash begins with so many zero bits.
#[derive(Debug, Clone, Default)]
struct Sample {
    shingles: Vec<u64>,
    level: u32,
    /// Shingles were let go after two rounds. They were tens of thousands of distinct ones, so no slot is empty: the
    /// chance is below 1,024·e⁻⁶⁴.
    taken: bool,
}

impl Shingler {
    /// A shingler with one multiplier for each word of a shingle.
    pub fn new(multipliers: Vec<u64>) -> Self {
        Self { multipliers, words: Vec::new(), kept: Vec::new(), sample: Sample::default() }
    }

    /// Forgets the page before.
    pub fn clear(&mut self) {
        self.words.clear();
        self.kept.clear();
        self.sample.shingles.clear();
        self.sample.level = 0;
        self.sample.taken = false;
    }

    /// Takes the next words of the page.
    #[inline(always)]
    pub fn push(&mut self, word_hashes: &[u64], slots: &mut Slots) {
        self.words.extend_from_slice(word_hashes);
        if self.kept.len() + self.words.len() > MAX_KEPT {
            self.make_room(slots);
        }
        match *self.multipliers {
            [a, b, c, d, e] => combine(&self.words, [a, b, c, d, e], &mut self.kept),
            _ => combine_any(&self.words, &self.multipliers, &mut self.kept),
        }
        let used = self.words.len().saturating_sub(self.multipliers.len() - 1);
        self.words.drain(..used);
    }

    /// Reduces what is kept to the distinct shingles, and if they are many to a sample.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, slots: &mut Slots) {
        compact(&mut self.kept);
        if self.sample.taken || self.kept.len() > MAX_KEPT / 2 {
            self.take_sample(slots);
        }
    }

    fn take_sample(&mut self, slots: &mut Slots) {
        slots.round(0, &self.kept);
        slots.round(1, &self.kept);
        let Sample { shingles, level, taken } = &mut self.sample;
        *taken = true;
        shingles.extend(self.kept.drain(..).filter(|shingle| shingle.leading_zeros() >= *level));
        compact(shingles);
        while shingles.len() > MAX_SAMPLE {
            *level += 1;
            shingles.retain(|shingle| shingle.leading_zeros() >= *level);
        }
    }

    /// Runs the rounds until no slot is empty. Returns the number of distinct shingles: exact below
    /// `exact_below`, otherwise any number from there on.
    #[inline(always)]
    pub fn finish(&mut self, slots: &mut Slots, exact_below: usize) -> usize {
        if self.sample.taken {
            self.take_sample(slots);
            debug_assert!(!slots.any_empty(), "tens of thousands of shingles leave no slot empty");
            return MAX_KEPT;
        }
        // Slots that four rounds have filled stand for at least a quarter as many distinct shingles.
        let mut compacted = false;
        if self.kept.len() < exact_below || exact_below > slots.len() / ROUNDS_BEFORE_COMPACTING as usize {
            compact(&mut self.kept);
            compacted = true;
            if self.kept.len() < exact_below {
                return self.kept.len();
            }
        }
        if self.kept.is_empty() {
            return 0;
        }
        for round in 0.. {
            slots.round(round, &self.kept);
            if !slots.any_empty() {
                break;
            }
            if round + 1 == ROUNDS_BEFORE_COMPACTING && !compacted {
                compact(&mut self.kept);
                if self.kept.len() < exact_below {
                    return self.kept.len();
                }
            }
        }
        self.kept.len()
    }

    /// The page's shingles, some perhaps more than once, and their level: all that begin with so many zero bits.
    pub fn shingles(&self) -> (&[u64], u32) {
        if self.sample.taken { (&self.sample.shingles, self.sample.level) } else { (&self.kept, 0) }
    }
}

/// The shingles of `N` words.
#[inline(always)]
fn combine<const N: usize>(words: &[u64], multipliers: [u64; N], out: &mut Vec<u64>) {
    out.extend(words.array_windows::<N>().map(|window| {
        let mut sum = 0u64;
        for place in 0..N {
            sum = sum.wrapping_add(window[place].wrapping_mul(multipliers[place]));
        }
        mix(sum)
    }));
}

fn combine_any(words: &[u64], multipliers: &[u64], out: &mut Vec<u64>) {
    out.extend(words.windows(multipliers.len()).map(|window| {
        mix(window.iter().zip(multipliers).fold(0u64, |sum, (word, by)| sum.wrapping_add(word.wrapping_mul(*by))))
    }));
}

fn compact(shingles: &mut Vec<u64>) {
    shingles.sort_unstable();
    shingles.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn multipliers(count: u64) -> Vec<u64> {
        (1..=count).map(|place| mix(place) | 1).collect()
    }

    fn plain(words: &[u64], multipliers: &[u64]) -> BTreeSet<u64> {
        let mut shingles = Vec::new();
        combine_any(words, multipliers, &mut shingles);
        shingles.into_iter().collect()
    }

    proptest! {
        #[test]
        fn runs_join_without_a_seam(
            words in proptest::collection::vec(0u64..40, 0..300), length in 1u64..8, cut in 1usize..60,
        ) {
            let words: Vec<u64> = words.into_iter().map(mix).collect();
            let mut shingler = Shingler::new(multipliers(length));
            let mut slots = Slots::new(64);
            for run in words.chunks(cut) {
                shingler.push(run, &mut slots);
            }
            let expected = plain(&words, &multipliers(length));
            let found: BTreeSet<u64> = shingler.shingles().0.iter().copied().collect();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(shingler.finish(&mut slots, 1000), expected.len());
        }
    }

    /// What is kept of a page of any length is bounded, and a sample of a level is all the page's shingles of it.
    #[test]
    fn very_long_pages_are_sampled() {
        for (distinct, repeats) in [(70_000u64, 1), (300_000, 2), (40, 20_000), (20_000, 10)] {
            let words: Vec<u64> = (0..distinct * repeats).map(|i| mix(i % distinct)).collect();
            let mut shingler = Shingler::new(multipliers(5));
            let mut slots = Slots::new(64);
            for run in words.chunks(512) {
                shingler.push(run, &mut slots);
                assert!(shingler.kept.len() <= MAX_KEPT && shingler.sample.shingles.len() <= 2 * MAX_KEPT);
            }
            let num_distinct = shingler.finish(&mut slots, 8);
            assert!(num_distinct >= 8);
            let expected = plain(&words, &multipliers(5));
            let all: Vec<u64> = expected.iter().copied().collect();
            assert_eq!(slots.values(), crate::sketch::fss::plain(64, &all));
            let (found, level) = shingler.shingles();
            assert_eq!(level > 0, distinct > 40_000, "{distinct} distinct shingles");
            let found: BTreeSet<u64> = found.iter().copied().collect();
            assert_eq!(found, expected.into_iter().filter(|shingle| shingle.leading_zeros() >= level).collect());
        }
    }
}
