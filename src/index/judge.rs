//! The judge: one page after the other, in order, against the pages remembered. The only owner of
//! mutable state; no I/O, no clock but the window's, no randomness.
//!
//! The order of questions for a page (the first that answers decides):
//!
//! 1. Is it *itself*, judged before and delivered again? Then it keeps its first verdict.
//! 2. Is its own URL remembered with the same words? `unchanged`.
//! 3. Is its own URL remembered with a resemblance at or above the threshold? `updated`: a page
//!    wins over a better stranger.
//! 4. Has another page the same words? `exact_duplicate`.
//! 5. Has a candidate of the bands a verified resemblance at or above the threshold? The best is the
//!    canonical, ties go to the smallest (event time, origin): `near_duplicate`.
//! 6. Otherwise `updated` if its URL is remembered, else `unique`.
//!
//! Only pages that are emitted are remembered, so a canonical is always a page that readers have.

pub use super::judged::{Canonical, Judged, Sketched};

use super::clock::{Clock, MAX_AHEAD_SECONDS};
use super::pages::Record;
use super::plan::Plan;
use super::tally::Tally;
use super::zeroed::Populate;
use super::{Entry, Evicted, Index, NO_TIME, Origin, Slot};
use crate::config::{Late, PolicySettings, Window};
use crate::page::{EventTime, SkipRule};
use crate::sketch::Shape;
use crate::sketch::odd::Estimator;
use crate::verdict::Verdict;
use lru::LruCache;
use std::num::NonZeroUsize;

/// Candidates closer to the threshold than this are counted as near it.
const NEAR_THRESHOLD: f32 = 0.05;

/// The settings that the judge goes by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Verified resemblance from which a page is a duplicate.
    pub threshold: f32,
    /// Length of the window in seconds.
    pub max_age_seconds: Option<u32>,
    /// Does a match renew the canonical's age?
    pub refresh_on_match: bool,
    /// What happens with pages older than the window.
    pub late: Late,
    /// Bytes kept of a page for verification.
    pub bytes: usize,
    /// Entries of the cache of hot digests; 0 = off.
    pub exact_cache_entries: usize,
}

impl Rules {
    /// The rules that the configuration asks for.
    pub fn new(policy: &PolicySettings, window: &Window, shape: &Shape) -> Self {
        let seconds = |age: std::time::Duration| u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
        Self {
            threshold: policy.threshold as f32,
            max_age_seconds: window.max_age.map(seconds),
            refresh_on_match: window.refresh_on_match,
            late: window.late,
            bytes: shape.bytes,
            exact_cache_entries: window.exact_cache_entries,
        }
    }
}

/// The judge.
#[derive(Debug)]
pub struct Judge {
    rules: Rules,
    estimator: Estimator,
    index: Index,
    clock: Clock,
    /// The clock at the end of each sealed transaction that is not committed, oldest first, and
    /// before them the committed one.
    clocks: std::collections::VecDeque<Clock>,
    /// Hot digest → its page. Every answer is checked against the live record, and an entry is dropped
    /// whenever a page with its digest comes or changes, so verdicts are the same without it.
    hot: Option<LruCache<u64, Slot>>,
    /// Pages with a time that were remembered before the clock was known.
    before_clock: Vec<Slot>,
    /// Scratch: the candidates of the page at hand.
    candidates: Vec<Slot>,
    /// What was seen since the caller last cleared it.
    pub tally: Tally,
}

impl Judge {
    /// A judge with an empty window.
    pub fn new(rules: Rules, plan: Plan) -> Self {
        Self {
            hot: NonZeroUsize::new(rules.exact_cache_entries).map(LruCache::new),
            estimator: Estimator::new(rules.bytes),
            rules,
            index: Index::new(plan),
            clock: Clock::default(),
            clocks: [Clock::default()].into(),
            before_clock: Vec::new(),
            candidates: Vec::with_capacity(512),
            tally: Tally::default(),
        }
    }

    /// Forgets everything, as if nothing had ever been judged.
    pub fn clear(&mut self) {
        *self = Self::new(self.rules.clone(), self.index.plan().clone());
    }

    /// The pages remembered.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The window's clock.
    pub fn now(&self) -> Option<u32> {
        self.clock.now()
    }

    /// Pages that can be judged before a transaction must commit.
    pub fn room(&self) -> usize {
        self.index.room()
    }

    /// Ends a transaction: everything judged since the last call commits or aborts as one.
    pub fn seal(&mut self) {
        self.index.seal();
        self.clocks.push_back(self.clock.clone());
    }

    /// The oldest sealed transaction has committed.
    pub fn commit(&mut self) {
        self.index.commit();
        self.clocks.pop_front();
        if self.clocks[0].now().is_some() {
            self.before_clock = Vec::new();
        }
    }

