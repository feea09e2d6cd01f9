//! Judged batches → output topics, in transactions that carry the offsets too.

use super::Partitions;
use super::connect::{ADDED_HEADER_BYTES, Cluster};
use super::link::{Link, is_permanent};
use super::producer::{self, ATTEMPT, Refused, Reports, opaque};
use super::records::{self, Marks};
use super::source::SharedConsumer;
use crate::batch::{JudgedBatch, SketchedBatch};
use crate::config::{Config, Delivery as Guarantee, Mode, Output, VerdictRecords};
use crate::crash_point;
use crate::index::Origin;
use crate::metrics::Metrics;
use crate::page::{Reason, Reject};
use crate::state::SketchId;
use crate::state::record::{self, NamedOrigin, Remembered, StateRecord};
use crate::transport::{Fault, Sink, SinkCheck};
use crate::verdict::{Disposition, NotJudged, Policy};
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaError, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Numbers of [`crate::metrics::TRANSACTION_RESULTS`].
const COMMITTED: usize = 0;
const ABORTED: usize = 1;

/// Where a message goes.
struct Target<'a> {
    topic: &'a str,
    partition: Option<i32>,
    key: Option<&'a [u8]>,
    timestamp_ms: Option<i64>,
    headers: Option<OwnedHeaders>,
}

/// Publishes outcomes.
pub struct KafkaSink {
    config: Config,
    /// Of the configuration; shared, so that a page can hold it while the sink changes.
    output: Arc<Output>,
    cluster: Cluster,
    policy: Policy,
    sketch: SketchId,
    marks: Marks,
    partitions: Partitions,
    consumer: SharedConsumer,
    link: Arc<Link>,
    metrics: Arc<Metrics>,
    refused: Refused,
    producer: ThreadedProducer<Reports>,
    /// Is a transaction open?
    open: bool,
    /// Next offset of each partition in the open transaction.
    offsets: BTreeMap<u16, u64>,
    /// Batches in the open transaction.
    batches: u64,
    /// Offsets of a commit whose outcome is not known.
    in_doubt: Option<BTreeMap<u16, u64>>,
    /// A new window was begun: said before the first state record.
    announce_window: bool,
    scratch: Vec<u8>,
}

/// What a sink is made of.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// What is known of the cluster.
    pub cluster: Cluster,
    /// Id of the sketches.
    pub sketch: SketchId,
    /// Numbers of partitions.
    pub partitions: Partitions,
    /// Consumer and link of the source.
    pub source: (SharedConsumer, Arc<Link>),
    /// Where numbers go.
    pub metrics: Arc<Metrics>,
    /// Begin a new window.
    pub new_window: bool,
}

impl KafkaSink {
    /// A sink whose producer is ready: a zombie of the same name is fenced, and its transaction settled.
    pub fn new(parts: Parts) -> Result<Self, Fault> {
        let Parts { config, cluster, sketch, partitions, source: (consumer, link), metrics, new_window } = parts;
        let producer = producer::open(&config, &cluster)?;
        Ok(Self {
            policy: Policy::new(&config.policy),
            marks: Marks { config: config.hash(), sketch: sketch.to_string() },
            output: Arc::new(config.output.clone()),
            config,
            cluster,
            sketch,
            partitions,
            consumer,
            link,
            metrics,
            refused: Refused::default(),
            producer,
            open: false,
            offsets: BTreeMap::new(),
            batches: 0,
            in_doubt: None,
            announce_window: new_window,
            scratch: Vec::new(),
        })
    }

    /// Says of a page, before it is judged, whether it could not be forwarded.
    pub fn check(&self) -> Arc<SinkCheck> {
        let limit = self.cluster.limit(&self.config.output.topic);
        let forwards = matches!(self.config.output.mode, Mode::Pages);
        let refused = self.refused.clone();
        Arc::new(move |received, at| {
            let delivery = &received.deliveries[at];
            if refused.contains(delivery.origin) {
                return Some(Reject::new(Reason::SinkLimit, "the broker refused it for its size"));
            }
            let value = delivery.value.as_ref().map_or(0, ExactSizeIterator::len);
            let bytes = value + records::beside_value(delivery, &received.headers) + ADDED_HEADER_BYTES;
            (forwards && bytes > limit).then(|| {
                Reject::new(
                    Reason::SinkLimit,
                    format!("{bytes} bytes with its headers, the output topic takes {limit}"),
                )
            })
        })
    }

    /// Says in the state topic that a new window begins, in a commit of its own: it is one even if no page follows.
    pub fn begin_window(&mut self) -> Result<(), Fault> {
        self.begin()?;
        self.commit()
    }

