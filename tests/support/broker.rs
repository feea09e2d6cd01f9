//! The broker that the tests of one binary share: started on first use, ended with the process.
//!
//! `PAGESIEVE_TEST_BROKERS=host:port,…` names a cluster to use instead.

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::{Offset, TopicPartitionList};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Host and port of the brokers, separated by commas.
pub fn brokers() -> &'static str {
    static BROKERS: OnceLock<String> = OnceLock::new();
    BROKERS.get_or_init(|| std::env::var("PAGESIEVE_TEST_BROKERS").unwrap_or_else(|_| start()))
}

fn start() -> String {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    remove_leftovers(&home);
    let process = std::process::id().to_string();
    let output = Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/broker.sh"))
        .arg("start")
        .arg(home.join(format!("broker-{process}")))
        .args(["--die-with", &process])
        .output()
        .expect("bash runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the broker did not start:\n{stderr}");
    stdout.lines().last().expect("it prints its address last").to_owned()
}

/// Removes the directories of brokers whose test process is gone.
fn remove_leftovers(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix("broker-"));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A client's settings.
pub fn client() -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers());
    client
}

fn admin() -> AdminClient<DefaultClientContext> {
    client().create().expect("an administrator")
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(ANSWER_WITHIN))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}

/// Creates a topic that keeps its records, whatever their timestamps.
pub fn create_topic(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1)).set("retention.ms", "-1");
    for (key, value) in settings {
        topic = topic.set(key, value);
    }
    for created in block_on(admin().create_topics([&topic], &options())).expect("the cluster answers") {
        created.expect("the topic is new");
    }
}

/// Raises the number of a topic's partitions.
pub fn add_partitions(name: &str, partitions: usize) {
    let more = NewPartitions::new(name, partitions);
    for added in block_on(admin().create_partitions([&more], &options())).expect("the cluster answers") {
        added.expect("partitions can be added");
    }
}

/// Removes what a topic's only partition has before this offset.
pub fn trim_topic(name: &str, offset: i64) {
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(name, 0, Offset::Offset(offset)).expect("an offset");
    let trimmed = block_on(admin().delete_records(&before, &options())).expect("the cluster answers");
    assert!(trimmed.elements().iter().all(|partition| partition.error().is_ok()), "{trimmed:?}");
}
