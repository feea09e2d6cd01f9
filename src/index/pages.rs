//! The page slots: one record of 32 bytes and one row of bits each, linked in exact order of recency.

use super::Slot;
use super::prefetch::prefetch;
use super::zeroed::{Plain, Zeroed};

/// No slot: the end of the list.
const NIL: u32 = 0;
/// The `newer` link of a slot that holds no live page.
const DEAD: u32 = u32::MAX;

/// What is kept of a page beside its bits.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Record {
    /// Digest of its words (or of its text, if short).
    pub digest: u64,
    /// Packed origin; see [`super::Index::origin`].
    pub(super) origin: u64,
    /// Half of its URL key, never 0 if it has one.
    pub(super) url_check: u32,
    /// Event time in seconds, or [`super::NO_TIME`].
    pub event_time: u32,
    /// The page used next after it, or `NIL`; `DEAD` if there is no live page here.
    newer: u32,
    /// The page used last before it, or `NIL`; in a free slot the next free one.
    older: u32,
}

const _: () = assert!(size_of::<Record>() == 32);

// SAFETY: integers, for all of which zero is a value.
unsafe impl Plain for Record {}

impl Record {
    pub(super) fn new(digest: u64, origin: u64, url_check: u32, event_time: u32) -> Self {
        Self { digest, origin, url_check, event_time, newer: NIL, older: NIL }
    }
}

/// All page slots.
#[derive(Debug)]
pub struct Pages {
    records: Zeroed<Record>,
    bits: Zeroed<u64>,
    bit_words: usize,
    newest: u32,
    oldest: u32,
    len: usize,
    /// Head of the list of freed slots.
    freed: u32,
    num_freed: usize,
    /// Slots from here on were never used.
    untouched: u32,
}

impl Pages {
    /// Slots 1 to `num_slots` − 1, with `bit_words` 64-bit words of bits each. Memory that is never
    /// touched is never resident.
    pub fn new(num_slots: usize, bit_words: usize) -> Self {
        Self {
            records: Zeroed::new(num_slots),
            bits: Zeroed::new(num_slots * bit_words),
            bit_words,
            newest: NIL,
            oldest: NIL,
            len: 0,
            freed: NIL,
            num_freed: 0,
            untouched: 1,
        }
    }

    /// Live pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is no page remembered?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slots that a page could be put in now.
    pub fn num_free(&self) -> usize {
        self.num_freed + self.records.len() - self.untouched as usize
    }

    /// One past the highest slot ever used.
    pub fn num_used_slots(&self) -> u32 {
        self.untouched
    }

