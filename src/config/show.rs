//! The resolved configuration in print, and its hash: the way back from [`Config`] to the keys of
//! the table.

use std::fmt::Write;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::kind::{Kind, Value};
use super::schema::{KEYS, KeySpec};
use super::settings::Config;

impl Config {
    /// 16 hexadecimal digits over the settings that bear on verdicts, secrets left out: equal
    /// hashes, keys and pages give equal verdicts. SipHash-1-3 under the zero key of a line
    /// `path = value` for each such setting.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut hasher = SipHasher13::new();
        for spec in KEYS.iter().filter(|spec| spec.bears_on_verdicts()) {
            if let Some(value) = show(self, spec) {
                hasher.write(format!("{} = {value}\n", spec.path).as_bytes());
            }
        }
        format!("{:016x}", hasher.finish())
    }

    /// Whether the file or the environment set this key, for commands with a default of their own.
    #[must_use]
    pub fn is_given(&self, path: &str) -> bool {
        self.given.contains(&path)
    }
}

/// The resolved configuration as TOML, secrets as `"***"` and the key with its id. Secrets that
/// came from files stand in the place of the secret; the names of the files are not kept.
#[must_use]
pub fn render_resolved(config: &Config) -> String {
    let mut toml = String::new();
    let mut section = "";
    for spec in KEYS {
        if spec.kind == Kind::Options {
            render_options(config, spec, &mut toml);
            continue;
        }
        let Some(value) = show(config, spec) else {
            continue;
        };
        if spec.section() != section {
            section = spec.section();
            let blank = if toml.is_empty() { "" } else { "\n" };
            let _ = writeln!(toml, "{blank}[{section}]");
        }
        let key_id = match &config.sketch.key {
            Some(key) if spec.path == "sketch.key" => format!(" # id {}", key.id()),
            _ => String::new(),
        };
        let _ = writeln!(toml, "{} = {value}{key_id}", spec.name());
    }
    toml
}

/// The section of the free names, if there are any.
fn render_options(config: &Config, spec: &KeySpec, toml: &mut String) {
    let options = config.kafka.options.redacted();
    if options.is_empty() {
        return;
    }
    let _ = writeln!(toml, "\n[{}]", spec.path);
    let text = |text: String| Value::Text(text).to_toml(false);
    for (name, value) in options {
        let _ = writeln!(toml, "{} = {}", text(name), text(value));
    }
}

/// A setting's value as TOML; `None` for the name of a file whose secret has been read.
fn show(config: &Config, spec: &KeySpec) -> Option<String> {
    let value = value(config, spec.path)?;
    Some(value.to_toml(matches!(spec.kind, Kind::Size(..))))
}

/// The value of a key, a secret as `***`.
fn value(config: &Config, path: &str) -> Option<Value> {
    let stars = |is_set: bool| Value::Text(if is_set { "***" } else { "" }.to_owned());
    let Config { input, sketch, window, policy, output, kafka, pipeline, .. } = config;
    Some(match path {
        "input.topics" => input.topics.clone().into(),
        "input.max_page_bytes" => input.max_page_bytes.into(),
        "input.start" => input.start.into(),
        "input.fields.url" => input.fields.url.clone().into(),
        "input.fields.text" => input.fields.text.clone().into(),
        "input.fields.html" => input.fields.html.clone().into(),
        "input.fields.id" => input.fields.id.clone().into(),
        "input.fields.fetched_at" => input.fields.fetched_at.clone().into(),
        "input.fields.status" => input.fields.status.clone().into(),
        "input.fields.content_type" => input.fields.content_type.clone().into(),
        "input.skip.non_2xx" => input.skip.non_2xx.into(),
        "input.skip.content_types" => input.skip.content_types.clone().into(),
        "input.skip.url_patterns" => Value::List(input.skip.url_patterns.iter().map(ToString::to_string).collect()),
        "input.skip.headers" => {
            let headers = input.skip.headers.iter();
            Value::List(headers.map(|(name, value)| format!("{name}={value}")).collect())
        }
        "sketch.key" => stars(sketch.key.is_some()),
        "sketch.shingle_words" => sketch.shingle_words.into(),
        "sketch.bytes" => sketch.bytes.into(),
        "sketch.bands" => sketch.bands.into(),
        "sketch.rows" => sketch.rows.into(),
        "sketch.min_shingles" => sketch.min_shingles.into(),
        "window.max_age" => window.max_age.into(),
        "window.max_memory" => window.max_memory.into(),
        "window.names_share" => window.names_share.into(),
        "window.refresh_on_match" => window.refresh_on_match.into(),
        "window.late" => window.late.into(),
        "window.max_share_per_host" => window.max_share_per_host.into(),
        "window.exact_cache_entries" => window.exact_cache_entries.into(),
        "policy.threshold" => policy.threshold.into(),
        "policy.exact_duplicate" => policy.exact_duplicate.into(),
        "policy.near_duplicate" => policy.near_duplicate.into(),
        "policy.unchanged" => policy.unchanged.into(),
        "policy.updated" => policy.updated.into(),
        "output.topic" => output.topic.clone().into(),
        "output.verdict_topic" => output.verdict_topic.clone().into(),
        "output.dead_letter_topic" => output.dead_letter_topic.clone().into(),
        "output.state_topic" => output.state_topic.clone().into(),
        "output.mode" => output.mode.into(),
        "output.verdict_records" => output.verdict_records.into(),
        "kafka.brokers" => kafka.brokers.clone().into(),
        "kafka.group" => kafka.group.clone().into(),
        "kafka.instance" => kafka.instance.clone().into(),
        "kafka.delivery" => kafka.delivery.into(),
        "kafka.commit_interval" => kafka.commit_interval.into(),
        "kafka.transaction_timeout" => kafka.transaction_timeout.into(),
        "kafka.create_topics" => kafka.create_topics.into(),
        "kafka.sasl_username" => kafka.sasl_username.clone().into(),
        "kafka.sasl_password" => stars(kafka.sasl_password.is_some()),
        "kafka.options" => kafka.options.redacted().into(),
        "pipeline.threads" => pipeline.threads.into(),
        "pipeline.batch_pages" => pipeline.batch_pages.into(),
        "pipeline.batch_wait" => pipeline.batch_wait.into(),
        "pipeline.drain_timeout" => pipeline.drain_timeout.into(),
        "pipeline.prefetch_memory" => pipeline.prefetch_memory.into(),
        "snapshot.directory" => {
            let directory = config.snapshot.directory.as_ref();
            Value::Text(directory.map_or_else(String::new, |path| path.display().to_string()))
        }
        "snapshot.interval" => config.snapshot.interval.into(),
        "snapshot.max_disk" => config.snapshot.max_disk.into(),
        "recovery.max_wait" => config.recovery.max_wait.into(),
        "recovery.on_gap" => config.recovery.on_gap.into(),
        "admin.listen" => {
            let listen = config.admin.listen;
            Value::Text(listen.map_or_else(|| "none".to_owned(), |address| address.to_string()))
        }
        "log.format" => config.log.format.into(),
        // `sketch.key_file`, `kafka.sasl_password_file`; a test fails for any other key.
        _ => return None,
    })
}
