//! Outcomes → messages: headers of forwarded pages, verdict records, dead letters.

use super::Partitions;
use super::connect::ADDED_HEADER_BYTES;
use crate::batch::{Delivery, JudgedBatch, SketchedBatch};
use crate::index::NO_TIME;
use crate::page::Reject;
use crate::transport::outcome::{self, OutcomeRecord, Positions, rounded};
use crate::verdict::{Disposition, NotJudged};
use rdkafka::message::{Header, OwnedHeaders};
use serde::Serialize;

/// Names longer than this are left out of headers, so that all headers together stay within the bytes promised.
const MAX_HEADER_NAME_BYTES: usize = ADDED_HEADER_BYTES / 2;

/// One record of the verdict topic.
#[derive(Serialize)]
pub struct VerdictRecord<'a> {
    /// `topic/partition/offset`.
    origin: &'a str,
    #[serde(flatten)]
    outcome: OutcomeRecord<'a>,
    /// What was done: `forward`, `tag`, `drop` or `dead_letter`.
    action: &'static str,
    /// Reason of a reject.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time: Option<String>,
    config: &'a str,
    sketch: &'a str,
}

/// Names of the settings in force, for verdict records.
#[derive(Debug, Clone)]
pub struct Marks {
    /// Hash of the configuration.
    pub config: String,
    /// Sketch id.
    pub sketch: String,
}

fn action(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Forward => "forward",
        Disposition::Tag => "tag",
        Disposition::Drop => "drop",
        Disposition::DeadLetter => "dead_letter",
    }
}

fn time(seconds: u32) -> Option<String> {
    (seconds != NO_TIME)
        .then(|| jiff::Timestamp::from_second(i64::from(seconds)).ok())
        .flatten()
        .map(|it| it.to_string())
}

/// The verdict record of page number `at`, as JSON, into `out`.
pub fn verdict(
    judged: &JudgedBatch,
    batch: &SketchedBatch,
    at: usize,
    disposition: Disposition,
    marks: &Marks,
    partitions: &Partitions,
    out: &mut Vec<u8>,
) {
    let position = partitions.position(batch.received.deliveries[at].origin);
    let reason = match judged.not_judged(at) {
        Some(NotJudged::Rejected(reject)) => Some(reject.reason.name()),
        _ => None,
    };
    let mut outcome = outcome::record(judged, batch, at, &position, partitions);
    if let Some(NotJudged::Skipped(rule)) = judged.not_judged(at) {
        outcome.rule = Some(rule.name());
    }
    let record = VerdictRecord {
        origin: &position,
        outcome,
        action: action(disposition),
        reason,
        event_time: time(judged.judged[at].event_time),
        config: &marks.config,
        sketch: &marks.sketch,
    };
    out.clear();
    serde_json::to_writer(out, &record).expect("strings and numbers are JSON, and memory does not fail to take them");
}

/// The headers that a page came with.
fn original(batch: &SketchedBatch, delivery: &Delivery, room: usize) -> OwnedHeaders {
    let headers = OwnedHeaders::new_with_capacity(delivery.headers.len() + room);
    batch.received.headers_of(delivery).fold(headers, |headers, (key, value)| headers.insert(Header { key, value }))
}

fn with<'h>(headers: OwnedHeaders, key: &'h str, value: &'h str) -> OwnedHeaders {
    headers.insert(Header { key, value: Some(value) })
}

/// The headers of a page that goes out.
pub fn forwarded(
    judged_batch: &JudgedBatch,
    batch: &SketchedBatch,
    at: usize,
    tag: bool,
    partitions: &Partitions,
) -> OwnedHeaders {
    let (delivery, judged) = (&batch.received.deliveries[at], &judged_batch.judged[at]);
    let mut headers = original(batch, delivery, 6);
    headers = with(headers, "pagesieve-verdict", judged.verdict.name());
    headers = with(headers, "pagesieve-origin", &partitions.position(delivery.origin));
    if let Some(time) = time(judged.event_time) {
        headers = with(headers, "pagesieve-event-time", &time);
    }
    let Some(canonical) = judged.canonical.as_ref().filter(|_| tag) else { return headers };
    let name = judged_batch.canonical_name(&canonical.id).or(judged_batch.canonical_name(&canonical.url));
    if let Some(name) = name.filter(|name| name.len() <= MAX_HEADER_NAME_BYTES) {
        headers = with(headers, "pagesieve-canonical", name);
    }
    headers = with(headers, "pagesieve-canonical-position", &partitions.position(canonical.origin));
    match judged.resemblance {
        Some(resemblance) => with(headers, "pagesieve-resemblance", &rounded(resemblance).to_string()),
        None => headers,
    }
}

/// The headers of a dead letter; `cut_from` is its length if it had to be cut, `bare` leaves the record's own out.
pub fn dead_letter(
    batch: &SketchedBatch,
    delivery: &Delivery,
    reject: &Reject,
    cut_from: Option<usize>,
    bare: bool,
    partitions: &Partitions,
) -> OwnedHeaders {
    let (topic, partition) = partitions.name(delivery.origin.source);
    let mut headers = if bare { OwnedHeaders::new_with_capacity(7) } else { original(batch, delivery, 6) };
    if bare {
        headers = with(headers, "pagesieve-error-left-out", "key and headers");
    }
    headers = with(headers, "pagesieve-error-reason", reject.reason.name());
    headers = with(headers, "pagesieve-error-detail", &reject.detail);
    headers = with(headers, "pagesieve-error-topic", &topic);
    headers = with(headers, "pagesieve-error-partition", &partition.to_string());
    headers = with(headers, "pagesieve-error-offset", &delivery.origin.offset.to_string());
    match cut_from {
        Some(bytes) => with(headers, "pagesieve-error-truncated-from-bytes", &bytes.to_string()),
        None => headers,
    }
}

/// Most bytes of a record and of the batch around it beside key, value and headers.
pub const FRAMING_BYTES: usize = 128;

/// Bytes that a delivery's key and headers take in a message, with some for framing.
pub fn beside_value(delivery: &Delivery, headers: &[(crate::batch::Span, Option<crate::batch::Span>)]) -> usize {
    const HEADER_FRAMING_BYTES: usize = 10;
    let headers = &headers[delivery.headers.clone()];
    let sizes = headers
        .iter()
        .map(|(name, value)| name.len() + value.as_ref().map_or(0, ExactSizeIterator::len) + HEADER_FRAMING_BYTES);
    FRAMING_BYTES + delivery.key.as_ref().map_or(0, ExactSizeIterator::len) + sizes.sum::<usize>()
}
