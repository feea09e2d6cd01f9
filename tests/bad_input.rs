//! Guards what bad and heavy input gets: a reason from the closed list with the original bytes, or a verdict, in
//! bounded time and memory.

#[path = "support/cases.rs"]
mod cases;
#[path = "support/filter.rs"]
mod support;
#[path = "support/text.rs"]
mod text;

use base64::Engine;
use cases::{Case, verdicts, words};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::filter;

#[test]
fn what_cannot_be_judged_is_rejected_with_its_reason() {
    let text = words(1, 40);
    let nested = |depth| format!(r#"{{"url":"n","text":"{text}","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let mut bad_utf8 = br#"{"url":"u","text":"caf"#.to_vec();
    bad_utf8.extend(b"\xe9\"}");
    Case::new("reasons")
        .line("hello", "rejected not_json")
        .line("{", "rejected not_json")
        .line(r#"{"url":"u","text":"t"} {}"#, "rejected not_json")
        .line("[]", "rejected not_json")
        .line(r#""text""#, "rejected not_json")
        .line("null", "rejected not_json")
        .line(r#"{"url":"u"}"#, "rejected no_text")
        .line(r#"{"url":"u","text":5}"#, "rejected no_text")
        .line(r#"{"url":"u","text":{"a":"b"}}"#, "rejected no_text")
        .line(r#"{"url":["u"],"text":"t"}"#, "rejected bad_field")
        .line(r#"{"url":"u","text":"t","status":"ok"}"#, "rejected bad_field")
        .line(bad_utf8, "rejected bad_utf8")
        .line(nested(200), "rejected nesting")
        .line(nested(1_000_000), "rejected nesting")
        .line(format!(r#"{{"url":"u","text":"t","x":{}"#, r#"{"a":"#.repeat(100_000)), "rejected nesting")
        .line(b"\x00\x00\x00\x00\x2a{\"url\":\"u\"}".to_vec(), "rejected schema_registry")
        .line(nested(100), "unique")
        .line(json!({"url": "m", "text": text}).to_string(), "exact_duplicate 17")
        .check();
}

#[test]
fn rejected_lines_keep_their_bytes() {
    let mut binary = b"{\"url\":\"u\",\"text\":\"".to_vec();
    binary.extend(0x80..=0xffu8);
    let large = json!({"url": "u", "text": "word ".repeat(1000)}).to_string();
    let lines: [&[u8]; 4] = [b"not json \\ \"at all\" \xc3\xa9", &binary, large.as_bytes(), b"{\"url\":\"\t\"}"];
    let run = filter(&lines.join(&b"\r\n"[..]), &[("INPUT__MAX_PAGE_BYTES", "1500")], &[]);
    let rejected = run.rejected();
    let reasons: Vec<&str> = rejected.iter().map(|line| line["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["not_json", "bad_utf8", "too_large", "not_json"]);
    for (line, rejected) in lines.iter().zip(&rejected) {
        let kept = match (&rejected["record"], &rejected["record_base64"]) {
            (Value::String(text), Value::Null) => text.clone().into_bytes(),
            (Value::Null, Value::String(base64)) => base64::prelude::BASE64_STANDARD.decode(base64).unwrap(),
            both => panic!("{both:?}"),
        };
        assert_eq!(kept.strip_suffix(b"\r").unwrap_or(&kept), *line);
        assert_eq!(rejected["truncated_from_bytes"], Value::Null);
        assert!(!rejected["detail"].as_str().unwrap().is_empty());
    }
    assert!(run.survivors().is_empty());
}

/// A line over four times the limit is not even read whole: its beginning is kept and its length told.
#[test]
fn an_overlong_line_is_cut() {
    let huge = format!(r#"{{"url":"u","text":"{}"}}"#, "x".repeat(30_000_000));
    let input = [huge.as_bytes(), br#"{"url":"v","text":"next"}"#].join(&b'\n');
    let run = filter(&input, &[("INPUT__MAX_PAGE_BYTES", "1MiB")], &[]);
    let rejected = &run.rejected()[0];
    assert_eq!(rejected["reason"], "too_large");
    assert_eq!(rejected["truncated_from_bytes"], huge.len());
    let kept = rejected["record"].as_str().unwrap();
    assert!(huge.starts_with(kept) && (4 << 20..5 << 20).contains(&kept.len()), "{}", kept.len());
    assert_eq!(run.survivors(), b"{\"url\":\"v\",\"text\":\"next\"}\n");
}

/// Heavy pages are judged, in time linear in their bytes: each takes a fraction of a second, and would take minutes if
/// the later rounds of the sketch ran over all of ten million shingles, or if distinct words were compared with each
/// other.
#[test]
fn heavy_pages_are_judged_in_linear_time() {
    let distinct = |count: usize| (0..count).map(|number| format!("w{number} ")).collect::<String>();
    let cases = [
        ("one word ten million times", "a ".repeat(10_000_000)),
        ("ten words a million times", "a b c d e f g h i j ".repeat(1_000_000)),
        ("a million distinct words", distinct(1_000_000)),
        ("forty thousand distinct words fifty times", distinct(40_000).repeat(50)),
        ("a word of ten million letters", "x".repeat(10_000_000)),
        ("ten million escapes", "\u{1}".repeat(10_000_000) + "word"),
        ("ten million line breaks", "\n".repeat(10_000_000) + "word"),
        ("ten million characters without spaces", "水東京都".repeat(2_500_000)),
    ];
    for (name, text) in cases {
        let line = json!({"url": "a", "text": text}).to_string().into_bytes();
        let copy = json!({"url": "b", "text": text}).to_string().into_bytes();
        drop(text);
        let started = Instant::now();
        let found = verdicts(&[line, copy], &[("INPUT__MAX_PAGE_BYTES", "256MiB")]);
        assert_eq!(found, ["unique", "exact_duplicate 1"], "{name}");
        println!("{name}: {:.2} s", started.elapsed().as_secs_f64());
        assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
    }
}

/// Markup is stripped in time linear in its bytes. What takes more memory than the strip has is rejected: if it were
/// judged by the text up to there, all pages that begin alike would be copies of each other.
#[test]
fn heavy_markup_is_stripped_in_linear_time_or_rejected() {
    let cases = [
        (
            "an inline image of five megabytes",
            format!("<img src='data:image/png;base64,{}'>", "A".repeat(5_000_000)),
            true,
        ),
        ("a million paragraphs", "<p>x</p>".repeat(1_000_000), true),
        ("a million line breaks", "<br>".repeat(1_000_000), true),
        ("two million entities", "&amp;".repeat(2_000_000), true),
        ("ten thousand attributes", format!("<a {}>", "x=y ".repeat(10_000)), true),
        ("a million attributes", format!("<a {}>", "x=y ".repeat(1_000_000)), false),
        ("ten thousand open elements", "<font>".repeat(10_000), true),
        ("a million open elements", "<font>".repeat(1_000_000), false),
        ("comments that never end", "<!-- ".repeat(2_000_000) + "-->", true),
    ];
    let page = |url: &str, markup: &str, seed| {
        let html = format!("<p>{}</p>{markup}<p>{}</p>", words(1, 60), words(seed, 60));
        json!({"url": url, "html": html}).to_string().into_bytes()
    };
    for (name, markup, is_judged) in cases {
        let lines = [page("a", &markup, 2), page("b", &markup, 3), page("c", &markup, 2)];
        let started = Instant::now();
        let found = verdicts(&lines, &[]);
        println!("{name}: {:.2} s", started.elapsed().as_secs_f64());
        match is_judged {
            true => assert_eq!(found, ["unique", "unique", "exact_duplicate 1"], "{name}"),
            false => assert_eq!(found, ["rejected nesting"; 3], "{name}"),
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
    }
}
