//! What the delivery guarantees ask of a Kafka client, and no more.
//!
//! [`KafkaSource`](super::source::KafkaSource) and [`KafkaSink`](super::sink::KafkaSink) speak to these two traits.
//! librdkafka answers in [`super::member`] and [`super::producer`], a log in memory that fails on purpose in
//! `tests/simulate`: what is simulated there is the code that runs here.
//!
//! Partitions go by the numbers of [`super::Partitions`].

use crate::batch::ReceivedBatch;
use crate::index::Origin;
use crate::transport::Fault;
use rdkafka::message::OwnedHeaders;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Partition → the offset behind the last one that is meant.
pub type Offsets = BTreeMap<u16, u64>;

/// A message on its way out.
#[derive(Debug, Default)]
pub struct Message<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition; `None` leaves it to the key.
    pub partition: Option<i32>,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value.
    pub value: Option<&'a [u8]>,
    /// Timestamp; `None` for now.
    pub timestamp_ms: Option<i64>,
    /// Headers.
    pub headers: Option<OwnedHeaders>,
}

/// What a client's failure means for what is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The client's queue is full.
    Full,
    /// The topic will never take this message: it is too large, or its timestamp or form is not allowed.
    Refused,
    /// Not done within the time given; the same call may be made again, and settles it.
    Retriable,
    /// Not done; the transaction can only be aborted.
    Abortable,
    /// Another process has taken the name.
    Fenced,
    /// Another member of the group has the name. It may be this one: one that comes back from a session that ended.
    FencedMember,
    /// It will fail again, however often it is tried.
    Permanent,
    /// Nothing is known.
    Unknown,
}

/// Why a client did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// What follows from it.
    pub meaning: Meaning,
    /// The client's own words.
    pub reason: String,
}

/// A member of the consumer group.
pub trait Member {
    /// Serves callbacks, and appends the next record to `batch` if one comes within `wait`. Was there one?
    fn poll(&self, wait: Duration, batch: &mut ReceivedBatch) -> Result<bool, Fault>;

    /// The partitions that this member holds.
    fn assignment(&self) -> Result<Vec<u16>, Failure>;

    /// What the group has committed of these partitions, once no transaction is about to change it.
    fn committed(&self, partitions: &[u16]) -> Result<Vec<Option<u64>>, Failure>;

    /// The first offset that a partition still has.
    fn first_offset(&self, partition: u16) -> Result<u64, Failure>;

    /// Reads on from here; `None` is the beginning.
    fn seek(&self, targets: &[(u16, Option<u64>)]) -> Result<(), Failure>;

    /// Takes no records from any partition until [`Member::resume`].
    fn pause(&self) -> Result<(), Failure>;

    /// Takes records again.
    fn resume(&self) -> Result<(), Failure>;

    /// Commits outside of a transaction, and waits for the answer.
    fn commit(&self, offsets: &Offsets) -> Result<(), Failure>;
}

/// A producer; with `exactly_once`, of transactions under one name.
pub trait Publisher {
    /// Lets go of what is under way and starts over under the same name. In `exactly_once` that settles the last
    /// transaction, one way or the other, and fences whoever else has the name.
    fn reopen(&mut self) -> Result<(), Fault>;

    /// Begins a transaction.
    fn begin(&self) -> Result<(), Failure>;

    /// Queues a message for `origin`; one that does not fit into the queue is given back.
    fn send<'a>(&self, message: Message<'a>, origin: Origin) -> Result<(), (Failure, Message<'a>)>;

    /// Waits until every queued message has its report. False if that takes longer than `wait`.
    fn flush(&self, wait: Duration) -> bool;

    /// Messages that failed since the last call.
    fn take_failed(&self) -> Vec<(Origin, Failure)>;

    /// The first error that will not go away by itself.
    fn broken(&self) -> Option<String>;

    /// Makes offsets part of the transaction.
    fn send_offsets(&self, offsets: &Offsets) -> Result<(), Failure>;

    /// Flushes and commits the transaction.
    fn commit(&self) -> Result<(), Failure>;

    /// Aborts the transaction.
    fn abort(&self) -> Result<(), Failure>;

    /// The time, for deadlines.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Waits before the next attempt.
    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
