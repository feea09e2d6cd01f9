//! Judged batches → output topics, in transactions that carry the offsets too.

use super::Partitions;
use super::connect::{ADDED_HEADER_BYTES, Cluster};
use super::link::Link;
use super::protocol::{Member, Message, Publisher};
use super::records::{self, Marks};
use super::transaction::{Refused, Settled, Transactions};
use crate::batch::{JudgedBatch, SketchedBatch};
use crate::config::{Config, Mode, Output, VerdictRecords};
use crate::crash_point;
use crate::index::Origin;
use crate::metrics::Metrics;
use crate::page::{Reason, Reject};
use crate::state::SketchId;
use crate::state::record::{self, NamedOrigin, Remembered, StateRecord};
use crate::transport::{Fault, Sink, SinkCheck};
use crate::verdict::{Disposition, NotJudged, Policy};
use arrayvec::ArrayVec;
use std::sync::Arc;

/// Numbers of [`crate::metrics::TRANSACTION_RESULTS`].
const COMMITTED: usize = 0;
const ABORTED: usize = 1;

/// Publishes outcomes.
pub struct KafkaSink<P, M> {
    /// Of the configuration; shared, so that a page can hold it while the sink changes.
    output: Arc<Output>,
    cluster: Cluster,
    policy: Policy,
    sketch: SketchId,
    marks: Marks,
    partitions: Partitions,
    link: Arc<Link>,
    metrics: Arc<Metrics>,
    transactions: Transactions<P, M>,
    refused: Refused,
    /// A new window was begun: said before the first state record.
    announce_window: bool,
    scratch: Vec<u8>,
}

/// What a sink is made of.
pub struct Parts<P, M> {
    /// Takes what goes out.
    pub publisher: P,
    /// The source's member of the group, and what source and sink share.
    pub member: (Arc<M>, Arc<Link>),
    /// What is known of the cluster.
    pub cluster: Cluster,
    /// Id of the sketches.
    pub sketch: SketchId,
    /// Numbers of partitions.
    pub partitions: Partitions,
    /// Where numbers go.
    pub metrics: Arc<Metrics>,
    /// Begin a new window.
    pub new_window: bool,
}

impl<P: Publisher, M: Member> KafkaSink<P, M> {
    /// A sink.
    pub fn new(config: &Config, parts: Parts<P, M>) -> Self {
        let Parts { publisher, member: (member, link), cluster, sketch, partitions, metrics, new_window } = parts;
        let state_topic = config.output.state_topic.clone();
        let transactions = Transactions::new(publisher, (member, link.clone()), config.kafka.clone(), state_topic);
        Self {
            refused: transactions.refused(),
            transactions,
            policy: Policy::new(&config.policy),
            marks: Marks { config: config.hash(), sketch: sketch.to_string() },
            output: Arc::new(config.output.clone()),
            cluster,
            sketch,
            partitions,
            metrics,
            link,
            announce_window: new_window,
            scratch: Vec::new(),
        }
    }

