//! Source topics → batches.

use super::Partitions;
use super::link::Link;
use super::protocol::{Member, Offsets};
use crate::batch::{Limits, ReceivedBatch};
use crate::index::Origin;
use crate::metrics::Metrics;
use crate::transport::{Fault, Received, Source};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A poll that only serves callbacks.
const NO_WAIT: Duration = Duration::ZERO;

/// Reads the source topics as a member of the group.
pub struct KafkaSource<M> {
    member: Arc<M>,
    partitions: Partitions,
    link: Arc<Link>,
    metrics: Arc<Metrics>,
    total_partitions: usize,
    /// Partition → the offset that is due, once one has come.
    due: Offsets,
    /// A poll is due after this long, whatever the stages behind do.
    poll_every: Duration,
    last_poll: Instant,
    paused: bool,
    /// Called on every poll: the process is alive.
    beat: Box<dyn Fn() + Send>,
    /// Called once partitions are assigned for the first time.
    joined: Option<Box<dyn Fn() + Send>>,
}

impl<M: Member> KafkaSource<M> {
    /// A source of `total_partitions`, as far as is known now, that polls at least `poll_every` so often.
    pub fn new(
        member: (Arc<M>, Arc<Link>),
        partitions: Partitions,
        metrics: Arc<Metrics>,
        total_partitions: usize,
        poll_every: Duration,
    ) -> Self {
        let (member, link) = member;
        Self {
            member,
            partitions,
            link,
            metrics,
            total_partitions,
            due: Offsets::new(),
            poll_every,
            last_poll: Instant::now(),
            paused: false,
            beat: Box::new(|| {}),
            joined: None,
        }
    }

    /// Has `beat` called on every poll, and `joined` once the group has assigned partitions.
    pub fn with_health(mut self, beat: impl Fn() + Send + 'static, joined: impl Fn() + Send + 'static) -> Self {
        self.beat = Box::new(beat);
        self.joined = Some(Box::new(joined));
        self
    }

    /// Goes back to what is committed, on every partition that is assigned. A new flight begins.
    pub fn rewind(&mut self) -> Result<(), Fault> {
        // What came before the fault is read again: let revocations in the meantime take effect first.
        self.link.reset();
        self.due.clear();
        let rewound = (|| {
            let assignment = self.member.assignment()?;
            if assignment.is_empty() {
                return Ok(());
            }
            let committed = self.member.committed(&assignment)?;
            self.member.seek(&assignment.into_iter().zip(committed).collect::<Vec<_>>())
        })();
        rewound.map_err(|failure| Fault::Aborted(format!("cannot rewind: {failure}")))
    }

    /// Counts records that were gone before they could be read.
    fn look_for_gaps(&self, assigned: &[u16]) {
        let Ok(committed) = self.member.committed(assigned) else { return };
        for (number, committed) in assigned.iter().zip(committed) {
            let Some(committed) = committed else { continue };
            self.count_gap(*number, committed, u64::MAX);
        }
    }

    /// Counts what retention has removed between the offset that is due and the one that is there.
    fn count_gap(&self, number: u16, due: u64, next: u64) {
        let Ok(first) = self.member.first_offset(number) else { return };
        let lost = first.min(next).saturating_sub(due);
        if lost > 0 {
            self.metrics.gap_offsets_total.inc_by(lost);
            let (topic, partition) = self.partitions.name(number);
            tracing::error!(
                topic = &*topic,
                partition,
                lost,
                "retention has passed the offset that is due: pages were lost before they were read"
            );
        }
    }

    /// Looks at the offset of the record that came. A step over one is the end of a transaction of whoever wrote the
    /// topic; over more it may be that, or retention.
    fn follow_offset(&mut self, Origin { source, offset }: Origin) {
        let due = self.due.insert(source, offset + 1);
        if let Some(due) = due.filter(|due| offset > due + 1) {
            self.count_gap(source, due, offset);
        }
    }

    /// Takes note of partitions that came and went; records of the latter are dropped from the `before` first of
    /// `batch`. A record behind them came after the change: its partition may have gone and come back.
    fn follow_assignment(&mut self, batch: &mut ReceivedBatch, before: usize) {
        let (assigned, revoked) = self.link.take_changes();
        let numbers = |names: Vec<(String, i32)>| {
            names.into_iter().filter_map(|(topic, partition)| self.partitions.number(&topic, partition))
        };
        let gone = numbers(revoked).collect::<HashSet<_>>();
        if !gone.is_empty() {
            let mut left = before;
            batch.deliveries.retain(|delivery| {
                let is_new = left == 0;
                left = left.saturating_sub(1);
                is_new || !gone.contains(&delivery.origin.source)
            });
        }
        let assigned = numbers(assigned).collect::<Vec<_>>();
        gone.iter().for_each(|number| {
            self.due.remove(number);
        });
        if !assigned.is_empty() {
            self.look_for_gaps(&assigned);
        }
        if assigned.is_empty() && gone.is_empty() {
            return;
        }
        let held = self.member.assignment().map_or(0, |list| list.len());
        let partial = held < self.total_partitions;
        self.metrics.window_partial.set(i64::from(partial));
        if partial {
            tracing::warn!(
                held,
                of = self.total_partitions,
                "other members hold a part of the window: copies across parts get through"
            );
        }
        self.total_partitions = self.total_partitions.max(held);
        if let Some(joined) = self.joined.take() {
            joined();
        }
    }

    fn poll(&mut self, wait: Duration, batch: &mut ReceivedBatch) -> Result<bool, Fault> {
        (self.beat)();
        self.last_poll = Instant::now();
        let polled = self.member.poll(wait, batch)?;
        if self.link.is_lost() {
            return Err(Fault::Aborted("partitions were lost before their pages were committed".into()));
        }
        if let Some(delivery) = batch.deliveries.last().filter(|_| polled) {
            self.follow_offset(delivery.origin);
        }
        Ok(polled)
    }
}

impl<M: Member> Source for KafkaSource<M> {
    fn receive(&mut self, batch: &mut ReceivedBatch, limits: &Limits) -> Result<Received, Fault> {
        if std::mem::take(&mut self.paused) {
            self.member.resume().map_err(|failure| Fault::Aborted(failure.to_string()))?;
        }
        let deadline = Instant::now() + limits.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let before = batch.deliveries.len();
            let got = self.poll(left, batch)?;
            self.follow_assignment(batch, before);
            if batch.deliveries.len() >= limits.pages || batch.buffer.len() >= limits.bytes {
                return Ok(Received::Some);
            }
            if !got && Instant::now() >= deadline {
                return Ok(if batch.deliveries.is_empty() { Received::None } else { Received::Some });
            }
        }
    }

    fn sent(&mut self, _: &ReceivedBatch) {
        self.link.sent();
    }

    fn keep_alive(&mut self) -> Result<(), Fault> {
        (self.beat)();
        if self.last_poll.elapsed() < self.poll_every {
            return Ok(());
        }
        // The stages behind are stuck: stay in the group without taking more.
        if !self.paused {
            self.member.pause().map_err(|failure| Fault::Aborted(failure.to_string()))?;
            self.paused = true;
        }
        let mut none = ReceivedBatch::default();
        if self.poll(NO_WAIT, &mut none)? {
            return Err(Fault::Aborted("a record came from a paused partition".into()));
        }
        Ok(())
    }
}
