//! What no key can be asked for alone: settings that contradict each other, and those that only
//! `run` needs.

use super::choices::{Action, Mode};
use super::options;
use super::problem::{ConfigErrors, Place, Problem};
use super::schema;
use super::settings::Config;

/// Settings that do not go together.
#[derive(Debug)]
pub(super) struct Conflict {
    /// The keys concerned; the first one is the one to report.
    pub keys: Vec<String>,
    pub message: String,
}

/// The conflicts found so far.
#[derive(Default)]
struct Conflicts(Vec<Conflict>);

impl Conflicts {
    fn add(&mut self, keys: &[&str], message: impl Into<String>) {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        self.0.push(Conflict { keys, message: message.into() });
    }
}

impl Config {
    /// Whether the settings go together. [`load`](super::load()) has checked this; it is for a
    /// command that has changed settings since.
    ///
    /// # Errors
    /// Every contradiction.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        report(conflicts(self))
    }

    /// Whether everything `run` needs is there: brokers, topics and the secret key.
    ///
    /// # Errors
    /// Everything that is missing, and every contradiction.
    pub fn check_for_run(&self) -> Result<(), ConfigErrors> {
        let mut found = Conflicts(conflicts(self));
        for key in missing_for_run(self) {
            let variable = schema::environment_name(key);
            let hint = match key {
                "sketch.key_file" => ", or sketch.key; `pagesieve keygen` makes one",
                _ => "",
            };
            found.add(&[key], format!("is needed by `run`: set it or {variable}{hint}"));
        }
        report(found.0)
    }
}

fn report(conflicts: Vec<Conflict>) -> Result<(), ConfigErrors> {
    let problem =
        |Conflict { mut keys, message }: Conflict| Problem { key: keys.swap_remove(0), place: Place::Unset, message };
    ConfigErrors::check(conflicts.into_iter().map(problem).collect())
}

fn missing_for_run(config: &Config) -> Vec<&'static str> {
    let pages = config.output.mode == Mode::Pages;
    let needs = [
        ("input.topics", config.input.topics.is_empty()),
        ("sketch.key_file", config.sketch.key.is_none()),
        ("output.topic", pages && config.output.topic.is_empty()),
        ("output.dead_letter_topic", pages && config.output.dead_letter_topic.is_empty()),
        ("output.state_topic", config.output.state_topic.is_empty()),
        ("kafka.brokers", config.kafka.brokers.is_empty()),
    ];
    needs.iter().filter(|(_, is_missing)| *is_missing).map(|(key, _)| *key).collect()
}

/// Everything in a configuration that does not go together.
pub(super) fn conflicts(config: &Config) -> Vec<Conflict> {
    let mut found = Conflicts::default();
    fields(config, &mut found);
    topics(config, &mut found);
    kafka(config, &mut found);
    if config.policy.updated == Action::Drop {
        let message = "must be \"tag\" or \"forward\": a drop would lose the only copy of new words";
        found.add(&["policy.updated"], message);
    }
    found.0
}

fn fields(config: &Config, found: &mut Conflicts) {
    let fields = &config.input.fields;
    if fields.url.is_off() {
        let message = "must not be empty: revisits and canonical pages are known by their URL";
        found.add(&["input.fields.url"], message);
    }
    if fields.text.is_off() && fields.html.is_off() {
        let message = "must not be empty when input.fields.html is: a page would have no words";
        found.add(&["input.fields.text", "input.fields.html"], message);
    }
    for name in &config.input.skip.content_types {
        let parts = name
            .split_once('/')
            .filter(|(kind, subtype)| !kind.is_empty() && !subtype.is_empty() && !subtype.contains(['/', ';', ' ']));
        if parts.is_none() {
            let message = format!("must be media types, as \"text/*\", {name:?} is none");
            found.add(&["input.skip.content_types"], message);
        }
    }
}

fn topics(config: &Config, found: &mut Conflicts) {
    let output = &config.output;
    let outputs = [
        ("output.topic", &output.topic),
        ("output.verdict_topic", output.verdict_topic.as_ref().unwrap_or(const { &String::new() })),
        ("output.dead_letter_topic", &output.dead_letter_topic),
        ("output.state_topic", &output.state_topic),
    ];
    let inputs = config.input.topics.iter().map(|topic| ("input.topics", topic));
    let set = outputs.iter().copied().filter(|(_, topic)| !topic.is_empty());
    let all: Vec<(&str, &String)> = inputs.chain(set).collect();
    for (position, (key, topic)) in all.iter().enumerate() {
        if !is_kafka_name(topic) {
            found.add(&[key], format!("{topic:?} is no name of a topic: {KAFKA_NAME}"));
        }
        if let Some((other, _)) = all[..position].iter().find(|(_, earlier)| earlier == topic) {
            let message = match key == other {
                true => format!("names topic {topic:?} twice"),
                false => {
                    format!("is topic {topic:?}, as is {other}: each needs a topic of its own")
                }
            };
            found.add(&[key, other], message);
        }
    }
    if output.mode == Mode::Verdicts && output.verdict_topic.is_none() {
        let message = "must be set when output.mode is \"verdicts\": nothing would be written";
        found.add(&["output.verdict_topic", "output.mode"], message);
    }
}

const KAFKA_NAME: &str = "1 to 249 letters, digits, dots, dashes and underscores";

/// Whether Kafka takes this as the name of a topic or a static member.
fn is_kafka_name(name: &str) -> bool {
    (1..=249).contains(&name.len()) && name.bytes().all(is_kafka_byte) && name != "." && name != ".."
}

fn is_kafka_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

fn kafka(config: &Config, found: &mut Conflicts) {
    let kafka = &config.kafka;
    for broker in &kafka.brokers {
        if broker.is_empty() || broker.contains([',', ' ', '\t', '\n']) {
            found.add(&["kafka.brokers"], format!("must be host:port each, one is {broker:?}"));
        }
    }
    if kafka.group.trim().is_empty() {
        found.add(&["kafka.group"], "must not be empty");
    }
    if !is_kafka_name(&kafka.instance) {
        found.add(&["kafka.instance"], format!("must be {KAFKA_NAME}"));
    }
    if kafka.commit_interval >= kafka.transaction_timeout {
        let message = "must be below kafka.transaction_timeout, or every transaction is aborted";
        found.add(&["kafka.commit_interval", "kafka.transaction_timeout"], message);
    }
    match (&kafka.sasl_username, &kafka.sasl_password) {
        (Some(_), None) => found.add(
            &["kafka.sasl_username", "kafka.sasl_password", "kafka.sasl_password_file"],
            "needs kafka.sasl_password or kafka.sasl_password_file",
        ),
        (None, Some(_)) => found.add(&["kafka.sasl_password", "kafka.sasl_username"], "needs kafka.sasl_username"),
        _ => {}
    }
    for name in kafka.options.keys() {
        let key = format!("kafka.options.{name}");
        if !name.bytes().all(is_kafka_byte) {
            found.add(&[&key], "is no name of a property: letters, digits, dots, dashes and underscores");
        }
        if let Some(reason) = options::refusal(name) {
            found.add(&[&key], reason);
        }
        let own = match name.as_str() {
            "sasl.username" if kafka.sasl_username.is_some() => "kafka.sasl_username",
            "sasl.password" if kafka.sasl_password.is_some() => "kafka.sasl_password",
            _ => continue,
        };
        found.add(&[&key], format!("is set together with {own}: give one of them"));
    }
}
