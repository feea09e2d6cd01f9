//! Source topics → batches.

use super::Partitions;
use super::client;
use super::headers;
use super::link::{ConsumerEvents, Link, is_permanent};
use crate::batch::{Delivery, Limits, ReceivedBatch};
use crate::config::{Config, Start};
use crate::index::Origin;
use crate::metrics::Metrics;
use crate::transport::{Fault, Received, Source};
use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Waiting time for answers of the cluster beside the flow.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A poll is due after this long, whatever the stages behind do; `max.poll.interval.ms` is ten times as much.
const POLL_EVERY: Duration = Duration::from_secs(30);

/// A poll that only serves callbacks.
const NO_WAIT: Duration = Duration::ZERO;

/// The consumer, as the sink shares it.
pub type SharedConsumer = Arc<BaseConsumer<ConsumerEvents>>;

/// Reads the source topics as a member of the group.
pub struct KafkaSource {
    consumer: SharedConsumer,
    partitions: Partitions,
    link: Arc<Link>,
    metrics: Arc<Metrics>,
    topics: Vec<String>,
    total_partitions: usize,
    last_poll: Instant,
    paused: bool,
    /// Called on every poll: the process is alive.
    beat: Box<dyn Fn() + Send>,
    /// Called once partitions are assigned for the first time.
    joined: Option<Box<dyn Fn() + Send>>,
}

impl KafkaSource {
    /// A consumer that has not joined the group yet.
    pub fn new(
        config: &Config,
        partitions: Partitions,
        metrics: Arc<Metrics>,
        total_partitions: usize,
    ) -> anyhow::Result<Self> {
        let link = Arc::new(Link::default());
        let events = ConsumerEvents {
            link: link.clone(),
            metrics: metrics.clone(),
            drain_timeout: config.pipeline.drain_timeout,
            fatal: Mutex::new(None),
        };
        let consumer: BaseConsumer<ConsumerEvents> = client::consumer(config).create_with_context(events)?;
        Ok(Self {
            consumer: Arc::new(consumer),
            partitions,
            link,
            metrics,
            topics: config.input.topics.clone(),
            total_partitions,
            last_poll: Instant::now(),
            paused: false,
            beat: Box::new(|| {}),
            joined: None,
        })
    }

    /// Has `beat` called on every poll, and `joined` once the group has assigned partitions.
    pub fn with_health(mut self, beat: impl Fn() + Send + 'static, joined: impl Fn() + Send + 'static) -> Self {
        self.beat = Box::new(beat);
        self.joined = Some(Box::new(joined));
        self
    }

    /// The consumer and what it shares with the sink.
    pub fn shared(&self) -> (SharedConsumer, Arc<Link>) {
        (self.consumer.clone(), self.link.clone())
    }

    /// On the very first start (the group has committed nothing, the window holds nothing) commits the offsets that
    /// `start` asks for, so that no later start can mistake itself for the first.
    pub fn begin(&self, start: Start, partitions: &[(String, i32)]) -> anyhow::Result<()> {
        // The beginning is where partitions without a commit are read from anyway.
        if start == Start::Earliest {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for (topic, partition) in partitions {
            list.add_partition(topic, *partition);
        }
        let committed = self.consumer.committed_offsets(list.clone(), ANSWER_WITHIN)?;
        if committed.elements().iter().any(|it| matches!(it.offset(), Offset::Offset(_))) {
            return Ok(());
        }
        match start {
            Start::Earliest => {}
            Start::Latest => list.set_all_offsets(Offset::End)?,
            Start::At { epoch_ms } => {
                list.set_all_offsets(Offset::Offset(epoch_ms))?;
                list = self.consumer.offsets_for_times(list, ANSWER_WITHIN)?;
            }
        }
        let mut first = TopicPartitionList::new();
        for element in list.elements() {
            let offset = match element.offset() {
                Offset::Offset(offset) => offset,
                _ => self.consumer.fetch_watermarks(element.topic(), element.partition(), ANSWER_WITHIN)?.1,
            };
            first.add_partition_offset(element.topic(), element.partition(), Offset::Offset(offset))?;
        }
        tracing::info!(?start, "first start: beginning where the configuration says");
        Ok(self.consumer.commit(&first, CommitMode::Sync)?)
    }

    /// Joins the group.
    pub fn subscribe(&self) -> anyhow::Result<()> {
        let topics = self.topics.iter().map(String::as_str).collect::<Vec<_>>();
        Ok(self.consumer.subscribe(&topics)?)
    }

    /// Goes back to what is committed, on every partition that is assigned. A new flight begins.
    pub fn rewind(&mut self) -> anyhow::Result<()> {
        // What came before the fault is read again: let revocations in the meantime take effect first.
        self.link.reset();
        let assignment = self.consumer.assignment()?;
        if assignment.count() > 0 {
            let committed = self.consumer.committed_offsets(assignment, ANSWER_WITHIN)?;
            let mut targets = TopicPartitionList::new();
            for element in committed.elements() {
                let offset = match element.offset() {
                    Offset::Offset(offset) => Offset::Offset(offset),
                    _ => Offset::Beginning,
                };
                targets.add_partition_offset(element.topic(), element.partition(), offset)?;
            }
            let sought = self.consumer.seek_partitions(targets, ANSWER_WITHIN)?;
            sought.elements().iter().try_for_each(|element| element.error())?;
        }
        Ok(())
    }

    /// Counts records that were gone before they could be read.
    fn look_for_gaps(&self, assigned: &[(String, i32)]) {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in assigned {
            list.add_partition(topic, *partition);
        }
        let Ok(committed) = self.consumer.committed_offsets(list, ANSWER_WITHIN) else { return };
        for element in committed.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            let Offset::Offset(committed) = element.offset() else { continue };
            let Ok((low, _)) = self.consumer.fetch_watermarks(topic, partition, ANSWER_WITHIN) else { continue };
            if low > committed {
                let lost = (low - committed) as u64;
                self.metrics.gap_offsets_total.inc_by(lost);
                tracing::error!(
                    topic,
                    partition,
                    lost,
                    "retention has passed the committed offset: pages were lost before they were read"
                );
            }
        }
    }

