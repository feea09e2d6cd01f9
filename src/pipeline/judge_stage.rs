//! Stage 2 without its channels: batches are judged, and transactions end where their time or their room does.

use crate::batch::{self, JudgedBatch, SketchedBatch};
use crate::index::judge::Judge;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the judging stage knows of its transactions.
///
/// A transaction gathers batches for the commit interval, and never for less time than the commit before it took, from
/// the end of that on, up to the interval. A commit costs nearly the same for one page as for thousands: slow
/// commits make large transactions instead of a queue of small ones, and quick ones do not keep pages waiting.
pub struct JudgeStage {
    commit_interval: Duration,
    /// When the open transaction began to gather, if one is open.
    open_since: Option<Instant>,
    /// When each transaction ended that has not committed, oldest first.
    under_way: VecDeque<Instant>,
    /// The open transaction does not end before.
    not_before: Option<Instant>,
}

impl JudgeStage {
    /// No transaction is open.
    pub fn new(commit_interval: Duration) -> Self {
        Self { commit_interval, open_since: None, under_way: VecDeque::new(), not_before: None }
    }

    /// When the open transaction is to end, if that hangs on time alone.
    pub fn deadline(&self) -> Option<Instant> {
        let since = self.open_since.filter(|_| self.under_way.is_empty())?;
        Some((since + self.commit_interval).max(self.not_before.unwrap_or(since)))
    }

    /// Is a transaction open?
    pub fn is_open(&self) -> bool {
        self.open_since.is_some()
    }

    /// The oldest transaction that ended has committed.
    pub fn committed(&mut self, judge: &mut Judge, now: Instant) {
        judge.commit();
        let ended = self.under_way.pop_front().expect("only what has ended commits");
        self.not_before = Some(now + (now - ended).min(self.commit_interval));
    }

    /// Freed page slots come back with commits. Without room for a whole batch the open transaction has to end, and
    /// those before it to commit.
    pub fn has_room(judge: &Judge, batch: &SketchedBatch) -> bool {
        judge.room() >= batch.pages.len().min(judge.index().plan().overlay_pages())
    }

    /// Ends the open transaction, if one is open.
    pub fn end(&mut self, judge: &mut Judge, now: Instant) -> Option<JudgedBatch> {
        self.is_open().then(|| {
            self.seal(judge, now);
            JudgedBatch::end_of_transaction()
        })
    }

    /// Judges a batch; the transaction ends behind it if its time has come.
    pub fn run(&mut self, judge: &mut Judge, batch: SketchedBatch, now: Instant) -> JudgedBatch {
        self.open_since.get_or_insert(now);
        let mut judged = batch::judge(judge, batch);
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.seal(judge, now);
            judged.ends_transaction = true;
        }
        judged
    }

    fn seal(&mut self, judge: &mut Judge, now: Instant) {
        self.open_since = None;
        self.under_way.push_back(now);
        judge.seal();
    }
}