    /// Nothing that is not committed happened.
    pub fn abort(&mut self) {
        self.index.abort();
        self.clocks.truncate(1);
        self.clock = self.clocks[0].clone();
        self.before_clock.retain(|slot| self.index.record(*slot).is_some());
        if let Some(hot) = &mut self.hot {
            hot.clear();
        }
    }

    /// Judges one page. Names of a canonical are appended to `names_text`.
    pub fn judge(&mut self, page: &Sketched, names_text: &mut String) -> Judged {
        self.index.begin_page();
        let (event_time, late) = self.place_in_time(page);
        let mut judged = Judged {
            verdict: Verdict::Unique,
            rule: None,
            canonical: None,
            resemblance: None,
            remembered: false,
            replaced: None,
            event_time,
        };
        if late {
            self.tally.late_pages += 1;
            if self.rules.late == Late::Forward {
                return Judged { verdict: Verdict::Skipped, rule: Some(SkipRule::Late), ..judged };
            }
        }
        self.tally.short_pages += u64::from(page.short);
        self.sweep_age();
        let own = page.url_key.and_then(|key| self.own(key));
        let exact = self.exact(page.digest);
        if let Some(verdict) = [own, exact].into_iter().flatten().find_map(|slot| self.first_verdict(slot, page.origin))
        {
            return Judged { verdict, ..judged };
        }

        let found = self.find(page, own, exact);
        judged.verdict = found.verdict;
        judged.resemblance = found.resemblance;
        if let Some(slot) = found.canonical {
            judged.canonical = Some(self.canonical(slot, names_text));
        }
        if judged.verdict.is_duplicate() {
            let slot = found.canonical.expect("a duplicate names its canonical");
            self.matched(slot, event_time);
        } else {
            self.remember(page, late, own, &mut judged);
        }
        judged
    }

    /// Forgets the page of this URL, as a tombstone asks. Its origin, if it was remembered.
    pub fn forget(&mut self, url_key: u64) -> Option<Origin> {
        self.index.begin_page();
        let slot = self.index.probe_url(url_key)?;
        let (origin, _) = Index::origin(self.index.record(slot)?);
        self.index.evict(slot, Evicted::Forgotten, self.clock.now(), &mut self.tally);
        Some(origin)
    }

    /// See [`Index::expect_pages`].
    pub fn expect_pages(&mut self, num_pages: usize) -> Vec<Populate> {
        self.index.expect_pages(num_pages)
    }

    /// Remembers a page without judging it, as the state topic says; the page whose place it took
    /// and, within a restore, nothing else is forgotten. Its time moves the clock.
    pub fn restore(&mut self, entry: &Entry, replaced: Option<Origin>) {
        self.index.begin_page();
        if let Some(replaced) = replaced {
            self.forget_origin(entry.url_key, replaced, Evicted::Replaced);
        }
        if entry.event_time != NO_TIME {
            self.clock.observe(entry.event_time);
        }
        self.index.insert(entry, None, &mut self.tally);
    }

    /// Forgets the page of this URL if it has this origin.
    pub fn forget_origin(&mut self, url_key: Option<u64>, origin: Origin, reason: Evicted) {
        let slot = url_key.and_then(|key| self.index.probe_url(key));
        let is_it = |slot: &Slot| self.index.record(*slot).is_some_and(|record| Index::origin(record).0 == origin);
        if let Some(slot) = slot.filter(is_it) {
            self.index.evict(slot, reason, self.clock.now(), &mut self.tally);
        }
    }

    /// The page's event time in the window, and whether it is older than that. Moves the clock.
    fn place_in_time(&mut self, page: &Sketched) -> (u32, bool) {
        let (now, oldest) = (self.clock.now(), self.oldest());
        let [future, past, unreadable] = &mut self.tally.times_clamped;
        let seconds = match page.event_time {
            EventTime::Absent => return (now.unwrap_or(NO_TIME), false),
            EventTime::Unreadable => {
                *unreadable += 1;
                return (now.unwrap_or(NO_TIME), false);
            }
            EventTime::At(millis) if millis < 1000 => {
                *past += 1;
                1
            }
            EventTime::At(millis) => u32::try_from(millis / 1000).unwrap_or(u32::MAX - 1),
        };
        if seconds < oldest {
            // A backfill must not turn the clock back: late pages do not move it.
            return (seconds, true);
        }
        if page.remember {
            self.clock.observe(seconds);
        }
        // The page that makes the clock known is held to it like any other, and so are those before it.
        let known = now.or(self.clock.now());
        let ahead = known.filter(|now| seconds > now.saturating_add(MAX_AHEAD_SECONDS));
        *future += u64::from(ahead.is_some());
        if now.is_none() {
            self.settle_early_times();
        }
        (ahead.unwrap_or(seconds), false)
    }

