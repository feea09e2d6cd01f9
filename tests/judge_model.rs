//! Guards the judge with its index against a plain model: pages in a [`LruCache`], candidates by comparing every band
//! key with every other, no table, no slots, no journal. After every page the verdict, canonical, replaced page,
//! evictions with their ages, the counts and the whole order of recency must be equal, for streams with revisits,
//! copies, edits, late pages, times that lie, tombstones, redeliveries, and transactions that commit late or abort; and
//! with the cache of hot digests off, small and large. An abort is followed by the same pages again, against a model
//! that never saw the first time.
//!
//! No difference is allowed. An equal tag or a stale entry of the table may add a candidate, but it is verified: to
//! count, it would have to be at or above the threshold without a common band, and no two texts here are.

#[path = "support/model.rs"]
mod model;
#[path = "support/text.rs"]
mod text;

use model::{
    Delivery, Model, NUM_TEXTS, Page, SHAPE, Said, Seen, Setup, THRESHOLD, Time, resemblance, universe, url_key,
};
use pagesieve::config::Late;
use pagesieve::index::judge::{Judge, Judged, Rules, Sketched};
use pagesieve::index::names::Named;
use pagesieve::index::plan::Plan;
use pagesieve::index::{Index, Origin};
use pagesieve::page::EventTime;
use pagesieve::verdict::Verdict;
use proptest::prelude::*;
use std::collections::VecDeque;

const START_SECONDS: i64 = 1_700_000_000;
const STEP_SECONDS: i64 = 10;

/// Pages whose records the index may hold uncommitted.
const OVERLAY_PAGES: usize = 40;

#[derive(Debug, Clone)]
enum Step {
    Judge(Page),
    /// The page judged so many pages ago, again.
    Redeliver(usize),
    Forget(u8),
    Seal,
    Commit,
    Abort,
}

fn judge_of(setup: &Setup, exact_cache_entries: usize) -> Judge {
    let rules = Rules {
        threshold: THRESHOLD,
        max_age_seconds: setup.max_age_seconds,
        refresh_on_match: setup.refresh_on_match,
        late: setup.late,
        bytes: SHAPE.bytes,
        exact_cache_entries,
    };
    let plan = Plan {
        num_slots: setup.capacity + 1 + OVERLAY_PAGES,
        capacity_pages: setup.capacity,
        max_changes: OVERLAY_PAGES * 100,
        bit_words: SHAPE.bit_words(),
        // A table so empty that no key is lost: what happens then is the table's own tests'.
        keys_per_page: 100,
        max_pages_per_host: setup.max_pages_per_host,
        index_bytes: 0,
        names_bytes: 1 << 17,
    };
    Judge::new(rules, plan)
}

fn judge_page(judge: &mut Judge, delivery: &Delivery) -> Said {
    let text = &universe()[delivery.page.text];
    let (id, url) = (delivery.id(), delivery.name());
    let page = Sketched {
        origin: delivery.origin,
        event_time: delivery.event_time,
        url_key: delivery.url_key(),
        host_key: delivery.page.host.map(|host| u16::from(host) + 1),
        digest: text.digest,
        short: text.short,
        remember: delivery.page.remember,
        bands: &text.bands,
        bits: &text.bits,
        neighbours: &text.neighbours,
        names: Named { id: id.as_deref(), url: url.as_deref() },
    };
    let mut names = String::new();
    let Judged { verdict, rule, canonical, resemblance, remembered, replaced, event_time, .. } =
        judge.judge(&page, &mut names);
    let name = |range: Option<std::ops::Range<u32>>| {
        range.map(|range| names[range.start as usize..range.end as usize].to_owned())
    };
    let canonical = canonical.map(|it| (it.origin, it.event_time, name(it.id), name(it.url)));
    Said { verdict, rule, canonical, resemblance, remembered, replaced, event_time }
}

/// Takes over what the judge saw since the last call. Of one page the evictions of candidates come in no order that
/// means anything.
fn seen(judge: &mut Judge) -> Seen {
    let tally = &judge.tally;
    assert_eq!(tally.bucket_overflows, 0, "a key was lost in a table that is all but empty");
    let mut evicted: Vec<_> = tally.evictions.iter().map(|it| (it.reason.name(), it.age_seconds)).collect();
    evicted.sort_unstable();
    let seen = Seen {
        evicted,
        times_clamped: tally.times_clamped,
        quota_refused: tally.quota_refused,
        late_pages: tally.late_pages,
        short_pages: tally.short_pages,
    };
    judge.tally.clear();
    seen
}

