//! Kafka on both ends: pages in, survivors, verdict records, dead letters and state records out, and the
//! offsets with them.
//!
//! ```text
//! source topics ─▶ KafkaSource ─▶ … ─▶ KafkaSink ─▶ output, verdict, dead-letter and state topics
//!                      ▲                  │
//!                      └── one transaction: all of these and the offsets
//! ```
//!
//! The source polls on the caller's thread, because librdkafka calls back there when partitions come and go; the
//! sink has a thread of its own, because commits block. [`link::Link`] is what the two know of each other.
//! Both reach the cluster through the traits of [`protocol`] only, so that `tests/simulate` can put another one there.

pub mod client;
pub mod connect;
pub mod feed;
mod headers;
pub mod keeper;
pub mod link;
pub mod member;
pub mod producer;
pub mod protocol;
mod records;
pub mod replay;
pub mod restore;
pub mod sink;
pub mod source;
pub mod transaction;

use super::outcome::Positions;
use crate::index::Origin;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// Topic partitions by the numbers they have in origins. Grows when partitions are found, never shrinks.
#[derive(Debug, Clone, Default)]
pub struct Partitions(Arc<RwLock<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    names: Vec<(Arc<str>, i32)>,
    /// By topic, then by partition, so that a look-up needs no name of its own.
    numbers: HashMap<Arc<str>, HashMap<i32, u16>>,
}

impl Partitions {
    /// The number of a topic partition; `None` if there are more than an origin can tell apart.
    pub fn number(&self, topic: &str, partition: i32) -> Option<u16> {
        let known = |numbers: &Numbers| numbers.numbers.get(topic)?.get(&partition).copied();
        if let Some(number) = known(&self.0.read().expect("nobody panics with the lock")) {
            return Some(number);
        }
        let mut numbers = self.0.write().expect("nobody panics with the lock");
        if let Some(number) = known(&numbers) {
            return Some(number);
        }
        let number =
            u16::try_from(numbers.names.len()).ok().filter(|number| usize::from(*number) < Origin::MAX_SOURCES)?;
        let name: Arc<str> = topic.into();
        numbers.names.push((name.clone(), partition));
        numbers.numbers.entry(name).or_default().insert(partition, number);
        Some(number)
    }

    /// The topic and partition of a number.
    pub fn name(&self, number: u16) -> (Arc<str>, i32) {
        self.0.read().expect("nobody panics with the lock").names[usize::from(number)].clone()
    }
}

impl Positions for Partitions {
    fn position(&self, origin: Origin) -> String {
        let (topic, partition) = self.name(origin.source);
        format!("{topic}/{partition}/{}", origin.offset)
    }
}