    /// Once the clock is known, times taken on trust before that are held to it. The list is kept until that commits.
    fn settle_early_times(&mut self) {
        let Some(now) = self.clock.now() else { return };
        for at in 0..self.before_clock.len() {
            let slot = self.before_clock[at];
            let ahead = |record: &Record| record.event_time > now.saturating_add(MAX_AHEAD_SECONDS);
            let Some(digest) = self.index.record(slot).filter(ahead).map(|record| record.digest) else { continue };
            self.index.set_time(slot, now);
            self.let_go(digest);
            self.tally.times_clamped[0] += 1;
        }
    }

    /// Event time at which the window begins; 0 without a clock or a length.
    fn oldest(&self) -> u32 {
        match (self.clock.now(), self.rules.max_age_seconds) {
            (Some(now), Some(length)) => now.saturating_sub(length),
            _ => 0,
        }
    }

    fn sweep_age(&mut self) {
        let (oldest, now) = (self.oldest(), self.clock.now());
        if let (1.., Some(now)) = (oldest, now) {
            self.index.sweep_age(oldest, now, &mut self.tally);
        }
    }

    /// Is the page in `slot` remembered and within the window? One that is past it is left to the sweep: what a probe
    /// comes across hangs on where the table put it, and must not decide who is forgotten.
    fn is_live(&self, slot: Slot) -> bool {
        let oldest = self.oldest();
        self.index.record(slot).is_some_and(|record| record.event_time == NO_TIME || record.event_time >= oldest)
    }

    /// The live page of this URL. One that is past the window is forgotten here, so that there is one page of a URL.
    fn own(&mut self, url_key: u64) -> Option<Slot> {
        let slot = self.index.probe_url(url_key)?;
        if self.is_live(slot) {
            return Some(slot);
        }
        self.index.evict(slot, Evicted::Age, self.clock.now(), &mut self.tally);
        None
    }

    /// The page with these words; of several the smallest (event time, origin).
    fn exact(&mut self, digest: u64) -> Option<Slot> {
        let cached = self.hot.as_mut().and_then(|hot| hot.get(&digest).copied());
        if let Some(slot) = cached {
            let same = self.index.record(slot).is_some_and(|record| record.digest == digest);
            if same && self.is_live(slot) {
                self.tally.cache_hits += 1;
                return Some(slot);
            }
        }
        self.tally.cache_misses += u64::from(self.hot.is_some());
        self.candidates.clear();
        self.index.probe_digest(digest, &mut self.candidates);
        let mut best: Option<Slot> = None;
        for at in 0..self.candidates.len() {
            let slot = self.candidates[at];
            if self.is_live(slot) && best.is_none_or(|best| self.rank(slot) < self.rank(best)) {
                best = Some(slot);
            }
        }
        if let (Some(hot), Some(slot)) = (&mut self.hot, best) {
            hot.put(digest, slot);
        }
        best
    }

    /// The order in which equal candidates are preferred.
    fn rank(&self, slot: Slot) -> (u32, Origin) {
        let record = self.index.record(slot).expect("only live pages are ranked");
        (record.event_time, Index::origin(record).0)
    }

    /// The first verdict of the page of this origin, if it is the one in `slot`.
    fn first_verdict(&self, slot: Slot, origin: Origin) -> Option<Verdict> {
        let (of_slot, updated) = Index::origin(self.index.record(slot)?);
        (of_slot == origin).then_some(if updated { Verdict::Updated } else { Verdict::Unique })
    }

    /// Questions 2 to 6 of the module's list.
    fn find(&mut self, page: &Sketched, own: Option<Slot>, exact: Option<Slot>) -> Found {
        let mut own_resemblance = None;
        if let Some(own) = own {
            if self.index.record(own).is_some_and(|record| record.digest == page.digest) {
                return Found { verdict: Verdict::Unchanged, canonical: Some(own), resemblance: Some(1.0) };
            }
            if !page.short {
                let resemblance = self.estimator.resemblance(page.bits, page.neighbours, self.index.bits(own));
                own_resemblance = Some(resemblance);
                if resemblance >= self.rules.threshold {
                    return Found { verdict: Verdict::Updated, canonical: Some(own), resemblance: own_resemblance };
                }
            }
        }
        if exact.is_some() {
            return Found { verdict: Verdict::ExactDuplicate, canonical: exact, resemblance: Some(1.0) };
        }
        if let Some((slot, resemblance)) = self.best_candidate(page, own) {
            return Found { verdict: Verdict::NearDuplicate, canonical: Some(slot), resemblance: Some(resemblance) };
        }
        match own {
            Some(_) => Found { verdict: Verdict::Updated, canonical: own, resemblance: own_resemblance },
            None => Found { verdict: Verdict::Unique, canonical: None, resemblance: None },
        }
    }

