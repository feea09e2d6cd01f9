//! What has to be true of a cluster before the first page: it answers and lets us in, topics are there, what
//! comes in fits what goes out, the state topic keeps what it is for, and transactions are allowed.

use super::client;
use super::link::note_error;
use crate::config::{Config, Delivery, Mode};
use anyhow::{Context, Result, bail};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{Producer, ThreadedProducer};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a cluster may take to answer at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ATTEMPT: Duration = Duration::from_secs(3);

/// Bytes that the headers we add may take; a page is rejected beforehand if it does not fit with them.
pub const ADDED_HEADER_BYTES: usize = 1024;

/// The broker's default where a topic's limit cannot be read.
const DEFAULT_MAX_MESSAGE_BYTES: usize = 1_048_588;

/// What was looked at and what was found.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Is it as it has to be?
    pub ok: bool,
    /// What was looked at.
    pub what: String,
    /// What was found, and what would be right.
    pub detail: String,
}

/// What the transport has to know of the cluster.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// Partitions of each topic of the configuration that exists.
    pub partitions: BTreeMap<String, i32>,
    /// Largest message of each.
    pub max_message_bytes: BTreeMap<String, usize>,
}

impl Cluster {
    /// The largest message that a topic takes.
    pub fn limit(&self, topic: &str) -> usize {
        self.max_message_bytes.get(topic).copied().unwrap_or(DEFAULT_MAX_MESSAGE_BYTES)
    }
}

/// A client's errors while it is asked questions.
#[derive(Debug, Default)]
struct Questions {
    fatal: Mutex<Option<String>>,
}

impl ClientContext for Questions {
    fn error(&self, error: KafkaError, reason: &str) {
        note_error(&self.fatal, &error, reason);
    }
}

impl ConsumerContext for Questions {}

/// Looks at everything and reports all of it. `Err` if the cluster cannot be asked.
pub fn check(config: &Config) -> Result<Vec<Finding>> {
    Ok(inspect(config)?.1)
}

/// What `run` does at start: creates topics where that is allowed, and goes on only if all is well.
pub fn prepare(config: &Config) -> Result<Cluster> {
    let (cluster, findings) = inspect(config)?;
    let missing = sink_topics(config).into_iter().filter(|topic| !cluster.partitions.contains_key(*topic)).count();
    if config.kafka.create_topics && missing > 0 {
        create(config, &cluster)?;
        let (cluster, findings) = inspect(config)?;
        return all_well(cluster, &findings);
    }
    all_well(cluster, &findings)
}

fn all_well(cluster: Cluster, findings: &[Finding]) -> Result<Cluster> {
    let wrong = findings.iter().filter(|finding| !finding.ok).map(|it| format!("{}: {}", it.what, it.detail));
    let wrong = wrong.collect::<Vec<_>>();
    if wrong.is_empty() { Ok(cluster) } else { bail!("the cluster is not ready: {}", wrong.join("; ")) }
}

/// The topics that are written, in the order in which they matter.
fn sink_topics(config: &Config) -> Vec<&str> {
    let output = &config.output;
    let pages = matches!(output.mode, Mode::Pages);
    let pages = pages.then_some([output.topic.as_str(), output.dead_letter_topic.as_str()]);
    let verdicts = output.verdict_topic.as_deref();
    pages.into_iter().flatten().chain(verdicts).chain([output.state_topic.as_str()]).collect()
}

fn inspect(config: &Config) -> Result<(Cluster, Vec<Finding>)> {
    let asker: BaseConsumer<Questions> =
        client::plain(config).set("group.id", &config.kafka.group).create_with_context(Questions::default())?;
    let metadata = metadata(&asker)?;
    let mut findings = vec![Finding {
        ok: true,
        what: format!("cluster at {}", config.kafka.brokers.join(",")),
        detail: format!("{} brokers", metadata.brokers().len()),
    }];
    let mut cluster = Cluster::default();
    let inputs = config.input.topics.iter().map(String::as_str).collect::<Vec<_>>();
    let sinks = sink_topics(config);
    for topic in inputs.iter().chain(&sinks) {
        let found = metadata.topics().iter().find(|it| it.name() == *topic);
        let error = found.and_then(|it| it.error()).map(RDKafkaErrorCode::from);
        let (ok, detail) = match (found, error) {
            (Some(_), Some(RDKafkaErrorCode::UnknownTopicOrPartition)) | (None, _) => {
                let wanted = if sinks.contains(topic) { ": create it, or set kafka.create_topics" } else { "" };
                (false, format!("does not exist{wanted}"))
            }
            (Some(_), Some(code)) => (false, code.to_string()),
            (Some(found), None) => {
                let count = found.partitions().len() as i32;
                cluster.partitions.insert((*topic).to_owned(), count);
                (true, format!("{count} partitions"))
            }
        };
        findings.push(Finding { ok, what: format!("topic {topic}"), detail });
    }
    match topic_settings(config, cluster.partitions.keys()) {
        Ok(settings) => judge_settings(config, &mut cluster, &settings, &mut findings),
        Err(error) => findings.push(Finding {
            ok: true,
            what: "topic settings".into(),
            detail: format!("cannot be read ({error:#}): limits are taken for the broker's defaults"),
        }),
    }
    if matches!(config.kafka.delivery, Delivery::ExactlyOnce) {
        findings.push(transactions(config));
    }
    Ok((cluster, findings))
}

