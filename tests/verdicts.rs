//! Guards what is said of each page: every verdict and every rule of the design, by driving `pagesieve filter` on a few
//! lines each. What bad input gets is in `bad_input.rs`.

#[path = "support/cases.rs"]
mod cases;
#[path = "support/filter.rs"]
mod support;
#[path = "support/text.rs"]
mod text;

use cases::{Case, words};
use pagesieve::config::{Config, Key};
use pagesieve::sketch::odd::Estimator;
use pagesieve::sketch::{Shape, Sketcher, Sketches};
use serde_json::{Value, json};
use text::{Random, prose};

const DAY: i64 = 86_400;
const START: i64 = 1_700_000_000;

fn shape() -> Shape {
    Shape::new(&Config::default().sketch)
}

/// `filter`'s sketches: without a key file the key is a public one.
fn sketch(text: &str) -> Sketches {
    let mut sketcher = Sketcher::new(shape(), &Key::from_bytes(*b"pagesieve public"));
    let mut sketch = Sketches::default();
    sketcher.sketch(text, &mut sketch);
    sketch
}

/// What is compared with the threshold.
fn estimate(left: &str, right: &str) -> f32 {
    let (left, right) = (sketch(left), sketch(right));
    Estimator::new(shape().bytes).resemblance(&left.bits, &left.neighbours, &right.bits)
}

fn share_a_band(left: &str, right: &str) -> bool {
    sketch(left).bands.iter().zip(&sketch(right).bands).any(|(left, right)| left == right)
}

/// Pages of 200 words made from one another, with the resemblances that the cases below need: those estimated, not only
/// the true ones.
struct Family {
    base: String,
    /// 16 of its last words changed: 0.85.
    end: String,
    /// 16 of its first words changed: 0.85; to `end` 0.72.
    start: String,
    /// 4 of its first words changed: 0.82 to `end`, 0.85 to `start`.
    nearer_start: String,
    /// `end` with 16 of its first words changed: 0.85 to `end`, 0.72 to the base.
    both: String,
}

impl Family {
    fn new() -> Self {
        (0..).map(Self::of_seed).find(Self::is_as_said).expect("one of a few seeds is")
    }

    fn of_seed(seed: u64) -> Self {
        let mut random = Random(seed);
        let base = prose(&mut random, 200);
        let mut changed = |of: &[&'static str], first: usize, last: usize| {
            let middle = &of[first..200 - last];
            [&prose(&mut random, first), middle, &prose(&mut random, last)].concat()
        };
        let end = changed(&base, 0, 16);
        let [start, nearer_start, both] = [changed(&base, 16, 0), changed(&base, 4, 0), changed(&end, 16, 0)];
        let [base, end, start, nearer_start, both] =
            [base, end, start, nearer_start, both].map(|words| words.join(" "));
        Self { base, end, start, nearer_start, both }
    }

    fn is_as_said(&self) -> bool {
        let Self { base, end, start, nearer_start, both } = self;
        let near = [(base, end), (base, start), (nearer_start, end), (nearer_start, start), (both, end)];
        near.iter().all(|(left, right)| estimate(left, right) >= 0.8 && share_a_band(left, right))
            && [(end, start), (both, base), (both, start)].iter().all(|(left, right)| estimate(left, right) < 0.78)
            && estimate(nearer_start, start) > estimate(nearer_start, end)
    }
}

