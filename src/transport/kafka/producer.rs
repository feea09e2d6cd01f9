//! librdkafka as the producer, and what it reports back.

use super::client;
use super::connect::Cluster;
use super::link::{is_permanent, note_error};
use super::member::Consuming;
use super::protocol::{Failure, Meaning, Message, Offsets, Publisher};
use crate::config::{Config, Delivery as Guarantee};
use crate::index::Origin;
use crate::transport::Fault;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One attempt at a call that blocks; retriable errors are tried again until the transaction's own time is over.
const ATTEMPT: Duration = Duration::from_secs(10);

/// How often a flush looks whether everything has its report.
const FLUSH_LOOK: Duration = Duration::from_millis(1);

/// The producer of everything that goes out.
pub struct Producing {
    config: Config,
    cluster: Cluster,
    /// Whose offsets the transactions carry.
    member: Arc<Consuming>,
    producer: ThreadedProducer<Reports>,
}

/// Delivery reports.
struct Reports {
    /// Deliveries that failed, with the pages they were for.
    failed: Mutex<Vec<(Origin, Failure)>>,
    /// Is there one?
    any_failed: AtomicBool,
    /// The first error that will not go away by itself.
    fatal: Mutex<Option<String>>,
    /// Topics of pages. What these refuse is the page's own doing; state and verdict records are all alike.
    page_topics: [String; 2],
}

impl ClientContext for Reports {
    fn error(&self, error: KafkaError, reason: &str) {
        note_error(&self.fatal, &error, reason);
    }
}

impl ProducerContext<NoCustomPartitioner> for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, report: &DeliveryResult<'_>, origin: usize) {
        let Err((error, message)) = report else { return };
        let mut failure = Failure::from(error.clone());
        let is_page = self.page_topics.iter().any(|topic| topic == message.topic());
        let form = matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::InvalidTimestamp | RDKafkaErrorCode::InvalidRecord)
        );
        if form && is_page {
            failure.meaning = Meaning::Refused;
        }
        let origin = Origin { source: (origin >> 48) as u16, offset: (origin & ((1 << 48) - 1)) as u64 };
        self.failed.lock().expect("nobody panics with the lock").push((origin, failure));
        self.any_failed.store(true, Ordering::Release);
    }
}

/// An origin as it travels with a message.
fn opaque(origin: Origin) -> usize {
    usize::from(origin.source) << 48 | origin.offset as usize
}

/// A producer that is ready: in `exactly_once` whoever had its name is fenced, and its transaction settled.
fn open(config: &Config, cluster: &Cluster) -> Result<ThreadedProducer<Reports>, Fault> {
    let output = &config.output;
    let topics = [
        Some(&output.topic),
        Some(&output.dead_letter_topic),
        output.verdict_topic.as_ref(),
        Some(&output.state_topic),
    ];
    let limits = topics.into_iter().flatten().map(|topic| cluster.limit(topic));
    let (smallest, largest) = (limits.clone().min().unwrap_or_default(), limits.max().unwrap_or_default());
    let reports = Reports {
        failed: Mutex::default(),
        any_failed: AtomicBool::new(false),
        fatal: Mutex::default(),
        page_topics: [output.topic.clone(), output.dead_letter_topic.clone()],
    };
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

impl Producing {
    /// A producer that is ready: a zombie of the same name is fenced, and its transaction settled.
    pub fn new(config: &Config, cluster: &Cluster, member: Arc<Consuming>) -> Result<Self, Fault> {
        let producer = open(config, cluster)?;
        Ok(Self { config: config.clone(), cluster: cluster.clone(), member, producer })
    }
}

impl Publisher for Producing {
    fn reopen(&mut self) -> Result<(), Fault> {
        self.producer.purge(PurgeConfig::default().queue().inflight());
        self.producer = open(&self.config, &self.cluster)?;
        Ok(())
    }

    fn begin(&self) -> Result<(), Failure> {
        Ok(self.producer.begin_transaction()?)
    }

    fn send<'a>(&self, message: Message<'a>, origin: Origin) -> Result<(), (Failure, Message<'a>)> {
        let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(message.topic, opaque(origin));
        record.partition = message.partition;
        record.key = message.key;
        record.payload = message.value;
        record.timestamp = message.timestamp_ms;
        record.headers = message.headers;
        self.producer
            .send(record)
            .map_err(|(error, record)| (Failure::from(error), Message { headers: record.headers, ..message }))
    }

    fn flush(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        // With a time to wait the library would wait for delivery reports that the producer's own thread takes, in steps
        // of 100 ms: every commit took as long.
        while self.producer.flush(Duration::ZERO).is_err() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(FLUSH_LOOK);
        }
        true
    }

    fn take_failed(&self) -> Vec<(Origin, Failure)> {
        let reports = self.producer.context();
        if !reports.any_failed.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *reports.failed.lock().expect("nobody panics with the lock"))
    }

    fn broken(&self) -> Option<String> {
        self.producer.context().fatal.lock().expect("nobody panics with the lock").clone()
    }

    fn send_offsets(&self, offsets: &Offsets) -> Result<(), Failure> {
        let group = self.member.group().ok_or_else(|| Failure {
            meaning: Meaning::Abortable,
            reason: "the consumer is not in its group".into(),
        })?;
        Ok(self.producer.send_offsets_to_transaction(&self.member.list(offsets)?, &group, ATTEMPT)?)
    }

    fn commit(&self) -> Result<(), Failure> {
        if !self.flush(ATTEMPT) {
            let reason = "messages are still on their way".to_owned();
            return Err(Failure { meaning: Meaning::Retriable, reason });
        }
        Ok(self.producer.commit_transaction(ATTEMPT)?)
    }

    fn abort(&self) -> Result<(), Failure> {
        Ok(self.producer.abort_transaction(ATTEMPT)?)
    }
}
