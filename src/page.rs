//! Bytes → [`Page`], a skip rule or a [`Reject`]: everything that is known of a page before its
//! words are looked at.
//!
//! ```text
//! record bytes ─▶ decode (JSON, field mapping) ─▶ rules (status, type, …) ─▶ text ─▶ words
//! ```
//!
//! Nothing here fails: a page that cannot be judged is an outcome with a reason from a closed
//! list, and a page with nothing to judge is an outcome with a rule.

pub mod decode;
pub mod html;
pub mod time;
pub mod url_key;
pub mod words;

use std::borrow::Cow;

/// Names what turns bytes into words. A change to anything that changes the sketch of a page
/// needs a new number; `tests/golden.rs` fails otherwise.
pub const TEXT_VERSION: u32 = 2;

/// A page as the sketcher sees it. Borrows from the record's bytes where it can.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<'a> {
    /// The page's address, as given.
    pub url: Option<Cow<'a, str>>,
    /// The producer's own name for the page, if it has one.
    pub id: Option<Cow<'a, str>>,
    /// The text whose words are compared.
    pub text: &'a str,
    /// When the page was fetched.
    pub event_time: EventTime,
}

/// What a record says of its own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTime {
    /// Milliseconds since 1970, UTC.
    At(i64),
    /// The record names no time.
    Absent,
    /// The record names one that cannot be read.
    Unreadable,
}

/// What became of a record's bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded<'a> {
    /// A page to be judged.
    Page(Page<'a>),
    /// Nothing to judge: forwarded untouched, not remembered.
    Skipped {
        /// The rule that said so.
        rule: SkipRule,
        /// The page's name and address, for the verdict record.
        names: Names<'a>,
    },
    /// Should be judgeable but is not.
    Rejected(Reject),
}

/// The names of a page that is not judged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Names<'a> {
    /// As in [`Page::url`].
    pub url: Option<Cow<'a, str>>,
    /// As in [`Page::id`].
    pub id: Option<Cow<'a, str>>,
}

/// Why a page has nothing to be judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SkipRule {
    /// The answer's status is not 2xx.
    Status,
    /// The content type is not text.
    ContentType,
    /// The body is empty.
    NoBody,
    /// The body has no word.
    NoWords,
    /// The URL matches a configured pattern.
    UrlPattern,
    /// A header has a configured value.
    Header,
    /// Older than the window, with `late = "forward"`.
    Late,
    /// A Kafka record without a value.
    Tombstone,
}

impl SkipRule {
    /// Every rule, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Status,
        Self::ContentType,
        Self::NoBody,
        Self::NoWords,
        Self::UrlPattern,
        Self::Header,
        Self::Late,
        Self::Tombstone,
    ];

    /// The rule's name in reports, records and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::ContentType => "content_type",
            Self::NoBody => "no_body",
            Self::NoWords => "no_words",
            Self::UrlPattern => "url_pattern",
            Self::Header => "header",
            Self::Late => "late",
            Self::Tombstone => "tombstone",
        }
    }
}

/// Why a page cannot be judged: a reason from a closed list, and what was seen where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The reason, as counted.
    pub reason: Reason,
    /// What was wrong and at which byte; never the page's text.
    pub detail: String,
}

impl Reject {
    /// A reject with its reason and detail.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// The closed list of reasons for a reject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// The record is not one JSON object.
    NotJson,
    /// The record's bytes are not UTF-8.
    BadUtf8,
    /// There is no text where there should be one.
    NoText,
    /// A mapped field is of the wrong kind.
    BadField,
    /// The record is over `max_page_bytes`.
    TooLarge,
    /// The record inflates to more than the allowed ratio.
    InflateRatio,
    /// The record is nested deeper than the limit.
    Nesting,
    /// The record has schema-registry framing, which is not decoded.
    SchemaRegistry,
    /// The sink would not take the page with its added headers.
    SinkLimit,
    /// Decoding it failed in a way it should not.
    Internal,
}

impl Reason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 10] = [
        Self::NotJson,
        Self::BadUtf8,
        Self::NoText,
        Self::BadField,
        Self::TooLarge,
        Self::InflateRatio,
        Self::Nesting,
        Self::SchemaRegistry,
        Self::SinkLimit,
        Self::Internal,
    ];

    /// The reason's name in reports, headers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::BadUtf8 => "bad_utf8",
            Self::NoText => "no_text",
            Self::BadField => "bad_field",
            Self::TooLarge => "too_large",
            Self::InflateRatio => "inflate_ratio",
            Self::Nesting => "nesting",
            Self::SchemaRegistry => "schema_registry",
            Self::SinkLimit => "sink_limit",
            Self::Internal => "internal",
        }
    }
}
