//! The state topic → the window.

use super::{Partitions, client};
use crate::config::{Config, OnGap};
use crate::index::judge::Judge;
use crate::index::names::Named;
use crate::index::{Entry, Evicted};
use crate::sketch::BandKey;
use crate::state::SketchId;
use crate::state::record::{self, StateRecord};
use anyhow::{Context, Result, bail};
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// What a restore did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Restored {
    /// Records read.
    pub records: u64,
    /// Records that could not be read.
    pub damaged: u64,
    /// Records of other sketches, before the window was begun anew.
    pub foreign: u64,
}

/// The end of a partition is what is waited for here, not an error to be logged.
struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            tracing::warn!(%error, reason, "kafka");
        }
    }
}

impl ConsumerContext for Quiet {}

/// The state was made by other settings: it can never be used, whatever `on_gap` says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Foreign(String);

/// Rebuilds the window from the state topic, from its beginning to what is committed now. `progress` is told the
/// remaining time whenever it is known better.
pub fn restore(
    config: &Config,
    sketch: SketchId,
    partitions: &Partitions,
    judge: &mut Judge,
    stop: &AtomicBool,
    progress: impl Fn(Option<Duration>),
) -> Result<Restored> {
    let topic = &config.output.state_topic;
    let consumer: BaseConsumer<Quiet> = client::state_reader(config).create_with_context(Quiet)?;
    let (low, high) = consumer.fetch_watermarks(topic, 0, ANSWER_WITHIN).context("cannot read the state topic")?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&list)?;
    let started = Instant::now();
    let (mut restored, mut last_foreign, mut report_at) = (Restored::default(), None, started + REPORT_EVERY);
    loop {
        let message = match consumer.poll(Duration::from_millis(200)) {
            // Read committed: this end is before transactions that are still open, and they are not ours,
            // since the producer has been initialised.
            Some(Err(KafkaError::PartitionEOF(_))) => break,
            _ if stop.load(Ordering::Relaxed) => bail!("stopped before the window was restored"),
            _ if started.elapsed() > config.recovery.max_wait && config.recovery.on_gap != OnGap::Wait => {
                settle(judge);
                bail!("it took longer than recovery.max_wait = {} s", config.recovery.max_wait.as_secs())
            }
            Some(Err(error)) => bail!("cannot read the state topic: {error}"),
            None => continue,
            Some(Ok(message)) => message,
        };
        let now = Instant::now();
        let is_last = message.offset() + 1 >= high;
        restored.records += 1;
        last_foreign = None;
        match record::decode(message.payload().unwrap_or_default()) {
            Ok((_, id)) if id != sketch => {
                restored.foreign += 1;
                last_foreign = Some(id);
            }
            Ok((StateRecord::Window, _)) => judge.clear(),
            Ok((record, _)) => {
                apply(record, partitions, judge)?;
            }
            Err(damage) => {
                restored.damaged += 1;
                tracing::error!(topic, offset = message.offset(), %damage, "a state record cannot be read");
            }
        }
        if now >= report_at {
            report_at = now + REPORT_EVERY;
            let done = (message.offset() - low + 1) as f64 / (high - low).max(1) as f64;
            let left = started.elapsed().mul_f64((1.0 / done.clamp(1e-6, 1.0)) - 1.0);
            tracing::info!(
                records = restored.records,
                percent = done * 100.0,
                seconds_left = left.as_secs(),
                "restoring"
            );
            progress(Some(left));
        }
        // Other members go on writing: what they remember from now on is not ours to follow.
        if is_last {
            break;
        }
    }
    settle(judge);
    if let Some(id) = last_foreign {
        return Err(Foreign(format!(
            "the state topic {topic} holds sketches {id}, this configuration makes {sketch}: key, shingles, slots, bands, \
             fields or text version changed. Restore the old settings, or begin a new window with --new-window"
        ))
        .into());
    }
    Ok(restored)
}

fn apply(record: StateRecord, partitions: &Partitions, judge: &mut Judge) -> Result<()> {
    if judge.room() < 2 {
        settle(judge);
    }
    match record {
        StateRecord::Window => {}
        StateRecord::Forget { origin, url_key } => {
            let origin = partitions.origin(&origin).context("too many partitions")?;
            judge.forget_origin(Some(url_key), origin, Evicted::Forgotten);
        }
        StateRecord::Remember(page) => {
            let shape = judge.index().plan();
            if !page.short && (page.bits.len() != shape.bit_words || page.bands.len() + 2 != shape.keys_per_page) {
                bail!("a state record has another shape than its sketch id says");
            }
            let bands = page.bands.iter().map(|key| BandKey(*key)).collect::<Vec<_>>();
            let zeroes = vec![0; shape.bit_words];
            let entry = Entry {
                origin: partitions.origin(&page.origin).context("too many partitions")?,
                updated: page.updated,
                event_time: page.event_time,
                digest: page.digest,
                url_key: page.url_key,
                host_key: page.host_key,
                short: page.short,
                bands: &bands,
                bits: if page.short { &zeroes } else { &page.bits },
                names: Named { id: page.id, url: page.url },
            };
            let replaced = page.replaced.and_then(|origin| partitions.origin(&origin));
            judge.restore(&entry, replaced);
        }
    }
    Ok(())
}

/// What has been restored is final.
fn settle(judge: &mut Judge) {
    judge.seal();
    judge.commit();
    judge.tally.clear();
}
