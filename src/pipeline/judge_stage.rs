//! Stage 2 without its channels: batches are judged, and transactions end where their time or their room does.

use crate::batch::{self, JudgedBatch, SketchedBatch};
use crate::index::judge::Judge;
use std::time::{Duration, Instant};

/// What the judging stage knows of its transactions.
///
/// A transaction gathers batches for the commit interval, counted from its first batch or, if that is later, from the
/// end of the commit before it. A commit costs the same for one page as for thousands: while one is under way, the
/// next transaction grows, and slow commits make large transactions instead of a queue of small ones.
pub struct JudgeStage {
    commit_interval: Duration,
    /// When the open transaction began to gather, if one is open.
    open_since: Option<Instant>,
    /// Transactions that ended and have not committed.
    under_way: usize,
}

impl JudgeStage {
    /// No transaction is open.
    pub fn new(commit_interval: Duration) -> Self {
        Self { commit_interval, open_since: None, under_way: 0 }
    }

    /// When the open transaction is to end, if that hangs on time alone.
    pub fn deadline(&self) -> Option<Instant> {
        self.open_since.filter(|_| self.under_way == 0).map(|since| since + self.commit_interval)
    }

    /// Is a transaction open?
    pub fn is_open(&self) -> bool {
        self.open_since.is_some()
    }

    /// The oldest transaction that ended has committed.
    pub fn committed(&mut self, judge: &mut Judge, now: Instant) {
        judge.commit();
        self.under_way -= 1;
        self.open_since = self.open_since.map(|_| now);
    }

    /// Freed page slots come back with commits. Without room for a whole batch the open transaction has to end, and
    /// those before it to commit.
    pub fn has_room(judge: &Judge, batch: &SketchedBatch) -> bool {
        judge.room() >= batch.pages.len().min(judge.index().plan().overlay_pages())
    }

    /// Ends the open transaction, if one is open.
    pub fn end(&mut self, judge: &mut Judge) -> Option<JudgedBatch> {
        self.is_open().then(|| {
            self.seal(judge);
            JudgedBatch::end_of_transaction()
        })
    }

    /// Judges a batch; the transaction ends behind it if its time has come.
    pub fn run(&mut self, judge: &mut Judge, batch: SketchedBatch, now: Instant) -> JudgedBatch {
        self.open_since.get_or_insert(now);
        let mut judged = batch::judge(judge, batch);
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.seal(judge);
            judged.ends_transaction = true;
        }
        judged
    }

    fn seal(&mut self, judge: &mut Judge) {
        self.open_since = None;
        self.under_way += 1;
        judge.seal();
    }
}
