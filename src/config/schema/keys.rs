//! The table itself: every setting of pagesieve, in the order of the template and the README.

use std::time::Duration;

use super::super::choices::{Action, Delivery, Late, LogFormat, Mode, OnGap, VerdictRecords};
use super::super::kind::Kind;
use super::super::kind::Kind::{
    DurationOrNone, Flag, Integer, IntegerOf, List, Number, OneOf, Options, Share, Size, Start, Text,
};
use super::ChangeKind::{Free, Restart, Sketch};
use super::KeySpec;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// A duration from `min` to `max`, both included.
const fn span(min: Duration, max: Duration) -> Kind {
    Kind::Duration(min, max)
}

const FIELD: &str = "member name or JSON pointer";

/// `Some` of what may be absent in a row.
macro_rules! optional {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}

/// One row: `"path" = "default", kind, "unit", change, marks…: "doc";`, the marks being `secret`
/// and `required "example"`.
macro_rules! keys {
    ($($path:literal = $default:literal, $kind:expr, $unit:expr, $change:ident
       $(, secret $secret:tt)? $(, required $example:literal)?: $doc:literal;)+) => {
        /// Every key, in the order in which they are documented; the keys of a section stand
        /// together.
        pub const KEYS: &[KeySpec] = &[$(KeySpec {
            path: $path,
            kind: $kind,
            default: $default,
            unit: $unit,
            doc: $doc,
            secret: false $(|| $secret)?,
            change: $change,
            example: optional!($($example)?),
        }),+];
    };
}