    /// After a fault: settles what was open and starts over. True if the commit in doubt went through.
    pub fn recover(&mut self) -> Result<bool, Fault> {
        if self.open {
            self.metrics.transactions_total[ABORTED].inc();
        }
        if self.open && self.in_doubt.is_none() && self.exactly_once() {
            // The polite way; a new producer settles it too.
            let _ = self.producer.abort_transaction(ATTEMPT);
        }
        self.producer.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
        // Its reports go with it.
        let _ = self.look_for_failures();
        self.producer = producer::open(&self.config, &self.cluster)?;
        self.open = false;
        self.batches = 0;
        self.offsets.clear();
        let Some(doubtful) = self.in_doubt.clone() else { return Ok(false) };
        let list = self.list(&doubtful).map_err(|error| Fault::Fatal(error.to_string()))?;
        let committed = self
            .consumer
            .committed_offsets(list, self.config.kafka.transaction_timeout)
            .map_err(|error| Fault::Aborted(format!("cannot read committed offsets: {error}")))?;
        self.in_doubt = None;
        let moved = committed.elements().iter().all(|element| {
            let number = self.partitions.number(element.topic(), element.partition());
            let wanted = number.and_then(|number| doubtful.get(&number)).copied();
            matches!((element.offset(), wanted), (Offset::Offset(is), Some(wanted)) if is >= wanted as i64)
        });
        tracing::info!(committed = moved, "settled a commit whose outcome was not known");
        Ok(moved)
    }

    fn exactly_once(&self) -> bool {
        matches!(self.config.kafka.delivery, Guarantee::ExactlyOnce)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        if self.link.is_lost() {
            return Err(Fault::Aborted("partitions were lost before their pages were committed".into()));
        }
        if self.open {
            return Ok(());
        }
        if self.exactly_once() {
            self.producer.begin_transaction().map_err(|error| self.fault("begin a transaction", &error))?;
        }
        self.open = true;
        if self.announce_window {
            self.state_record(&StateRecord::Window, Origin { source: 0, offset: 0 })?;
        }
        Ok(())
    }

    fn page(&mut self, judged: &JudgedBatch, batch: &SketchedBatch, at: usize) -> Result<(), Fault> {
        let delivery = &batch.received.deliveries[at];
        let outcome = &judged.judged[at];
        let disposition = self.policy.disposition(outcome.verdict);
        let pages = matches!(self.config.output.mode, Mode::Pages);
        let output = self.output.clone();
        let value = delivery.value.as_ref().map(|span| batch.received.bytes(span));
        let key = delivery.key.as_ref().map(|span| batch.received.bytes(span));
        let mut target = Target { topic: "", partition: None, key, timestamp_ms: delivery.timestamp_ms, headers: None };
        match disposition {
            Disposition::Forward | Disposition::Tag if pages => {
                let (_, partition) = self.partitions.name(delivery.origin.source);
                let same = self.cluster.partitions.get(&output.topic).is_some_and(|count| partition < *count);
                let tag = matches!(disposition, Disposition::Tag);
                target.topic = &output.topic;
                target.partition = same.then_some(partition);
                target.headers = Some(records::forwarded(judged, batch, at, tag, &self.partitions));
                self.send(&mut target, value, delivery.origin)?;
            }
            Disposition::DeadLetter if pages => {
                let Some(NotJudged::Rejected(reject)) = judged.not_judged(at) else {
                    return Err(Fault::Fatal("a page was rejected without a reason".into()));
                };
                let limit = self.cluster.limit(&output.dead_letter_topic);
                let beside = records::beside_value(delivery, &batch.received.headers);
                let ours = reject.detail.len() + ADDED_HEADER_BYTES;
                // Key and headers alone may be too large: then the origin says where they are.
                let bare = beside + ours > limit;
                let room = limit.saturating_sub(if bare { ours } else { beside + ours });
                let cut = value.is_some_and(|value| value.len() > room);
                let kept = value.map(|value| &value[..value.len().min(room)]);
                let whole = cut.then(|| value.map_or(0, <[u8]>::len));
                target.topic = &output.dead_letter_topic;
                target.key = key.filter(|_| !bare);
                target.headers = Some(records::dead_letter(batch, delivery, &reject, whole, bare, &self.partitions));
                self.send(&mut target, kept, delivery.origin)?;
            }
            _ => {}
        }
        let on_another_topic = pages && !matches!(disposition, Disposition::Drop);
        let plainly_unique = outcome.verdict == crate::verdict::Verdict::Unique;
        let recorded = match output.verdict_records {
            VerdictRecords::Dropped => !on_another_topic && !plainly_unique,
            VerdictRecords::NotUnique => !plainly_unique,
            VerdictRecords::All => true,
        };
        if let (Some(topic), true) = (&output.verdict_topic, recorded) {
            let mut bytes = std::mem::take(&mut self.scratch);
            records::verdict(judged, batch, at, disposition, &self.marks, &self.partitions, &mut bytes);
            (target.topic, target.partition, target.headers, target.timestamp_ms) = (topic, None, None, None);
            // A key that does not fit is left out; the record names the page.
            let limit = self.cluster.limit(topic);
            target.key = key.filter(|key| key.len() + bytes.len() + records::FRAMING_BYTES <= limit);
            self.send(&mut target, Some(&bytes), delivery.origin)?;
            self.scratch = bytes;
        }
        if outcome.remembered {
            self.state(judged, batch, at)?;
        }
        Ok(())
    }