    /// Says of a page, before it is judged, whether it could not be forwarded.
    pub fn check(&self) -> Arc<SinkCheck> {
        let limit = self.cluster.limit(&self.output.topic);
        let forwards = matches!(self.output.mode, Mode::Pages);
        let refused = self.refused.clone();
        Arc::new(move |received, at| {
            let delivery = &received.deliveries[at];
            if let Some(reason) = refused.reason(delivery.origin) {
                return Some(Reject::new(Reason::SinkLimit, format!("the broker refused it: {reason}")));
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

    /// After a fault: settles what was open and starts over.
    pub fn settle(&mut self) -> Result<Settled, Fault> {
        if self.transactions.is_open() {
            self.metrics.transactions_total[ABORTED].inc();
        }
        self.transactions.settle()
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let is_new = !self.transactions.is_open();
        self.transactions.begin()?;
        if is_new && self.announce_window {
            self.state_record(&StateRecord::Window, Origin { source: 0, offset: 0 })?;
        }
        Ok(())
    }

    fn page(&mut self, judged: &JudgedBatch, batch: &SketchedBatch, at: usize) -> Result<(), Fault> {
        let delivery = &batch.received.deliveries[at];
        let outcome = &judged.judged[at];
        let disposition = self.policy.disposition(outcome.verdict);
        let pages = matches!(self.output.mode, Mode::Pages);
        let output = self.output.clone();
        let value = delivery.value.as_ref().map(|span| batch.received.bytes(span));
        let key = delivery.key.as_ref().map(|span| batch.received.bytes(span));
        let message = Message { key, timestamp_ms: delivery.timestamp_ms, ..Message::default() };
        match disposition {
            Disposition::Forward | Disposition::Tag if pages => {
                let (_, partition) = self.partitions.name(delivery.origin.source);
                let same = self.cluster.partitions.get(&output.topic).is_some_and(|count| partition < *count);
                let tag = matches!(disposition, Disposition::Tag);
                let forwarded = Message {
                    topic: &output.topic,
                    partition: same.then_some(partition),
                    value,
                    headers: Some(records::forwarded(judged, batch, at, tag, &self.partitions)),
                    ..message
                };
                self.transactions.send(forwarded, delivery.origin)?;
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
                let headers = records::dead_letter(batch, delivery, &reject, whole, bare, &self.partitions);
                let letter = Message {
                    topic: &output.dead_letter_topic,
                    key: key.filter(|_| !bare),
                    value: kept,
                    headers: Some(headers),
                    // What one topic refused the other need not take.
                    timestamp_ms: message.timestamp_ms.filter(|_| self.refused.reason(delivery.origin).is_none()),
                    ..message
                };
                self.transactions.send(letter, delivery.origin)?;
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
            // A key that does not fit is left out; the record names the page.
            let limit = self.cluster.limit(topic);
            let key = key.filter(|key| key.len() + bytes.len() + records::FRAMING_BYTES <= limit);
            let message = Message { topic, key, value: Some(&bytes), ..Message::default() };
            self.transactions.send(message, delivery.origin)?;
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
            bands: if page.short { ArrayVec::new() } else { page.bands.iter().copied().collect() },
            bits: if page.short { ArrayVec::new() } else { page.bits.iter().copied().collect() },
            url: page.names.url,
            id: page.names.id,
        });
        self.state_record(&record, page.origin)
    }

    fn state_record(&mut self, record: &StateRecord, origin: Origin) -> Result<(), Fault> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        record::encode(record, self.sketch, &mut bytes);
        self.transactions.send_state(&bytes, origin)?;
        self.scratch = bytes;
        Ok(())
    }
}

impl<P: Publisher, M: Member> Sink for KafkaSink<P, M> {
    fn deliver(&mut self, judged: &JudgedBatch, batch: &SketchedBatch) -> Result<(), Fault> {
        let result = (|| {
            self.begin()?;
            let mut forgotten = judged.forgotten.iter().peekable();
            for at in 0..batch.pages.len() {
                crash_point::reach("produce");
                self.page(judged, batch, at)?;
                let page = batch.received.deliveries[at].origin;
                // In its place among the pages: another page of the URL may follow in the same batch.
                if let Some((_, url_key, origin)) = forgotten.next_if(|(place, ..)| *place == at) {
                    let (topic, partition) = self.partitions.name(origin.source);
                    let named = NamedOrigin { topic: &topic, partition, offset: origin.offset };
                    self.state_record(&StateRecord::Forget { origin: named, url_key: *url_key }, page)?;
                }
                self.transactions.page_sent(page);
            }
            self.transactions.batch_sent()
        })();
        result.inspect_err(|_| self.link.fail())
    }

    fn commit(&mut self) -> Result<(), Fault> {
        if !self.transactions.is_open() {
            return Ok(());
        }
        self.transactions.commit().inspect_err(|_| self.link.fail())?;
        crash_point::reach("after-commit");
        self.metrics.transactions_total[COMMITTED].inc();
        self.announce_window = false;
        Ok(())
    }
}
