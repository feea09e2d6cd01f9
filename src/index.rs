//! The index: the pages remembered now, in memory that is fixed at start.
//!
//! ```text
//!            key (band, digest, URL)          page slot
//! probe ────▶ table: two buckets of 16 ──────▶ bits (64 bytes) + record (32 bytes) ──▶ verify
//!                                               │                   └ LRU links, event time, origin
//!                                               └─▶ ring of names (id, URL)
//! ```
//!
//! | part | bytes a page slot |
//! | --- | --- |
//! | record: digest 8, origin 8, URL check 4, event time 4, LRU links 8 | 32 |
//! | bits: an odd sketch | 64 |
//! | table: 14 keys (12 bands, digest, URL) of 4 bytes at a load of 0.9 | 62.3 |
//! | generation, and whether it is forgotten | 0.25 |
//!
//! The [`judge`] is the only writer; there are no locks. Changes since the last commit are in a
//! [`journal`], so that a transaction that aborts leaves no trace: a page freed by it keeps its slot until
//! the commit, and one inserted by it is taken out again.

pub mod ahead;
pub mod clock;
pub mod journal;
pub mod judge;
pub mod judged;
pub mod lanes;
pub mod names;
pub mod pages;
pub mod plan;
pub mod prefetch;
pub mod table;
pub mod tally;
pub mod zeroed;

use crate::sketch::BandKey;
use journal::{Change, Journal};
use names::{Named, NamesRing};
use pages::{Pages, Record};
use plan::Plan;
use std::collections::VecDeque;
use table::{Choices, Generations, Inserted, Table};
use tally::{Eviction, Tally};
use zeroed::Populate;

/// The number of a page slot: 1 to the plan's `num_slots` − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Where a page came from: an interned input (topic and partition, or file) and its offset (or line).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Number of the input; below [`Origin::MAX_SOURCES`].
    pub source: u16,
    /// Offset or line; below 2⁴⁸.
    pub offset: u64,
}

impl Origin {
    /// Inputs (topic partitions or files) that one process can tell apart.
    pub const MAX_SOURCES: usize = 1 << 15;
    const OFFSET_BITS: u32 = 48;
    const UPDATED: u64 = 1 << Self::OFFSET_BITS;

    /// One number, with a flag for pages whose first verdict was `updated`.
    fn pack(self, updated: bool) -> u64 {
        debug_assert!(self.offset < 1 << Self::OFFSET_BITS && usize::from(self.source) < Self::MAX_SOURCES);
        u64::from(self.source) << (Self::OFFSET_BITS + 1) | u64::from(updated) << Self::OFFSET_BITS | self.offset
    }

    fn unpack(packed: u64) -> (Self, bool) {
        let origin = Self { source: (packed >> (Self::OFFSET_BITS + 1)) as u16, offset: packed & (Self::UPDATED - 1) };
        (origin, packed & Self::UPDATED != 0)
    }
}

/// Event times in the index: seconds since 1970; 0 means that the page has none and does not age.
pub const NO_TIME: u32 = 0;

/// Records looked at for age with every page judged.
const AGE_SWEEP_SLOTS: u32 = 2;

/// Pages judged between two steps of [`Table::gather`], each of which takes as long as a hundred pages.
const GATHER_EVERY_PAGES: u64 = 64;

/// Salts that keep the three kinds of keys apart in the one table.
const DIGEST_SALT: u64 = 0x6469_6765_7374;
const URL_SALT: u64 = 0x0075_726C;

/// Why a page was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Evicted {
    /// Older than the window.
    Age,
    /// Least recently used, and its place was needed.
    Capacity,
    /// A newer version of the page took its place.
    Replaced,
    /// A tombstone named it.
    Forgotten,
}

impl Evicted {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 4] = [Self::Age, Self::Capacity, Self::Replaced, Self::Forgotten];

    /// The reason's name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Capacity => "capacity",
            Self::Replaced => "replaced",
            Self::Forgotten => "forgotten",
        }
    }
}

