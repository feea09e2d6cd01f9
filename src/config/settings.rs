//! The resolved configuration: what the rest of the program sees.
//!
//! What a setting does is said once, in the table of [`schema`](super::schema); here stands what
//! its type does not say.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use super::choices::{Action, Delivery, Late, LogFormat, Mode, OnGap, VerdictRecords};
use super::key::{Key, Secret};
use super::options::Options;
use super::values::{FromValue, Value};

/// The whole configuration. [`Default`] is what an empty file gives.
#[derive(Debug, Clone)]
pub struct Config {
    /// What is read.
    pub input: Input,
    /// How pages are sketched and banded.
    pub sketch: SketchSettings,
    /// What is remembered, and how long.
    pub window: Window,
    /// What is done with each verdict.
    pub policy: PolicySettings,
    /// What is written.
    pub output: Output,
    /// How Kafka is reached.
    pub kafka: Kafka,
    /// How the stages run.
    pub pipeline: Pipeline,
    /// How a lost window comes back.
    pub recovery: Recovery,
    /// The window on disk.
    pub snapshot: Snapshot,
    /// The admin port.
    pub admin: Admin,
    /// The log.
    pub log: Log,
    /// Paths of the keys that the file or the environment set.
    pub(super) given: Vec<&'static str>,
}

/// What is read.
#[derive(Debug, Clone)]
pub struct Input {
    /// Source topics; none unless `run` is to be used.
    pub topics: Vec<String>,
    /// Where a page's members are found.
    pub fields: Fields,
    /// Bytes of the largest page that is judged.
    pub max_page_bytes: usize,
    /// Where the very first start begins.
    pub start: Start,
    /// Which pages are forwarded unjudged.
    pub skip: SkipRules,
}

/// Where a page's members are found; an empty path switches a member off.
#[derive(Debug, Clone)]
pub struct Fields {
    /// The URL; never off.
    pub url: FieldPath,
    /// The text; on if `html` is off.
    pub text: FieldPath,
    /// The HTML; on if `text` is off.
    pub html: FieldPath,
    /// The page's own id.
    pub id: FieldPath,
    /// The event time.
    pub fetched_at: FieldPath,
    /// The HTTP status.
    pub status: FieldPath,
    /// The content type.
    pub content_type: FieldPath,
}

/// The names to follow from the top of a JSON document, outermost first; none: switched off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath(pub Vec<String>);

impl FieldPath {
    /// Whether the member is switched off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromValue for FieldPath {
    /// A member name as it is, or with a leading slash a JSON pointer (RFC 6901).
    fn from_value(value: Value) -> Result<Self, String> {
        let text = String::from_value(value)?;
        let Some(pointer) = text.strip_prefix('/') else {
            return Ok(Self(if text.is_empty() { Vec::new() } else { vec![text] }));
        };
        let unescape = |name: &str| {
            let rest = name.replace("~0", "").replace("~1", "");
            (!rest.contains('~')).then(|| name.replace("~1", "/").replace("~0", "~"))
        };
        let names = pointer.split('/').map(unescape).collect::<Option<_>>();
        names.map(Self).ok_or_else(|| "must write ~ as ~0 and / as ~1 within a JSON pointer's names".to_owned())
    }
}

impl From<FieldPath> for Value {
    fn from(FieldPath(names): FieldPath) -> Self {
        Self::Text(match names.as_slice() {
            // Nothing at all would be no path; the member without a name is `/`.
            [name] if !name.is_empty() && !name.starts_with('/') => name.clone(),
            names => {
                let escape = |name: &String| name.replace('~', "~0").replace('/', "~1");
                names.iter().map(|name| format!("/{}", escape(name))).collect()
            }
        })
    }
}

/// Where the very first start begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record there is.
    Earliest,
    /// At the next record to come.
    Latest,
    /// At the first record of this time or later.
    At {
        /// Milliseconds since 1970.
        epoch_ms: i64,
    },
}

impl FromValue for Start {
    fn from_value(value: Value) -> Result<Self, String> {
        let text = String::from_value(value)?;
        match text.as_str() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            time => {
                let epoch_ms = time.parse().ok().filter(|epoch_ms| *epoch_ms >= 0);
                let timestamp = || Some(time.parse::<jiff::Timestamp>().ok()?.as_millisecond());
                epoch_ms.or_else(timestamp).map(|epoch_ms| Self::At { epoch_ms }).ok_or_else(|| {
                    format!(
                        "must be \"earliest\", \"latest\" or a time with its zone, as \
                         \"2026-01-31T00:00:00Z\", is {time:?}"
                    )
                })
            }
        }
    }
}

impl From<Start> for Value {
    fn from(start: Start) -> Self {
        Self::Text(match start {
            Start::Earliest => "earliest".to_owned(),
            Start::Latest => "latest".to_owned(),
            Start::At { epoch_ms } => match jiff::Timestamp::from_millisecond(epoch_ms) {
                Ok(time) => time.to_string(),
                Err(_) => epoch_ms.to_string(),
            },
        })
    }
}

