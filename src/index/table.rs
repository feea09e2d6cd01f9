//! The one table of the index: 32-bit keys → page slots, in cache-line buckets.
//!
//! ```text
//! key ──▶ stretch of 64 buckets ─┬─▶ bucket 1  [entry × 16]   64 bytes: one cache line
//!         (4 KiB)                └─▶ bucket 2  [entry × 16]   an insert goes into the emptier of the two
//!
//! entry = tag (what is left) │ generation (1 bit) │ page slot (id_bits); 0 = empty
//! ```
//!
//! All buckets of a key are in one page of memory, so that the processor translates one address for them: of a table too
//! large for its translation buffers that costs more than the lines themselves.
//!
//! Nothing is ever rehashed or moved, so no insert is dearer than another. A page is forgotten without
//! touching the table: its slot's generation flips when the slot is freed, which turns the entries
//! stale. An insert clears the stale entries of the buckets it looks at, so each bucket is cleaned some thirty
//! times while the window turns over. A tag is a hint, never a proof: whatever a probe returns is verified against
//! the page slot, so a stale entry or an equal tag costs one comparison and decides nothing.
//! Fan-out is bounded by layout: a probe returns at most 32 slots.

use super::Slot;
use super::lanes::{self, BUCKET_ENTRIES, Bucket};
use super::prefetch::prefetch;
use super::zeroed::{Populate, Zeroed};
use crate::cpu::Cpu;

/// Live entries per place in the table when every page slot is taken. Fresh, two-choice buckets of 16
/// overflow less than one key in two thousand at this load; once the window has turned over, two in a hundred
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

/// Buckets of a stretch: a power of two.
const STRETCH_BUCKETS: usize = 64;

/// Pages remembered for each 2 MiB of the table from which it is worth huge pages. Their 14 keys each have by then
/// written to a fifth of the small pages.
const GATHERED_FROM_PAGES: usize = 8;

/// Widest page slot number: 4 bits of the entry are left for generation and tag.
pub const MAX_ID_BITS: u32 = 28;

/// A word of generations.
const MIN_ID_BITS: u32 = 5;

/// Bits of an entry that number one of `num_slots` page slots.
fn id_bits(num_slots: usize) -> u32 {
    (usize::BITS - num_slots.saturating_sub(1).leading_zeros()).max(MIN_ID_BITS)
}

/// What the entries of each page slot are worth, as bits that stay in the cache: an insert asks these, and not the
/// records.
#[derive(Debug)]
pub struct Generations {
    /// Flipped when the slot is freed.
    generation: Zeroed<u32>,
    /// Set while the slot's page is forgotten and the slot is not free yet. Apart, for it is asked a hundred times less often.
    forgotten: Zeroed<u64>,
}

impl Generations {
    /// All bits zero.
    pub fn new(num_slots: usize) -> Self {
        // A bit for all that the bits of an entry can number, used or not.
        let num_numbers = 1 << id_bits(num_slots);
        Self { generation: Zeroed::new(num_numbers / 32), forgotten: Zeroed::new(num_slots.div_ceil(64)) }
    }

    /// The generation of `slot`.
    #[inline]
    pub fn of(&self, slot: Slot) -> u32 {
        self.generation[slot.0 as usize / 32] >> (slot.0 % 32) & 1
    }

    /// Turns every entry of `slot` stale.
    pub fn flip(&mut self, slot: Slot) {
        self.generation[slot.0 as usize / 32] ^= 1 << (slot.0 % 32);
    }

