//! Record bytes → [`Decoded`]: JSON, the field mapping and the skip rules.
//!
//! Only the mapped fields are kept, borrowed where they hold no escapes; the rest is checked for
//! syntax and passed over. Work is linear in the bytes and depth is bounded.

use super::{Decoded, EventTime, Names, Page, Reason, Reject, SkipRule, html, time};
use crate::config::{FieldPath, Input};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
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

/// A scalar of a mapped field.
#[derive(Debug, Clone, PartialEq, Default)]
enum Scalar<'a> {
    #[default]
    Absent,
    Null,
    Text(Cow<'a, str>),
    Integer(i64),
    Number(f64),
    /// An object, an array or a boolean.
    Other,
}

type Fields<'a> = [Scalar<'a>; NUM_FIELDS];

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

    /// Decodes one record.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Decoded<'a> {
        match self.fields(bytes) {
            Ok(fields) => self.page(fields).unwrap_or_else(Decoded::Rejected),
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
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Reject::new(Reason::BadUtf8, format!("not UTF-8 at byte {}", e.valid_up_to())))?;
        // Some programs begin a file with a byte-order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut fields = Fields::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let all = (1 << NUM_FIELDS) - 1;
        Mapped { paths: &self.paths, active: all, depth: 0, fields: &mut fields }
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| {
                let message = error.to_string();
                let reason = if message.starts_with("recursion limit") { Reason::Nesting } else { Reason::NotJson };
                Reject::new(reason, message)
            })?;
        Ok(fields)
    }

    fn page<'a>(&self, mut fields: Fields<'a>) -> Result<Decoded<'a>, Reject> {
        let mut take = |field: usize| std::mem::take(&mut fields[field]);
        let names = Names { url: name(take(URL), "url")?, id: name(take(ID), "id")? };
        let (text, html) = (take(TEXT), take(HTML));
        let (status, content_type, fetched_at) = (take(STATUS), take(CONTENT_TYPE), take(FETCHED_AT));
        if let Some(rule) = self.rule(&status, &content_type, names.url.as_deref())? {
            return Ok(Decoded::Skipped { rule, names });
        }
        let text = match (text, html) {
            (Scalar::Text(text), _) if !text.is_empty() => text,
            (Scalar::Text(_) | Scalar::Null | Scalar::Absent, Scalar::Text(html)) if !html.is_empty() => {
                let mut text = String::new();
                if !html::strip(&html, &mut text) {
                    return Err(Reject::new(Reason::Nesting, "the markup has too many open elements or attributes"));
                }
                Cow::Owned(text)
            }
            (Scalar::Absent, Scalar::Absent) => {
                return Err(Reject::new(Reason::NoText, "neither the text nor the html field is there"));
            }
            (Scalar::Text(_) | Scalar::Null | Scalar::Absent, Scalar::Text(_) | Scalar::Null | Scalar::Absent) => {
                return Ok(Decoded::Skipped { rule: SkipRule::NoBody, names });
            }
            _ => return Err(Reject::new(Reason::NoText, "the text field is not a string")),
        };
        let event_time = match fetched_at {
            Scalar::Absent | Scalar::Null => EventTime::Absent,
            Scalar::Text(text) => time::parse(&text).map_or(EventTime::Unreadable, EventTime::At),
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
            Scalar::Text(line) => Some(
                line.split_whitespace()
                    .find_map(|part| part.parse().ok())
                    .ok_or_else(|| Reject::new(Reason::BadField, "status is not a number"))?,
            ),
            Scalar::Other => return Err(Reject::new(Reason::BadField, "status is not a number")),
        };
        if skip.non_2xx && code.is_some_and(|code| !(200..300).contains(&code)) {
            return Ok(Some(SkipRule::Status));
        }
        match content_type {
            Scalar::Absent | Scalar::Null => {}
            Scalar::Text(given) => {
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
        Scalar::Text(text) => Ok(Some(text)),
        Scalar::Integer(number) => Ok(Some(Cow::Owned(number.to_string()))),
        Scalar::Number(number) => Ok(Some(Cow::Owned(number.to_string()))),
        Scalar::Other => Err(Reject::new(Reason::BadField, format!("{field} is not a string"))),
    }
}

/// One JSON value, `depth` levels down, where the fields of the bit set `active` may lie.
struct Mapped<'m, 'de> {
    paths: &'m [FieldPath; NUM_FIELDS],
    active: u8,
    depth: usize,
    fields: &'m mut Fields<'de>,
}

impl<'de> Mapped<'_, 'de> {
    /// Records a scalar for every active field whose path ends here.
    fn keep<E: serde::de::Error>(self, scalar: Scalar<'de>) -> Result<(), E> {
        if self.depth == 0 {
            return Err(E::custom("not a JSON object"));
        }
        for field in 0..NUM_FIELDS {
            if self.active & (1 << field) != 0 && self.paths[field].0.len() == self.depth {
                self.fields[field] = scalar.clone();
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Mapped<'_, 'de> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Mapped<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<(), E> {
        self.keep(Scalar::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.keep(Scalar::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<(), E> {
        self.keep(Scalar::Text(Cow::Owned(text)))
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.keep(Scalar::Integer(number))
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        self.keep(i64::try_from(number).map_or(Scalar::Number(number as f64), Scalar::Integer))
    }
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        self.keep(Scalar::Number(number))
    }
    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.keep(Scalar::Other)
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.keep(Scalar::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Passed)?.is_some() {}
        self.keep(Scalar::Other)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(active) =
            map.next_key_seed(Member { paths: self.paths, active: self.active, depth: self.depth })?
        {
            if active == 0 {
                map.next_value_seed(Passed)?;
            } else {
                let inner = Mapped { paths: self.paths, active, depth: self.depth + 1, fields: self.fields };
                map.next_value_seed(inner)?;
            }
        }
        if self.depth > 0 { self.keep(Scalar::Other) } else { Ok(()) }
    }
}

/// A member's name → which of the active fields it leads to.
struct Member<'m> {
    paths: &'m [FieldPath; NUM_FIELDS],
    active: u8,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = u8;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<u8, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Member<'_> {
    type Value = u8;
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a member name")
    }
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<u8, E> {
        let leads = |field: &usize| {
            self.active & (1 << field) != 0 && self.paths[*field].0.get(self.depth).is_some_and(|part| part == name)
        };
        Ok((0..NUM_FIELDS).filter(leads).fold(0, |active, field| active | 1 << field))
    }
}

/// A value that is only checked: unlike `IgnoredAny` it counts towards the depth limit.
struct Passed;

impl<'de> DeserializeSeed<'de> for Passed {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Passed {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("any value")
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Passed)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Passed)?.is_some() {
            map.next_value_seed(Passed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn outcome(bytes: &[u8]) -> String {
        let config = Config::default();
        match Decoder::new(&config.input).decode(bytes) {
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
        let Decoded::Page(page) = decoder.decode(record) else { panic!("a page") };
        assert_eq!((page.url.as_deref(), &*page.text), (Some("u"), "words"));
        let Decoded::Rejected(reject) = decoder.decode(&[b' '; 101]) else { panic!("a reject") };
        assert_eq!(reject.reason, Reason::TooLarge);
    }

    #[test]
    fn an_error_names_the_byte_and_never_the_text() {
        let config = Config::default();
        let Decoded::Rejected(reject) = Decoder::new(&config.input).decode(br#"{"text":"secret" oops"#) else {
            panic!("a reject")
        };
        assert!(reject.detail.contains("column 18"), "{}", reject.detail);
        assert!(!reject.detail.contains("secret"));
    }
}
