//! What is said of a page to the outside: the JSON records shared by files and Kafka.

use crate::batch::{JudgedBatch, SketchedBatch};
use crate::index::Origin;
use crate::index::judge::{Canonical, Judged};
use serde::Serialize;

/// Numbers of inputs → their names: topic and partition, or file.
pub trait Positions {
    /// `topic/partition/offset` or `input:line`.
    fn position(&self, origin: Origin) -> String;
}

/// The page that a duplicate was measured against.
#[derive(Debug, Serialize)]
pub struct CanonicalRecord<'a> {
    /// The producer's own name, else the position; null once overwritten in the ring of names.
    pub id: Option<&'a str>,
    /// Its address; null once overwritten.
    pub url: Option<&'a str>,
    /// Where it came from.
    pub position: String,
}

/// A line of `--duplicates`, the member that `--tag` adds, and the core of a verdict record.
#[derive(Debug, Serialize)]
pub struct OutcomeRecord<'a> {
    /// The producer's own name for the page, else its position.
    pub id: &'a str,
    /// Its address.
    pub url: Option<&'a str>,
    /// Where it came from.
    pub position: &'a str,
    /// The verdict's name.
    pub verdict: &'static str,
    /// The rule, if it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// The page it was measured against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical: Option<CanonicalRecord<'a>>,
    /// Estimated resemblance, to four digits; 1 if the words are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resemblance: Option<f64>,
}

/// Four digits are more than the estimate is good for.
pub fn rounded(resemblance: f32) -> f64 {
    (f64::from(resemblance) * 1e4).round() / 1e4
}

/// The record of page number `at`, whose position is `position`.
pub fn record<'a>(
    judged_batch: &'a JudgedBatch,
    batch: &'a SketchedBatch,
    at: usize,
    position: &'a str,
    positions: &impl Positions,
) -> OutcomeRecord<'a> {
    let judged: &Judged = &judged_batch.judged[at];
    let names = batch.names_of(at);
    OutcomeRecord {
        id: names.id.unwrap_or(position),
        url: names.url,
        position,
        verdict: judged.verdict.name(),
        rule: judged.rule.map(crate::page::SkipRule::name),
        canonical: judged.canonical.as_ref().map(|canonical| named(judged_batch, canonical, positions)),
        resemblance: judged.resemblance.map(rounded),
    }
}

fn named<'a>(judged: &'a JudgedBatch, canonical: &Canonical, positions: &impl Positions) -> CanonicalRecord<'a> {
    CanonicalRecord {
        id: judged.canonical_name(&canonical.id),
        url: judged.canonical_name(&canonical.url),
        position: positions.position(canonical.origin),
    }
}
