//! The page slots: one row of bits and one record of 32 bytes each, linked in exact order of recency.
//!
//! ```text
//! slots 2i and 2i + 1   row │ row │ record, record      192 bytes in three cache lines, with rows of 64 bytes
//! ```
//!
//! Both parts of a slot are near each other, so that the processor translates one address for them, and neither is in
//! more lines than it fills.

use super::Slot;
use super::prefetch::prefetch;
use super::zeroed::{Populate, Zeroed};

/// No slot: the end of the list.
const NIL: u32 = 0;
/// The `newer` link of a slot that holds no live page.
const DEAD: u32 = u32::MAX;

/// 64-bit words of a record.
const RECORD_WORDS: usize = 4;

/// What is kept of a page beside its bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record {
    /// Digest of its words (or of its text, if short).
    pub digest: u64,
    /// Packed origin; see [`super::Index::origin`].
    pub(super) origin: u64,
    /// Half of its URL key, never 0 if it has one.
    pub(super) url_check: u32,
    /// Event time in seconds, or [`super::NO_TIME`].
    pub event_time: u32,
}

/// A slot's place in the order of recency.
#[derive(Debug, Clone, Copy)]
struct Links {
    /// The page used next after it, or `NIL`; `DEAD` if there is no live page here.
    newer: u32,
    /// The page used last before it, or `NIL`; in a free slot the next free one.
    older: u32,
}

/// Two halves of a word.
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// All page slots.
#[derive(Debug)]
pub struct Pages {
    words: Zeroed<u64>,
    num_slots: usize,
    row_words: usize,
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
    /// Slots 1 to `num_slots` − 1, with `row_words` 64-bit words of bits each. Memory that is never
    /// touched is never resident.
    pub fn new(num_slots: usize, row_words: usize) -> Self {
        Self {
            words: Zeroed::new(Self::num_bytes(num_slots, row_words) / 8),
            num_slots,
            row_words,
            newest: NIL,
            oldest: NIL,
            len: 0,
            freed: NIL,
            num_freed: 0,
            untouched: 1,
        }
    }

    /// Bytes of so many slots.
    pub fn num_bytes(num_slots: usize, row_words: usize) -> usize {
        num_slots.div_ceil(2) * 2 * (row_words + RECORD_WORDS) * 8
    }

    /// What makes the first so many slots resident.
    pub fn populate(&self, num_pages: usize) -> Populate {
        self.words.populate(num_pages.saturating_mul(self.row_words + RECORD_WORDS))
    }

    /// Where the row of a slot begins.
    #[inline]
    fn row_at(&self, slot: Slot) -> usize {
        let (pair, second) = (slot.0 as usize / 2, slot.0 as usize % 2);
        pair * 2 * (self.row_words + RECORD_WORDS) + second * self.row_words
    }

    /// Where the record of a slot begins.
    #[inline]
    fn record_at(&self, slot: Slot) -> usize {
        let (pair, second) = (slot.0 as usize / 2, slot.0 as usize % 2);
        pair * 2 * (self.row_words + RECORD_WORDS) + 2 * self.row_words + second * RECORD_WORDS
    }

    #[inline]
    fn links(&self, slot: Slot) -> Links {
        let (newer, older) = halves(self.words[self.record_at(slot) + 3]);
        Links { newer, older }
    }

    #[inline]
    fn set_links(&mut self, slot: Slot, links: Links) {
        let at = self.record_at(slot) + 3;
        self.words[at] = word(links.newer, links.older);
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
        self.num_freed + self.num_slots - self.untouched as usize
    }

    /// One past the highest slot ever used.
    pub fn num_used_slots(&self) -> u32 {
        self.untouched
    }

