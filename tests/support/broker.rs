//! Clusters: the one that the tests of one binary share, started on first use, and those of tests that harm theirs. All
//! end with the process.
//!
//! `PAGESIEVE_TEST_BROKERS=host:port,…` names a cluster to share instead.

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Brokers, and where they are kept if they are ours.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Host and port of each, separated by commas.
    pub brokers: String,
    directory: Option<PathBuf>,
}

impl Cluster {
    /// The one that tests share: it must come to no harm.
    pub fn shared() -> Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        let named = || std::env::var("PAGESIEVE_TEST_BROKERS").ok();
        let shared = SHARED.get_or_init(|| match named() {
            Some(brokers) => Self { brokers, directory: None },
            None => Self::start("shared", &[]),
        });
        shared.clone()
    }

    /// A cluster of the caller's own, with options of `broker.sh start`.
    pub fn start(name: &str, options: &[&str]) -> Self {
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        static CLEANED: OnceLock<()> = OnceLock::new();
        CLEANED.get_or_init(|| remove_leftovers(&home));
        let process = std::process::id().to_string();
        let directory = home.join(format!("broker-{process}-{name}"));
        let output = script(&directory, "start", &[&["--die-with", &process], options].concat());
        let stdout = String::from_utf8_lossy(&output.stdout);
        let brokers = stdout.lines().last().expect("it prints its address last").to_owned();
        Self { brokers, directory: Some(directory) }
    }

    /// A command of `broker.sh` for a cluster of one's own: `kill 1`, `restart 1`.
    pub fn command(&self, command: &str, arguments: &[&str]) {
        script(self.directory.as_ref().expect("the cluster is ours"), command, arguments);
    }

    /// Ends a cluster of one's own before the process does.
    pub fn stop(&self) {
        self.command("stop", &["--now"]);
    }

    /// A client's settings.
    pub fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.brokers);
        client
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("an administrator")
    }

    /// A consumer to ask questions with.
    pub fn asker(&self) -> BaseConsumer {
        self.client().create().expect("a client")
    }

    /// Creates a topic that keeps its records, whatever their timestamps.
    pub fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1)).set("retention.ms", "-1");
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        for created in block_on(self.admin().create_topics([&topic], &options())).expect("the cluster answers") {
            created.expect("the topic is new");
        }
    }

    /// Changes a topic that [`Cluster::create_topic`] made; settings that are not named are the broker's again.
    pub fn set_topic(&self, name: &str, settings: &[(&str, &str)]) {
        let mut entries = HashMap::from([("retention.ms", "-1")]);
        entries.extend(settings.iter().copied());
        let change = AlterConfig { specifier: ResourceSpecifier::Topic(name), entries };
        for altered in block_on(self.admin().alter_configs([&change], &options())).expect("the cluster answers") {
            altered.expect("the topic is there");
        }
    }

    /// Raises the number of a topic's partitions.
    pub fn add_partitions(&self, name: &str, partitions: usize) {
        let more = NewPartitions::new(name, partitions);
        for added in block_on(self.admin().create_partitions([&more], &options())).expect("the cluster answers") {
            added.expect("partitions can be added");
        }
    }

    /// Removes what partitions of a topic have before these offsets.
    pub fn trim(&self, topic: &str, offsets: &[(i32, i64)]) {
        let mut before = TopicPartitionList::new();
        for (partition, offset) in offsets {
            before.add_partition_offset(topic, *partition, Offset::Offset(*offset)).expect("an offset");
        }
        let trimmed = block_on(self.admin().delete_records(&before, &options())).expect("the cluster answers");
        assert!(trimmed.elements().iter().all(|partition| partition.error().is_ok()), "{trimmed:?}");
    }

    /// Partitions that a topic has.
    pub fn num_partitions(&self, topic: &str) -> i32 {
        let metadata = self.asker().fetch_metadata(Some(topic), ANSWER_WITHIN).expect("the cluster answers");
        metadata.topics()[0].partitions().len() as i32
    }

    /// The broker that leads a topic's partition 0.
    pub fn leader(&self, topic: &str) -> i32 {
        let metadata = self.asker().fetch_metadata(Some(topic), ANSWER_WITHIN).expect("the cluster answers");
        metadata.topics()[0].partitions()[0].leader()
    }

    /// Does it answer at all?
    pub fn answers_within(&self, limit: Duration) -> bool {
        self.asker().fetch_metadata(None, limit).is_ok()
    }

    /// How many members a consumer group has.
    pub fn num_members(&self, group: &str) -> usize {
        let groups = self.asker().client().fetch_group_list(Some(group), ANSWER_WITHIN).expect("the cluster answers");
        groups.groups().iter().map(|group| group.members().len()).sum()
    }
}

/// Runs `broker.sh`.
fn script(directory: &Path, command: &str, arguments: &[&str]) -> Output {
    let output = Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/broker.sh"))
        .arg(command)
        .arg(directory)
        .args(arguments)
        .output()
        .expect("bash runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "broker.sh {command} {arguments:?} failed:\n{stderr}");
    output
}

/// Removes the directories of brokers whose test process is gone.
fn remove_leftovers(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix("broker-")?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(ANSWER_WITHIN))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}