/// A page to be remembered.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Where it came from.
    pub origin: Origin,
    /// Was it judged `updated`?
    pub updated: bool,
    /// Event time in seconds, or [`NO_TIME`].
    pub event_time: u32,
    /// Its digest.
    pub digest: u64,
    /// Keyed hash of its normalised URL.
    pub url_key: Option<u64>,
    /// Keyed hash of its host.
    pub host_key: Option<u16>,
    /// A short page has no bands.
    pub short: bool,
    /// Its band keys.
    pub bands: &'a [BandKey],
    /// Its bits.
    pub bits: &'a [u64],
    /// Its names.
    pub names: Named<'a>,
}

/// The remembered pages and the ways to find them.
#[derive(Debug)]
pub struct Index {
    plan: Plan,
    pages: Pages,
    table: Table,
    generations: Generations,
    names: NamesRing,
    journal: Journal,
    /// Hosts of page slots and pages per host, where a quota is set.
    hosts: Option<Hosts>,
    /// Pages judged so far, and those of them whose transactions have committed.
    num_judged: u64,
    num_committed: u64,
    /// Slots of forgotten pages that are not free yet, and the page that forgot them.
    retired: VecDeque<(u64, Slot)>,
}

#[derive(Debug)]
struct Hosts {
    of_slot: Vec<u16>,
    num_pages: Vec<u32>,
    max_pages: u32,
}

impl Index {
    /// An empty index of this size.
    pub fn new(plan: Plan) -> Self {
        let num_slots = plan.num_slots;
        Self {
            pages: Pages::new(num_slots, plan.bit_words),
            table: Table::new(num_slots, plan.keys_per_page),
            generations: Generations::new(num_slots),
            names: NamesRing::new(plan.names_bytes, num_slots),
            journal: Journal::default(),
            hosts: (plan.max_pages_per_host < plan.capacity_pages).then(|| Hosts {
                of_slot: vec![0; num_slots],
                num_pages: vec![0; 1 << 16],
                max_pages: plan.max_pages_per_host as u32,
            }),
            num_judged: 0,
            num_committed: 0,
            retired: VecDeque::new(),
            plan,
        }
    }

    /// The plan that it was made by.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Pages remembered now.
    pub fn num_pages(&self) -> usize {
        self.pages.len()
    }

    /// So many pages are about to be inserted, into an index that has none. What comes back makes the memory for them
    /// resident meanwhile.
    pub fn expect_pages(&mut self, num_pages: usize) -> Vec<Populate> {
        let rest = [self.pages.populate(num_pages), self.names.populate(num_pages)];
        self.table.expect_pages(num_pages).into_iter().chain(rest).collect()
    }

    /// Pages that can still be judged before a transaction must commit.
    pub fn room(&self) -> usize {
        let journal_room = self.plan.max_changes.saturating_sub(self.journal.len()) / (AGE_SWEEP_SLOTS as usize + 5);
        let uncommitted = (self.num_judged - self.num_committed) as usize;
        self.plan.overlay_pages().saturating_sub(uncommitted).min(journal_room)
    }

    /// Begins the next page. The slots of pages forgotten [`Plan::overlay_pages`] pages ago are free from here on: at a
    /// point that the order of pages fixes, whenever their transaction committed, so that verdicts do not depend on
    /// threads and batches. That it has committed is what [`Index::room`] sees to.
    pub fn begin_page(&mut self) {
        self.journal.push(Change::Page);
        self.num_judged += 1;
        let Self { retired, generations, pages, .. } = self;
        while let Some((_, slot)) =
            retired.pop_front_if(|(page, _)| *page + self.plan.overlay_pages() as u64 <= self.num_judged)
        {
            generations.set_forgotten(slot, false);
            generations.flip(slot);
            pages.free(slot);
        }
        if self.num_judged.is_multiple_of(GATHER_EVERY_PAGES) {
            self.table.gather(self.pages.len());
        }
    }

    /// The live page in `slot`, if there is one.
    pub fn record(&self, slot: Slot) -> Option<Record> {
        self.pages.get(slot)
    }

