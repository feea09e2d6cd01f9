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
//! stale. An insert clears the stale entries of the buckets it looks at, so each bucket is cleaned some thirty
//! times while the window turns over. A tag is a hint, never a proof: whatever a probe returns is verified against
//! the page slot, so a stale entry or an equal tag costs one comparison and decides nothing.
//! Fan-out is bounded by layout: a probe returns at most 32 slots.

use super::Slot;

/// Entries in a bucket of one 64-byte cache line.
pub const BUCKET_ENTRIES: usize = 16;

/// Live entries per place in the table when every page slot is taken. Fresh, two-choice buckets of 16
/// overflow less than one key in ten thousand at this load; once the window has turned over, one or two in a hundred
/// (see the tests), of which a page loses one band in twelve and hardly ever a match.
pub const LOAD: f64 = 0.9;

/// How many buckets a key may be in. A digest or a URL has no other key to be found by: it gets two buckets more,
/// and then less than one in a thousand is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choices {
    /// For band keys.
    Two = 2,
    /// For digests and URLs.
    Four = 4,
}

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

/// What became of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It found a free place.
    Free,
    /// It took the place of a forgotten page's entry.
    Over(Overwritten),
    /// All its buckets are full of live entries: the key is lost, which can only let a surplus copy through.
    Lost,
}

/// An entry that gave way, to be put back if the transaction aborts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overwritten {
    bucket: u32,
    at: u8,
    old: u32,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Table {
    buckets: Vec<[u32; BUCKET_ENTRIES]>,
    id_bits: u32,
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
        Self { buckets: vec![[0; BUCKET_ENTRIES]; Self::num_buckets(num_slots, keys_per_page)], id_bits }
    }

    /// The buckets of a key, and its tag in place.
    #[inline]
    fn places(&self, key: u32) -> ([usize; 4], u32) {
        let second = u64::from(key).wrapping_mul(0x9FB2_1C65_1E98_DF25);
        let third = (second ^ second >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let within = |hash: u64| (((hash & 0xFFFF_FFFF) * self.buckets.len() as u64) >> 32) as usize;
        let tag = (second as u32 >> 3) & self.tag_mask();
        ([within(u64::from(key)), within(second >> 32), within(third >> 32), within(third)], tag)
    }

    fn tag_mask(&self) -> u32 {
        u32::MAX.checked_shl(self.id_bits + 1).unwrap_or(0)
    }

    fn id_mask(&self) -> u32 {
        (1 << self.id_bits) - 1
    }

    /// Calls `each` with every page slot that may have `key`; with one twice if two of its buckets are the same.
    #[inline]
    pub fn probe(&self, key: u32, choices: Choices, mut each: impl FnMut(Slot)) {
        let (places, tag) = self.places(key);
        let (tag_mask, id_mask) = (self.tag_mask(), self.id_mask());
        for &place in &places[..choices as usize] {
            for entry in self.buckets[place] {
                if entry & tag_mask == tag && entry & id_mask != 0 {
                    each(Slot(entry & id_mask));
                }
            }
        }
    }

    /// Adds `key` → `slot`. Where all its buckets are full, the entry of a page that is forgotten but whose slot is not
    /// free yet (`is_forgotten`) gives way: a URL that is visited again and again would fill its buckets with them.
    pub fn insert(
        &mut self,
        key: u32,
        choices: Choices,
        slot: Slot,
        generations: &Generations,
        is_forgotten: impl Fn(Slot) -> bool,
    ) -> Inserted {
        let (places, tag) = self.places(key);
        let places = &places[..choices as usize];
        let mut most = (0, places[0]);
        for &place in places {
            let free = self.clear_stale(place, generations);
            if free > most.0 {
                most = (free, place);
            }
        }
        let entry = tag | generations.of(slot) << self.id_bits | slot.0;
        if let Some(empty) = self.buckets[most.1].iter_mut().find(|entry| **entry == 0) {
            *empty = entry;
            return Inserted::Free;
        }
        let id_mask = self.id_mask();
        for &bucket in places {
            if let Some(at) = self.buckets[bucket].iter().position(|entry| is_forgotten(Slot(entry & id_mask))) {
                let old = std::mem::replace(&mut self.buckets[bucket][at], entry);
                return Inserted::Over(Overwritten { bucket: bucket as u32, at: at as u8, old });
            }
        }
        Inserted::Lost
    }

    /// Undoes an insert that took another entry's place.
    pub fn restore(&mut self, overwritten: Overwritten) {
        self.buckets[overwritten.bucket as usize][usize::from(overwritten.at)] = overwritten.old;
    }

    /// Clears the stale entries of a bucket. Returns how many places are free then.
    fn clear_stale(&mut self, place: usize, generations: &Generations) -> usize {
        let (id_mask, id_bits) = (self.id_mask(), self.id_bits);
        let mut free = 0;
        for entry in &mut self.buckets[place] {
            if *entry != 0 && generations.of(Slot(*entry & id_mask)) != *entry >> id_bits & 1 {
                *entry = 0;
            }
            free += usize::from(*entry == 0);
        }
        free
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

    const BANDS: usize = 12;
    const KEYS: usize = 14;

    fn choices(number: usize) -> Choices {
        if number < BANDS { Choices::Two } else { Choices::Four }
    }

    /// Fills the table `rounds` times over. The shares of band keys and of other keys lost in the last round.
    fn turn_over(num_slots: usize, rounds: u64) -> [f64; 2] {
        let mut table = Table::new(num_slots, KEYS);
        let mut generations = Generations::new(num_slots);
        let mut lost = [0.0; 2];
        for round in 0..rounds {
            lost = [0.0; 2];
            for slot in (1..num_slots as u32).map(Slot) {
                if round > 0 {
                    generations.flip(slot);
                }
                for number in 0..KEYS {
                    let stamp = (round * num_slots as u64 + u64::from(slot.0)) * 64 + number as u64;
                    let key = (mix(stamp) >> 32) as u32;
                    let inserted = table.insert(key, choices(number), slot, &generations, |_| false) != Inserted::Lost;
                    lost[usize::from(number >= BANDS)] += f64::from(u8::from(!inserted));
                    let mut found = false;
                    table.probe(key, choices(number), |candidate| found |= candidate == slot);
                    assert!(found || !inserted);
                }
            }
        }
        [lost[0] / (num_slots * BANDS) as f64, lost[1] / (num_slots * (KEYS - BANDS)) as f64]
    }

    #[test]
    fn a_full_table_loses_next_to_nothing() {
        let [bands, others] = turn_over(50_000, 1);
        assert!(bands < 1e-4, "{bands}");
        assert_eq!(others, 0.0);
    }

    #[test]
    fn a_window_that_turned_over_loses_few_bands_and_hardly_a_digest() {
        let [bands, others] = turn_over(20_000, 5);
        assert!(bands < 0.025, "{bands}");
        assert!(others < 1e-3, "{others}");
    }
}
