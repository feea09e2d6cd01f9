//! A stretch of the input on its way through the stages, and its change of name with each.
//!
//! A batch is one buffer of bytes and lists of ranges into it: no page has allocations of its own, and
//! the memory goes round with the batch.

use crate::index::judge::{Judge, Judged, Sketched};
use crate::index::names::Named;
use crate::index::{NO_TIME, Origin};
use crate::page::{EventTime, Reject, SkipRule};
use crate::sketch::{Shape, Sketches};
use crate::verdict::{NotJudged, Verdict};
use std::ops::Range;
use std::time::{Duration, Instant};

/// When a batch is full.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Pages.
    pub pages: usize,
    /// Bytes after which no further page is added. A single larger page is a batch of its own.
    pub bytes: usize,
    /// Time after which a batch that has a page goes on its way.
    pub wait: Duration,
}

/// Bytes within a batch's buffer.
pub type Span = Range<usize>;

/// One record as it came.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Where it came from.
    pub origin: Origin,
    /// Its value; `None` for a tombstone.
    pub value: Option<Span>,
    /// Its value was longer than is kept: the whole length in bytes.
    pub cut_from: Option<u64>,
    /// Its key.
    pub key: Option<Span>,
    /// Its headers, within the batch's.
    pub headers: Range<usize>,
    /// Its timestamp in milliseconds, if it has one.
    pub timestamp_ms: Option<i64>,
}

/// What the source hands over.
#[derive(Debug, Default)]
pub struct ReceivedBatch {
    /// All bytes.
    pub buffer: Vec<u8>,
    /// The records, in order.
    pub deliveries: Vec<Delivery>,
    /// Names and values of all headers.
    pub headers: Vec<(Span, Option<Span>)>,
    /// When the first record came in.
    pub received_at: Option<Instant>,
    /// Memory of the stages behind, to be used again.
    spare: Option<Box<Spare>>,
}

#[derive(Debug, Default)]
struct Spare {
    pages: Vec<PageSketch>,
    sketches: Sketches,
    names: String,
    judged: Vec<Judged>,
    canonical_names: String,
}

impl ReceivedBatch {
    /// Empties the batch, keeping its memory unless one huge page made it huge.
    pub fn clear(&mut self) {
        const KEPT_BYTES: usize = 4 << 20;
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        self.deliveries.clear();
        self.headers.clear();
        self.received_at = None;
    }

    /// The bytes of a span.
    pub fn bytes(&self, span: &Span) -> &[u8] {
        &self.buffer[span.clone()]
    }

    /// The headers of a delivery.
    pub fn headers_of(&self, delivery: &Delivery) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.headers[delivery.headers.clone()].iter().map(|(name, value)| {
            let name = std::str::from_utf8(self.bytes(name)).expect("header names are UTF-8: the source checks");
            (name, value.as_ref().map(|value| self.bytes(value)))
        })
    }

    /// Appends bytes and says where they are.
    pub fn push(&mut self, bytes: &[u8]) -> Span {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(bytes);
        start..self.buffer.len()
    }
}

/// What the sketch stage says of one record.
#[derive(Debug, Clone)]
pub enum PageSketch {
    /// To be judged.
    Page(Sketch),
    /// Not to be judged, and why.
    Not(NotJudged, PageNames),
    /// A tombstone: forgets the page of this URL, if any.
    Tombstone {
        /// Keyed hash of the record's key as a URL.
        url_key: Option<u64>,
    },
}

/// A sketched page; its bands and bits are among the batch's, in the same place as the page.
#[derive(Debug, Clone)]
pub struct Sketch {
    /// When it was fetched.
    pub event_time: EventTime,
    /// Keyed hash of its normalised URL.
    pub url_key: Option<u64>,
    /// Keyed hash of its host.
    pub host_key: Option<u16>,
    /// Digest.
    pub digest: u64,
    /// Only the digest counts.
    pub short: bool,
    /// May it be remembered?
    pub remember: bool,
    /// Id and URL.
    pub names: PageNames,
}

/// A page's id and URL, within the batch's names.
#[derive(Debug, Clone, Default)]
pub struct PageNames {
    /// The producer's own name for the page.
    pub id: Option<Range<u32>>,
    /// The page's address.
    pub url: Option<Range<u32>>,
}

/// What the sketch stage hands over: one entry in `pages` for each delivery.
#[derive(Debug)]
pub struct SketchedBatch {
    /// The records.
    pub received: ReceivedBatch,
    /// What is known of each.
    pub pages: Vec<PageSketch>,
    /// One for each entry of `pages`.
    pub sketches: Sketches,
    /// Ids and URLs of all pages.
    pub names: String,
    shape: Shape,
    spare: Box<Spare>,
}

impl SketchedBatch {
    /// An empty one around what was received, with the memory of a batch before it.
    pub fn around(mut received: ReceivedBatch, shape: Shape) -> Self {
        let mut spare = received.spare.take().unwrap_or_default();
        let mut take = Self {
            pages: std::mem::take(&mut spare.pages),
            sketches: std::mem::take(&mut spare.sketches),
            names: std::mem::take(&mut spare.names),
            received,
            shape,
            spare,
        };
        take.pages.clear();
        take.sketches.clear();
        take.names.clear();
        take
    }

