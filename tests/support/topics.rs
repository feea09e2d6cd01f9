//! What goes into topics and what is in them.

use super::broker::Cluster;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Longer than any transaction of the tests may be open.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);

/// Topic, partition, offset.
pub type Origin = (String, i32, i64);

/// `topic/partition/offset`, as headers and records write it.
pub fn origin_of(position: &str) -> Origin {
    let mut parts = position.rsplitn(3, '/');
    let offset = parts.next().and_then(|it| it.parse().ok());
    let partition = parts.next().and_then(|it| it.parse().ok());
    let origin = (|| Some((parts.next()?.to_owned(), partition?, offset?)))();
    origin.unwrap_or_else(|| panic!("{position} is no position"))
}

/// A record of a topic, whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub timestamp_ms: Option<i64>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// A page of this URL and text.
    pub fn page(url: &str, text: &str) -> Self {
        let value = serde_json::json!({ "url": url, "text": text }).to_string();
        Self { key: Some(url.into()), value: Some(value.into_bytes()), ..Self::default() }
    }

    /// These bytes, without a key.
    pub fn bytes(value: impl Into<Vec<u8>>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// Forgets what its key names.
    pub fn tombstone(key: &str) -> Self {
        Self { key: Some(key.into()), ..Self::default() }
    }

    pub fn with(mut self, header: &str, value: &str) -> Self {
        self.headers.push((header.to_owned(), Some(value.into())));
        self
    }

    pub fn at(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// The first header of this name, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key == name)?;
        std::str::from_utf8(value.as_ref()?).ok()
    }

    /// The value as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.value.as_deref().unwrap_or_default()).expect("a JSON record")
    }
}

impl Cluster {
    /// Everything committed in a topic, by position, in offset order.
    pub fn read_all(&self, topic: &str) -> Vec<(Origin, Record)> {
        self.read_with(topic, |_| {})
    }

