//! The one table of the index: 32-bit keys → page slots, in cache-line buckets.
//!
//! ```text
//! key ─┬─▶ bucket 1  [entry × 16]   64 bytes: one cache line
//!      └─▶ bucket 2  [entry × 16]   an insert goes into the emptier of the two
//!
//! entry = tag (what is left) │ generation (1 bit) │ page slot (id_bits); 0 = empty
//! ```
//!
//! Nothing is ever rehashed or moved, so no insert is dearer than another. A page is forgotten without
//! touching the table: its slot's generation flips when the slot is freed, which turns the entries
//! stale. Stale entries are cleared by a sweep of a few buckets a page, and on the spot when an insert
//! finds both its buckets full. A tag is a hint, never a proof: whatever a probe returns is verified against
//! the page slot, so a stale entry or an equal tag costs one comparison and decides nothing.
//! Fan-out is bounded by layout: a probe returns at most 32 slots.

use super::Slot;

/// Entries in a bucket of one 64-byte cache line.
pub const BUCKET_ENTRIES: usize = 16;

/// Live entries per place in the table when every page slot is taken. Two-choice buckets of 16
/// overflow less than one entry in ten thousand at this load.
pub const LOAD: f64 = 0.9;

/// Widest page slot number: 4 bits of the entry are left for generation and tag.
pub const MAX_ID_BITS: u32 = 28;

/// One bit for each page slot, flipped when the slot is freed.
#[derive(Debug, Clone)]
pub struct Generations(Vec<u64>);

impl Generations {
    /// All bits zero.
    pub fn new(num_slots: usize) -> Self {
        Self(vec![0; num_slots.div_ceil(64)])
    }

    /// The bit of `slot`.
    #[inline]
    pub fn of(&self, slot: Slot) -> u32 {
        (self.0[slot.0 as usize / 64] >> (slot.0 % 64)) as u32 & 1
    }

    /// Turns every entry of `slot` stale.
    pub fn flip(&mut self, slot: Slot) {
        self.0[slot.0 as usize / 64] ^= 1 << (slot.0 % 64);
    }
}

/// The table.
#[derive(Debug, Clone)]
pub struct Table {
    buckets: Vec<[u32; BUCKET_ENTRIES]>,
    id_bits: u32,
    hand: usize,
}

impl Table {
    /// Buckets for `num_slots` page slots with `keys_per_page` keys each.
    pub fn num_buckets(num_slots: usize, keys_per_page: usize) -> usize {
        ((num_slots * keys_per_page) as f64 / (LOAD * BUCKET_ENTRIES as f64)).ceil() as usize + 1
    }

    /// An empty table for page slots 1 to `num_slots` − 1 (slot 0 is never used: it marks an empty entry).
    pub fn new(num_slots: usize, keys_per_page: usize) -> Self {
        let id_bits = usize::BITS - num_slots.saturating_sub(1).leading_zeros();
        assert!(id_bits <= MAX_ID_BITS, "{num_slots} page slots are more than 2^{MAX_ID_BITS}");
        Self { buckets: vec![[0; BUCKET_ENTRIES]; Self::num_buckets(num_slots, keys_per_page)], id_bits, hand: 0 }
    }

    /// The two buckets of a key, and its tag in place.
    #[inline]
    fn places(&self, key: u32) -> ([usize; 2], u32) {
        let second = u64::from(key).wrapping_mul(0x9FB2_1C65_1E98_DF25);
        let within = |hash: u32| (u64::from(hash) * self.buckets.len() as u64 >> 32) as usize;
        let tag = (second as u32 >> 3) & self.tag_mask();
        ([within(key), within((second >> 32) as u32)], tag)
    }

    fn tag_mask(&self) -> u32 {
        u32::MAX.checked_shl(self.id_bits + 1).unwrap_or(0)
    }

    fn id_mask(&self) -> u32 {
        (1 << self.id_bits) - 1
    }

