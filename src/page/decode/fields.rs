//! One JSON object → its mapped fields.
//!
//! Every member's value is taken as the stretch of text that it is: `serde_json` checks it and copies nothing. What a
//! mapped one holds is looked at, and a string's escapes are undone only when the string is needed.

use super::NUM_FIELDS;
use crate::config::FieldPath;
use crate::page::{Reason, Reject};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Levels of objects and arrays that a record may have.
const MAX_DEPTH: usize = 128;

/// What a mapped field holds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Scalar<'a> {
    #[default]
    Absent,
    Null,
    /// A string without escapes.
    Plain(&'a str),
    /// What stands between the quotes of a string with escapes.
    Escaped(&'a str),
    Integer(i64),
    Number(f64),
    /// An object, an array or a boolean.
    Other,
}

impl<'a> Scalar<'a> {
    /// The string, if it is one.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        match *self {
            Self::Plain(text) => Some(Cow::Borrowed(text)),
            Self::Escaped(raw) => Some(Cow::Owned(unescaped(raw))),
            _ => None,
        }
    }

    /// `raw` is one JSON value without space around it.
    fn new(raw: &'a str) -> Self {
        match raw.as_bytes()[0] {
            b'"' => {
                let inner = &raw[1..raw.len() - 1];
                let escaped = memchr::memchr(b'\\', inner.as_bytes()).is_some();
                if escaped { Self::Escaped(inner) } else { Self::Plain(inner) }
            }
            b'n' => Self::Null,
            b't' | b'f' | b'{' | b'[' => Self::Other,
            _ => raw.parse().map_or_else(|_| Self::Number(raw.parse().unwrap_or(f64::NAN)), Self::Integer),
        }
    }
}

pub type Fields<'a> = [Scalar<'a>; NUM_FIELDS];

/// The fields of one record at these paths.
pub fn read<'a>(text: &'a str, paths: &[FieldPath; NUM_FIELDS]) -> Result<Fields<'a>, Reject> {
    let mut fields = Fields::default();
    let object = Object { paths, active: (1 << NUM_FIELDS) - 1, depth: 0, fields: &mut fields };
    object.read(text).map_err(|error| {
        // What is nested without end is no JSON either: the depth says more.
        if depth_of(text) > MAX_DEPTH {
            return Reject::new(Reason::Nesting, format!("nested deeper than {MAX_DEPTH} levels"));
        }
        // About another kind of value the library's message repeats that value, a text in full length.
        if !text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') {
            return Reject::new(Reason::NotJson, "not a JSON object");
        }
        Reject::new(Reason::NotJson, error.to_string())
    })?;
    Ok(fields)
}

/// One object, `depth` levels down, where the fields of the bit set `active` may lie.
struct Object<'m, 'de> {
    paths: &'m [FieldPath; NUM_FIELDS],
    active: u8,
    depth: usize,
    fields: &'m mut Fields<'de>,
}

impl<'de> Object<'_, 'de> {
    fn read(self, text: &'de str) -> serde_json::Result<()> {
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_map(self)?;
        json.end()
    }

    /// Takes the value of a member that the fields of `active` lead to.
    fn member<E: serde::de::Error>(&mut self, active: u8, raw: &'de str) -> Result<(), E> {
        let depth = self.depth + 1;
        let nested = matches!(raw.as_bytes()[0], b'{' | b'[');
        if nested && depth_of(raw) + depth > MAX_DEPTH {
            return Err(E::custom("nested too deep"));
        }
        let mut deeper = 0;
        for field in (0..NUM_FIELDS).filter(|field| active & (1 << field) != 0) {
            if self.paths[field].0.len() == depth {
                self.fields[field] = Scalar::new(raw);
            } else {
                deeper |= 1 << field;
            }
        }
        if deeper != 0 && raw.starts_with('{') {
            let object = Object { paths: self.paths, active: deeper, depth, fields: self.fields };
            return object.read(raw).map_err(E::custom);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Object<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(active) =
            map.next_key_seed(Member { paths: self.paths, active: self.active, depth: self.depth })?
        {
            let raw: &'de RawValue = map.next_value()?;
            self.member(active, raw.get())?;
        }
        Ok(())
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
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u8, D::Error> {
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

/// Levels of objects and arrays in a value.
fn depth_of(raw: &str) -> usize {
    let (mut depth, mut most, mut in_string) = (0usize, 0, false);
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => _ = bytes.next(),
            b'{' | b'[' if !in_string => {
                depth += 1;
                most = most.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// What a string with these contents says.
pub fn unescaped(raw: &str) -> String {
    let mut out = String::new();
    unescape(raw, &mut out);
    out
}

/// Appends what a well-formed string with these contents says. Half of a surrogate pair is no character: it becomes
/// U+FFFD, as in most languages' libraries.
pub fn unescape(raw: &str, out: &mut String) {
    out.reserve(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let (c, length) = escape(&rest[at..]);
        out.push(c);
        rest = &rest[at + length..];
    }
    out.push_str(rest);
}

/// The character of the escape that `rest` begins with, and the escape's length in bytes.
fn escape(rest: &str) -> (char, usize) {
    let unit = |at: usize| {
        let digits = rest.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let simple = |c| (c, 2);
    match rest.as_bytes()[1] {
        b'n' => simple('\n'),
        b't' => simple('\t'),
        b'r' => simple('\r'),
        b'b' => simple('\u{8}'),
        b'f' => simple('\u{c}'),
        b'u' => {
            let (first, second) = (unit(0).unwrap_or(0xFFFD), unit(6).unwrap_or(0));
            let units = [first, second];
            let mut decoded = char::decode_utf16(units);
            match decoded.next() {
                Some(Ok(c)) => (c, if c.len_utf16() == 2 { 12 } else { 6 }),
                _ => (char::REPLACEMENT_CHARACTER, 6),
            }
        }
        same => simple(char::from(same)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_read_as_serde_json_reads_them(text in "([a-z\"\\\\/\u{0}-\u{20}é水😀]|\\PC){0,40}", ascii: bool) {
            let mut json = serde_json::to_string(&text).unwrap();
            if ascii {
                let escaped = json.chars().map(|c| if c.is_ascii() {
                    c.to_string()
                } else {
                    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
                });
                json = escaped.collect();
            }
            let found = Scalar::new(&json).text().map(Cow::into_owned);
            prop_assert_eq!(found, Some(text));
        }

        #[test]
        fn numbers_read_as_serde_json_reads_them(number: f64, whole: i64) {
            prop_assume!(number.is_finite());
            let json = serde_json::to_string(&number).unwrap();
            let expected: f64 = serde_json::from_str(&json).unwrap();
            // To the last digit only `str::parse` is right.
            let close = |found: f64| (found - expected).abs() <= expected.abs() * 1e-15;
            prop_assert!(matches!(Scalar::new(&json), Scalar::Number(found) if close(found)));
            let json = whole.to_string();
            prop_assert_eq!(Scalar::new(&json), Scalar::Integer(whole));
        }
    }

    #[test]
    fn depths() {
        for (raw, depth) in [("{}", 1), ("[[],[[]]]", 3), (r#"["[[[\"[["]"#, 1), (r#"{"a":{"b":[1]},"c":"}"}"#, 3)] {
            assert_eq!(depth_of(raw), depth, "{raw}");
        }
    }
}
