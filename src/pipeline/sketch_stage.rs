//! Stage 1: records → sketches. Stateless: the same record gives the same sketch on any thread.

use crate::batch::{PageNames, PageSketch, ReceivedBatch, Sketch, SketchedBatch};
use crate::index::names::Named;
use crate::page::decode::Decoder;
use crate::page::{Decoded, EventTime, Names, Page, Reason, Reject, SkipRule, url_key};
use crate::sketch::Sketcher;
use crate::transport::SinkCheck;
use crate::verdict::NotJudged;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A record header that, with the value `false`, keeps a page out of the window.
pub const REMEMBER_HEADER: &str = "pagesieve-remember";

/// Decodes and sketches batches. Each thread has a clone of its own.
#[derive(Clone)]
pub struct SketchStage {
    decoder: Arc<Decoder>,
    sketcher: Sketcher,
    /// Text of the page at hand, where it is not a stretch of the record.
    text: String,
    sink_check: Option<Arc<SinkCheck>>,
    /// Event times later than this many milliseconds after the record's own timestamp cannot be right.
    timestamps_bound: Option<i64>,
}

impl SketchStage {
    /// A stage that decodes and sketches as these say.
    pub fn new(decoder: Decoder, sketcher: Sketcher) -> Self {
        Self { decoder: Arc::new(decoder), sketcher, text: String::new(), sink_check: None, timestamps_bound: None }
    }

    /// Rejects what the sink would refuse, before it is judged.
    pub fn with_sink_check(mut self, check: Arc<SinkCheck>) -> Self {
        self.sink_check = Some(check);
        self
    }

    /// Takes a record's own timestamp for its event time where the page names none, and for an upper
    /// bound where it does.
    pub fn with_record_timestamps(mut self) -> Self {
        self.timestamps_bound = Some(3_600_000);
        self
    }

    /// Sketches every record of a batch.
    pub fn run(&mut self, received: ReceivedBatch) -> SketchedBatch {
        let shape = self.sketcher.shape();
        let mut batch = SketchedBatch::around(received, shape);
        for at in 0..batch.received.deliveries.len() {
            let names = batch.names.len();
            let page = catch_unwind(AssertUnwindSafe(|| self.page(&mut batch, at))).unwrap_or_else(|_| {
                batch.sketches.resize(at, &shape);
                batch.names.truncate(names);
                rejected(Reject::new(Reason::Internal, "decoding failed in a way it should not"))
            });
            batch.pages.push(page);
            batch.sketches.resize(at + 1, &shape);
        }
        batch
    }

    fn page(&mut self, batch: &mut SketchedBatch, at: usize) -> PageSketch {
        let SketchedBatch { received, sketches, names, .. } = batch;
        let delivery = &received.deliveries[at];
        let refused = self.sink_check.as_ref().and_then(|check| check(received, at));
        let Some(value) = &delivery.value else {
            if let Some(reject) = refused {
                return rejected(reject);
            }
            let key = delivery.key.as_ref().and_then(|key| std::str::from_utf8(received.bytes(key)).ok());
            return PageSketch::Tombstone { url_key: key.map(|key| self.sketcher.url_key(&url_key::normalise(key).0)) };
        };
        if let Some(whole) = delivery.cut_from {
            return rejected(Reject::new(Reason::TooLarge, format!("{whole} bytes, over what is read of one page")));
        }
        let present = received.headers_of(delivery).filter_map(|(name, value)| Some((name, value?)));
        if let Some(rule) = self.decoder.header_rule(present) {
            let skipped = PageSketch::Not(NotJudged::Skipped(rule), PageNames::default());
            return refused.map_or(skipped, rejected);
        }
        let page = match self.decoder.decode(received.bytes(value), &mut self.text) {
            Decoded::Rejected(reject) => return rejected(reject),
            // What is not judged is forwarded too.
            _ if refused.is_some() => return rejected(refused.expect("there is one")),
            Decoded::Page(page) => page,
            Decoded::Skipped { rule, names: Names { url, id } } => {
                let kept = keep(names, Named { id: id.as_deref(), url: url.as_deref() });
                return PageSketch::Not(NotJudged::Skipped(rule), kept);
            }
        };
        let Page { url, id, text, event_time } = page;
        let kept = keep(names, Named { id: id.as_deref(), url: url.as_deref() });
        let summary = self.sketcher.sketch(text, sketches);
        if summary.num_words == 0 {
            return PageSketch::Not(NotJudged::Skipped(SkipRule::NoWords), kept);
        }
        let (url_key, host_key) = match url.as_deref().map(url_key::normalise) {
            Some((normal, host)) => {
                (Some(self.sketcher.url_key(&normal)), host.map(|host| self.sketcher.host_key(&host)))
            }
            None => (None, None),
        };
        let forbidden =
            received.headers_of(delivery).any(|(name, value)| name == REMEMBER_HEADER && value == Some(b"false"));
        PageSketch::Page(Sketch {
            event_time: self.event_time(event_time, delivery.timestamp_ms),
            url_key,
            host_key,
            digest: summary.digest,
            short: summary.short,
            remember: !forbidden,
            names: kept,
        })
    }

    /// The page's time, held to the record's timestamp where there is one.
    fn event_time(&self, of_page: EventTime, timestamp_ms: Option<i64>) -> EventTime {
        let (Some(ahead_ms), Some(timestamp)) = (self.timestamps_bound, timestamp_ms) else {
            return of_page;
        };
        match of_page {
            EventTime::At(millis) if millis <= timestamp.saturating_add(ahead_ms) => of_page,
            EventTime::At(_) | EventTime::Absent => EventTime::At(timestamp),
            EventTime::Unreadable => EventTime::Unreadable,
        }
    }
}

fn rejected(reject: Reject) -> PageSketch {
    PageSketch::Not(NotJudged::Rejected(reject), PageNames::default())
}

/// Appends a page's names to the batch's.
fn keep(text: &mut String, names: Named) -> PageNames {
    let mut keep = |name: Option<&str>| -> Option<Range<u32>> {
        let name = name?;
        let start = u32::try_from(text.len()).ok()?;
        text.push_str(name);
        Some(start..u32::try_from(text.len()).ok()?)
    };
    PageNames { id: keep(names.id), url: keep(names.url) }
}
