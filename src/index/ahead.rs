//! Looking ahead: while a page is judged, the memory that the next ones will read is on its way.
//!
//! A page reads 32 buckets of the table and the records and bits that their tags point to, each of them a
//! line of main memory at random. One after the other that would be most of its time. Two glances bring them in:
//!
//! 1. [`Index::expect_buckets`]: where its keys are, which follows from the keys alone.
//! 2. [`Index::expect_candidates`], some pages later: what those buckets, here by now, point to.
//!
//! Neither changes anything, so a verdict does not depend on them: the judge reads everything again.

use super::judged::Sketched;
use super::table::Choices;
use super::{Index, Slot, digest_key, url_table_key};
use crate::sketch::BandKey;

/// Pages between [`Index::expect_buckets`] and judging.
pub const BUCKETS_AHEAD: usize = 10;

/// Pages between [`Index::expect_candidates`] and judging.
pub const CANDIDATES_AHEAD: usize = 4;

/// Candidates of a page that are brought in, at most.
const MAX_EXPECTED: usize = 64;

const _: () = assert!(CANDIDATES_AHEAD < BUCKETS_AHEAD);

impl Index {
    /// Both glances at pages of a batch, when page number `at` is about to be judged.
    #[inline]
    pub fn look_ahead<'a>(&self, at: usize, page: impl Fn(usize) -> Option<Sketched<'a>>) {
        if let Some(page) = page(at + BUCKETS_AHEAD) {
            self.expect_buckets(&page);
        }
        if let Some(page) = page(at + CANDIDATES_AHEAD) {
            self.expect_candidates(&page);
        }
    }

    /// Brings in the buckets of a page that comes soon, and the slot that it may be put in.
    pub fn expect_buckets(&self, page: &Sketched) {
        self.expect_keys(if page.short { &[] } else { page.bands }, page.digest, page.url_key);
        // As many pages from now these slots are free, and the first ones free are the first ones used.
        if let Some((_, slot)) = self.retired.get(BUCKETS_AHEAD) {
            self.pages.prefetch_record(*slot);
            self.pages.prefetch_bits(*slot);
        }
        self.pages.prefetch_least_recent();
    }

    /// Brings in the buckets of these keys.
    pub fn expect_keys(&self, bands: &[BandKey], digest: u64, url_key: Option<u64>) {
        let names = names(digest, url_key);
        bands_of(bands).chain(names).for_each(|(key, choices)| self.table.prefetch(key, choices));
    }

    /// Brings in what the buckets of a page point to, once they are here.
    pub fn expect_candidates(&self, page: &Sketched) {
        let bands = if page.short { &[] } else { page.bands };
        self.expect(bands_of(bands), |slot| self.pages.prefetch_bits(slot));
        self.expect(names(page.digest, page.url_key), |slot| self.pages.prefetch_record(slot));
    }

    /// First all slots and then all lines: one after the other, each would wait for the address of the last.
    #[inline]
    fn expect(&self, keys: impl Iterator<Item = (u32, Choices)>, prefetch: impl Fn(Slot)) {
        let mut slots = [Slot(0); MAX_EXPECTED];
        let mut num_slots = 0;
        self.table.probe(keys, |slot| {
            slots[num_slots % MAX_EXPECTED] = slot;
            num_slots += 1;
        });
        slots[..num_slots.min(MAX_EXPECTED)].iter().for_each(|slot| prefetch(*slot));
    }
}

/// The keys of a page's bands.
#[inline]
fn bands_of(bands: &[BandKey]) -> impl Iterator<Item = (u32, Choices)> {
    bands.iter().map(|band| (band.0, Choices::Two))
}

/// The other keys that a page is looked up by.
#[inline]
fn names(digest: u64, url_key: Option<u64>) -> impl Iterator<Item = (u32, Choices)> {
    let keys = [Some(digest_key(digest)), url_key.map(url_table_key)];
    keys.into_iter().flatten().map(|key| (key, Choices::Four))
}