#[test]
fn every_verdict() {
    let Family { base, end, .. } = Family::new();
    let other = words(1, 100);
    Case::new("every row of the table")
        .page("a", &base, "unique")
        .page("b", &base, "exact_duplicate 1")
        .page("c", &base.to_uppercase().replace(' ', ", "), "exact_duplicate 1")
        .page("d", &end, "near_duplicate 1")
        .page("a", &base, "unchanged 1")
        .page("a", &other, "updated 1")
        .line(r#"{"url":"e","text":"gone","status":404}"#, "skipped status")
        .line(r#"{"url":"f"}"#, "rejected no_text")
        .check();
    Case::new("a revisit is known by its normalised URL")
        .page("http://Example.com:80/a#top", &base, "unique")
        .page("http://example.com/a", &base, "unchanged 1")
        .page("https://example.com/a", &base, "exact_duplicate 1")
        .check();
    Case::new("any string is a URL, and a page may have none")
        .page("page 17", &base, "unique")
        .page(" page 17\n", &base, "unchanged 1")
        .line(json!({"text": base}).to_string(), "exact_duplicate 1")
        .line(json!({"text": other}).to_string(), "unique")
        .line(json!({"text": other}).to_string(), "exact_duplicate 4")
        .line(json!({"url": 17, "text": words(2, 40)}).to_string(), "unique")
        .page("17", &words(2, 40), "unchanged 6")
        .check();
}

#[test]
fn candidates_are_verified_and_the_best_wins() {
    let Family { base, end, start, nearer_start, both } = Family::new();
    Case::new("the best of two, whichever came first")
        .page("a", &end, "unique")
        .page("b", &start, "unique")
        .page("c", &nearer_start, "near_duplicate 2")
        .check();
    Case::new("the same in the other order")
        .page("b", &start, "unique")
        .page("a", &end, "unique")
        .page("c", &nearer_start, "near_duplicate 1")
        .check();
    Case::new("the page's own URL wins over a better stranger")
        .page("a", &end, "unique")
        .page("b", &start, "unique")
        .page("a", &nearer_start, "updated 1")
        .check();
    Case::new("a copy of a stranger is dropped as such, and the old record of its URL stays")
        .page("a", &base, "unique")
        .page("b", &both, "unique")
        .page("a", &both, "exact_duplicate 2")
        .page("a", &end, "updated 1")
        .page("c", &end, "exact_duplicate 4")
        .check();
    Case::new("the same with a near copy")
        .page("a", &words(3, 200), "unique")
        .page("b", &base, "unique")
        .page("a", &end, "near_duplicate 2")
        .page("a", &words(3, 200), "unchanged 1")
        .check();
    Case::new("chains never form: only emitted pages are remembered")
        .page("a", &base, "unique")
        .page("b", &end, "near_duplicate 1")
        .page("c", &both, "unique")
        .check();
    Case::new("the threshold is free")
        .with("POLICY__THRESHOLD", "0.6")
        .page("a", &end, "unique")
        .page("b", &start, "near_duplicate 1")
        .check();
}

/// Two pages that share a band at a resemblance below the threshold. Whoever takes a shared band for a verdict drops
/// the second.
#[test]
fn a_shared_band_is_not_a_verdict() {
    let mut found = 0;
    for seed in 0..200 {
        let base = prose(&mut Random(seed), 100);
        let other = [&base[..72], &prose(&mut Random(!seed), 28)].concat().join(" ");
        let base = base.join(" ");
        if share_a_band(&base, &other) && estimate(&base, &other) < 0.75 {
            Case::new("a shared band").page("a", &base, "unique").page("b", &other, "unique").check();
            found += 1;
            if found == 3 {
                return;
            }
        }
    }
    panic!("at a resemblance of 0.55 every second pair shares a band");
}

/// Two remembered pages with the same words: the second came as an update, step by step, each step near its own page.
#[test]
fn ties_go_to_the_smallest_event_time_then_origin() {
    let Family { base, end, both, .. } = Family::new();
    for (name, first, expected) in [
        ("by event time", START + 1000, "exact_duplicate 4"),
        ("by event time, the other way", START - 1000, "exact_duplicate 1"),
        ("by origin", START, "exact_duplicate 1"),
    ] {
        Case::new(name)
            .page_at("a", &base, first, "unique")
            .page_at("b", &both, START, "unique")
            .page_at("b", &end, START, "updated 2")
            .page_at("b", &base, START, "updated 3")
            .page_at("c", &base, START, expected)
            .check();
    }
}

#[test]
fn an_update_replaces_the_page_if_it_is_not_older() {
    let (old, new) = (words(1, 60), words(2, 60));
    Case::new("newer")
        .page_at("a", &old, START, "unique")
        .page_at("a", &new, START + 60, "updated 1")
        .page_at("b", &new, START + 60, "exact_duplicate 2")
        .page_at("c", &old, START + 60, "unique")
        .check();
    Case::new("older: emitted, but what is remembered stays")
        .page_at("a", &new, START + 60, "unique")
        .page_at("a", &old, START, "updated 1")
        .page_at("b", &new, START, "exact_duplicate 1")
        .page_at("c", &old, START, "unique")
        .check();
    Case::new("without times the later one")
        .page("a", &old, "unique")
        .page("a", &new, "updated 1")
        .page("b", &new, "exact_duplicate 2")
        .page("c", &old, "unique")
        .check();
}

#[test]
fn short_pages_are_compared_by_their_text() {
    Case::new("case and punctuation count, white space does not")
        .page("a", "Page not found.", "unique")
        .page("b", "page not found.", "unique")
        .page("c", "Page not found!", "unique")
        .page("d", " Page  not\tfound.\n", "exact_duplicate 1")
        .page("e", "Page\u{0}not\u{a0}found.", "exact_duplicate 1")
        .page("a", "Page  not found.", "unchanged 1")
        .page("a", "Page not found, sorry.", "updated 1")
        .page("f", "Pagenot found.", "unique")
        .check();
    // 11 words are 7 shingles, 12 are 8.
    let (eleven, twelve) = (words(5, 11), words(5, 12));
    Case::new("the limit")
        .page("a", &eleven, "unique")
        .page("b", &eleven.to_uppercase(), "unique")
        .page("c", &twelve, "unique")
        .page("d", &twelve.to_uppercase(), "exact_duplicate 3")
        .page("e", &format!("{twelve}!"), "exact_duplicate 3")
        .check();
    Case::new("few distinct shingles are short too: one word a thousand times is no copy of another")
        .page("a", &"spam ".repeat(1000), "unique")
        .page("b", &"eggs ".repeat(1000), "unique")
        .page("c", &"Spam ".repeat(1000), "unique")
        .page("d", &"spam ".repeat(1001), "unique")
        .page("e", &"spam  ".repeat(1000), "exact_duplicate 1")
        .check();
    let mut near_empty = Case::new("no near-empty sketch ever matches another");
    for number in 0..300 {
        near_empty = near_empty.page(&format!("url {number}"), &words(number, 1 + number as usize % 11), "unique");
    }
    // Words repeat: what came before with the very same text is a copy.
    let mut seen = std::collections::HashMap::new();
    for (number, (line, expected)) in near_empty.lines.iter_mut().enumerate() {
        let text = serde_json::from_slice::<Value>(line).unwrap()["text"].as_str().unwrap().to_owned();
        let first = *seen.entry(text).or_insert(number + 1);
        if first != number + 1 {
            *expected = format!("exact_duplicate {first}");
        }
    }
    near_empty.check();
}

#[test]
fn pages_with_nothing_to_judge_are_skipped_and_not_remembered() {
    let text = words(1, 50);
    let page = |extra: Value| {
        let mut page = json!({"url": "a", "text": text});
        page.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        page.to_string()
    };
    Case::new("rules")
        .with("INPUT__SKIP__URL_PATTERNS", r"\.(css|js)$,^admin")
        .line(page(json!({"status": 301})), "skipped status")
        .line(page(json!({"status": "503"})), "skipped status")
        .line(page(json!({"content_type": "image/png"})), "skipped content_type")
        .line(page(json!({"url": "x.css"})), "skipped url_pattern")
        .line(page(json!({"url": "admin/x"})), "skipped url_pattern")
        .line(page(json!({"text": ""})), "skipped no_body")
        .line(page(json!({"text": null})), "skipped no_body")
        .line(page(json!({"text": " ... — !\u{0}\n"})), "skipped no_words")
        .line(json!({"url": "a", "html": "<script>words here</script>"}).to_string(), "skipped no_words")
        .line(page(json!({})), "unique")
        .line(page(json!({"status": 404})), "skipped status")
        .line(
            page(json!({"url": "b", "status": 204, "content_type": "text/html; charset=utf-8"})),
            "exact_duplicate 10",
        )
        .line(page(json!({"url": "b", "status": null, "content_type": null})), "exact_duplicate 10")
        .check();
    Case::new("a rule can be switched off")
        .with("INPUT__SKIP__NON_2XX", "false")
        .line(page(json!({"status": 404})), "unique")
        .check();
    Case::new("html is stripped, text is preferred to it")
        .line(json!({"url": "a", "text": text}).to_string(), "unique")
        .line(
            json!({"url": "b", "html": format!("<html><style>p {{}}</style><p>{text}</p>")}).to_string(),
            "exact_duplicate 1",
        )
        .line(json!({"url": "c", "text": text, "html": "<p>something else</p>"}).to_string(), "exact_duplicate 1")
        .check();
}

#[test]
fn late_pages() {
    let (known, late_text) = (words(1, 40), words(2, 40));
    let stream = |name| Case::new(name).page_at("a", &known, START, "unique").fillers(105, START);
    let long_ago = START - 8 * DAY;
    stream("judged, not remembered")
        .page_at("b", &known, long_ago, "exact_duplicate 1")
        .page_at("c", &late_text, long_ago, "unique")
        .page_at("d", &late_text, long_ago, "unique")
        .page_at("e", &late_text, START, "unique")
        .page_at("f", &late_text, long_ago, "exact_duplicate 110")
        .page_at("g", &words(3, 40), START - 6 * DAY, "unique")
        .page_at("h", &words(3, 40), START, "exact_duplicate 112")
        .check();
    stream("remembered")
        .with("WINDOW__LATE", "remember")
        .page_at("b", &known, long_ago, "exact_duplicate 1")
        .page_at("c", &late_text, long_ago, "unique")
        .page_at("d", &late_text, long_ago, "exact_duplicate 108")
        .check();
    stream("remembered, but what is newer of the same URL stays")
        .with("WINDOW__LATE", "remember")
        .page_at("a", &late_text, long_ago, "updated 1")
        .page_at("b", &known, START, "exact_duplicate 1")
        .check();
    stream("forwarded")
        .with("WINDOW__LATE", "forward")
        .page_at("b", &known, long_ago, "skipped late")
        .page_at("c", &late_text, long_ago, "skipped late")
        .page_at("d", &late_text, START, "unique")
        .check();
    stream("a shorter window")
        .with("WINDOW__MAX_AGE", "1h")
        .with("WINDOW__LATE", "forward")
        .page_at("b", &known, START - 3599, "exact_duplicate 1")
        .page_at("c", &known, START - 3601, "skipped late")
        .check();
    stream("no window: nothing is late, nothing expires")
        .with("WINDOW__MAX_AGE", "none")
        .page_at("b", &late_text, 86_400, "unique")
        .page_at("c", &late_text, long_ago, "exact_duplicate 107")
        .check();
}

#[test]
fn the_window_slides_by_event_time() {
    let text = words(1, 40);
    let days = |number: i64| START + number * DAY;
    let matched_on_the_way = |name| {
        Case::new(name)
            .page_at("a", &text, days(0), "unique")
            .fillers(105, days(0))
            .fillers(120, days(4))
            .page_at("b", &text, days(4), "exact_duplicate 1")
            .fillers(300, days(8))
    };
    matched_on_the_way("a match does not renew the age").page_at("c", &text, days(8), "unique").check();
    matched_on_the_way("unless asked to")
        .with("WINDOW__REFRESH_ON_MATCH", "true")
        .page_at("c", &text, days(8), "exact_duplicate 1")
        .check();
    Case::new("a stream without times does not age")
        .with("WINDOW__MAX_AGE", "1s")
        .page("a", &text, "unique")
        .fillers(0, 0)
        .page("b", &words(2, 40), "unique")
        .page("c", &text, "exact_duplicate 1")
        .check();
}

/// A time far ahead becomes the clock's, or the page would be remembered for years. Whatever place it has in the
/// stream: before the clock is known (101 times), as the page that makes it known, or later.
#[test]
fn a_time_ahead_of_the_clock_becomes_the_clocks() {
    let text = words(1, 40);
    for before in [0, 50, 99, 100, 101, 150] {
        Case::new("a liar")
            .fillers(before, START)
            .page_at("a", &text, START + 365 * DAY, "unique")
            .fillers(200 - before, START)
            .page_at("b", &text, START, &format!("exact_duplicate {}", before + 1))
            .fillers(300, START + 8 * DAY)
            .page_at("c", &text, START + 8 * DAY, "unique")
            .check();
    }
}

#[test]
fn event_times_as_crawlers_write_them() {
    let text = words(1, 40);
    let mut case = Case::new("one time in many forms, a day before the window")
        .with("WINDOW__LATE", "forward")
        .fillers(105, START);
    for time in [
        json!("2023-11-06T22:13:20Z"),
        json!("2023-11-06 22:13:20"),
        json!("20231106221320"),
        json!("Mon, 06 Nov 2023 22:13:20 GMT"),
        json!(1_699_308_800),
        json!("1699308800"),
        json!(1_699_308_800_000_i64),
        json!(0),
    ] {
        case = case.line(json!({"url": "x", "text": text, "fetched_at": time}).to_string(), "skipped late");
    }
    // What cannot be read gets the clock's time.
    let unreadable = json!({"url": "y", "text": text, "fetched_at": "yesterday"}).to_string();
    case.line(unreadable, "unique").line(json!({"url": "z", "text": text}).to_string(), "exact_duplicate 114").check();
}