    /// The origin of a record, and whether its first verdict was `updated`.
    pub fn origin(record: Record) -> (Origin, bool) {
        Origin::unpack(record.origin)
    }

    /// The bits of the page in `slot`.
    pub fn bits(&self, slot: Slot) -> &[u64] {
        self.pages.bits(slot)
    }

    /// The names of the live page in `slot`.
    pub fn names(&self, slot: Slot) -> Named<'_> {
        self.pages.get(slot).map_or_else(Named::default, |record| self.names.read(slot, record.origin))
    }

    /// Appends every slot whose page may share a band, live or not: whether it is, is in the record, a line of memory
    /// that most do not deserve. Their bits tell them from those that do.
    pub fn probe_bands(&self, bands: &[BandKey], found: &mut Vec<Slot>) {
        self.table.probe(bands.iter().map(|band| (band.0, Choices::Two)), |slot| found.push(slot));
    }

    /// Appends every live page that has this digest.
    pub fn probe_digest(&self, digest: u64, found: &mut Vec<Slot>) {
        let has_it = |slot: &Slot| self.pages.get(*slot).is_some_and(|record| record.digest == digest);
        self.table.probe([(digest_key(digest), Choices::Four)].into_iter(), |slot| found.push(slot));
        found.retain(has_it);
    }

    /// The live page of this URL.
    pub fn probe_url(&self, url_key: u64) -> Option<Slot> {
        let check = url_check(Some(url_key));
        let mut found = None;
        self.table.probe([(url_table_key(url_key), Choices::Four)].into_iter(), |slot| {
            if self.pages.get(slot).is_some_and(|record| record.url_check == check) {
                found = Some(slot);
            }
        });
        found
    }

    /// Would a page of this host still be within its quota?
    pub fn within_quota(&self, host_key: Option<u16>) -> bool {
        match (&self.hosts, host_key) {
            (Some(hosts), Some(host)) => hosts.num_pages[usize::from(host)] < hosts.max_pages,
            _ => true,
        }
    }

    /// Remembers a page as the most recent one. At capacity the least recently used page goes.
    ///
    /// The caller has made sure of [`Index::room`].
    pub fn insert(&mut self, entry: &Entry, now: Option<u32>, tally: &mut Tally) -> Slot {
        if self.pages.len() >= self.plan.capacity_pages {
            let last = self.pages.least_recent().expect("an index at capacity has a page");
            self.evict(last, Evicted::Capacity, now, tally);
        }
        let packed = entry.origin.pack(entry.updated);
        let record = Record {
            digest: entry.digest,
            origin: packed,
            url_check: url_check(entry.url_key),
            event_time: entry.event_time,
        };
        let slot = self.pages.insert(&record, entry.bits).expect("the caller made sure of room");
        self.journal.push(Change::Insert(slot));
        self.names.write(slot, packed, entry.names);
        if let Some(hosts) = &mut self.hosts {
            hosts.of_slot[slot.0 as usize] = entry.host_key.unwrap_or(0);
        }
        self.count_host(slot, 1);
        let bands = if entry.short { &[] } else { entry.bands };
        let bands = bands.iter().map(|band| (band.0, Choices::Two));
        let others = [Some(digest_key(entry.digest)), entry.url_key.map(url_table_key)];
        let others = others.into_iter().flatten().map(|key| (key, Choices::Four));
        let Self { table, generations, journal, .. } = self;
        table.insert(bands.chain(others), slot, generations, |inserted| match inserted {
            Inserted::Free => {}
            Inserted::Over(overwritten) => journal.push(Change::Overwrite(overwritten)),
            Inserted::Lost => tally.bucket_overflows += 1,
        });
        slot
    }

    /// Makes a page the most recently used one.
    pub fn touch(&mut self, slot: Slot) {
        let before = self.pages.unlink(slot);
        self.pages.link_front(slot);
        self.journal.push(Change::Touch { slot, before });
    }

    /// Changes a page's event time.
    pub fn set_time(&mut self, slot: Slot, event_time: u32) {
        let old = self.pages.get(slot).expect("only live pages get a time").event_time;
        self.pages.set_time(slot, event_time);
        self.journal.push(Change::Time { slot, old });
    }

    /// Forgets a page. Its slot is free again some pages later; see [`Index::begin_page`].
    pub fn evict(&mut self, slot: Slot, reason: Evicted, now: Option<u32>, tally: &mut Tally) {
        let event_time = self.pages.get(slot).expect("only live pages are evicted").event_time;
        let age_seconds = now.filter(|_| event_time != NO_TIME).map(|now| now.saturating_sub(event_time));
        tally.evictions.push(Eviction { reason, age_seconds });
        self.count_host(slot, -1);
        let before = self.pages.remove(slot);
        self.generations.set_forgotten(slot, true);
        self.journal.push(Change::Remove { slot, before });
    }

    /// Looks at the age of the least recently used pages and forgets those that began before `oldest`. The order of
    /// recency, unlike that of slots, is the same whatever the batches and whatever was aborted.
    pub fn sweep_age(&mut self, oldest: u32, now: u32, tally: &mut Tally) {
        for _ in 0..AGE_SWEEP_SLOTS {
            let past = |record: Record| record.event_time != NO_TIME && record.event_time < oldest;
            let last = self.pages.least_recent().filter(|slot| self.pages.get(*slot).is_some_and(past));
            let Some(slot) = last else { return };
            self.evict(slot, Evicted::Age, Some(now), tally);
        }
    }

    /// Ends the current transaction's changes; [`Index::commit`] or [`Index::abort`] settles them.
    pub fn seal(&mut self) {
        self.journal.seal();
    }

    /// Makes the oldest sealed transaction's changes final.
    pub fn commit(&mut self) {
        let Self { journal, retired, num_committed, .. } = self;
        journal.commit(|change| match change {
            Change::Page => *num_committed += 1,
            Change::Remove { slot, .. } => retired.push_back((*num_committed, slot)),
            Change::Insert(_) | Change::Touch { .. } | Change::Overwrite(_) | Change::Time { .. } => {}
        });
    }

    /// Undoes every change that is not committed.
    pub fn abort(&mut self) {
        while let Some(change) = self.journal.pop() {
            match change {
                Change::Page => self.num_judged -= 1,
                Change::Insert(slot) => {
                    self.count_host(slot, -1);
                    self.pages.remove(slot);
                    self.generations.flip(slot);
                    self.pages.free(slot);
                }
                Change::Remove { slot, before } => {
                    self.pages.restore(slot, before);
                    self.generations.set_forgotten(slot, false);
                    self.count_host(slot, 1);
                }
                Change::Overwrite(overwritten) => self.table.restore(overwritten),
                Change::Touch { slot, before } => {
                    self.pages.unlink(slot);
                    self.pages.link_before(slot, before);
                }
                Change::Time { slot, old } => self.pages.set_time(slot, old),
            }
        }
    }

    /// Pages from the most to the least recently used.
    pub fn by_recency(&self) -> impl Iterator<Item = Slot> + '_ {
        self.pages.by_recency()
    }

    /// Bytes of everything that is allocated, in use or not.
    pub fn bytes(&self) -> usize {
        self.plan.index_bytes + self.plan.names_bytes
    }

    fn count_host(&mut self, slot: Slot, change: i32) {
        if let Some(hosts) = &mut self.hosts {
            let host = hosts.of_slot[slot.0 as usize];
            let pages = &mut hosts.num_pages[usize::from(host)];
            *pages = pages.saturating_add_signed(change);
        }
    }
}

fn digest_key(digest: u64) -> u32 {
    (crate::sketch::keyed::mix(digest ^ DIGEST_SALT) >> 32) as u32
}

fn url_table_key(url_key: u64) -> u32 {
    (crate::sketch::keyed::mix(url_key ^ URL_SALT) >> 32) as u32
}

/// The half of the URL key that the table does not see: with the place in the table, 60 bits and more.
fn url_check(url_key: Option<u64>) -> u32 {
    url_key.map_or(0, |key| crate::sketch::keyed::mix(key ^ URL_SALT) as u32 | 1)
}
