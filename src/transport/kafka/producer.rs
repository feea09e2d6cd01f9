//! The producer and what it reports back.

use super::client;
use super::connect::Cluster;
use super::link::{is_permanent, note_error};
use crate::config::{Config, Delivery as Guarantee};
use crate::index::Origin;
use crate::transport::Fault;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One attempt at a call that blocks; retriable errors are tried again until the transaction's own time is over.
pub const ATTEMPT: Duration = Duration::from_secs(10);

/// Pages that the broker refused though they looked right: rejected when they are judged again.
#[derive(Debug, Clone, Default)]
pub struct Refused {
    any: Arc<AtomicBool>,
    pages: Arc<Mutex<HashSet<Origin>>>,
}

impl Refused {
    /// Adds a page.
    pub fn add(&self, origin: Origin) {
        self.pages.lock().expect("nobody panics with the lock").insert(origin);
        self.any.store(true, Ordering::Release);
    }

    /// Is it one of them?
    pub fn contains(&self, origin: Origin) -> bool {
        self.any.load(Ordering::Acquire) && self.pages.lock().expect("nobody panics with the lock").contains(&origin)
    }
}

/// Delivery reports.
pub struct Reports {
    /// Deliveries that failed, with the pages they were for.
    pub failed: Mutex<Vec<(Origin, KafkaError)>>,
    /// Is there one?
    pub any_failed: AtomicBool,
    /// The first error that will not go away by itself.
    pub fatal: Mutex<Option<String>>,
}

impl ClientContext for Reports {
    fn error(&self, error: KafkaError, reason: &str) {
        note_error(&self.fatal, &error, reason);
    }
}

impl ProducerContext<NoCustomPartitioner> for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, report: &DeliveryResult<'_>, origin: usize) {
        let Err((error, _)) = report else { return };
        let origin = Origin { source: (origin >> 48) as u16, offset: (origin & ((1 << 48) - 1)) as u64 };
        self.failed.lock().expect("nobody panics with the lock").push((origin, error.clone()));
        self.any_failed.store(true, Ordering::Release);
    }
}

/// An origin as it travels with a message.
pub fn opaque(origin: Origin) -> usize {
    usize::from(origin.source) << 48 | origin.offset as usize
}

/// A producer that is ready: in `exactly_once` whoever had its name is fenced, and its transaction settled.
pub fn open(config: &Config, cluster: &Cluster) -> Result<ThreadedProducer<Reports>, Fault> {
    let output = &config.output;
    let topics = [
        Some(&output.topic),
        Some(&output.dead_letter_topic),
        output.verdict_topic.as_ref(),
        Some(&output.state_topic),
    ];
    let limits = topics.into_iter().flatten().map(|topic| cluster.limit(topic));
    let (smallest, largest) = (limits.clone().min().unwrap_or_default(), limits.max().unwrap_or_default());
    let reports = Reports { failed: Mutex::default(), any_failed: AtomicBool::new(false), fatal: Mutex::default() };
    let producer: ThreadedProducer<Reports> = client::producer(config, smallest, largest)
        .create_with_context(reports)
        .map_err(|error| Fault::Fatal(error.to_string()))?;
    if matches!(config.kafka.delivery, Guarantee::ExactlyOnce) {
        let deadline = Instant::now() + config.kafka.transaction_timeout;
        while let Err(error) = producer.init_transactions(ATTEMPT) {
            let retriable = matches!(&error, KafkaError::Transaction(error) if error.is_retriable());
            if !retriable || is_permanent(&error) {
                return Err(Fault::Fatal(format!("cannot initialise transactions: {error}")));
            }
            if Instant::now() >= deadline {
                return Err(Fault::Aborted(format!("cannot initialise transactions in time: {error}")));
            }
        }
    }
    Ok(producer)
}