fn by_recency(judge: &Judge) -> Vec<Origin> {
    let index = judge.index();
    index.by_recency().map(|slot| Index::origin(index.record(slot).expect("a listed page is live")).0).collect()
}

/// Judges of one setting and the model, with the model as it was at each commit boundary that an abort can lead back
/// to.
struct Run {
    judges: Vec<Judge>,
    model: Model,
    committed: Model,
    sealed: VecDeque<Model>,
    /// Pages since the last commit boundary, those of sealed transactions by transaction: what comes again after an
    /// abort.
    open: Vec<Step>,
    to_come_again: VecDeque<Vec<Step>>,
    history: Vec<Delivery>,
    clock_seconds: i64,
    verdicts: [usize; 7],
    aborts: usize,
}

impl Run {
    fn new(setup: &Setup) -> Self {
        let model = Model::new(setup.clone());
        Self {
            judges: [0, 2, 4096].map(|entries| judge_of(setup, entries)).into(),
            committed: model.clone(),
            model,
            sealed: VecDeque::new(),
            open: Vec::new(),
            to_come_again: VecDeque::new(),
            history: Vec::new(),
            clock_seconds: START_SECONDS,
            verdicts: [0; 7],
            aborts: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Judge(page) => {
                self.clock_seconds += STEP_SECONDS;
                let event_time = match page.time {
                    Time::Off(seconds) => EventTime::At((self.clock_seconds + seconds) * 1000 + 7),
                    Time::Absent => EventTime::Absent,
                    Time::Unreadable => EventTime::Unreadable,
                    Time::Ancient(millis) => EventTime::At(millis),
                };
                let origin = Origin { source: page.source, offset: self.history.len() as u64 };
                let delivery = Delivery { page: page.clone(), origin, event_time };
                self.history.push(delivery);
                self.deliver(self.history.len() - 1);
            }
            Step::Redeliver(back) => {
                if let Some(at) = self.history.len().checked_sub(1 + back) {
                    self.deliver(at);
                }
            }
            Step::Forget(url) => self.forget(*url),
            Step::Seal => self.seal(),
            Step::Commit => self.commit(),
            Step::Abort => self.abort(),
        }
    }

    fn deliver(&mut self, at: usize) {
        self.make_room();
        self.open.push(Step::Redeliver(at));
        let delivery = &self.history[at];
        let expected = self.model.judge(delivery);
        self.verdicts[expected.verdict as usize] += 1;
        for (number, judge) in self.judges.iter_mut().enumerate() {
            assert_eq!(judge_page(judge, delivery), expected, "judge {number}, {delivery:?}");
        }
        self.compare();
    }

    fn forget(&mut self, url: u8) {
        self.make_room();
        self.open.push(Step::Forget(url));
        let expected = self.model.forget(url);
        for judge in &mut self.judges {
            assert_eq!(judge.forget(url_key(url)), expected);
        }
        self.compare();
    }

    fn compare(&mut self) {
        let mut expected = std::mem::take(&mut self.model.seen);
        expected.evicted.sort_unstable();
        let order = self.model.by_recency();
        assert!(order.len() <= self.model.setup.capacity);
        for (number, judge) in self.judges.iter_mut().enumerate() {
            assert_eq!(seen(judge), expected, "judge {number}");
            assert_eq!(judge.now(), self.model.now(), "judge {number}: the clock");
            assert_eq!(by_recency(judge), order, "judge {number}: the order of recency");
        }
    }

    /// As the pipeline does: without room, the open transaction ends and everything commits.
    fn make_room(&mut self) {
        if self.judges.iter().any(|judge| judge.room() == 0) {
            self.seal();
            while !self.sealed.is_empty() {
                self.commit();
            }
            assert!(self.judges.iter().all(|judge| judge.room() == OVERLAY_PAGES), "everything has committed");
        }
    }

    fn seal(&mut self) {
        self.judges.iter_mut().for_each(Judge::seal);
        self.sealed.push_back(self.model.clone());
        self.to_come_again.push_back(std::mem::take(&mut self.open));
    }

    fn commit(&mut self) {
        if let Some(model) = self.sealed.pop_front() {
            self.judges.iter_mut().for_each(Judge::commit);
            self.committed = model;
            self.to_come_again.pop_front();
        }
    }

