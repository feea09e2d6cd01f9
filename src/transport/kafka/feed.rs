//! Pages into a topic, for trying things out: `generate --topic`.

use anyhow::{Context, Result, bail};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const FLUSH_WITHIN: Duration = Duration::from_secs(60);

/// The first delivery that failed.
#[derive(Default)]
struct FirstFailure(OnceLock<String>);

impl ClientContext for FirstFailure {}

impl ProducerContext<NoCustomPartitioner> for FirstFailure {
    type DeliveryOpaque = ();

    fn delivery(&self, report: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = report {
            let _ = self.0.set(error.to_string());
        }
    }
}

/// A producer that keeps to a rate.
pub struct Feed {
    producer: ThreadedProducer<FirstFailure>,
    topic: String,
    started: Instant,
    sent: u64,
    rate: Option<f64>,
}

impl Feed {
    /// Feeds `topic` with at most `rate` pages a second.
    pub fn new(brokers: &str, topic: &str, rate: Option<f64>) -> Result<Self> {
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("compression.type", "zstd")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "20");
        let producer: ThreadedProducer<FirstFailure> = client.create_with_context(FirstFailure::default())?;
        let metadata =
            producer.client().fetch_metadata(Some(topic), FLUSH_WITHIN).context("the cluster does not answer")?;
        if let Some(error) = metadata.topics().iter().find(|it| it.name() == topic).and_then(|it| it.error()) {
            bail!("topic {topic}: {}", RDKafkaErrorCode::from(error));
        }
        Ok(Self { producer, topic: topic.to_owned(), started: Instant::now(), sent: 0, rate })
    }

    /// Sends one page.
    pub fn send(&mut self, key: Option<&str>, value: &[u8]) -> Result<()> {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.sent as f64 / rate.max(1e-3));
            std::thread::sleep(due.saturating_sub(self.started.elapsed()));
        }
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).payload(value);
        record.key = key.map(str::as_bytes);
        loop {
            match self.producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), returned)) => {
                    record = returned;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err((error, _)) => return Err(error).context("cannot produce"),
            }
        }
        self.sent += 1;
        Ok(())
    }

    /// Waits until everything is acknowledged.
    pub fn finish(self) -> Result<()> {
        self.producer.flush(FLUSH_WITHIN).context("the cluster did not take everything")?;
        match self.producer.context().0.get() {
            Some(error) => bail!("a page was not taken: {error}"),
            None => Ok(()),
        }
    }
}