    /// Takes note of partitions that came and went; records of the latter are dropped from `batch`.
    fn follow_assignment(&mut self, batch: &mut ReceivedBatch) {
        let (assigned, revoked) = self.link.take_changes();
        if !revoked.is_empty() {
            let gone: HashSet<u16> =
                revoked.iter().filter_map(|(topic, partition)| self.partitions.number(topic, *partition)).collect();
            batch.deliveries.retain(|delivery| !gone.contains(&delivery.origin.source));
        }
        if !assigned.is_empty() {
            self.look_for_gaps(&assigned);
        }
        if assigned.is_empty() && revoked.is_empty() {
            return;
        }
        let held = self.consumer.assignment().map_or(0, |list| list.count());
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
        let fatal = |consumer: &SharedConsumer| {
            consumer.context().fatal.lock().expect("nobody panics with the lock").clone().map(Fault::Fatal)
        };
        let consumer = self.consumer.clone();
        let polled = consumer.poll(wait);
        if let Some(fault) = fatal(&self.consumer) {
            return Err(fault);
        }
        if self.link.is_lost() {
            return Err(Fault::Aborted("partitions were lost before their pages were committed".into()));
        }
        match polled {
            None => Ok(false),
            Some(Ok(message)) => {
                self.append(&message, batch)?;
                Ok(true)
            }
            Some(Err(KafkaError::PartitionEOF(_))) => Ok(false),
            Some(Err(error)) if is_permanent(&error) => Err(Fault::Fatal(format!("cannot consume: {error}"))),
            Some(Err(error)) => {
                tracing::warn!(%error, "consuming");
                Ok(false)
            }
        }
    }

    fn append(&self, message: &BorrowedMessage, batch: &mut ReceivedBatch) -> Result<(), Fault> {
        let number = self.partitions.number(message.topic(), message.partition());
        let source = number.ok_or_else(|| Fault::Fatal(format!("more than {} partitions", Origin::MAX_SOURCES)))?;
        let first_header = batch.headers.len();
        headers::for_each(message, |name, value| {
            let name = batch.push(name.as_bytes());
            let value = value.map(|value| batch.push(value));
            batch.headers.push((name, value));
        });
        let key = message.key().map(|key| batch.push(key));
        let value = message.payload().map(|value| batch.push(value));
        batch.received_at.get_or_insert_with(Instant::now);
        batch.deliveries.push(Delivery {
            origin: Origin { source, offset: message.offset() as u64 },
            value,
            cut_from: None,
            key,
            headers: first_header..batch.headers.len(),
            timestamp_ms: message.timestamp().to_millis(),
        });
        Ok(())
    }
}

impl Source for KafkaSource {
    fn receive(&mut self, batch: &mut ReceivedBatch, limits: &Limits) -> Result<Received, Fault> {
        if std::mem::take(&mut self.paused) {
            let assignment = self.consumer.assignment().map_err(|error| Fault::Aborted(error.to_string()))?;
            self.consumer.resume(&assignment).map_err(|error| Fault::Aborted(error.to_string()))?;
        }
        let deadline = Instant::now() + limits.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let got = self.poll(left, batch)?;
            self.follow_assignment(batch);
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
        if self.last_poll.elapsed() < POLL_EVERY {
            return Ok(());
        }
        // The stages behind are stuck: stay in the group without taking more.
        if !self.paused {
            let assignment = self.consumer.assignment().map_err(|error| Fault::Aborted(error.to_string()))?;
            self.consumer.pause(&assignment).map_err(|error| Fault::Aborted(error.to_string()))?;
            self.paused = true;
        }
        let mut none = ReceivedBatch::default();
        if self.poll(NO_WAIT, &mut none)? {
            return Err(Fault::Aborted("a record came from a paused partition".into()));
        }
        Ok(())
    }
}