keys! {
    "input.topics" = "[]", List, "topic names", Restart, required r#"["crawl.pages"]"#:
        "Topics the pages are read from.";
    "input.max_page_bytes" = r#""16MiB""#, Size(KIB, 1 << 30), "bytes", Free:
        "Larger pages are rejected; bounds the work and the memory one page can cost.";
    "input.start" = r#""earliest""#, Start, "position", Restart:
        "Where the very first start begins to read; later starts go on from the committed offsets.";

    "input.fields.url" = r#""url""#, Text, FIELD, Sketch:
        "The page's URL: the same URL again is a revisit, not a duplicate.";
    "input.fields.text" = r#""text""#, Text, FIELD, Sketch:
        "The page's text; preferred to the HTML where a page has both. Empty: not read.";
    "input.fields.html" = r#""html""#, Text, FIELD, Sketch:
        "The page's HTML, from which the text is taken. Empty: not read.";
    "input.fields.id" = r#""id""#, Text, FIELD, Free:
        "The page's own id, repeated in verdicts. Empty, or absent in a page: its position.";
    "input.fields.fetched_at" = r#""fetched_at""#, Text, FIELD, Free:
        "When the page was fetched, its event time. Empty, or absent in a page: the record's time.";
    "input.fields.status" = r#""status""#, Text, FIELD, Free:
        "The HTTP status of the answer. Empty: not read.";
    "input.fields.content_type" = r#""content_type""#, Text, FIELD, Free:
        "The content type of the answer. Empty: not read.";

    "input.skip.non_2xx" = "true", Flag, "", Free:
        "Forward pages with another status than 2xx unjudged.";
    "input.skip.content_types" =
        r#"["text/*", "application/xhtml+xml", "application/xml", "application/json"]"#,
        List, "media types", Free:
        "The types that are text; a page that names another one is forwarded unjudged.";
    "input.skip.url_patterns" = "[]", List, "regular expressions", Free:
        "Forward pages unjudged whose URL matches one of these.";
    "input.skip.headers" = "[]", List, "name=value", Free:
        "Forward records unjudged that carry one of these Kafka headers.";

    "sketch.key" = r#""""#, Text, "32 hexadecimal digits", Sketch, secret true:
        "The secret key of the sketches, better given as a file or in the environment.";
    "sketch.key_file" = r#""""#, Text, "file", Sketch, required r#""pagesieve.key""#:
        "File with the secret key, made by `pagesieve keygen`; all members of a group share it.";
    "sketch.shingle_words" = "5", Integer(1, 16), "words", Sketch:
        "Consecutive words in a shingle; more make the comparison stricter.";
    "sketch.bytes" = "64", IntegerOf(&[32, 64, 128, 256]), "bytes", Sketch:
        "Kept of each page to verify candidates with: twice as much nearly halves the error of a resemblance.";
    "sketch.bands" = "12", Integer(1, 32), "bands", Sketch:
        "Chances to become a candidate: more find more pairs and cost memory per page.";
    "sketch.rows" = "5", Integer(1, 16), "slots per band", Sketch:
        "Slots that must agree in a band; more give fewer candidates to verify.";
    "sketch.min_shingles" = "8", Integer(1, 10_000), "shingles", Sketch:
        "Pages with fewer shingles are compared by their exact text only.";

    "window.max_age" = r#""7d""#, DurationOrNone(SECOND, Duration::from_secs(3_650 * 86_400)),
        "duration", Free:
        "How long a page is remembered, in event time.";
    "window.max_memory" = r#""4GiB""#, Size(MIB, 16 * TIB), "bytes", Free:
        "Memory of the remembered window; beyond it the least recently matched pages are forgotten.";
    "window.names_share" = "0.25", Number(0.0, 0.9), "share of max_memory", Free:
        "Part kept for ids and URLs, so that verdicts can name the canonical page; 0 keeps none.";
    "window.refresh_on_match" = "false", Flag, "", Free:
        "Let a match renew the age of the remembered page; off, it expires after one window.";
    "window.late" = r#""probe""#, OneOf(Late::NAMES), "", Free:
        "Pages older than the window: judge only, judge and remember, or forward unjudged.";
    "window.max_share_per_host" = "1.0", Share, "share of the window", Free:
        "Most that one host may take of the window; 1 sets no quota.";
    "window.exact_cache_entries" = "4096", Integer(0, 1 << 24), "pages", Free:
        "Hottest pages found without a probe of the index; verdicts do not depend on it. 0: off.";

    "policy.threshold" = "0.8", Number(0.5, 1.0), "resemblance", Free:
        "Estimated resemblance from which a page is a near-duplicate.";
    "policy.exact_duplicate" = r#""drop""#, OneOf(Action::NAMES), "", Free:
        "What is done with a page with the same words as a remembered page of another URL.";
    "policy.near_duplicate" = r#""drop""#, OneOf(Action::NAMES), "", Free:
        "What is done with a page that resembles a remembered page of another URL.";
    "policy.unchanged" = r#""tag""#, OneOf(Action::NAMES), "", Free:
        "What is done with a revisit that has the same words.";
    "policy.updated" = r#""tag""#, OneOf(&["forward", "tag"]), "", Free:
        "What is done with a revisit that has other words; a drop would lose their only copy.";

    "output.topic" = r#""""#, Text, "topic name", Restart, required r#""crawl.survivors""#:
        "Topic of the survivors.";
    "output.verdict_topic" = r#""""#, Text, "topic name", Restart:
        "Topic of the verdict records. Empty: none are written.";
    "output.dead_letter_topic" = r#""""#, Text, "topic name", Restart,
        required r#""crawl.dead-letters""#:
        "Topic of the rejected pages.";
    "output.state_topic" = r#""""#, Text, "topic name", Restart, required r#""crawl.state""#:
        "Topic of the remembered pages, from which a lost window is restored; one per group.";
    "output.mode" = r#""pages""#, OneOf(Mode::NAMES), "", Restart:
        "Write pages, or only verdict records: a shadow run.";
    "output.verdict_records" = r#""dropped""#, OneOf(VerdictRecords::NAMES), "", Free:
        "Which pages get a verdict record: those on no other topic, all that are not plainly unique, or all.";

    "kafka.brokers" = "[]", List, "host:port", Restart, required r#"["localhost:9092"]"#:
        "Brokers to find the cluster by.";
    "kafka.group" = r#""pagesieve""#, Text, "group name", Restart:
        "Consumer group; its members share the input partitions.";
    "kafka.instance" = r#""pagesieve-0""#, Text, "name", Restart:
        "Stable name of this member, different for each: fences a zombie of the same name.";
    "kafka.delivery" = r#""exactly_once""#, OneOf(Delivery::NAMES), "", Restart:
        "Transactions, or acknowledged outputs that a crash may repeat.";
    "kafka.commit_interval" = r#""100ms""#, span(Duration::from_millis(10), Duration::from_secs(60)),
        "duration", Restart:
        "Time between commits: longer is cheaper, shorter shows pages sooner.";
    "kafka.transaction_timeout" = r#""60s""#, span(SECOND, Duration::from_secs(900)),
        "duration", Restart:
        "After this the broker aborts the transaction of a dead member; others wait until then.";
    "kafka.create_topics" = "false", Flag, "", Restart:
        "Create missing output topics at the start, with the partitions of the input.";
    "kafka.sasl_username" = r#""""#, Text, "name", Restart:
        "User name for SASL. Empty: none.";
    "kafka.sasl_password" = r#""""#, Text, "", Restart, secret true:
        "Password for SASL, better given as a file or in the environment.";
    "kafka.sasl_password_file" = r#""""#, Text, "file", Restart:
        "File with the password for SASL; one newline at its end is ignored.";
    "kafka.options" = "{}", Options, "", Restart:
        "Any other property of librdkafka by its own name; what would break the guarantees is refused.";

    "pipeline.threads" = "0", Integer(0, 1_024), "threads", Restart:
        "Threads that sketch. 0: one per core.";
    "pipeline.batch_pages" = "1024", Integer(1, 65_536), "pages", Restart:
        "Most pages the judge answers at once.";
    "pipeline.batch_wait" = r#""5ms""#, span(Duration::ZERO, SECOND), "duration", Restart:
        "Longest wait for a batch to fill.";
    "pipeline.drain_timeout" = r#""20s""#, span(MILLISECOND, Duration::from_secs(3_600)),
        "duration", Restart:
        "Time to finish what is in flight at a stop; after it the open transaction is aborted.";
    "pipeline.prefetch_memory" = r#""64MiB""#, Size(MIB, 2047 * MIB), "bytes", Restart:
        "Memory of the consumer's queue, for all partitions together.";

    "snapshot.directory" = r#""""#, Text, "directory", Restart:
        "Where the window is kept on disk, for a restart to read most of it from. Empty: nowhere.";
    "snapshot.interval" = r#""1m""#, span(SECOND, DAY), "duration", Restart:
        "Longest time until a page is on disk; a restart reads later ones from the state topic.";
    "snapshot.max_disk" = r#""32GiB""#, Size(128 * MIB, 64 * TIB), "bytes", Restart:
        "Most that the snapshot takes; beyond it the oldest part goes, and a restart forgets its pages.";

    "recovery.max_wait" = r#""10m""#, span(Duration::ZERO, DAY), "duration", Restart:
        "Longest time to restore the window before `recovery.on_gap` decides.";
    "recovery.on_gap" = r#""serve""#, OneOf(OnGap::NAMES), "", Restart:
        "If the window cannot be restored whole: serve with surplus copies, wait unready, or exit.";

    "admin.listen" = r#""127.0.0.1:9464""#, Text, "address:port", Restart:
        "Where metrics, health and the API are served; \"none\" opens no port.";

    "log.format" = r#""text""#, OneOf(LogFormat::NAMES), "", Restart:
        "Log lines for people, or one JSON object a line.";
}
