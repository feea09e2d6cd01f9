//! The ring of ids and URLs: who a remembered page is, for people.
//!
//! A page's names are written once, at the ring's head; when the ring is full the oldest give way
//! and read as null from then on, while the page's position stays known. Costs 4 bytes a page slot and,
//! in the ring, 12 bytes and the names, rounded up to 8.

use super::Slot;
use super::zeroed::{Populate, Zeroed};

/// The ring's unit, in bytes.
const UNIT: usize = 8;
/// Bytes before the names: the page's packed origin and two lengths.
const HEADER_BYTES: usize = 12;
/// Names longer than this together are not kept.
const MAX_NAME_BYTES: usize = 4096;
/// Bytes of a page in the ring, if its URL is of ordinary length.
const USUAL_BYTES: usize = 96;
/// A length that means "none".
const NONE: u16 = u16::MAX;

/// The names of the pages remembered most recently.
#[derive(Debug)]
pub struct NamesRing {
    ring: Zeroed<u8>,
    /// Units ever written: where the next names go, modulo the ring.
    head: u64,
    /// Where each page slot's names were written, in units, modulo 2³².
    written_at: Zeroed<u32>,
}

/// A page's names as read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Named<'a> {
    /// The producer's own name for the page.
    pub id: Option<&'a str>,
    /// The page's address.
    pub url: Option<&'a str>,
}

impl NamesRing {
    /// A ring of `ring_bytes` for `num_slots` page slots; with 0 bytes names are off.
    pub fn new(ring_bytes: usize, num_slots: usize) -> Self {
        let units = (ring_bytes / UNIT).min(u32::MAX as usize / 2);
        let on = units * UNIT >= MAX_NAME_BYTES + HEADER_BYTES + UNIT;
        Self {
            ring: Zeroed::new(if on { units * UNIT } else { 0 }),
            head: 1,
            written_at: Zeroed::new(if on { num_slots } else { 0 }),
        }
    }

    /// What makes the ring resident as far as the names of so many pages will come to fill it.
    pub fn populate(&self, num_pages: usize) -> Populate {
        self.ring.populate(num_pages.saturating_mul(USUAL_BYTES))
    }

    /// Bytes that one page slot costs beside its share of the ring.
    pub const BYTES_PER_SLOT: usize = 4;

    /// Writes the names of the page in `slot`.
    pub fn write(&mut self, slot: Slot, packed_origin: u64, names: Named) {
        let lengths = [names.url, names.id].map(|name| name.map_or(0, str::len));
        if self.ring.is_empty() || lengths[0] + lengths[1] > MAX_NAME_BYTES {
            return;
        }
        let need = (HEADER_BYTES + lengths[0] + lengths[1]).div_ceil(UNIT) as u64;
        let capacity = (self.ring.len() / UNIT) as u64;
        let left = capacity - self.head % capacity;
        if left < need {
            self.head += left;
        }
        let start = (self.head % capacity) as usize * UNIT;
        let mut at = start;
        let mut put = |bytes: &[u8]| {
            self.ring[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&packed_origin.to_le_bytes());
        for name in [names.url, names.id] {
            put(&name.map_or(NONE, |name| name.len() as u16).to_le_bytes());
        }
        for name in [names.url, names.id].into_iter().flatten() {
            put(name.as_bytes());
        }
        self.written_at[slot.0 as usize] = self.head as u32;
        self.head += need;
    }

    /// The names of the page in `slot` with this origin, where they have not been overwritten.
    pub fn read(&self, slot: Slot, packed_origin: u64) -> Named<'_> {
        let Some(&written_at) = self.written_at.get(slot.0 as usize) else {
            return Named::default();
        };
        let capacity = (self.ring.len() / UNIT) as u64;
        let age = u64::from((self.head as u32).wrapping_sub(written_at));
        if age == 0 || age > capacity || age > self.head {
            return Named::default();
        }
        let start = ((self.head - age) % capacity) as usize * UNIT;
        let entry = &self.ring[start..];
        if entry.len() < HEADER_BYTES || entry[..8] != packed_origin.to_le_bytes() {
            return Named::default();
        }
        let length = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let mut rest = &entry[HEADER_BYTES..];
        let mut take = |length: u16| {
            if length == NONE {
                return None;
            }
            let (name, after) = rest.split_at_checked(usize::from(length))?;
            rest = after;
            std::str::from_utf8(name).ok()
        };
        let url = take(length(8));
        Named { url, id: take(length(10)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_until_overwritten() {
        let mut ring = NamesRing::new(8192, 1000);
        let url = |i: u32| format!("https://example.com/{}/{i}", "x".repeat(i as usize % 50));
        let mut written = Vec::new();
        for i in 0..1000u32 {
            let url = url(i);
            let id = (i % 3 == 0).then_some("id");
            ring.write(Slot(i), u64::from(i) << 49 | 7, Named { id, url: Some(&url) });
            written.push((url, id));
            let mut live = 0;
            for (past, (url, id)) in written.iter().enumerate().rev() {
                let named = ring.read(Slot(past as u32), (past as u64) << 49 | 7);
                if named == Named::default() {
                    break;
                }
                assert_eq!(named, Named { id: *id, url: Some(url) });
                live += 1;
            }
            assert!(live >= (i as usize + 1).min(80), "{live} at {i}");
        }
        assert_eq!(ring.read(Slot(999), 1), Named::default(), "another origin");
        assert_eq!(ring.read(Slot(0), 7), Named::default(), "long overwritten");
    }

    #[test]
    fn edges() {
        let mut off = NamesRing::new(0, 10);
        off.write(Slot(1), 1, Named { id: None, url: Some("u") });
        assert_eq!(off.read(Slot(1), 1), Named::default());
        let mut ring = NamesRing::new(8192, 10);
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        ring.write(Slot(1), 1, Named { id: None, url: Some(&long) });
        assert_eq!(ring.read(Slot(1), 1), Named::default());
        let most = "x".repeat(MAX_NAME_BYTES);
        for round in 0..20 {
            ring.write(Slot(2), round, Named { id: None, url: Some(&most) });
            assert_eq!(ring.read(Slot(2), round).url, Some(&*most));
        }
        ring.write(Slot(3), 3, Named::default());
        assert_eq!(ring.read(Slot(3), 3), Named::default());
    }
}
