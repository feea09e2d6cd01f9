//! `max_memory` → the sizes of everything the index allocates, before any of it is.

use super::lanes::BUCKET_ENTRIES;
use super::names::NamesRing;
use super::pages::Pages;
use super::table::{MAX_ID_BITS, Table};
use crate::config::Window;
use crate::sketch::Shape;

/// Keys of a page beside its bands: digest and URL.
const KEYS_BESIDE_BANDS: usize = 2;

/// Page slots kept free for the changes of open transactions: a share of all, within these. The smallest is two
/// batches; beside a million pages remembered there is room for
/// 5,200, and costs less than a byte of each.
const OVERLAY_SHARE: f64 = 1.0 / 192.0;
const MIN_OVERLAY_SLOTS: usize = 2_048;
const MAX_OVERLAY_SLOTS: usize = 65_536;

/// What the parts may take beyond their shares by being rounded up.
const ROUNDING_BYTES: f64 = 4096.0 + 256.0;

/// Changes that an open transaction may make for each overlay slot: page, insert, evict, touch, age.
const CHANGES_PER_OVERLAY_SLOT: usize = 7;
const CHANGE_BYTES: usize = size_of::<super::journal::Change>();

/// The sizes of an index, fixed at start.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Page slots, the unused slot 0 included.
    pub num_slots: usize,
    /// Most pages remembered: the slots less those for open transactions.
    pub capacity_pages: usize,
    /// Changes that open transactions may hold.
    pub max_changes: usize,
    /// 64-bit words of bits a page.
    pub bit_words: usize,
    /// Keys a page has in the table.
    pub keys_per_page: usize,
    /// Most pages remembered of one host.
    pub max_pages_per_host: usize,
    /// Bytes of the index without names.
    pub index_bytes: usize,
    /// Bytes of the ring of names, without what it costs per slot.
    pub names_bytes: usize,
}

impl Plan {
    /// The largest index within `window.max_memory`.
    pub fn new(window: &Window, shape: &Shape) -> Self {
        let keys_per_page = shape.bands + KEYS_BESIDE_BANDS;
        let names_share = window.names_share.clamp(0.0, 1.0);
        let total = window.max_memory as f64;
        let quota = window.max_share_per_host < 1.0;
        let names_per_slot = if names_share > 0.0 { NamesRing::BYTES_PER_SLOT as f64 } else { 0.0 };
        let per_slot = 32.0
            + (shape.bit_words() * 8) as f64
            + (keys_per_page * 4) as f64 / super::table::LOAD
            + 0.25
            + if quota { 2.0 } else { 0.0 };
        // The overlay's journal is paid for out of the index's share.
        let budget = total * (1.0 - names_share) - ROUNDING_BYTES - if quota { 262_144.0 } else { 0.0 };
        let overlay = |slots: f64| (slots * OVERLAY_SHARE).clamp(MIN_OVERLAY_SLOTS as f64, MAX_OVERLAY_SLOTS as f64);
        let journal = |slots: f64| overlay(slots) * (CHANGES_PER_OVERLAY_SLOT * CHANGE_BYTES) as f64;
        let first = budget / per_slot;
        let slots = ((budget - journal(first)) / per_slot).max(MIN_OVERLAY_SLOTS as f64 * 2.0);
        let num_slots = (slots as usize).min(1 << MAX_ID_BITS);
        let overlay = overlay(num_slots as f64) as usize;
        let capacity_pages = num_slots - 1 - overlay;
        let names_bytes = (total * names_share - names_per_slot * num_slots as f64).max(0.0) as usize;
        Self {
            num_slots,
            capacity_pages,
            max_changes: overlay * CHANGES_PER_OVERLAY_SLOT,
            bit_words: shape.bit_words(),
            keys_per_page,
            max_pages_per_host: ((capacity_pages as f64 * window.max_share_per_host) as usize).max(1),
            index_bytes: Pages::num_bytes(num_slots, shape.bit_words())
                + Table::num_buckets(num_slots, keys_per_page) * BUCKET_ENTRIES * 4
                + num_slots.div_ceil(4)
                + overlay * CHANGES_PER_OVERLAY_SLOT * CHANGE_BYTES
                + if quota { num_slots * 2 + 262_144 } else { 0 },
            names_bytes,
        }
    }

    /// The largest index within `window.max_memory` that `num_pages` could ever fill: a small input
    /// need not touch memory for a large one.
    pub fn for_at_most(num_pages: u64, window: &Window, shape: &Shape) -> Self {
        let plan = Self::new(window, shape);
        if num_pages >= plan.capacity_pages as u64 {
            return plan;
        }
        // A little over what is needed: the fixed parts do not shrink with the share.
        let slots = num_pages as f64 * 1.01 + 2.0 * MAX_OVERLAY_SLOTS as f64;
        let share = slots / plan.num_slots as f64;
        let max_memory = (window.max_memory as f64 * share.min(1.0)) as u64;
        Self::new(&Window { max_memory: max_memory.min(window.max_memory), ..window.clone() }, shape)
    }

    /// Pages that open transactions may add before one must commit.
    pub fn overlay_pages(&self) -> usize {
        self.num_slots - 1 - self.capacity_pages
    }

    /// Bytes that a page slot costs, names left out.
    pub fn bytes_per_page(&self) -> f64 {
        self.index_bytes as f64 / self.capacity_pages as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_plan_keeps_within_the_memory_given() {
        let config = Config::default();
        let shape = Shape::new(&config.sketch);
        for (mebibytes, names_share) in [(8u64, 0.25), (64, 0.25), (64, 0.0), (2048, 0.0), (4096, 0.25), (16_384, 0.5)]
        {
            let window = Window { max_memory: mebibytes << 20, names_share, ..config.window.clone() };
            let plan = Plan::new(&window, &shape);
            let bytes = plan.index_bytes + plan.names_bytes + if names_share > 0.0 { plan.num_slots * 4 } else { 0 };
            assert!(bytes as u64 <= window.max_memory, "{mebibytes} MiB: {bytes} bytes");
            assert!(bytes as f64 >= window.max_memory as f64 * 0.98, "{mebibytes} MiB: {bytes} bytes");
        }
        for pages in [0, 1, 1000, 100_000, 5_000_000, u64::MAX] {
            let plan = Plan::for_at_most(pages, &config.window, &shape);
            let most = Plan::new(&config.window, &shape).capacity_pages as u64;
            assert!(plan.capacity_pages as u64 >= pages.min(most), "{pages}");
        }
        let window = Window { max_memory: 2 << 30, names_share: 0.0, ..config.window };
        let plan = Plan::new(&window, &shape);
        assert!(plan.capacity_pages >= 13_400_000, "{}", plan.capacity_pages);
        assert!(plan.bytes_per_page() <= 160.0, "{}", plan.bytes_per_page());
    }
}