    /// Calls `each` with every page slot that may have `key`.
    #[inline]
    pub fn probe(&self, key: u32, mut each: impl FnMut(Slot)) {
        let (places, tag) = self.places(key);
        let (tag_mask, id_mask) = (self.tag_mask(), self.id_mask());
        for (nth, place) in places.into_iter().enumerate() {
            if nth == 1 && place == places[0] {
                break;
            }
            for entry in self.buckets[place] {
                if entry & tag_mask == tag && entry & id_mask != 0 {
                    each(Slot(entry & id_mask));
                }
            }
        }
    }

    /// Adds `key` → `slot`. False if both buckets are full of live entries: the key is lost, which can
    /// only let a surplus copy through.
    #[must_use]
    pub fn insert(&mut self, key: u32, slot: Slot, generations: &Generations) -> bool {
        let (places, tag) = self.places(key);
        let entry = tag | generations.of(slot) << self.id_bits | slot.0;
        let free = |bucket: &[u32; BUCKET_ENTRIES]| bucket.iter().filter(|&&entry| entry == 0).count();
        let mut room = places.map(|place| free(&self.buckets[place]));
        if room == [0, 0] {
            places.into_iter().for_each(|place| self.clear_stale(place, generations));
            room = places.map(|place| free(&self.buckets[place]));
        }
        let place = if room[0] >= room[1] { places[0] } else { places[1] };
        match self.buckets[place].iter_mut().find(|entry| **entry == 0) {
            Some(empty) => *empty = entry,
            None => return false,
        }
        true
    }

    /// Clears the stale entries of the next `num_buckets` buckets.
    pub fn sweep(&mut self, num_buckets: usize, generations: &Generations) {
        for _ in 0..num_buckets {
            self.clear_stale(self.hand, generations);
            self.hand = if self.hand + 1 == self.buckets.len() { 0 } else { self.hand + 1 };
        }
    }

    fn clear_stale(&mut self, place: usize, generations: &Generations) {
        let (id_mask, id_bits) = (self.id_mask(), self.id_bits);
        for entry in &mut self.buckets[place] {
            if *entry != 0 && generations.of(Slot(*entry & id_mask)) != *entry >> id_bits & 1 {
                *entry = 0;
            }
        }
    }

    /// Bytes of the buckets.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.buckets[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::keyed::mix;

    fn has(table: &Table, key: u32, slot: Slot) -> bool {
        let mut found = false;
        table.probe(key, |candidate| found |= candidate == slot);
        found
    }

    #[test]
    fn at_full_load_keys_are_found_and_overflow_is_rare() {
        let (num_slots, keys_per_page) = (50_000usize, 14);
        let mut table = Table::new(num_slots, keys_per_page);
        let generations = Generations::new(num_slots);
        let key = |slot: usize, number: usize| (mix((slot * 64 + number) as u64) >> 32) as u32;
        let mut lost = 0;
        for slot in 1..num_slots {
            for number in 0..keys_per_page {
                let inserted = table.insert(key(slot, number), Slot(slot as u32), &generations);
                assert!(!inserted || has(&table, key(slot, number), Slot(slot as u32)));
                lost += usize::from(!inserted);
            }
        }
        let share = lost as f64 / (num_slots * keys_per_page) as f64;
        assert!(share < 1e-4, "{share}");
    }

    #[test]
    fn stale_entries_give_way() {
        let num_slots = 20_000;
        let mut table = Table::new(num_slots, 14);
        let mut generations = Generations::new(num_slots);
        let (mut lost, mut stamp) = (0, 0u64);
        // Turn the whole window over five times.
        for round in 0..5 {
            for slot in 1..num_slots as u32 {
                if round > 0 {
                    generations.flip(Slot(slot));
                }
                for _ in 0..14 {
                    stamp += 1;
                    lost += u64::from(!table.insert((mix(stamp) >> 32) as u32, Slot(slot), &generations));
                }
                table.sweep(4, &generations);
            }
        }
        let share = lost as f64 / stamp as f64;
        assert!(share < 1e-3, "{share}");
    }
}