    /// A name in the batch.
    pub fn name(&self, range: &Option<Range<u32>>) -> Option<&str> {
        range.as_ref().map(|range| &self.names[range.start as usize..range.end as usize])
    }

    /// The names of page number `at`.
    pub fn names_of(&self, at: usize) -> Named<'_> {
        let none = PageNames::default();
        let names = match &self.pages[at] {
            PageSketch::Page(sketch) => &sketch.names,
            PageSketch::Not(_, names) => names,
            PageSketch::Tombstone { .. } => &none,
        };
        Named { id: self.name(&names.id), url: self.name(&names.url) }
    }

    /// Page number `at` as the judge wants it, if it is to be judged.
    pub fn sketched(&self, at: usize) -> Option<Sketched<'_>> {
        let PageSketch::Page(sketch) = self.pages.get(at)? else { return None };
        let row = |length: usize| at * length..(at + 1) * length;
        let (Sketches { bands, bits, neighbours }, words) = (&self.sketches, self.shape.bit_words());
        Some(Sketched {
            origin: self.received.deliveries[at].origin,
            event_time: sketch.event_time,
            url_key: sketch.url_key,
            host_key: sketch.host_key,
            digest: sketch.digest,
            short: sketch.short,
            remember: sketch.remember,
            bands: &bands[row(self.shape.bands)],
            bits: &bits[row(words)],
            neighbours: &neighbours[row(2 * words)],
            names: self.names_of(at),
        })
    }
}

/// What the judge hands over: one entry in `judged` for each delivery.
#[derive(Debug)]
pub struct JudgedBatch {
    /// What was judged; `None` if this only ends a transaction.
    pub batch: Option<SketchedBatch>,
    /// The verdicts.
    pub judged: Vec<Judged>,
    /// Pages that tombstones made the index forget: place of the tombstone, URL key and origin of the page.
    pub forgotten: Vec<(usize, u64, Origin)>,
    /// Names of canonicals.
    pub canonical_names: String,
    /// Is the transaction to be committed behind this batch?
    pub ends_transaction: bool,
}

impl JudgedBatch {
    /// No pages, only the end of the open transaction.
    pub fn end_of_transaction() -> Self {
        Self {
            batch: None,
            judged: Vec::new(),
            forgotten: Vec::new(),
            canonical_names: String::new(),
            ends_transaction: true,
        }
    }

    /// A canonical's name.
    pub fn canonical_name(&self, range: &Option<Range<u32>>) -> Option<&str> {
        range.as_ref().map(|range| &self.canonical_names[range.start as usize..range.end as usize])
    }

    /// Why page number `at` was skipped or rejected, if it was.
    pub fn not_judged(&self, at: usize) -> Option<NotJudged> {
        if let Some(rule) = self.judged[at].rule {
            return Some(NotJudged::Skipped(rule));
        }
        match &self.batch.as_ref()?.pages[at] {
            PageSketch::Not(reason, _) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Gives the batch's memory back for the next one.
    pub fn recycle(self) -> Option<ReceivedBatch> {
        let SketchedBatch { mut received, pages, sketches, names, mut spare, .. } = self.batch?;
        *spare = Spare { pages, sketches, names, judged: self.judged, canonical_names: self.canonical_names };
        received.spare = Some(spare);
        Some(received)
    }
}

/// Judges a batch, page by page and in order.
pub fn judge(judge: &mut Judge, batch: SketchedBatch) -> JudgedBatch {
    judge_each(judge, batch, |_| {})
}

/// [`judge`], and calls `each` behind every page: `benches/index.rs` looks at the clock there.
#[inline]
pub fn judge_each(judge: &mut Judge, mut batch: SketchedBatch, mut each: impl FnMut(&Judged)) -> JudgedBatch {
    let mut judged = std::mem::take(&mut batch.spare.judged);
    let mut canonical_names = std::mem::take(&mut batch.spare.canonical_names);
    judged.clear();
    canonical_names.clear();
    let mut forgotten = Vec::new();
    for at in 0..batch.pages.len() {
        judge.index().look_ahead(at, |at| batch.sketched(at));
        let page = match &batch.pages[at] {
            PageSketch::Page(_) => {
                let page = batch.sketched(at).expect("it is a page");
                judge.judge(&page, &mut canonical_names)
            }
            PageSketch::Not(NotJudged::Skipped(rule), _) => plain(Verdict::Skipped, Some(*rule)),
            PageSketch::Not(NotJudged::Rejected(Reject { .. }), _) => plain(Verdict::Rejected, None),
            PageSketch::Tombstone { url_key } => {
                let key = url_key.and_then(|key| Some((at, key, judge.forget(key)?)));
                forgotten.extend(key);
                plain(Verdict::Skipped, Some(SkipRule::Tombstone))
            }
        };
        each(&page);
        judged.push(page);
    }
    JudgedBatch { batch: Some(batch), judged, forgotten, canonical_names, ends_transaction: false }
}

/// The verdict of a page that was not judged.
fn plain(verdict: Verdict, rule: Option<SkipRule>) -> Judged {
    Judged { verdict, rule, canonical: None, resemblance: None, remembered: false, replaced: None, event_time: NO_TIME }
}