    /// Goes back to the last commit, and then through everything since again, in transactions of other lengths.
    fn abort(&mut self) {
        self.aborts += 1;
        self.judges.iter_mut().for_each(Judge::abort);
        self.model = self.committed.clone();
        self.sealed.clear();
        self.compare();
        let again: Vec<Step> = self.to_come_again.drain(..).flatten().chain(std::mem::take(&mut self.open)).collect();
        for (number, step) in again.into_iter().enumerate() {
            match step {
                Step::Redeliver(at) => self.deliver(at),
                Step::Forget(url) => self.forget(url),
                Step::Judge(_) | Step::Seal | Step::Commit | Step::Abort => {
                    unreachable!("only pages and tombstones come again")
                }
            }
            if number % 7 == 3 {
                self.seal();
            }
        }
    }
}

fn page() -> impl Strategy<Value = Page> {
    let time = prop_oneof![
        12 => (-300i64..300).prop_map(Time::Off),
        1 => (-2500i64..0).prop_map(Time::Off),
        1 => (-90_000i64..-1500).prop_map(Time::Off),
        1 => (3000i64..100_000).prop_map(Time::Off),
        1 => Just(Time::Absent),
        1 => prop_oneof![Just(Time::Unreadable), (0i64..3000).prop_map(Time::Ancient)],
    ];
    let url = prop_oneof![6 => (0u8..30).prop_map(Some), 1 => Just(None)];
    let host = prop_oneof![3 => (0u8..3).prop_map(Some), 1 => Just(None)];
    (0..NUM_TEXTS, url, host, time, prop::bool::weighted(0.95), 0u16..3)
        .prop_map(|(text, url, host, time, remember, source)| Page { text, url, host, time, remember, source })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => page().prop_map(Step::Judge),
        3 => (0usize..30).prop_map(Step::Redeliver),
        2 => (0u8..30).prop_map(Step::Forget),
        8 => Just(Step::Seal),
        6 => Just(Step::Commit),
        1 => Just(Step::Abort),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let capacity = prop_oneof![Just(1usize), Just(2), Just(5), Just(12), Just(200)];
    let max_age = prop_oneof![Just(None), Just(Some(300u32)), Just(Some(1500))];
    let late = prop_oneof![Just(Late::Probe), Just(Late::Remember), Just(Late::Forward)];
    let quota = prop_oneof![3 => Just(usize::MAX), 1 => Just(3)];
    (capacity, max_age, any::<bool>(), late, quota).prop_map(
        |(capacity, max_age_seconds, refresh_on_match, late, quota)| Setup {
            capacity,
            max_age_seconds,
            refresh_on_match,
            late,
            max_pages_per_host: quota,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_judge_is_the_model(setup in setup(), steps in prop::collection::vec(step(), 1..500)) {
        let mut run = Run::new(&setup);
        steps.iter().for_each(|step| run.step(step));
    }
}

#[test]
fn texts_at_or_above_the_threshold_share_a_band() {
    for left in universe().iter().filter(|text| !text.short) {
        for right in universe().iter().filter(|text| !text.short) {
            let resemblance = resemblance(left, right);
            let share = left.bands.iter().zip(&right.bands).any(|(left, right)| left == right);
            assert!(resemblance < THRESHOLD || share, "{resemblance}");
        }
    }
}

/// The property above is worth something only if streams do meet every verdict, every reason to evict, and an abort.
#[test]
fn such_streams_meet_every_case() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32]);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let (mut verdicts, mut aborts) = ([0; 7], 0);
    for capacity in [5, 12, 200] {
        let late = Late::Forward;
        let setup = Setup {
            capacity,
            max_age_seconds: Some(1500),
            refresh_on_match: true,
            late,
            max_pages_per_host: usize::MAX,
        };
        let mut run = Run::new(&setup);
        let steps = prop::collection::vec(step(), 800).new_tree(&mut runner).expect("streams can be drawn").current();
        steps.iter().for_each(|step| run.step(step));
        (0..7).for_each(|at| verdicts[at] += run.verdicts[at]);
        aborts += run.aborts;
    }
    println!("verdicts {verdicts:?}, {aborts} aborts");
    for verdict in Verdict::ALL {
        let count = verdicts[verdict as usize];
        assert!(verdict == Verdict::Rejected || count >= 10, "{}: {count}", verdict.name());
    }
    assert!(aborts >= 5, "{aborts}");
}
