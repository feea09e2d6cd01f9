//! What source and sink know of each other: how much is under way, and whether it may still be committed.

use super::protocol::{Failure, Meaning};
use crate::metrics::Metrics;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionList;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Topics and partitions.
pub type Names = Vec<(String, i32)>;

/// Shared by the consumer's callbacks, the source and the sink.
#[derive(Debug, Default)]
pub struct Link {
    sent: AtomicU64,
    settled: AtomicU64,
    lost: AtomicBool,
    failed: AtomicBool,
    /// When the sink made the call to the cluster that it is waiting for.
    calling_since: Mutex<Option<Instant>>,
    /// Partitions that came since the source last looked.
    assigned: Mutex<Names>,
    /// Partitions that went since the source last looked.
    revoked: Mutex<Names>,
}

impl Link {
    /// A batch went into the flight.
    pub fn sent(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }

    /// So many batches were committed.
    pub fn committed(&self, batches: u64) {
        self.settled.fetch_add(batches, Ordering::SeqCst);
    }

    /// The sink gave up on this flight.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    /// A call to the cluster begins; it is over when what is returned is dropped.
    pub fn calling(&self) -> Calling<'_> {
        *self.calling_since.lock().expect("nobody panics with the lock") = Some(Instant::now());
        Calling(self)
    }

    /// How long the sink has been waiting for one call to return.
    pub fn waiting(&self) -> Duration {
        let since = *self.calling_since.lock().expect("nobody panics with the lock");
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Were partitions taken away before their pages could be committed?
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// A new flight begins: nothing is under way.
    pub fn reset(&self) {
        self.sent.store(0, Ordering::SeqCst);
        self.settled.store(0, Ordering::SeqCst);
        self.lost.store(false, Ordering::SeqCst);
        self.failed.store(false, Ordering::SeqCst);
    }

    /// Partitions that came and went since the last call.
    pub fn take_changes(&self) -> (Names, Names) {
        let take = |list: &Mutex<Vec<_>>| std::mem::take(&mut *list.lock().expect("nobody panics with the lock"));
        (take(&self.assigned), take(&self.revoked))
    }

    /// Partitions came.
    pub fn assign(&self, partitions: Names) {
        self.assigned.lock().expect("nobody panics with the lock").extend(partitions);
    }

    /// Partitions go. Unless everything under way was committed `in_time`, nothing of it may be any more.
    pub fn revoke(&self, partitions: Names, in_time: bool) {
        if !in_time {
            self.lost.store(true, Ordering::SeqCst);
        }
        self.revoked.lock().expect("nobody panics with the lock").extend(partitions);
    }

    /// Is everything under way committed?
    pub fn is_drained(&self) -> bool {
        self.settled.load(Ordering::SeqCst) >= self.sent.load(Ordering::SeqCst)
    }

    /// Has the sink given up on this flight?
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Waits until everything under way is committed. False if that fails or takes too long.
    fn drain(&self, limit: Duration) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        let deadline = Instant::now() + limit;
        while !self.is_drained() {
            if self.has_failed() || Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        true
    }
}

/// A call to the cluster that has not returned.
pub struct Calling<'a>(&'a Link);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        *self.0.calling_since.lock().expect("nobody panics with the lock") = None;
    }
}

/// The consumer's callbacks, called on the thread that polls.
pub struct ConsumerEvents {
    /// Shared with source and sink.
    pub link: Arc<Link>,
    /// Where lag goes.
    pub metrics: Arc<Metrics>,
    /// Longest wait for a commit when partitions are revoked.
    pub drain_timeout: Duration,
    /// The first error that will not go away by itself.
    pub fatal: Mutex<Option<String>>,
}

impl ClientContext for ConsumerEvents {
    fn stats(&self, statistics: Statistics) {
        for (topic, state) in &statistics.topics {
            for (partition, state) in &state.partitions {
                // −1: not known; the partition −1 collects what is not assigned.
                if *partition >= 0 && state.consumer_lag >= 0 && state.fetch_state == "active" {
                    self.metrics.set_lag(topic, *partition, state.consumer_lag);
                }
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        note_error(&self.fatal, &error, reason);
    }
}

/// Logs a client's error; one that retrying cannot mend is kept.
pub fn note_error(fatal: &Mutex<Option<String>>, error: &KafkaError, reason: &str) {
    if is_permanent(error) {
        fatal.lock().expect("nobody panics with the lock").get_or_insert_with(|| reason.to_owned());
    }
    tracing::warn!(%error, reason, "kafka");
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        use RDKafkaErrorCode as Code;
        let meaning = match (&error, error.rdkafka_error_code()) {
            (_, Some(Code::Fenced | Code::ProducerFenced)) => Meaning::Fenced,
            (_, Some(Code::FencedInstanceId)) => Meaning::FencedMember,
            (_, Some(Code::QueueFull)) => Meaning::Full,
            (_, Some(Code::MessageSizeTooLarge)) => Meaning::Refused,
            _ if is_permanent(&error) => Meaning::Permanent,
            (KafkaError::Transaction(error), _) if error.is_retriable() => Meaning::Retriable,
            (KafkaError::Transaction(error), _) if error.txn_requires_abort() => Meaning::Abortable,
            _ => Meaning::Unknown,
        };
        Self { meaning, reason: error.to_string() }
    }
}

/// Will it fail again, however often it is tried?
pub fn is_permanent(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::TransactionalIdAuthorizationFailed
                | Code::UnsupportedSASLMechanism
                | Code::FencedInstanceId
                | Code::Fenced
                | Code::Fatal
        )
    )
}

impl ConsumerContext for ConsumerEvents {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(partitions) = rebalance else { return };
        if partitions.count() == 0 {
            return;
        }
        let in_time = !consumer.assignment_lost() && self.link.drain(self.drain_timeout);
        tracing::info!(partitions = %listed(partitions), committed = in_time, "partitions revoked");
        self.link.revoke(names(partitions), in_time);
        for element in partitions.elements() {
            self.metrics.remove_partition(element.topic(), element.partition());
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) if partitions.count() > 0 => {
                tracing::info!(partitions = %listed(partitions), "partitions assigned");
                self.link.assign(names(partitions));
            }
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance failed"),
            _ => {}
        }
    }
}

fn names(partitions: &TopicPartitionList) -> Names {
    partitions.elements().iter().map(|element| (element.topic().to_owned(), element.partition())).collect()
}

fn listed(partitions: &TopicPartitionList) -> String {
    let names = names(partitions).into_iter().map(|(topic, partition)| format!("{topic}/{partition}"));
    names.collect::<Vec<_>>().join(" ")
}