/// Which pages are forwarded unjudged.
#[derive(Debug, Clone)]
pub struct SkipRules {
    /// Those whose status is known and not 2xx.
    pub non_2xx: bool,
    /// Media types that are text, lower-case, the subtype possibly `*`; a page that names another
    /// type is skipped. Empty: the type does not matter.
    pub content_types: Vec<String>,
    /// Those whose URL matches one of these.
    pub url_patterns: Vec<Regex>,
    /// Those with a Kafka header of this name and value.
    pub headers: Vec<(String, String)>,
}

/// How pages are sketched and banded.
#[derive(Debug, Clone)]
pub struct SketchSettings {
    /// The secret key; `run` does not start without one.
    pub key: Option<Key>,
    /// Words in a shingle, 1 to 16.
    pub shingle_words: usize,
    /// Bytes kept of a page for verification: 32, 64, 128 or 256.
    pub bytes: usize,
    /// Bands, 1 to 32.
    pub bands: usize,
    /// Slots in a band, 1 to 16.
    pub rows: usize,
    /// Distinct shingles below which only the digest counts.
    pub min_shingles: usize,
}

/// What is remembered, and how long.
#[derive(Debug, Clone)]
pub struct Window {
    /// Age in event time after which a page is forgotten; `None`: never.
    pub max_age: Option<Duration>,
    /// Bytes of index, overlay and names together.
    pub max_memory: u64,
    /// Share of `max_memory` for ids and URLs, 0 to 0.9; 0: off.
    pub names_share: f64,
    /// Whether a match renews the age.
    pub refresh_on_match: bool,
    /// What becomes of pages older than the window.
    pub late: Late,
    /// Share of the window one host may take, above 0; 1: no quota.
    pub max_share_per_host: f64,
    /// Entries of the cache of the hottest digests; 0: off.
    pub exact_cache_entries: usize,
}

/// What is done with each verdict. Pages that are unique or skipped are always forwarded.
#[derive(Debug, Clone)]
pub struct PolicySettings {
    /// Estimated resemblance from which a page is a near-duplicate, 0.5 to 1.
    pub threshold: f64,
    /// For the same words under another URL.
    pub exact_duplicate: Action,
    /// For verified resemblance under another URL.
    pub near_duplicate: Action,
    /// For a revisit with the same words.
    pub unchanged: Action,
    /// For a revisit with other words; never [`Action::Drop`].
    pub updated: Action,
}

/// What is written. Topics may be empty unless [`Config::check_for_run`] has passed.
#[derive(Debug, Clone)]
pub struct Output {
    /// Survivors.
    pub topic: String,
    /// Verdict records, if any are wanted.
    pub verdict_topic: Option<String>,
    /// Rejected pages.
    pub dead_letter_topic: String,
    /// Remembered pages.
    pub state_topic: String,
    /// Pages, or verdict records only.
    pub mode: Mode,
    /// Which pages get a verdict record.
    pub verdict_records: VerdictRecords,
}

/// How Kafka is reached.
#[derive(Debug, Clone)]
pub struct Kafka {
    /// Brokers as `host:port`.
    pub brokers: Vec<String>,
    /// Consumer group.
    pub group: String,
    /// Stable name of this member: its transactional id and static membership.
    pub instance: String,
    /// What Kafka is asked to guarantee.
    pub delivery: Delivery,
    /// Time between commits, 10 ms to 60 s; below `transaction_timeout`.
    pub commit_interval: Duration,
    /// When the broker aborts a dead member's transaction, 1 s to 15 min.
    pub transaction_timeout: Duration,
    /// Whether missing output topics are created.
    pub create_topics: bool,
    /// User name for SASL, set together with the password.
    pub sasl_username: Option<String>,
    /// Password for SASL.
    pub sasl_password: Option<Secret>,
    /// Any other property of librdkafka.
    pub options: Options,
}

/// How the stages run.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Sketching threads, at least one.
    pub threads: usize,
    /// Most pages in a batch.
    pub batch_pages: usize,
    /// Longest wait for a batch to fill.
    pub batch_wait: Duration,
    /// Time to finish at a stop.
    pub drain_timeout: Duration,
    /// Bytes of the consumer's queue, for all partitions together.
    pub prefetch_memory: u64,
}

/// The window on disk.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Where it is; `None`: nowhere.
    pub directory: Option<PathBuf>,
    /// Longest time until a remembered page is in it.
    pub interval: Duration,
    /// Most bytes it takes.
    pub max_disk: u64,
}

/// How a lost window comes back.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// Longest time to restore.
    pub max_wait: Duration,
    /// What to do if the window is not whole by then.
    pub on_gap: OnGap,
}

/// The admin port.
#[derive(Debug, Clone)]
pub struct Admin {
    /// Where it listens; `None`: no port.
    pub listen: Option<SocketAddr>,
}

/// The log.
#[derive(Debug, Clone)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
}
