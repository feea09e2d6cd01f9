//! Configuration → clients of librdkafka.

use crate::config::{Config, Delivery};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use std::time::Duration;

/// How often librdkafka reports its numbers, for the lag.
const STATISTICS_INTERVAL_MS: &str = "5000";

/// How soon partitions that were added are found.
const METADATA_REFRESH_MS: &str = "10000";

/// What every client has in common. The user's options come last but one; what a guarantee hangs on
/// is set after them by the callers, and refused among them when the configuration is read.
fn base(config: &Config) -> ClientConfig {
    let kafka = &config.kafka;
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", kafka.brokers.join(","))
        .set("client.id", format!("pagesieve-{}", kafka.instance))
        .set("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS)
        .set_log_level(RDKafkaLogLevel::Warning);
    if let Some(name) = &kafka.sasl_username {
        client.set("sasl.username", name);
    }
    if let Some(password) = &kafka.sasl_password {
        client.set("sasl.password", password.expose());
    }
    client
}

fn with_options(mut client: ClientConfig, config: &Config) -> ClientConfig {
    for (name, value) in &config.kafka.options {
        client.set(name, value);
    }
    client
}

/// A client for questions: metadata, limits, creating topics.
pub fn plain(config: &Config) -> ClientConfig {
    with_options(base(config), config)
}

/// The consumer of the source topics.
pub fn consumer(config: &Config) -> ClientConfig {
    let mut client = base(config);
    client
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("statistics.interval.ms", STATISTICS_INTERVAL_MS)
        .set("fetch.wait.max.ms", "50");
    let mut client = with_options(client, config);
    client
        .set("queued.max.messages.kbytes", (config.pipeline.prefetch_memory >> 10).max(1024).to_string())
        .set("group.id", &config.kafka.group)
        .set("group.instance.id", &config.kafka.instance)
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // Partitions that are found later are read from their beginning; the very first start has committed
        // the offsets it was asked for.
        .set("auto.offset.reset", "earliest");
    client
}

/// librdkafka's default.
const MAX_POLL_INTERVAL_MS: u64 = 300_000;

/// How often the consumer has to be polled, whatever the stages behind do: a quarter of what it is given, which
/// `kafka.options` may name, and half a minute at most.
pub fn poll_every(config: &Config) -> Duration {
    let given = config.kafka.options.get("max.poll.interval.ms").and_then(|text| text.trim().parse().ok());
    Duration::from_millis(given.unwrap_or(MAX_POLL_INTERVAL_MS) / 4).min(Duration::from_secs(30))
}

/// A consumer that reads the state topic once, outside of any group.
pub fn state_reader(config: &Config) -> ClientConfig {
    let mut client = plain(config);
    client
        .set("group.id", format!("{}-restore", config.kafka.group))
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest");
    client
}

/// Bounds of the reader that keeps the snapshot: it has all the time in the world.
pub const SNAPSHOT_QUEUE_BYTES: u64 = 8 << 20;
/// See [`SNAPSHOT_QUEUE_BYTES`].
pub const SNAPSHOT_FETCH_BYTES: u64 = 8 << 20;

/// A consumer that follows the state topic, outside of any group.
pub fn snapshot_reader(config: &Config) -> ClientConfig {
    let mut client = state_reader(config);
    client
        .set("group.id", format!("{}-snapshot", config.kafka.group))
        .set("queued.max.messages.kbytes", (SNAPSHOT_QUEUE_BYTES >> 10).to_string())
        .set("fetch.max.bytes", SNAPSHOT_FETCH_BYTES.to_string())
        .set("fetch.message.max.bytes", (SNAPSHOT_FETCH_BYTES / 2).to_string());
    client
}

/// The producer's queue where the largest page is of ordinary size.
const PRODUCER_QUEUE_BYTES: u64 = 128 << 20;

/// Bound of the producer's queue. It holds the largest page twice, for the retry of one must not keep the next out.
/// `kafka.options` may name another.
pub fn producer_queue_bytes(config: &Config) -> u64 {
    let given = config.kafka.options.get("queue.buffering.max.kbytes").and_then(|text| text.trim().parse::<u64>().ok());
    given.map_or(PRODUCER_QUEUE_BYTES.max(2 * config.input.max_page_bytes as u64), |kibibytes| kibibytes << 10)
}

/// librdkafka's bound of a batch, where no topic takes less.
const BATCH_BYTES: usize = 1_000_000;

/// The producer. A topic's limit holds for whole batches: `smallest_limit`, of all sink topics, bounds those, or small
/// messages would be refused for their company. A larger message travels alone, up to `max_message_bytes`.
pub fn producer(config: &Config, smallest_limit: usize, max_message_bytes: usize) -> ClientConfig {
    let mut client = base(config);
    client
        .set("compression.type", "zstd")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "5")
        .set("queue.buffering.max.kbytes", (producer_queue_bytes(config) >> 10).to_string());
    let mut client = with_options(client, config);
    client
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("batch.size", smallest_limit.clamp(1, BATCH_BYTES).to_string())
        .set("message.max.bytes", max_message_bytes.clamp(1000, 1_000_000_000).to_string());
    match config.kafka.delivery {
        Delivery::ExactlyOnce => {
            client
                .set("transactional.id", transactional_id(config))
                .set("transaction.timeout.ms", config.kafka.transaction_timeout.as_millis().to_string());
        }
        // A page waits for its broker for as long as it takes; nothing is committed past it meanwhile.
        Delivery::AtLeastOnce => {
            client.set("message.timeout.ms", "0");
        }
    }
    client
}

/// Stable across restarts, so that a start fences a zombie and settles its transaction.
pub fn transactional_id(config: &Config) -> String {
    format!("{}-{}", config.kafka.group, config.kafka.instance)
}