    /// The state record of a page that was remembered.
    fn state(&mut self, judged: &JudgedBatch, batch: &SketchedBatch, at: usize) -> Result<(), Fault> {
        let page = batch.sketched(at).expect("only pages are remembered");
        let outcome = &judged.judged[at];
        let (topic, partition) = self.partitions.name(page.origin.source);
        let replaced = outcome.replaced.map(|origin| (self.partitions.name(origin.source), origin.offset));
        let record = StateRecord::Remember(Remembered {
            origin: NamedOrigin { topic: &topic, partition, offset: page.origin.offset },
            updated: outcome.verdict == crate::verdict::Verdict::Updated,
            event_time: outcome.event_time,
            digest: page.digest,
            url_key: page.url_key,
            host_key: page.host_key,
            replaced: replaced.as_ref().map(|((topic, partition), offset)| NamedOrigin {
                topic,
                partition: *partition,
                offset: *offset,
            }),
            short: page.short,
            bands: if page.short { Vec::new() } else { page.bands.to_vec() },
            bits: if page.short { Vec::new() } else { page.bits.to_vec() },
            url: page.names.url,
            id: page.names.id,
        });
        self.state_record(&record, page.origin)
    }

    fn state_record(&mut self, record: &StateRecord, origin: Origin) -> Result<(), Fault> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        record::encode(record, self.sketch, &mut bytes);
        let output = self.output.clone();
        let mut target =
            Target { topic: &output.state_topic, partition: Some(0), key: None, timestamp_ms: None, headers: None };
        self.send(&mut target, Some(&bytes), origin)?;
        self.scratch = bytes;
        Ok(())
    }

    fn send(&self, target: &mut Target, value: Option<&[u8]>, origin: Origin) -> Result<(), Fault> {
        let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(target.topic, opaque(origin));
        record.partition = target.partition;
        record.key = target.key;
        record.payload = value;
        record.timestamp = target.timestamp_ms;
        record.headers = target.headers.take();
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                // The producer's queue is full: that is the back-pressure.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), returned)) => {
                    record = returned;
                    self.look_for_failures()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                    self.refused.add(origin);
                    return Err(Fault::Aborted(
                        "a message is larger than its topic takes; judging again without it".into(),
                    ));
                }
                Err((error, _)) => return Err(self.fault("produce", &error)),
            }
        }
    }

    /// Turns failed delivery reports into a fault.
    fn look_for_failures(&self) -> Result<(), Fault> {
        let reports = self.producer.context();
        if let Some(reason) = reports.fatal.lock().expect("nobody panics with the lock").clone() {
            return Err(Fault::Fatal(reason));
        }
        if self.link.is_lost() {
            return Err(Fault::Aborted("partitions were lost before their pages were committed".into()));
        }
        if !reports.any_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failed = std::mem::take(&mut *reports.failed.lock().expect("nobody panics with the lock"));
        for (origin, error) in &failed {
            if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge) {
                self.refused.add(*origin);
            }
        }
        let (origin, error) = failed.first().ok_or_else(|| Fault::Aborted("deliveries failed".into()))?;
        let fatal = is_permanent(error);
        let message = format!("{} of {} deliveries failed, first {error}", failed.len(), self.batches);
        tracing::warn!(page = ?origin, %error, "delivery failed");
        Err(if fatal { Fault::Fatal(message) } else { Fault::Aborted(message) })
    }

    fn list(&self, offsets: &BTreeMap<u16, u64>) -> Result<TopicPartitionList, KafkaError> {
        let mut list = TopicPartitionList::new();
        for (number, offset) in offsets {
            let (topic, partition) = self.partitions.name(*number);
            list.add_partition_offset(&topic, partition, Offset::Offset(*offset as i64))?;
        }
        Ok(list)
    }

    fn commit_transaction(&mut self, list: &TopicPartitionList) -> Result<(), Fault> {
        if list.count() > 0 {
            let group = self.consumer.group_metadata();
            let group = group.ok_or_else(|| Fault::Aborted("the consumer is not in its group".into()))?;
            self.retrying("send offsets", || self.producer.send_offsets_to_transaction(list, &group, ATTEMPT))?;
        }
        self.look_for_failures()?;
        crash_point::reach("before-commit");
        self.in_doubt = Some(self.offsets.clone());
        let result = self.retrying("commit", || self.producer.commit_transaction(ATTEMPT));
        match result {
            Ok(()) => {
                self.in_doubt = None;
                Ok(())
            }
            Err(Outcome::Known(fault)) => {
                self.in_doubt = None;
                // Which page was it? The reports know.
                self.look_for_failures()?;
                Err(fault)
            }
            Err(Outcome::Doubtful(fault)) => Err(fault),
        }
    }

    /// Calls until it works, fails for good, or the transaction's time is over.
    fn retrying(&self, what: &str, call: impl Fn() -> Result<(), KafkaError>) -> Result<(), Outcome> {
        let deadline = Instant::now() + self.config.kafka.transaction_timeout;
        loop {
            match call() {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error)) if error.is_retriable() => {
                    if Instant::now() >= deadline {
                        return Err(Outcome::Doubtful(Fault::Aborted(format!("cannot {what} in time: {error}"))));
                    }
                    std::thread::sleep(RETRY_AFTER);
                }
                Err(error) => {
                    let fault = self.fault(what, &error);
                    let undone = matches!(&error, KafkaError::Transaction(error) if error.txn_requires_abort());
                    return Err(if undone { Outcome::Known(fault) } else { Outcome::Doubtful(fault) });
                }
            }
        }
    }

    fn fault(&self, what: &str, error: &KafkaError) -> Fault {
        let message = format!("cannot {what}: {error}");
        let fenced = |code: RDKafkaErrorCode| {
            matches!(
                code,
                RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::FencedInstanceId
            )
        };
        let code = match error {
            KafkaError::Transaction(error) => Some(RDKafkaError::code(error)),
            error => error.rdkafka_error_code(),
        };
        if code.is_some_and(fenced) {
            return Fault::Fatal(format!(
                "{message}: another process runs under the name {}",
                self.config.kafka.instance
            ));
        }
        if is_permanent(error) { Fault::Fatal(message) } else { Fault::Aborted(message) }
    }

    /// At least once: everything is acknowledged first, then the offsets.
    fn commit_offsets(&mut self, list: &TopicPartitionList) -> Result<(), Fault> {
        loop {
            match self.producer.flush(Duration::from_millis(500)) {
                Ok(()) => break,
                Err(_) => self.look_for_failures()?,
            }
        }
        self.look_for_failures()?;
        if list.count() == 0 {
            return Ok(());
        }
        crash_point::reach("before-commit");
        let committed = self.consumer.commit(list, CommitMode::Sync);
        committed.map_err(|error| self.fault("commit offsets", &error))
    }
}

