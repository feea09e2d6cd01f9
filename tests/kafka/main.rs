//! The daemon on a real broker.
//!
//! `PAGESIEVE_TEST_BROKERS` names a cluster to use; without it a broker is started (`tests/kafka/README.md`).

#[path = "../support/broker.rs"]
mod broker;
#[path = "../support/daemon.rs"]
mod daemon;
mod faults;
#[path = "../support/feeding.rs"]
mod feeding;
mod flow;
mod large;
#[path = "../support/oracle.rs"]
mod oracle;
mod snapshot;
mod soak;
#[path = "../support/topics.rs"]
mod topics;

use daemon::{Daemon, SOON, Setup};
use topics::{Origin, Record};

/// Words that no other number gives.
pub fn text(number: u64, words: usize) -> String {
    let word = |at: usize| format!("w{:x}", (number * 1_000_003 + at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 36);
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}

/// The text with one word changed.
pub fn edited(text: &str) -> String {
    text.replacen(' ', " changed ", 1)
}

/// Sends records to the first input topic, one after the other, and waits until they are committed.
pub fn judged(setup: &Setup, daemon: &mut Daemon, records: &[Record]) -> Vec<Origin> {
    let origins = setup.cluster.send(&setup.inputs[0], records);
    setup.wait_drained(daemon, SOON);
    origins
}
