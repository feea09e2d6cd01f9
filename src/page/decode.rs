//! Record bytes → [`Decoded`]: JSON, the field mapping and the skip rules.
//!
//! Only the mapped fields are kept, borrowed where they hold no escapes; the rest is checked for
//! syntax and passed over. Work is linear in the bytes and depth is bounded.

mod fields;

use super::{Decoded, EventTime, Names, Page, Reason, Reject, SkipRule, html, time};
use crate::config::{FieldPath, Input};
use fields::{Fields, Scalar};
use std::borrow::Cow;

/// First byte of a value framed for a schema registry: magic, then a 4-byte schema number.
const REGISTRY_MAGIC: u8 = 0;
const REGISTRY_HEADER_BYTES: usize = 5;

/// The mapped fields, by their place in [`Decoder::paths`].
const URL: usize = 0;
const TEXT: usize = 1;
const HTML: usize = 2;
const ID: usize = 3;
const FETCHED_AT: usize = 4;
const STATUS: usize = 5;
const CONTENT_TYPE: usize = 6;
const NUM_FIELDS: usize = 7;

/// Decodes records as one configuration says. Shared by the sketch threads.
#[derive(Debug, Clone)]
pub struct Decoder {
    paths: [FieldPath; NUM_FIELDS],
    input: Input,
}

impl Decoder {
    /// A decoder for this mapping and these rules.
    pub fn new(input: &Input) -> Self {
        let f = &input.fields;
        let paths = [&f.url, &f.text, &f.html, &f.id, &f.fetched_at, &f.status, &f.content_type].map(Clone::clone);
        Self { paths, input: input.clone() }
    }

    /// The skip rule that a record's headers meet, if any.
    pub fn header_rule<'h>(&self, mut headers: impl Iterator<Item = (&'h str, &'h [u8])>) -> Option<SkipRule> {
        let rules = &self.input.skip.headers;
        headers
            .any(|(name, value)| rules.iter().any(|(n, v)| n == name && v.as_bytes() == value))
            .then_some(SkipRule::Header)
    }

    /// Decodes one record. `scratch` takes a text that has to be made: without its escapes, or of markup.
    pub fn decode<'a>(&self, bytes: &'a [u8], scratch: &'a mut String) -> Decoded<'a> {
        match self.fields(bytes) {
            Ok(fields) => self.page(fields, scratch).unwrap_or_else(Decoded::Rejected),
            Err(reject) => Decoded::Rejected(reject),
        }
    }

    fn fields<'a>(&self, bytes: &'a [u8]) -> Result<Fields<'a>, Reject> {
        let limit = self.input.max_page_bytes;
        if bytes.len() > limit {
            return Err(Reject::new(Reason::TooLarge, format!("{} bytes, over max_page_bytes = {limit}", bytes.len())));
        }
        if bytes.len() >= REGISTRY_HEADER_BYTES && bytes[0] == REGISTRY_MAGIC {
            let schema = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            return Err(Reject::new(Reason::SchemaRegistry, format!("framed for a schema registry, schema {schema}")));
        }
        let text = simdutf8::basic::from_utf8(bytes).map_err(|_| {
            let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
            Reject::new(Reason::BadUtf8, format!("not UTF-8 at byte {valid}"))
        })?;
        // Some programs begin a file with a byte-order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        fields::read(text, &self.paths)
    }

    fn page<'a>(&self, mut fields: Fields<'a>, scratch: &'a mut String) -> Result<Decoded<'a>, Reject> {
        let mut take = |field: usize| std::mem::take(&mut fields[field]);
        let names = Names { url: name(take(URL), "url")?, id: name(take(ID), "id")? };
        let (text, html) = (take(TEXT), take(HTML));
        let (status, content_type, fetched_at) = (take(STATUS), take(CONTENT_TYPE), take(FETCHED_AT));
        if let Some(rule) = self.rule(&status, &content_type, names.url.as_deref())? {
            return Ok(Decoded::Skipped { rule, names });
        }
        scratch.clear();
        let text = match (text, html) {
            (Scalar::Plain(text), _) if !text.is_empty() => text,
            (Scalar::Escaped(raw), _) => {
                fields::unescape(raw, scratch);
                &*scratch
            }
            (Scalar::Plain(_) | Scalar::Null | Scalar::Absent, Scalar::Plain(html)) if !html.is_empty() => {
                markup(html, scratch)?
            }
            (Scalar::Plain(_) | Scalar::Null | Scalar::Absent, Scalar::Escaped(raw)) => {
                let mut html = String::new();
                fields::unescape(raw, &mut html);
                markup(&html, scratch)?
            }
            (Scalar::Absent, Scalar::Absent) => {
                return Err(Reject::new(Reason::NoText, "neither the text nor the html field is there"));
            }
            (Scalar::Plain(_) | Scalar::Null | Scalar::Absent, Scalar::Plain(_) | Scalar::Null | Scalar::Absent) => {
                return Ok(Decoded::Skipped { rule: SkipRule::NoBody, names });
            }
            _ => return Err(Reject::new(Reason::NoText, "the text field is not a string")),
        };
        let event_time = match fetched_at {
            Scalar::Absent | Scalar::Null => EventTime::Absent,
            Scalar::Plain(text) => time::parse(text).map_or(EventTime::Unreadable, EventTime::At),
            Scalar::Escaped(raw) => time::parse(&fields::unescaped(raw)).map_or(EventTime::Unreadable, EventTime::At),
            Scalar::Integer(number) => time::from_number(number as f64).map_or(EventTime::Unreadable, EventTime::At),
            Scalar::Number(number) => time::from_number(number).map_or(EventTime::Unreadable, EventTime::At),
            Scalar::Other => EventTime::Unreadable,
        };
        Ok(Decoded::Page(Page { url: names.url, id: names.id, text, event_time }))
    }

    /// The first skip rule that the answer's status, its type or its address meets.
    fn rule(&self, status: &Scalar, content_type: &Scalar, url: Option<&str>) -> Result<Option<SkipRule>, Reject> {
        let skip = &self.input.skip;
        let code = match status {
            Scalar::Absent | Scalar::Null => None,
            Scalar::Integer(code) => Some(*code),
            Scalar::Number(code) => Some(*code as i64),
            Scalar::Plain(line) => Some(
                line.split_whitespace()
                    .find_map(|part| part.parse().ok())
                    .ok_or_else(|| Reject::new(Reason::BadField, "status is not a number"))?,
            ),
            Scalar::Escaped(_) | Scalar::Other => return Err(Reject::new(Reason::BadField, "status is not a number")),
        };
        if skip.non_2xx && code.is_some_and(|code| !(200..300).contains(&code)) {
            return Ok(Some(SkipRule::Status));
        }
        match content_type {
            Scalar::Absent | Scalar::Null => {}
            Scalar::Plain(_) | Scalar::Escaped(_) => {
                let given = content_type.text().unwrap_or_default();
                let essence = given.split(';').next().unwrap_or_default().trim();
                if !essence.is_empty() && !skip.content_types.iter().any(|known| type_matches(known, essence)) {
                    return Ok(Some(SkipRule::ContentType));
                }
            }
            _ => return Err(Reject::new(Reason::BadField, "content_type is not a string")),
        }
        let listed = url.is_some_and(|url| skip.url_patterns.iter().any(|pattern| pattern.is_match(url)));
        Ok(listed.then_some(SkipRule::UrlPattern))
    }
}