/// Asks until the cluster answers, refuses, or time is up.
fn metadata(asker: &BaseConsumer<Questions>) -> Result<Metadata> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    loop {
        let answer = asker.fetch_metadata(None, ATTEMPT);
        // Serves the callbacks; there is nothing to consume.
        while asker.poll(Duration::ZERO).is_some() {}
        if let Some(reason) = asker.context().fatal.lock().expect("nobody panics with the lock").take() {
            bail!("the cluster refuses: {reason}");
        }
        match answer {
            Ok(metadata) => return Ok(metadata),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).context(format!("the cluster did not answer within {} s", ANSWER_WITHIN.as_secs()));
            }
            Err(_) => {}
        }
    }
}

type Settings = BTreeMap<String, BTreeMap<String, String>>;

fn topic_settings<'t>(config: &Config, topics: impl Iterator<Item = &'t String>) -> Result<Settings> {
    let topics = topics.collect::<Vec<_>>();
    let admin: AdminClient<_> = client::plain(config).create()?;
    let specifiers = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect::<Vec<_>>();
    let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(10)));
    let answers = block_on(admin.describe_configs(&specifiers, &options))?;
    let mut settings = Settings::new();
    for (topic, answer) in topics.into_iter().zip(answers) {
        let resource = answer.map_err(|code| anyhow::anyhow!("{topic}: {code}"))?;
        let entries = resource.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
        settings.insert(topic.clone(), entries.collect());
    }
    Ok(settings)
}

fn judge_settings(config: &Config, cluster: &mut Cluster, settings: &Settings, findings: &mut Vec<Finding>) {
    let number = |topic: &str, name: &str| settings.get(topic)?.get(name)?.parse::<i64>().ok();
    for topic in settings.keys() {
        if let Some(limit) = number(topic, "max.message.bytes") {
            cluster.max_message_bytes.insert(topic.clone(), limit.max(0) as usize);
        }
    }
    if matches!(config.output.mode, Mode::Pages) {
        let output = cluster.limit(&config.output.topic);
        for topic in config.input.topics.iter().filter(|topic| settings.contains_key(*topic)) {
            let input = cluster.limit(topic);
            let fits = input + ADDED_HEADER_BYTES <= output;
            findings.push(Finding {
                ok: true,
                what: format!("sizes {topic} → {}", config.output.topic),
                detail: if fits {
                    format!("{input} bytes and {ADDED_HEADER_BYTES} of headers fit in {output}")
                } else {
                    format!(
                        "{input} bytes and {ADDED_HEADER_BYTES} of headers do not fit in {output}: pages between go \
                         to the dead letters; raise max.message.bytes of {}",
                        config.output.topic
                    )
                },
            });
        }
    }
    let state = &config.output.state_topic;
    if let Some(partitions) = cluster.partitions.get(state) {
        let compacted =
            settings.get(state).and_then(|it| it.get("cleanup.policy")).is_some_and(|it| it.contains("compact"));
        let retention = number(state, "retention.ms").filter(|ms| *ms >= 0);
        let window_ms = config.window.max_age.map(|age| age.as_millis() as i64);
        let short = matches!((retention, window_ms), (Some(kept), Some(window)) if kept < window)
            || retention.is_some() && window_ms.is_none();
        let detail = match (*partitions, compacted, short) {
            (1, false, false) => "one partition, kept for the window".to_owned(),
            (1, false, true) => format!(
                "retention.ms = {} is shorter than the window: a restart would forget pages",
                retention.unwrap_or_default()
            ),
            (1, true, _) => "cleanup.policy must be delete: compaction drops what a restart needs".to_owned(),
            (count, ..) => format!("has {count} partitions, must have one: its order is the window's"),
        };
        let ok = *partitions == 1 && !compacted && !short;
        findings.push(Finding { ok, what: format!("state topic {state}"), detail });
    }
}

/// Opens and closes a transactional producer of another name, so that a running daemon is not fenced.
fn transactions(config: &Config) -> Finding {
    let id = format!("{}-check", client::transactional_id(config));
    let what = "transactions".to_owned();
    let opened = client::producer(config, DEFAULT_MAX_MESSAGE_BYTES, DEFAULT_MAX_MESSAGE_BYTES)
        .set("transactional.id", &id)
        .create::<ThreadedProducer<_>>()
        .and_then(|producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext>| {
            producer.init_transactions(ANSWER_WITHIN)
        });
    match opened {
        Ok(()) => Finding { ok: true, what, detail: format!("allowed (tried as {id})") },
        Err(error) => Finding { ok: false, what, detail: format!("{error} (tried as {id})") },
    }
}

/// Creates the sink topics that are missing: as many partitions as the input has, one for the state.
fn create(config: &Config, cluster: &Cluster) -> Result<()> {
    let widest = config.input.topics.iter().filter_map(|topic| cluster.partitions.get(topic)).max().copied();
    let admin: AdminClient<_> = client::plain(config).create()?;
    let retention = config.window.max_age.map_or("-1".to_owned(), |age| (age.as_millis() as u64 * 2).to_string());
    let input_limit = config.input.topics.iter().map(|topic| cluster.limit(topic)).max().unwrap_or_default();
    let page_limit = (input_limit + ADDED_HEADER_BYTES).to_string();
    let missing = sink_topics(config).into_iter().filter(|topic| !cluster.partitions.contains_key(*topic));
    let topics = missing
        .map(|name| {
            let is_state = name == config.output.state_topic;
            let partitions = if is_state { 1 } else { widest.unwrap_or(1) };
            // −1: the broker's default.
            let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
            if is_state {
                topic.set("cleanup.policy", "delete").set("retention.ms", &retention)
            } else {
                topic.set("max.message.bytes", &page_limit)
            }
        })
        .collect::<Vec<_>>();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
    for created in block_on(admin.create_topics(&topics, &options))? {
        match created {
            Ok(name) => tracing::info!(topic = name, "created"),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, code)) => bail!("cannot create topic {name}: {code}"),
        }
    }
    Ok(())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime without I/O can be built").block_on(future)
}
