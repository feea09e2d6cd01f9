//! What goes wrong, and when.

use super::text::Random;
use std::collections::BTreeMap;

/// Calls that a client makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Poll,
    Committed,
    Seek,
    CommitOffsets,
    Reopen,
    Begin,
    Send,
    Flush,
    SendOffsets,
    Commit,
    Abort,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL before a call takes effect, or right after.
    KillBefore,
    KillAfter,
    /// SIGKILL between two steps of the stages.
    Kill,
    /// SIGTERM, and a start later.
    Terminate,
    /// Stopped; another process takes the name; then it wakes up.
    Zombie,
    /// Stopped until its session is over; then it wakes up.
    Asleep,
    /// A member comes or goes.
    Rebalance,
    /// The same, and the partitions are taken before everything under way is committed.
    RebalanceInHaste,
    /// Another partition.
    PartitionAdded,
    /// Event times jump by a day, ahead or back.
    ClockStep,
    /// The sink takes nothing for a while.
    SlowSink,
    /// The coordinator loses patience with an open transaction.
    TransactionTimesOut,
    PollFails,
    CommittedFails,
    SeekFails,
    ReopenFails,
    BeginFails,
    QueueFull,
    /// A message is not delivered.
    DeliveryFails,
    /// A message is larger than the topic takes, though it looked right.
    RefusedForSize,
    FlushSlow,
    OffsetsAbort,
    /// No answer, but the next attempt gets one.
    OffsetsRetryUndone,
    OffsetsRetryDone,
    CommitRetryUndone,
    CommitRetryDone,
    CommitAborts,
    /// No answer at all, and it did not or did happen.
    DoubtfulUndone,
    DoubtfulDone,
    AbortFails,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 30] = [
        Kind::KillBefore,
        Kind::KillAfter,
        Kind::Kill,
        Kind::Terminate,
        Kind::Zombie,
        Kind::Asleep,
        Kind::Rebalance,
        Kind::RebalanceInHaste,
        Kind::PartitionAdded,
        Kind::ClockStep,
        Kind::SlowSink,
        Kind::TransactionTimesOut,
        Kind::PollFails,
        Kind::CommittedFails,
        Kind::SeekFails,
        Kind::ReopenFails,
        Kind::BeginFails,
        Kind::QueueFull,
        Kind::DeliveryFails,
        Kind::RefusedForSize,
        Kind::FlushSlow,
        Kind::OffsetsAbort,
        Kind::OffsetsRetryUndone,
        Kind::OffsetsRetryDone,
        Kind::CommitRetryUndone,
        Kind::CommitRetryDone,
        Kind::CommitAborts,
        Kind::DoubtfulUndone,
        Kind::DoubtfulDone,
        Kind::AbortFails,
    ];

    /// Can it happen to this call?
    fn befalls(self, call: Call) -> bool {
        match self {
            Kind::KillBefore | Kind::KillAfter => true,
            Kind::PollFails => call == Call::Poll,
            Kind::CommittedFails => call == Call::Committed,
            Kind::SeekFails => call == Call::Seek,
            Kind::ReopenFails => call == Call::Reopen,
            Kind::BeginFails => call == Call::Begin,
            Kind::QueueFull | Kind::DeliveryFails | Kind::RefusedForSize => call == Call::Send,
            Kind::FlushSlow => call == Call::Flush,
            Kind::OffsetsAbort | Kind::OffsetsRetryUndone | Kind::OffsetsRetryDone => call == Call::SendOffsets,
            Kind::CommitRetryUndone | Kind::CommitRetryDone | Kind::CommitAborts => call == Call::Commit,
            Kind::DoubtfulUndone | Kind::DoubtfulDone => matches!(call, Call::Commit | Call::CommitOffsets),
            Kind::AbortFails => call == Call::Abort,
            _ => false,
        }
    }

    /// Does it happen between two steps, and not to a call?
    fn is_of_the_world(self) -> bool {
        self < Kind::PollFails && !matches!(self, Kind::KillBefore | Kind::KillAfter)
    }

    /// Can it happen at all in such a run?
    fn is_possible(self, exactly_once: bool) -> bool {
        match self {
            Kind::FlushSlow => !exactly_once,
            Kind::BeginFails
            | Kind::DeliveryFails
            | Kind::OffsetsAbort
            | Kind::OffsetsRetryUndone
            | Kind::OffsetsRetryDone
            | Kind::CommitRetryUndone
            | Kind::CommitRetryDone
            | Kind::CommitAborts
            | Kind::AbortFails
            | Kind::TransactionTimesOut => exactly_once,
            _ => true,
        }
    }
}

struct Armed {
    /// Strikes once so many pages are committed…
    from_page: u64,
    /// … and so many chances have gone by.
    chances: usize,
    kind: Kind,
}

/// The plan of a run, and what of it came true.
pub struct Faults {
    pub random: Random,
    armed: Vec<Armed>,
    /// Pages committed so far.
    pub progress: u64,
    /// How often each happened.
    pub struck: BTreeMap<Kind, u64>,
}

impl Faults {
    /// Plans faults for a run of so many pages.
    pub fn plan(mut random: Random, pages: u64, exactly_once: bool) -> Self {
        let count = 6 + random.below(10);
        let possible = Kind::ALL.into_iter().filter(|kind| kind.is_possible(exactly_once)).collect::<Vec<_>>();
        let arm = |_| {
            let kind = possible[random.below(possible.len())];
            // Calls of some kinds are rare, of others there are many to every page.
            let most = match kind {
                Kind::KillBefore | Kind::KillAfter | Kind::QueueFull | Kind::DeliveryFails | Kind::RefusedForSize => 60,
                Kind::PollFails => 20,
                Kind::CommittedFails | Kind::SeekFails | Kind::ReopenFails | Kind::AbortFails => 1,
                _ => 4,
            };
            Armed { from_page: random.below(pages as usize * 9 / 10) as u64, chances: random.below(most), kind }
        };
        let armed = (0..count).map(arm).collect();
        Self { armed, random, progress: 0, struck: BTreeMap::new() }
    }

    fn strike_if(&mut self, can: impl Fn(Kind) -> bool) -> Option<Kind> {
        let progress = self.progress;
        let at = self.armed.iter().position(|armed| armed.from_page <= progress && can(armed.kind))?;
        if self.armed[at].chances > 0 {
            self.armed[at].chances -= 1;
            return None;
        }
        let kind = self.armed.swap_remove(at).kind;
        *self.struck.entry(kind).or_default() += 1;
        Some(kind)
    }

    /// Does something go wrong with this call?
    pub fn strike(&mut self, call: Call) -> Option<Kind> {
        self.strike_if(|kind| kind.befalls(call))
    }

    /// Does something happen now, between two steps?
    pub fn strike_world(&mut self) -> Option<Kind> {
        self.strike_if(Kind::is_of_the_world)
    }

    /// One more, as soon as it can be.
    pub fn arm(&mut self, kind: Kind) {
        self.armed.push(Armed { from_page: 0, chances: 0, kind });
    }

    /// How many happened.
    pub fn num_struck(&self) -> u64 {
        self.struck.values().sum()
    }
}