/// The text of a page's markup.
fn markup<'a>(html: &str, scratch: &'a mut String) -> Result<&'a str, Reject> {
    if !html::strip(html, scratch) {
        return Err(Reject::new(Reason::Nesting, "the markup has too many open elements or attributes"));
    }
    Ok(scratch)
}

/// Does `given` (`text/html`) match `known` (`text/*`, `text/html`)? Case does not count.
fn type_matches(known: &str, given: &str) -> bool {
    match known.strip_suffix('*') {
        Some(prefix) => given.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)),
        None => given.eq_ignore_ascii_case(known),
    }
}

/// A name is a string; numbers serve as identifiers too.
fn name<'a>(scalar: Scalar<'a>, field: &str) -> Result<Option<Cow<'a, str>>, Reject> {
    match scalar {
        Scalar::Absent | Scalar::Null => Ok(None),
        Scalar::Plain(text) => Ok(Some(Cow::Borrowed(text))),
        Scalar::Escaped(raw) => Ok(Some(Cow::Owned(fields::unescaped(raw)))),
        Scalar::Integer(number) => Ok(Some(Cow::Owned(number.to_string()))),
        Scalar::Number(number) => Ok(Some(Cow::Owned(number.to_string()))),
        Scalar::Other => Err(Reject::new(Reason::BadField, format!("{field} is not a string"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn outcome(bytes: &[u8]) -> String {
        let config = Config::default();
        match Decoder::new(&config.input).decode(bytes, &mut String::new()) {
            Decoded::Page(page) => format!("page {}", page.text),
            Decoded::Skipped { rule, .. } => format!("skipped {}", rule.name()),
            Decoded::Rejected(reject) => format!("rejected {}", reject.reason.name()),
        }
    }

    #[test]
    fn every_kind_of_record() {
        let deep = format!(r#"{{"url":"u","text":"t","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        let table: &[(&str, &str)] = &[
            (r#"{"url":"u","text":"hello"}"#, "page hello"),
            (r#"{"url":"u","text":"a\nb\u00e9"}"#, "page a\nbé"),
            (r#"{"text":"no address"}"#, "page no address"),
            (r#"{"text":"\ud83d\ude00 \ud83d!"}"#, "page \u{1F600} \u{FFFD}!"),
            (r#"{"te\u0078t":"an escape in a name"}"#, "page an escape in a name"),
            (r#"{"text":"first","text":"the last one counts"}"#, "page the last one counts"),
            (r#"{"text":"\x"}"#, "rejected not_json"),
            ("{\"text\":\"a\nb\"}", "rejected not_json"),
            (r#"{"text":"t","x":{"a":[1,2,{"b":"}]"}]}}"#, "page t"),
            (r#"{"text":"t","x":{"a":[1,2}}"#, "rejected not_json"),
            (r#"{"url":"u","html":"<p>hi</p>"}"#, "page \nhi\n"),
            (r#"{"url":"u","text":"","html":"<p>hi</p>"}"#, "page \nhi\n"),
            (r#"{"url":"u","text":"t","html":"<p>h</p>"}"#, "page t"),
            (r#"{"url":"u","text":"t","status":200}"#, "page t"),
            (r#"{"url":"u","text":"t","status":"HTTP/1.1 204 No Content"}"#, "page t"),
            (r#"{"url":"u","text":"t","status":404}"#, "skipped status"),
            (r#"{"url":"u","status":500}"#, "skipped status"),
            (r#"{"url":"u","text":"t","status":"soon"}"#, "rejected bad_field"),
            (r#"{"url":"u","text":"t","content_type":"Text/HTML; charset=utf-8"}"#, "page t"),
            (r#"{"url":"u","text":"t","content_type":"image/png"}"#, "skipped content_type"),
            (r#"{"url":"u","text":""}"#, "skipped no_body"),
            (r#"{"url":"u","text":null}"#, "skipped no_body"),
            (r#"{"url":"u"}"#, "rejected no_text"),
            (r#"{"url":"u","text":7}"#, "rejected no_text"),
            (r#"{"url":"u","text":["t"]}"#, "rejected no_text"),
            (r#"{"url":{},"text":"t"}"#, "rejected bad_field"),
            (r#"{"url":"u","text":"t""#, "rejected not_json"),
            (r#"{"url":"u","text":"t"} x"#, "rejected not_json"),
            ("\u{feff}{\"text\":\"t\"}", "page t"),
            (r#"["url"]"#, "rejected not_json"),
            (r#""text""#, "rejected not_json"),
            ("", "rejected not_json"),
            (&deep, "rejected nesting"),
            ("\0\0\0\0\x07{}", "rejected schema_registry"),
        ];
        for (record, expected) in table {
            assert_eq!(outcome(record.as_bytes()), *expected, "{record}");
        }
        assert_eq!(outcome(b"{\"text\":\"\xff\"}"), "rejected bad_utf8");
    }

    #[test]
    fn fields_by_pointer_and_a_size_limit() {
        let mut config = Config::default();
        config.input.fields.url = FieldPath(vec!["metadata".into(), "sourceURL".into()]);
        config.input.fields.text = FieldPath(vec!["markdown".into()]);
        config.input.max_page_bytes = 100;
        let decoder = Decoder::new(&config.input);
        let record = br#"{"markdown":"words","metadata":{"x":[1,{"y":null}],"sourceURL":"u"},"url":"other"}"#;
        let mut scratch = String::new();
        let Decoded::Page(page) = decoder.decode(record, &mut scratch) else { panic!("a page") };
        assert_eq!((page.url.as_deref(), page.text), (Some("u"), "words"));
        let Decoded::Rejected(reject) = decoder.decode(&[b' '; 101], &mut String::new()) else { panic!("a reject") };
        assert_eq!(reject.reason, Reason::TooLarge);
    }

    #[test]
    fn an_error_names_the_byte_and_never_the_text() {
        let config = Config::default();
        let decoder = Decoder::new(&config.input);
        let table = [
            (r#"{"text":"secret" oops"#, "column 18"),
            (r#"{"text":"t","secret"}"#, "column 21"),
            (r#" "secret""#, "not a JSON object"),
            (r#"["secret"]"#, "not a JSON object"),
            ("secret", "not a JSON object"),
            ("1234567", "not a JSON object"),
        ];
        for (record, expected) in table {
            let mut scratch = String::new();
            let Decoded::Rejected(reject) = decoder.decode(record.as_bytes(), &mut scratch) else {
                panic!("a reject: {record}")
            };
            assert!(reject.detail.contains(expected), "{record}: {}", reject.detail);
            assert!(!reject.detail.contains("secret") && !reject.detail.contains("1234567"), "{record}");
        }
    }
}