    /// The live page in `slot`.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&Record> {
        self.records.get(slot.0 as usize).filter(|record| slot.0 < self.untouched && record.newer != DEAD)
    }

    /// The live page in `slot`, to be changed.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Record> {
        let untouched = self.untouched;
        self.records.get_mut(slot.0 as usize).filter(|record| slot.0 < untouched && record.newer != DEAD)
    }

    /// The bits of the page in `slot`.
    #[inline]
    pub fn bits(&self, slot: Slot) -> &[u64] {
        let start = slot.0 as usize * self.bit_words;
        &self.bits[start..start + self.bit_words]
    }

    /// Brings in the record of `slot`.
    #[inline]
    pub fn prefetch_record(&self, slot: Slot) {
        if let Some(record) = self.records.get(slot.0 as usize) {
            prefetch(record);
        }
    }

    /// Brings in the bits of `slot`.
    #[inline]
    pub fn prefetch_bits(&self, slot: Slot) {
        self.bits(slot).chunks(8).for_each(|line| prefetch(&line[0]));
    }

    /// Puts a page in a free slot, as the most recent one. `None` if no slot is free.
    pub fn insert(&mut self, record: Record, bits: &[u64]) -> Option<Slot> {
        let slot = if self.freed != NIL {
            let slot = Slot(self.freed);
            self.freed = self.record(slot).older;
            self.num_freed -= 1;
            slot
        } else if (self.untouched as usize) < self.records.len() {
            self.untouched += 1;
            Slot(self.untouched - 1)
        } else {
            return None;
        };
        self.records[slot.0 as usize] = record;
        let start = slot.0 as usize * self.bit_words;
        self.bits[start..start + self.bit_words].copy_from_slice(bits);
        self.link_front(slot);
        self.len += 1;
        Some(slot)
    }

    /// Takes a page out of the order of recency and marks it dead; its slot is not free yet. Returns
    /// the page it stood before.
    pub fn remove(&mut self, slot: Slot) -> Option<Slot> {
        let before = self.unlink(slot);
        self.records[slot.0 as usize].newer = DEAD;
        self.len -= 1;
        before
    }

    /// Undoes [`Pages::remove`].
    pub fn restore(&mut self, slot: Slot, before: Option<Slot>) {
        self.link_before(slot, before);
        self.len += 1;
    }

    /// Makes a removed page's slot free.
    pub fn free(&mut self, slot: Slot) {
        let record = &mut self.records[slot.0 as usize];
        debug_assert_eq!(record.newer, DEAD, "only removed pages are freed");
        record.older = self.freed;
        self.freed = slot.0;
        self.num_freed += 1;
    }

    /// Takes a page out of the order of recency. Returns the page it stood before.
    pub fn unlink(&mut self, slot: Slot) -> Option<Slot> {
        let Record { newer, older, .. } = *self.record(slot);
        match newer {
            NIL => self.newest = older,
            newer => self.records[newer as usize].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.records[older as usize].newer = newer,
        }
        (older != NIL).then_some(Slot(older))
    }

    /// Puts an unlinked page first in the order of recency.
    pub fn link_front(&mut self, slot: Slot) {
        self.link_before(slot, (self.newest != NIL).then_some(Slot(self.newest)));
    }

    /// Puts an unlinked page before another in the order of recency; `None` puts it last.
    pub fn link_before(&mut self, slot: Slot, before: Option<Slot>) {
        let older = before.map_or(NIL, |slot| slot.0);
        let newer = if older == NIL { self.oldest } else { self.records[older as usize].newer };
        match newer {
            NIL => self.newest = slot.0,
            newer => self.records[newer as usize].older = slot.0,
        }
        match older {
            NIL => self.oldest = slot.0,
            older => self.records[older as usize].newer = slot.0,
        }
        let record = &mut self.records[slot.0 as usize];
        (record.newer, record.older) = (newer, older);
    }

    /// The least recently used page.
    pub fn least_recent(&self) -> Option<Slot> {
        (self.oldest != NIL).then_some(Slot(self.oldest))
    }

    /// From the most to the least recently used.
    pub fn by_recency(&self) -> impl Iterator<Item = Slot> + '_ {
        let link = |at: u32| (at != NIL).then_some(Slot(at));
        std::iter::successors(link(self.newest), move |slot| link(self.record(*slot).older))
    }

    fn record(&self, slot: Slot) -> &Record {
        &self.records[slot.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lru::LruCache;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert,
        Touch(usize),
        EvictLeastRecent,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![3 => Just(Step::Insert), 2 => (0usize..64).prop_map(Step::Touch), 1 => Just(Step::EvictLeastRecent)]
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_crate_lru(steps in proptest::collection::vec(step(), 1..400)) {
            let mut pages = Pages::new(1000, 1);
            let mut model: LruCache<u32, u64> = LruCache::unbounded();
            for (stamp, step) in steps.iter().enumerate() {
                match step {
                    Step::Insert => {
                        let slot = pages.insert(Record::new(stamp as u64, 0, 0, 0), &[0]).expect("room");
                        model.put(slot.0, stamp as u64);
                    }
                    Step::Touch(nth) => {
                        let touched = pages.by_recency().nth(*nth);
                        if let Some(slot) = touched {
                            pages.unlink(slot);
                            pages.link_front(slot);
                            model.get(&slot.0);
                        }
                    }
                    Step::EvictLeastRecent => {
                        let least = pages.least_recent();
                        prop_assert_eq!(least.map(|slot| slot.0), model.pop_lru().map(|(slot, _)| slot));
                        if let Some(slot) = least {
                            pages.remove(slot);
                            pages.free(slot);
                        }
                    }
                }
                prop_assert_eq!(pages.len(), model.len());
                let order: Vec<u32> = pages.by_recency().map(|slot| slot.0).collect();
                prop_assert_eq!(order, model.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
            }
        }
    }
}
