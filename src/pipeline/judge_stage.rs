//! Stage 2 without its channels: batches are judged, and transactions end where their time or their room does.

use crate::batch::{self, JudgedBatch, SketchedBatch};
use crate::index::judge::Judge;
use std::time::{Duration, Instant};

/// What the judging stage knows of the open transaction.
pub struct JudgeStage {
    commit_interval: Duration,
    /// When the first batch of the open transaction was judged.
    open_since: Option<Instant>,
}

impl JudgeStage {
    /// No transaction is open.
    pub fn new(commit_interval: Duration) -> Self {
        Self { commit_interval, open_since: None }
    }

    /// When the open transaction is to end, if one is open.
    pub fn deadline(&self) -> Option<Instant> {
        self.open_since.map(|since| since + self.commit_interval)
    }

    /// Freed page slots come back with commits. Without room for a whole batch the open transaction has to end, and
    /// those before it to commit.
    pub fn has_room(judge: &Judge, batch: &SketchedBatch) -> bool {
        judge.room() >= batch.pages.len().min(judge.index().plan().overlay_pages())
    }

    /// Ends the open transaction, if one is open.
    pub fn end(&mut self, judge: &mut Judge) -> Option<JudgedBatch> {
        self.open_since.take()?;
        judge.seal();
        Some(JudgedBatch::end_of_transaction())
    }

    /// Judges a batch; the transaction ends behind it if its time has come.
    pub fn run(&mut self, judge: &mut Judge, batch: SketchedBatch, now: Instant) -> JudgedBatch {
        let since = *self.open_since.get_or_insert(now);
        let mut judged = batch::judge(judge, batch);
        if now - since >= self.commit_interval {
            self.open_since = None;
            judge.seal();
            judged.ends_transaction = true;
        }
        judged
    }
}