    /// Is the page in `slot` forgotten, and the slot not free yet?
    #[inline]
    pub fn is_forgotten(&self, slot: Slot) -> bool {
        self.forgotten[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 1
    }

    /// Says whether the page in `slot` is forgotten.
    pub fn set_forgotten(&mut self, slot: Slot, forgotten: bool) {
        let (word, shift) = (&mut self.forgotten[slot.0 as usize / 64], slot.0 % 64);
        *word = *word & !(1 << shift) | u64::from(forgotten) << shift;
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
#[derive(Debug)]
pub struct Table {
    buckets: Zeroed<Bucket>,
    id_bits: u32,
    cpu: Cpu,
    /// Pieces of `buckets` that are huge pages by now.
    num_gathered: usize,
    scratch: Vec<u8>,
}

impl Table {
    /// Buckets for `num_slots` page slots with `keys_per_page` keys each.
    pub fn num_buckets(num_slots: usize, keys_per_page: usize) -> usize {
        let buckets = (num_slots * keys_per_page) as f64 / (LOAD * BUCKET_ENTRIES as f64);
        (buckets as usize + 1).next_multiple_of(STRETCH_BUCKETS)
    }

    /// An empty table for page slots 1 to `num_slots` − 1 (slot 0 is never used: it marks an empty entry).
    pub fn new(num_slots: usize, keys_per_page: usize) -> Self {
        let id_bits = id_bits(num_slots);
        assert!(id_bits <= MAX_ID_BITS, "{num_slots} page slots are more than 2^{MAX_ID_BITS}");
        let buckets = Zeroed::scattered(Self::num_buckets(num_slots, keys_per_page));
        Self { buckets, id_bits, cpu: Cpu::detect(), num_gathered: 0, scratch: Vec::new() }
    }

    /// So many pages are about to come: an empty table need not wait for them to become huge pages.
    pub fn expect_pages(&mut self, num_pages: usize) -> Option<Populate> {
        let num_pieces = self.buckets.num_pieces();
        (num_pages >= GATHERED_FROM_PAGES * num_pieces).then(|| {
            self.buckets.expect_writes();
            self.num_gathered = num_pieces;
            self.buckets.populate(usize::MAX)
        })
    }

    /// Makes one more piece of the table a huge page, if it is still to be done and worth it with `num_pages` remembered:
    /// when a good part of its small pages has been written, so that a small input does not pay for a large table.
    pub fn gather(&mut self, num_pages: usize) {
        let num_pieces = self.buckets.num_pieces();
        if self.num_gathered < num_pieces && num_pages >= GATHERED_FROM_PAGES * num_pieces {
            self.buckets.gather(self.num_gathered, &mut self.scratch);
            self.num_gathered += 1;
            if self.num_gathered == num_pieces {
                self.scratch = Vec::new();
            }
        }
    }

    /// The buckets of a key, which differ, and its tag in place.
    #[inline(always)]
    fn places(&self, key: u32) -> ([usize; 4], u32) {
        let mixed = u64::from(key).wrapping_mul(0x9FB2_1C65_1E98_DF25);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let num_stretches = (self.buckets.len() / STRETCH_BUCKETS) as u64;
        // A share of `count`, given by 13 bits.
        let share = |bits: u64, count: usize| ((bits & 0x1FFF) as usize * count) >> 13;
        let stretch = ((u64::from(key) * num_stretches) >> 32) as usize * STRETCH_BUCKETS;
        let first = (mixed >> 58) as usize;
        // Neither 0 nor each other.
        let second = 1 + share(mixed >> 45, STRETCH_BUCKETS - 1);
        let third = 1 + share(mixed >> 32, STRETCH_BUCKETS - 2);
        let third = third + usize::from(third >= second);
        let places = [first, first ^ second, first ^ third, first ^ second ^ third];
        (places.map(|place| stretch + place), mixed as u32 & self.tag_mask())
    }

    fn tag_mask(&self) -> u32 {
        u32::MAX.checked_shl(self.id_bits + 1).unwrap_or(0)
    }

    fn id_mask(&self) -> u32 {
        (1 << self.id_bits) - 1
    }

    /// Calls `each`, which should be small, with every page slot that may have one of `keys`.
    #[inline]
    pub fn probe(&self, keys: impl Iterator<Item = (u32, Choices)>, mut each: impl FnMut(Slot)) {
        self.cpu.run(
            #[inline(always)]
            || {
                for (key, choices) in keys {
                    self.probe_one(key, choices, &mut each);
                }
            },
        );
    }

    #[inline(always)]
    fn probe_one(&self, key: u32, choices: Choices, each: &mut impl FnMut(Slot)) {
        let (places, tag) = self.places(key);
        let (tag_mask, id_mask) = (self.tag_mask(), self.id_mask());
        for &place in &places[..choices as usize] {
            let bucket = &self.buckets[place];
            let mut equal = lanes::equal(self.cpu, bucket, tag_mask, tag);
            while equal != 0 {
                let slot = bucket[equal.trailing_zeros() as usize % BUCKET_ENTRIES] & id_mask;
                equal &= equal - 1;
                if slot != 0 {
                    each(Slot(slot));
                }
            }
        }
    }

    /// Brings in the buckets of `key`.
    #[inline]
    pub fn prefetch(&self, key: u32, choices: Choices) {
        let (places, _) = self.places(key);
        places[..choices as usize].iter().for_each(|place| prefetch(&self.buckets[*place]));
    }

    /// Adds `keys` → `slot`, each to the emptiest of its buckets, and says what became of it. Where all are full, the entry
    /// of a page that is forgotten but whose slot is not free yet gives way: a URL that is visited again and again would fill
    /// its buckets with them.
    ///
    /// Stale entries are cleared before anything is decided by what is left: what becomes of a key hangs on live entries
    /// alone, not on when a bucket was last cleaned or what an abort has left in it.
    pub fn insert(
        &mut self,
        keys: impl Iterator<Item = (u32, Choices)>,
        slot: Slot,
        generations: &Generations,
        mut each: impl FnMut(Inserted),
    ) {
        self.cpu.run(
            #[inline(always)]
            || {
                for (key, choices) in keys {
                    each(self.insert_one(key, choices, slot, generations));
                }
            },
        );
    }

    #[inline(always)]
    fn insert_one(&mut self, key: u32, choices: Choices, slot: Slot, generations: &Generations) -> Inserted {
        let (places, tag) = self.places(key);
        let places = &places[..choices as usize];
        let (mut most, mut free, mut emptiest) = (0, 0, places[0]);
        for &place in places {
            let free_here = self.clear_stale(place, generations);
            let count = free_here.count_ones();
            if count > most {
                (most, free, emptiest) = (count, free_here, place);
            }
        }
        let entry = tag | generations.of(slot) << self.id_bits | slot.0;
        if free != 0 {
            self.buckets[emptiest][free.trailing_zeros() as usize % BUCKET_ENTRIES] = entry;
            return Inserted::Free;
        }
        let id_mask = self.id_mask();
        for &place in places {
            let bucket = &mut self.buckets[place];
            if let Some(at) = bucket.iter().position(|entry| generations.is_forgotten(Slot(entry & id_mask))) {
                let old = std::mem::replace(&mut bucket[at], entry);
                return Inserted::Over(Overwritten { bucket: place as u32, at: at as u8, old });
            }
        }
        Inserted::Lost
    }

    /// Undoes an insert that took another entry's place.
    pub fn restore(&mut self, overwritten: Overwritten) {
        self.buckets[overwritten.bucket as usize][usize::from(overwritten.at)] = overwritten.old;
    }

    /// Clears the stale entries of a bucket. Bit `i` of the result is set where place `i` is free then.
    #[inline(always)]
    fn clear_stale(&mut self, place: usize, generations: &Generations) -> u32 {
        let bucket = &mut self.buckets[place];
        // An empty entry is not stale: slot 0 is never flipped.
        let mut stale = lanes::differing(self.cpu, bucket, &generations.generation, self.id_bits);
        let free = lanes::equal(self.cpu, bucket, u32::MAX, 0) | stale;
        while stale != 0 {
            bucket[stale.trailing_zeros() as usize % BUCKET_ENTRIES] = 0;
            stale &= stale - 1;
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

    fn insert(table: &mut Table, key: u32, choices: Choices, slot: Slot, generations: &Generations) -> Inserted {
        let mut inserted = None;
        table.insert([(key, choices)].into_iter(), slot, generations, |of_key| inserted = Some(of_key));
        inserted.expect("one key was given")
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
                let stamp = (round * num_slots as u64 + u64::from(slot.0)) * 64;
                let key = |number: usize| (mix(stamp + number as u64) >> 32) as u32;
                for number in 0..KEYS {
                    let inserted =
                        insert(&mut table, key(number), choices(number), slot, &generations) != Inserted::Lost;
                    lost[usize::from(number >= BANDS)] += f64::from(u8::from(!inserted));
                    let mut found = false;
                    table.probe([(key(number), choices(number))].into_iter(), |candidate| found |= candidate == slot);
                    assert!(found || !inserted);
                }
            }
        }
        println!("lost {lost:?} of {num_slots} pages");
        [lost[0] / (num_slots * BANDS) as f64, lost[1] / (num_slots * (KEYS - BANDS)) as f64]
    }

    #[test]
    fn a_full_table_loses_next_to_nothing() {
        let [bands, others] = turn_over(50_000, 1);
        assert!(bands < 5e-4, "{bands}");
        assert!(others < 5e-5, "{others}");
    }

    #[test]
    fn an_entry_of_a_forgotten_page_gives_way_and_comes_back() {
        let mut table = Table::new(50_000, KEYS);
        let mut generations = Generations::new(50_000);
        let places = 2 * BUCKET_ENTRIES as u32;
        for slot in (1..=places).map(Slot) {
            assert_eq!(insert(&mut table, 7, Choices::Two, slot, &generations), Inserted::Free);
        }
        assert_eq!(insert(&mut table, 7, Choices::Two, Slot(places + 1), &generations), Inserted::Lost);
        let found = |table: &Table| {
            let mut found = Vec::new();
            table.probe([(7, Choices::Two)].into_iter(), |slot| found.push(slot.0));
            found.sort_unstable();
            found
        };
        assert_eq!(found(&table), (1..=places).collect::<Vec<_>>());
        generations.set_forgotten(Slot(5), true);
        let Inserted::Over(overwritten) = insert(&mut table, 7, Choices::Two, Slot(places + 1), &generations) else {
            panic!("slot 5 is forgotten");
        };
        assert_eq!(found(&table), (1..=places + 1).filter(|slot| *slot != 5).collect::<Vec<_>>());
        table.restore(overwritten);
        assert_eq!(found(&table), (1..=places).collect::<Vec<_>>());
        generations.set_forgotten(Slot(5), false);
        assert_eq!(insert(&mut table, 7, Choices::Two, Slot(places + 2), &generations), Inserted::Lost);
        // Freed, its entry is stale and cleared.
        generations.flip(Slot(5));
        assert_eq!(insert(&mut table, 7, Choices::Two, Slot(places + 2), &generations), Inserted::Free);
    }

    #[test]
    fn a_window_that_turned_over_loses_few_bands_and_hardly_a_digest() {
        let [bands, others] = turn_over(20_000, 5);
        assert!(bands < 0.025, "{bands}");
        assert!(others < 1e-3, "{others}");
    }
}
