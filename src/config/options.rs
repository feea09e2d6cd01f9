//! The properties passed through to librdkafka: which are refused, which are never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

/// Properties of librdkafka by their own names; `Debug` hides those that hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options(pub(super) BTreeMap<String, String>);

impl Deref for Options {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Options {
    type Item = (&'a String, &'a String);
    type IntoIter = std::collections::btree_map::Iter<'a, String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Options {
    /// The properties as they may be shown, secrets as `***`.
    #[must_use]
    pub fn redacted(&self) -> BTreeMap<String, String> {
        let show = |(name, value): (&String, &String)| {
            let value = if is_secret(name) { "***" } else { value };
            (name.clone(), value.to_owned())
        };
        self.0.iter().map(show).collect()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redacted().fmt(out)
    }
}

/// Parts of the names of properties that hold secrets.
const SECRET_PARTS: [&str; 5] = ["password", "secret", "passphrase", "oauthbearer.config", "key.pem"];

/// Whether a property's value must never be shown.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// Properties that would break what pagesieve guarantees, with the reason or the key to use.
const REFUSED: &[(&str, &str)] = &[
    ("acks", "a page counts as written only when all replicas have it"),
    ("auto.offset.reset", "use input.start"),
    ("bootstrap.servers", "use kafka.brokers"),
    ("delivery.timeout.ms", NO_DEADLINE),
    ("enable.auto.commit", "offsets are committed together with the outputs, never by a timer"),
    ("enable.auto.offset.store", "offsets are committed together with the outputs"),
    ("enable.idempotence", "without it a retry could write a page twice or out of order"),
    ("group.id", "use kafka.group"),
    ("group.instance.id", "use kafka.instance"),
    ("isolation.level", "pages of aborted transactions must not be read"),
    ("message.send.max.retries", NO_DEADLINE),
    ("message.timeout.ms", NO_DEADLINE),
    ("metadata.broker.list", "use kafka.brokers"),
    ("queued.max.messages.kbytes", "use pipeline.prefetch_memory, which covers all partitions"),
    ("request.required.acks", "a page counts as written only when all replicas have it"),
    ("retries", NO_DEADLINE),
    ("transaction.timeout.ms", "use kafka.transaction_timeout"),
    ("transactional.id", "it is made from kafka.instance"),
];

const NO_DEADLINE: &str = "a write that is given up on would lose the page; pagesieve waits or aborts the transaction";

/// Why a property may not be set, if it may not.
#[must_use]
pub fn refusal(name: &str) -> Option<String> {
    let name = name.strip_prefix("topic.").unwrap_or(name);
    let (_, reason) = REFUSED.iter().find(|(refused, _)| *refused == name)?;
    Some(format!("may not be set: {reason}"))
}

/// The one property of librdkafka with an underscore in its name.
const LOG_LEVEL: &str = "log_level";

/// The property an environment variable means: `SECURITY_PROTOCOL` is `security.protocol`.
#[must_use]
pub fn name_from_environment(name: &str) -> String {
    if name == LOG_LEVEL { name.to_owned() } else { name.replace('_', ".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret() {
        let cases = [
            ("sasl.password", true),
            ("ssl.key.password", true),
            ("ssl.keystore.password", true),
            ("ssl.key.pem", true),
            ("sasl.oauthbearer.config", true),
            ("sasl.oauthbearer.client.secret", true),
            ("sasl.oauthbearer.assertion.private.key.passphrase", true),
            ("sasl.username", false),
            ("ssl.key.location", false),
            ("ssl.ca.pem", false),
        ];
        for (name, expected) in cases {
            assert_eq!(is_secret(name), expected, "{name}");
        }
    }

    #[test]
    fn every_refusal_gives_its_reason() {
        for (name, reason) in REFUSED {
            assert!(refusal(name).unwrap().contains(reason));
        }
        assert!(refusal("topic.acks").is_some());
        for name in ["client.id", "security.protocol", "partitioner", "message.max.bytes"] {
            assert_eq!(refusal(name), None, "{name}");
        }
    }

    #[test]
    fn names_from_the_environment() {
        assert_eq!(name_from_environment("security_protocol"), "security.protocol");
        assert_eq!(name_from_environment("log_level"), "log_level");
    }
}