/// Is it known that a call did not take effect?
enum Outcome {
    Known(Fault),
    Doubtful(Fault),
}

impl From<Outcome> for Fault {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Known(fault) | Outcome::Doubtful(fault) => fault,
        }
    }
}

impl Sink for KafkaSink {
    fn deliver(&mut self, judged: &JudgedBatch, batch: &SketchedBatch) -> Result<(), Fault> {
        let result = (|| {
            self.begin()?;
            let mut forgotten = judged.forgotten.iter().peekable();
            for at in 0..batch.pages.len() {
                crash_point::reach("produce");
                self.page(judged, batch, at)?;
                // In its place among the pages: another page of the URL may follow in the same batch.
                if let Some((_, url_key, origin)) = forgotten.next_if(|(place, ..)| *place == at) {
                    let (topic, partition) = self.partitions.name(origin.source);
                    let named = NamedOrigin { topic: &topic, partition, offset: origin.offset };
                    self.state_record(&StateRecord::Forget { origin: named, url_key: *url_key }, *origin)?;
                }
                let Origin { source, offset } = batch.received.deliveries[at].origin;
                self.offsets.insert(source, offset + 1);
            }
            self.batches += 1;
            self.look_for_failures()
        })();
        result.inspect_err(|_| self.link.fail())
    }

    fn commit(&mut self) -> Result<(), Fault> {
        if !self.open {
            return Ok(());
        }
        crash_point::reach("send-offsets");
        let result = self.list(&self.offsets).map_err(|error| Fault::Fatal(error.to_string())).and_then(|list| {
            if self.exactly_once() { self.commit_transaction(&list) } else { self.commit_offsets(&list) }
        });
        result.inspect_err(|_| self.link.fail())?;
        crash_point::reach("after-commit");
        self.metrics.transactions_total[COMMITTED].inc();
        self.link.committed(self.batches);
        self.announce_window = false;
        self.open = false;
        self.batches = 0;
        self.offsets.clear();
        Ok(())
    }
}