    /// The live candidate of the highest verified resemblance at or above the threshold.
    fn best_candidate(&mut self, page: &Sketched, own: Option<Slot>) -> Option<(Slot, f32)> {
        if page.short {
            return None;
        }
        self.candidates.clear();
        self.index.probe_bands(page.bands, &mut self.candidates);
        self.candidates.sort_unstable();
        self.candidates.dedup();
        let mut best = None::<(Slot, f32)>;
        let first = self.tally.resemblances.len();
        for at in 0..self.candidates.len() {
            let slot = self.candidates[at];
            if Some(slot) == own {
                continue;
            }
            let resemblance = self.estimator.resemblance(page.bits, page.neighbours, self.index.bits(slot));
            if resemblance < Tally::UNRELATED_BELOW {
                self.tally.candidates_unrelated += 1;
                continue;
            }
            if !self.is_live(slot) {
                continue;
            }
            self.tally.resemblances.push(resemblance);
            let matched = resemblance >= self.rules.threshold;
            self.tally.candidates_matched += u64::from(matched);
            self.tally.candidates_below += u64::from(!matched);
            let better = best.is_none_or(|(held, held_resemblance)| {
                resemblance > held_resemblance || resemblance == held_resemblance && self.rank(slot) < self.rank(held)
            });
            if better {
                best = Some((slot, resemblance));
            }
        }
        self.tally.candidates.push((self.tally.resemblances.len() - first) as u32);
        let (slot, resemblance) = best?;
        self.tally.near_threshold += u64::from((resemblance - self.rules.threshold).abs() <= NEAR_THRESHOLD);
        (resemblance >= self.rules.threshold).then_some((slot, resemblance))
    }

    fn canonical(&self, slot: Slot, names_text: &mut String) -> Canonical {
        let record = self.index.record(slot).expect("a canonical is live");
        let named = self.index.names(slot);
        let mut keep = |name: Option<&str>| {
            name.map(|name| {
                let start = names_text.len() as u32;
                names_text.push_str(name);
                start..names_text.len() as u32
            })
        };
        let (id, url) = (keep(named.id), keep(named.url));
        Canonical { origin: Index::origin(record).0, event_time: record.event_time, id, url }
    }

    /// A match refreshes recency and, if asked for, age.
    fn matched(&mut self, slot: Slot, event_time: u32) {
        let record = self.index.record(slot).expect("a canonical is live");
        if let Some(now) = self.clock.now().filter(|_| record.event_time != NO_TIME) {
            self.tally.match_ages.push(now.saturating_sub(record.event_time));
        }
        self.index.touch(slot);
        if self.rules.refresh_on_match && event_time > record.event_time {
            self.index.set_time(slot, event_time);
            self.let_go(record.digest);
            if self.clock.now().is_none() && record.event_time == NO_TIME {
                self.before_clock.push(slot);
            }
        }
    }

    /// Remembers a survivor, unless something forbids it.
    fn remember(&mut self, page: &Sketched, late: bool, own: Option<Slot>, judged: &mut Judged) {
        let late_kept = late && self.rules.late == Late::Remember;
        if !page.remember || late && !late_kept {
            return;
        }
        if let Some(own) = own {
            let record = self.index.record(own).expect("the page's own record is live");
            if judged.event_time < record.event_time {
                return;
            }
            judged.replaced = Some(Index::origin(record).0);
            self.index.evict(own, Evicted::Replaced, self.clock.now(), &mut self.tally);
        } else if !self.index.within_quota(page.host_key) {
            self.tally.quota_refused += 1;
            return;
        }
        if late_kept {
            // Within the window its age counts from now; what is newer of the same URL has stayed above.
            judged.event_time = self.clock.now().expect("nothing is late without a clock");
        }
        let entry = Entry {
            origin: page.origin,
            updated: judged.verdict == Verdict::Updated,
            event_time: judged.event_time,
            digest: page.digest,
            url_key: page.url_key,
            host_key: page.host_key,
            short: page.short,
            bands: page.bands,
            bits: page.bits,
            names: page.names,
        };
        let slot = self.index.insert(&entry, self.clock.now(), &mut self.tally);
        if self.clock.now().is_none() && judged.event_time != NO_TIME {
            self.before_clock.push(slot);
        }
        self.let_go(page.digest);
        judged.remembered = true;
    }

    /// Drops a digest from the cache: the pages that have it changed.
    fn let_go(&mut self, digest: u64) {
        if let Some(hot) = &mut self.hot {
            hot.pop(&digest);
        }
    }
}

struct Found {
    verdict: Verdict,
    canonical: Option<Slot>,
    resemblance: Option<f32>,
}
