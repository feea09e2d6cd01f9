//! Fast Similarity Sketching (Dahlgaard, Knudsen & Thorup, FOCS 2017, arXiv 1704.04370).
//!
//! In round i < t every shingle draws one slot and one value in [i, i+1); in round t + j every
//! shingle draws slot j. A slot keeps the least value it is offered, so a value of an early round
//! beats all later ones, and rounds end when no slot is empty: after one or two for a page of
//! ordinary length. Slots are aligned (Pr[equal] = resemblance) and more evenly filled than t independent
//! minima, which is why the error is below that of k-permutation MinHash.

use super::keyed::mix;

/// Low bits of a value that are hash; the round number stands above them.
const HASH_BITS: u32 = 52;

/// The value of a slot that no shingle has drawn.
const EMPTY: u64 = u64::MAX;

/// The slots of one page at a time.
#[derive(Debug, Clone)]
pub struct Slots {
    values: Vec<u64>,
}

impl Slots {
    /// `num_slots` empty slots; a power of two, at most 1,024 (2·1,024 rounds fit above the hash).
    pub fn new(num_slots: usize) -> Self {
        assert!(
            num_slots.is_power_of_two() && (64..=1024).contains(&num_slots),
            "slots are 64 to 1,024, a power of two"
        );
        Self { values: vec![EMPTY; num_slots] }
    }

    /// Number of slots.
    #[allow(clippy::len_without_is_empty, reason = "slots are never none; `any_empty` asks something else")]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Empties every slot.
    pub fn clear(&mut self) {
        self.values.fill(EMPTY);
    }

    /// The least value of each slot.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Does a slot wait for a later round?
    pub fn any_empty(&self) -> bool {
        self.values.contains(&EMPTY)
    }

    /// Offers every shingle in round `round`. Rounds may run in parts and in any order.
    #[inline(always)]
    pub fn round(&mut self, round: u32, shingles: &[u64]) {
        let num_slots = self.values.len();
        let slot_shift = 64 - num_slots.trailing_zeros();
        let base = u64::from(round) << HASH_BITS;
        let salt = mix(u64::from(round));
        if (round as usize) < num_slots {
            for &shingle in shingles {
                let drawn = draw(shingle, salt);
                let slot = (drawn >> slot_shift) as usize;
                let value = base | (drawn & ((1 << HASH_BITS) - 1));
                let kept = &mut self.values[slot];
                *kept = (*kept).min(value);
            }
        } else {
            let slot = round as usize - num_slots;
            let least = shingles.iter().map(|&shingle| base | (draw(shingle, salt) & ((1 << HASH_BITS) - 1))).min();
            self.values[slot] = self.values[slot].min(least.unwrap_or(EMPTY));
        }
    }
}

/// What a shingle draws in the round with this salt: the top bits name the slot, the low ones the
/// value. Shingles are well mixed already; one xor-multiply-shift makes the rounds independent.
#[inline]
fn draw(shingle: u64, salt: u64) -> u64 {
    let product = (shingle ^ salt).wrapping_mul(0x9FB2_1C65_1E98_DF25);
    product ^ (product >> 32)
}

/// The same sketch by the definition, one slot and one round at a time: the oracle of [`Slots`].
pub fn plain(num_slots: usize, shingles: &[u64]) -> Vec<u64> {
    let mut values = vec![EMPTY; num_slots];
    if shingles.is_empty() {
        return values;
    }
    for round in 0..2 * num_slots as u64 {
        for &shingle in shingles {
            let drawn = draw(shingle, mix(round));
            let slot = match (round as usize).checked_sub(num_slots) {
                None => ((drawn as u128 * num_slots as u128) >> 64) as usize,
                Some(slot) => slot,
            };
            let value = (round << HASH_BITS) | (drawn % (1 << HASH_BITS));
            values[slot] = values[slot].min(value);
        }
        if !values.contains(&EMPTY) {
            break;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fast_is_plain(seed: u64, count in 1usize..700, log_slots in 6u32..=10) {
            let num_slots = 1 << log_slots;
            let shingles: Vec<u64> = (0..count as u64).map(|i| mix(seed ^ mix(i))).collect();
            let mut slots = Slots::new(num_slots);
            for round in 0.. {
                slots.round(round, &shingles);
                if !slots.any_empty() { break; }
            }
            prop_assert_eq!(slots.values(), plain(num_slots, &shingles));
        }

        #[test]
        fn order_and_repetition_do_not_count(seed: u64, count in 1usize..300) {
            let mut shingles: Vec<u64> = (0..count as u64).map(|i| mix(seed ^ mix(i))).collect();
            let once = plain(256, &shingles);
            shingles.reverse();
            shingles.extend_from_within(..count / 2);
            prop_assert_eq!(once, plain(256, &shingles));
        }
    }

    #[test]
    fn a_single_shingle_fills_every_slot_by_its_last_round() {
        let values = plain(256, &[42]);
        assert!(values.iter().all(|&value| value != EMPTY && value >> HASH_BITS < 512));
    }
}