    /// The live page in `slot`.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<Record> {
        let is_live = slot.0 < self.untouched && self.links(slot).newer != DEAD;
        is_live.then(|| {
            let at = self.record_at(slot);
            let (url_check, event_time) = halves(self.words[at + 2]);
            Record { digest: self.words[at], origin: self.words[at + 1], url_check, event_time }
        })
    }

    /// Changes the event time of the page in `slot`, which is live.
    pub fn set_time(&mut self, slot: Slot, event_time: u32) {
        let at = self.record_at(slot) + 2;
        self.words[at] = word(halves(self.words[at]).0, event_time);
    }

    /// The bits of the page in `slot`.
    #[inline]
    pub fn bits(&self, slot: Slot) -> &[u64] {
        let start = self.row_at(slot);
        &self.words[start..start + self.row_words]
    }

    /// Brings in the record of `slot`.
    #[inline]
    pub fn prefetch_record(&self, slot: Slot) {
        if let Some(first) = self.words.get(self.record_at(slot)) {
            prefetch(first);
        }
    }

    /// Brings in the record of the page that is least recently used once two have gone.
    #[inline]
    pub fn prefetch_least_recent(&self) {
        let newer = |slot: Slot| Slot(self.links(slot).newer);
        if self.len > 2 {
            self.prefetch_record(newer(newer(Slot(self.oldest))));
        }
    }

    /// Brings in the bits of `slot`.
    #[inline]
    pub fn prefetch_bits(&self, slot: Slot) {
        self.bits(slot).chunks(8).for_each(|line| prefetch(&line[0]));
    }

    /// Puts a page in a free slot, as the most recent one. `None` if no slot is free.
    pub fn insert(&mut self, record: &Record, bits: &[u64]) -> Option<Slot> {
        let slot = if self.freed != NIL {
            let slot = Slot(self.freed);
            self.freed = self.links(slot).older;
            self.num_freed -= 1;
            slot
        } else if (self.untouched as usize) < self.num_slots {
            self.untouched += 1;
            Slot(self.untouched - 1)
        } else {
            return None;
        };
        let at = self.record_at(slot);
        let Record { digest, origin, url_check, event_time } = *record;
        self.words[at..at + 3].copy_from_slice(&[digest, origin, word(url_check, event_time)]);
        let start = self.row_at(slot);
        self.words[start..start + self.row_words].copy_from_slice(bits);
        self.link_front(slot);
        self.len += 1;
        Some(slot)
    }

    /// Takes a page out of the order of recency and marks it dead; its slot is not free yet. Returns
    /// the page it stood before.
    pub fn remove(&mut self, slot: Slot) -> Option<Slot> {
        let before = self.unlink(slot);
        self.set_links(slot, Links { newer: DEAD, older: NIL });
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
        debug_assert_eq!(self.links(slot).newer, DEAD, "only removed pages are freed");
        self.set_links(slot, Links { newer: DEAD, older: self.freed });
        self.freed = slot.0;
        self.num_freed += 1;
    }

    /// Takes a page out of the order of recency. Returns the page it stood before.
    pub fn unlink(&mut self, slot: Slot) -> Option<Slot> {
        let Links { newer, older } = self.links(slot);
        self.join(newer, older);
        (older != NIL).then_some(Slot(older))
    }

    /// Puts an unlinked page first in the order of recency.
    pub fn link_front(&mut self, slot: Slot) {
        self.link_before(slot, (self.newest != NIL).then_some(Slot(self.newest)));
    }

    /// Puts an unlinked page before another in the order of recency; `None` puts it last.
    pub fn link_before(&mut self, slot: Slot, before: Option<Slot>) {
        let older = before.map_or(NIL, |slot| slot.0);
        let newer = before.map_or(self.oldest, |slot| self.links(slot).newer);
        self.join(newer, slot.0);
        self.join(slot.0, older);
        self.set_links(slot, Links { newer, older });
    }

    /// Makes two slots neighbours in the order of recency; `NIL` is either end of it.
    fn join(&mut self, newer: u32, older: u32) {
        match newer {
            NIL => self.newest = older,
            slot => self.set_links(Slot(slot), Links { older, ..self.links(Slot(slot)) }),
        }
        match older {
            NIL => self.oldest = newer,
            slot => self.set_links(Slot(slot), Links { newer, ..self.links(Slot(slot)) }),
        }
    }

    /// The least recently used page.
    pub fn least_recent(&self) -> Option<Slot> {
        (self.oldest != NIL).then_some(Slot(self.oldest))
    }

    /// From the most to the least recently used.
    pub fn by_recency(&self) -> impl Iterator<Item = Slot> + '_ {
        let link = |at: u32| (at != NIL).then_some(Slot(at));
        std::iter::successors(link(self.newest), move |slot| link(self.links(*slot).older))
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
                        let slot = pages.insert(&Record { digest: stamp as u64, ..Record::default() }, &[0]).expect("room");
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