    /// The same, and does something to each record before it is kept.
    pub fn read_with(&self, topic: &str, alter: fn(&mut Record)) -> Vec<(Origin, Record)> {
        self.wait_settled(topic);
        let mut config = self.client();
        config.set("group.id", "reader").set("isolation.level", "read_committed").set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set_log_level(rdkafka::config::RDKafkaLogLevel::Critical);
        let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet).expect("a consumer");
        let mut list = TopicPartitionList::new();
        for partition in 0..self.num_partitions(topic) {
            list.add_partition_offset(topic, partition, Offset::Beginning).expect("a partition");
        }
        consumer.assign(&list).expect("partitions can be assigned");
        let mut all = Vec::new();
        let mut left = list.count();
        let mut deadline = Instant::now() + ANSWER_WITHIN;
        while left > 0 {
            match consumer.poll(Duration::from_millis(100)) {
                None => assert!(Instant::now() < deadline, "{topic} cannot be read to its end"),
                Some(Err(KafkaError::PartitionEOF(_))) => left -= 1,
                Some(Err(error)) => panic!("{topic}: {error}"),
                Some(Ok(message)) => {
                    deadline = Instant::now() + ANSWER_WITHIN;
                    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
                    let mut record = Record {
                        key: message.key().map(<[u8]>::to_vec),
                        value: message.payload().map(<[u8]>::to_vec),
                        timestamp_ms: message.timestamp().to_millis(),
                        headers: headers.map(|it| (it.key.to_owned(), it.value.map(<[u8]>::to_vec))).collect(),
                    };
                    alter(&mut record);
                    all.push(((topic.to_owned(), message.partition(), message.offset()), record));
                }
            }
        }
        all
    }

    /// Waits until no transaction is open in a topic: a reader of what is committed sees nothing behind one, and that of
    /// a member that was killed is open until its time is over.
    fn wait_settled(&self, topic: &str) {
        let client = |isolation: &str| -> BaseConsumer {
            self.client().set("isolation.level", isolation).create().expect("a client")
        };
        let [committed, all] = ["read_committed", "read_uncommitted"].map(client);
        let deadline = Instant::now() + SETTLED_WITHIN;
        for partition in 0..self.num_partitions(topic) {
            let end = |client: &BaseConsumer| client.fetch_watermarks(topic, partition, ANSWER_WITHIN).map(|it| it.1);
            while end(&committed).is_err() || end(&committed) != end(&all) {
                assert!(Instant::now() < deadline, "a transaction is open in {topic}/{partition}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// What `group` has committed of these topics.
    pub fn progress(&self, group: &str, topics: &[String]) -> Progress {
        let mut config = self.client();
        // Otherwise the coordinator does not answer while a killed member's transaction is open.
        config.set("group.id", group).set("isolation.level", "read_uncommitted");
        Progress { consumer: config.create().expect("a client"), topics: topics.to_vec() }
    }

    /// A producer that says where its records came to lie.
    pub fn feeder(&self) -> Feeder {
        self.feeder_with("none")
    }

    /// The same, which compresses.
    pub fn feeder_with(&self, compression: &str) -> Feeder {
        let mut config = self.client();
        config.set("compression.type", compression);
        config.set("enable.idempotence", "true").set("linger.ms", "5").set("message.max.bytes", "50000000");
        Feeder { producer: config.create_with_context(Reports::default()).expect("a producer"), sent: 0 }
    }

    /// Sends records to partition 0 of a topic and returns where they lie.
    pub fn send(&self, topic: &str, records: &[Record]) -> Vec<Origin> {
        let mut feeder = self.feeder();
        records.iter().for_each(|record| {
            feeder.send(topic, 0, record);
        });
        feeder.finish()
    }

    /// Sends a value under a header whose name need not be UTF-8, as clients in other languages can.
    pub fn send_with_header_name(&self, topic: &str, name: &CStr, value: &[u8]) {
        use rdkafka::bindings::{RD_KAFKA_MSG_F_COPY, rd_kafka_producev, rd_kafka_vtype_t as Kind};
        let producer: BaseProducer = self.client().create().expect("a producer");
        let topic = CString::new(topic).expect("a topic has no NUL");
        // SAFETY: tags and arguments are as librdkafka documents them, the last one ends the list, and everything pointed
        // to lives until the call returns, which copies it.
        let error = unsafe {
            rd_kafka_producev(
                producer.client().native_ptr(),
                Kind::RD_KAFKA_VTYPE_TOPIC,
                topic.as_ptr(),
                Kind::RD_KAFKA_VTYPE_PARTITION,
                0_i32,
                Kind::RD_KAFKA_VTYPE_MSGFLAGS,
                RD_KAFKA_MSG_F_COPY,
                Kind::RD_KAFKA_VTYPE_VALUE,
                value.as_ptr(),
                value.len(),
                Kind::RD_KAFKA_VTYPE_HEADER,
                name.as_ptr(),
                name.as_ptr(),
                1_isize,
                Kind::RD_KAFKA_VTYPE_END,
            )
        };
        assert_eq!(error, rdkafka::bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
        producer.flush(ANSWER_WITHIN).expect("the broker takes it");
    }
}

/// The end of every partition of these topics, and what `group` has committed of it.
pub struct Progress {
    consumer: BaseConsumer,
    topics: Vec<String>,
}

impl Progress {
    /// (committed, end) of each partition. An error while brokers are away.
    pub fn try_look(&self) -> KafkaResult<BTreeMap<(String, i32), (i64, i64)>> {
        let mut list = TopicPartitionList::new();
        for topic in &self.topics {
            let metadata = self.consumer.fetch_metadata(Some(topic), ANSWER_WITHIN)?;
            for partition in metadata.topics()[0].partitions() {
                list.add_partition(topic, partition.id());
            }
        }
        let committed = self.consumer.committed_offsets(list, ANSWER_WITHIN)?;
        let look = |element: &rdkafka::topic_partition_list::TopicPartitionListElem| {
            let (topic, partition) = (element.topic(), element.partition());
            let end = self.consumer.fetch_watermarks(topic, partition, ANSWER_WITHIN)?.1;
            let committed = if let Offset::Offset(offset) = element.offset() { offset } else { 0 };
            Ok(((topic.to_owned(), partition), (committed, end)))
        };
        committed.elements().iter().map(look).collect()
    }

    /// The same where brokers are there.
    pub fn look(&self) -> BTreeMap<(String, i32), (i64, i64)> {
        self.try_look().expect("the cluster answers")
    }

    /// Records committed in all partitions together.
    pub fn committed(&self) -> i64 {
        self.look().values().map(|(committed, _)| committed).sum()
    }

    /// Is everything committed? Not while nobody can say.
    pub fn is_drained(&self) -> bool {
        self.try_look().is_ok_and(|look| !look.is_empty() && look.values().all(|(committed, end)| committed == end))
    }
}

/// A client that says nothing.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}
    fn error(&self, _: KafkaError, _: &str) {}
}

impl rdkafka::consumer::ConsumerContext for Quiet {}

/// Notes where each record came to lie.
#[derive(Default)]
struct Reports(Mutex<BTreeMap<usize, Origin>>);

impl ClientContext for Reports {}

impl ProducerContext<NoCustomPartitioner> for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, report: &DeliveryResult<'_>, number: usize) {
        let message = report.as_ref().unwrap_or_else(|(error, _)| panic!("record {number}: {error}"));
        let origin = (message.topic().to_owned(), message.partition(), message.offset());
        self.0.lock().expect("nobody panics with the lock").insert(number, origin);
    }
}

/// A producer that says where its records came to lie.
pub struct Feeder {
    producer: ThreadedProducer<Reports>,
    sent: usize,
}

impl Feeder {
    /// Sends a record to a partition and returns its number.
    pub fn send(&mut self, topic: &str, partition: i32, record: &Record) -> usize {
        let mut headers = OwnedHeaders::new();
        for (key, value) in &record.headers {
            headers = headers.insert(Header { key, value: value.as_ref() });
        }
        let mut message = BaseRecord::<[u8], [u8], usize>::with_opaque_to(topic, self.sent).partition(partition);
        message.key = record.key.as_deref();
        message.payload = record.value.as_deref();
        message.timestamp = record.timestamp_ms;
        message.headers = (!record.headers.is_empty()).then_some(headers);
        while let Err((error, returned)) = self.producer.send(message) {
            assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "{error}");
            message = returned;
            std::thread::sleep(Duration::from_millis(5));
        }
        self.sent += 1;
        self.sent - 1
    }

    /// Where each record lies, by its number, once all are acknowledged.
    pub fn finish(self) -> Vec<Origin> {
        self.producer.flush(ANSWER_WITHIN).expect("the broker takes everything");
        let origins = std::mem::take(&mut *self.producer.context().0.lock().expect("nobody panics with the lock"));
        assert_eq!(origins.len(), self.sent);
        origins.into_values().collect()
    }
}
