//! librdkafka as a member of the consumer group.

use super::link::{ConsumerEvents, Link, is_permanent};
use super::protocol::{Failure, Member, Offsets};
use super::{Partitions, client, headers};
use crate::batch::{Delivery, ReceivedBatch};
use crate::config::{Config, Start};
use crate::index::Origin;
use crate::metrics::Metrics;
use crate::transport::Fault;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Waiting time for answers of the cluster beside the flow.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The consumer of the source topics.
pub struct Consuming {
    consumer: BaseConsumer<ConsumerEvents>,
    partitions: Partitions,
}

impl Consuming {
    /// A consumer that has not joined the group yet, and what its callbacks say.
    pub fn new(config: &Config, partitions: Partitions, metrics: Arc<Metrics>) -> anyhow::Result<(Self, Arc<Link>)> {
        let link = Arc::new(Link::default());
        let events = ConsumerEvents {
            link: link.clone(),
            metrics,
            drain_timeout: config.pipeline.drain_timeout,
            fatal: Mutex::new(None),
        };
        let consumer = client::consumer(config).create_with_context(events)?;
        Ok((Self { consumer, partitions }, link))
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
    pub fn subscribe(&self, topics: &[String]) -> anyhow::Result<()> {
        Ok(self.consumer.subscribe(&topics.iter().map(String::as_str).collect::<Vec<_>>())?)
    }

    /// What the group knows this member by, for its transactions.
    pub fn group(&self) -> Option<ConsumerGroupMetadata> {
        self.consumer.group_metadata()
    }

    /// Offsets with the names of their partitions.
    pub fn list(&self, offsets: &Offsets) -> Result<TopicPartitionList, KafkaError> {
        let mut list = TopicPartitionList::new();
        for (number, offset) in offsets {
            let (topic, partition) = self.partitions.name(*number);
            list.add_partition_offset(&topic, partition, Offset::Offset(*offset as i64))?;
        }
        Ok(list)
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

impl Member for Consuming {
    fn poll(&self, wait: Duration, batch: &mut ReceivedBatch) -> Result<bool, Fault> {
        let polled = self.consumer.poll(wait);
        if let Some(reason) = self.consumer.context().fatal.lock().expect("nobody panics with the lock").clone() {
            return Err(Fault::Fatal(reason));
        }
        match polled {
            None => Ok(false),
            Some(Ok(message)) => self.append(&message, batch).map(|()| true),
            Some(Err(KafkaError::PartitionEOF(_))) => Ok(false),
            Some(Err(error)) if is_permanent(&error) => Err(Fault::Fatal(format!("cannot consume: {error}"))),
            Some(Err(error)) => {
                tracing::warn!(%error, "consuming");
                Ok(false)
            }
        }
    }

    fn assignment(&self) -> Result<Vec<u16>, Failure> {
        let assignment = self.consumer.assignment()?;
        let numbers = assignment.elements();
        Ok(numbers.iter().filter_map(|it| self.partitions.number(it.topic(), it.partition())).collect())
    }

    fn committed(&self, partitions: &[u16]) -> Result<Vec<Option<u64>>, Failure> {
        let list = self.list(&partitions.iter().map(|number| (*number, 0)).collect())?;
        let committed = self.consumer.committed_offsets(list, ANSWER_WITHIN)?;
        let offsets = committed.elements().into_iter().map(|element| {
            element.error()?;
            let number = self.partitions.number(element.topic(), element.partition());
            Ok((number, if let Offset::Offset(offset) = element.offset() { Some(offset as u64) } else { None }))
        });
        let offsets = offsets.collect::<Result<std::collections::HashMap<_, _>, KafkaError>>()?;
        Ok(partitions.iter().map(|number| offsets.get(&Some(*number)).copied().flatten()).collect())
    }

    fn first_offset(&self, partition: u16) -> Result<u64, Failure> {
        let (topic, partition) = self.partitions.name(partition);
        let (low, _) = self.consumer.fetch_watermarks(&topic, partition, ANSWER_WITHIN)?;
        Ok(low.max(0) as u64)
    }

    fn seek(&self, targets: &[(u16, Option<u64>)]) -> Result<(), Failure> {
        let mut list = TopicPartitionList::new();
        for (number, target) in targets {
            let (topic, partition) = self.partitions.name(*number);
            let offset = target.map_or(Offset::Beginning, |offset| Offset::Offset(offset as i64));
            list.add_partition_offset(&topic, partition, offset)?;
        }
        let sought = self.consumer.seek_partitions(list, ANSWER_WITHIN)?;
        Ok(sought.elements().iter().try_for_each(|element| element.error())?)
    }

    fn pause(&self) -> Result<(), Failure> {
        Ok(self.consumer.pause(&self.consumer.assignment()?)?)
    }

    fn resume(&self) -> Result<(), Failure> {
        Ok(self.consumer.resume(&self.consumer.assignment()?)?)
    }

    fn commit(&self, offsets: &Offsets) -> Result<(), Failure> {
        Ok(self.consumer.commit(&self.list(offsets)?, CommitMode::Sync)?)
    }
}
