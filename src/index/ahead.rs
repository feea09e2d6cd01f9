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
use super::{Index, digest_key, url_table_key};

/// Pages between [`Index::expect_buckets`] and judging.
pub const BUCKETS_AHEAD: usize = 10;

/// Pages between [`Index::expect_candidates`] and judging.
pub const CANDIDATES_AHEAD: usize = 4;

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
        each_key(page, |key, choices| self.table.prefetch(key, choices));
        // As many pages from now these slots are free, and the first ones free are the first ones used.
        if let Some((_, slot)) = self.retired.get(BUCKETS_AHEAD) {
            self.pages.prefetch_record(*slot);
            self.pages.prefetch_bits(*slot);
        }
    }

    /// Brings in what the buckets of a page point to, once they are here.
    pub fn expect_candidates(&self, page: &Sketched) {
        each_key(page, |key, choices| match choices {
            Choices::Two => self.table.probe(key, choices, |slot| self.pages.prefetch_bits(slot)),
            Choices::Four => self.table.probe(key, choices, |slot| self.pages.prefetch_record(slot)),
        });
    }
}

/// Calls `each` with every key that the page is looked up by.
#[inline]
fn each_key(page: &Sketched, mut each: impl FnMut(u32, Choices)) {
    if !page.short {
        page.bands.iter().for_each(|band| each(band.0, Choices::Two));
    }
    each(digest_key(page.digest), Choices::Four);
    if let Some(url_key) = page.url_key {
        each(url_table_key(url_key), Choices::Four);
    }
}
