//! A page as a JSON line, as a crawler writes it, and the lines that crawlers should not have written.
//!
//! ```json
//! {"url":"https://www.brio.example/?p=1","fetched_at":"2026-01-01T00:00:00.000Z","status":200,"content_type":"text/html",
//!  "title":"…","language":"en","depth":3,"fetch":{"ip":"192.0.2.7","ms":182,"headers":{"server":"nginx"}},"text":"…"}
//! ```

use super::random::{Random, mix};
use super::time::rfc3339;
use serde::Serialize;

/// A page's fields, in the order they are written.
#[derive(Serialize)]
pub(super) struct Page {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    pub url: String,
    fetched_at: String,
    status: u16,
    content_type: &'static str,
    pub title: String,
    pub language: &'static str,
    depth: usize,
    fetch: Fetch,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text>,
}

/// What stands under `text`.
#[derive(Serialize)]
#[serde(untagged)]
enum Text {
    Words(String),
    Number(usize),
}

/// How the page was fetched: nothing a filter reads, but in every crawl.
#[derive(Serialize)]
struct Fetch {
    ip: String,
    ms: usize,
    headers: Headers,
}

#[derive(Serialize)]
struct Headers {
    server: &'static str,
    #[serde(rename = "x-cache", skip_serializing_if = "Option::is_none")]
    x_cache: Option<&'static str>,
}

impl Page {
    /// An answer 200 of type `text/html`.
    pub fn new(url: String, event_time_ms: i64, text: String, random: &mut Random) -> Self {
        Page {
            id: None,
            url,
            fetched_at: rfc3339(event_time_ms),
            status: 200,
            content_type: "text/html",
            title: String::new(),
            language: "en",
            depth: random.between(0, 9),
            fetch: Fetch {
                // The block set aside for examples.
                ip: format!("192.0.2.{}", random.between(1, 254)),
                ms: random.log_normal(180.0, 0.8) as usize,
                headers: Headers {
                    server: random.pick(&["nginx", "Apache", "cloudfront", "Caddy"]),
                    x_cache: random.pick(&[None, Some("HIT"), Some("MISS")]),
                },
            },
            text: Some(Text::Words(text)),
        }
    }

    /// Gives the page the id that only its line has.
    pub fn set_id(&mut self, line: u64) {
        self.id = Some(format!("{:016x}", mix(line)));
    }

    /// Makes the page one that is not to be judged, and names the skip rule.
    pub fn make_unjudgeable(&mut self, random: &mut Random) -> &'static str {
        match random.below(4) {
            0 => {
                self.status = random.pick(&[404, 404, 404, 500, 301]);
                "status"
            }
            1 => {
                self.content_type = random.pick(&["image/png", "application/pdf"]);
                "content_type"
            }
            2 => {
                self.text = Some(Text::Words(String::new()));
                "no_body"
            }
            _ => {
                let no_words = random.pick(&["… — !!!", "***", " | · | \n -- "]);
                self.text = Some(Text::Words(no_words.to_string()));
                "no_words"
            }
        }
    }

    /// The line, without a line break.
    pub fn line(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }
}

/// What is wrong with a line that should be a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The line ends in the middle.
    Truncated,
    /// A Latin-1 byte in the text.
    Latin1,
    /// No text at all.
    TextMissing,
    /// A number for a text.
    TextNumber,
    /// A field with lists in lists, deeper than any reader need follow.
    Nested,
    /// The five bytes in front that a schema registry's serialiser writes.
    Framed,
}

impl Flaw {
    pub const ALL: [Flaw; 6] =
        [Flaw::Truncated, Flaw::Latin1, Flaw::TextMissing, Flaw::TextNumber, Flaw::Nested, Flaw::Framed];

    /// The reject reason.
    pub fn reason(self) -> &'static str {
        match self {
            Flaw::Truncated => "not_json",
            Flaw::Latin1 => "bad_utf8",
            Flaw::TextMissing | Flaw::TextNumber => "no_text",
            Flaw::Nested => "nesting",
            Flaw::Framed => "schema_registry",
        }
    }

    /// Whether the line is still JSON of the usual kind, so that its URL and time can be read.
    pub fn leaves_json(self) -> bool {
        matches!(self, Flaw::TextMissing | Flaw::TextNumber)
    }

    /// The page's line with this flaw. The page has a text with a space in it.
    pub fn spoil(self, mut page: Page, random: &mut Random) -> Vec<u8> {
        match self {
            Flaw::TextMissing => page.text = None,
            Flaw::TextNumber => page.text = Some(Text::Number(random.below(100_000))),
            _ => {}
        }
        let mut line = page.line();
        match self {
            Flaw::TextMissing | Flaw::TextNumber => {}
            Flaw::Truncated => {
                line.truncate(random.between(1, line.len() - 1));
                // Not within a character, which would be a flaw of another name.
                line.truncate(line.utf8_chunks().next().map_or(1, |chunk| chunk.valid().len()));
            }
            Flaw::Latin1 => {
                let space = line.iter().rposition(|&byte| byte == b' ').expect("a text with a space in it");
                line.splice(space..space, *b" caf\xe9");
            }
            Flaw::Nested => {
                let depth = random.between(150, 3_000);
                line.pop();
                line.extend_from_slice(b",\"links\":");
                line.extend(std::iter::repeat_n(b'[', depth));
                line.extend(std::iter::repeat_n(b']', depth));
                line.push(b'}');
            }
            Flaw::Framed => {
                // A zero, then the schema's number in four bytes, kept clear of the line break (10).
                let schema_id = [0, 0, 1, 0x40 | random.below(64) as u8];
                line.splice(0..0, [0].into_iter().chain(schema_id));
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn page(random: &mut Random) -> Page {
        Page::new("https://a.example/?p=1".into(), 0, "Gänse, 雁 and\ngeese “fly”".into(), random)
    }

    #[test]
    fn lines_are_json_with_the_text_last() {
        let mut page = page(&mut Random::new(1));
        page.set_id(1);
        let line = page.line();
        let read: Value = serde_json::from_slice(&line).expect("a JSON line");
        assert_eq!(read["text"], "Gänse, 雁 and\ngeese “fly”");
        assert_eq!(read["fetched_at"], "1970-01-01T00:00:00.000Z");
        assert!(line.ends_with("geese “fly”\"}".as_bytes()));
    }

    /// Every flaw shows as what its reason says, wherever chance puts it.
    #[test]
    fn flaws_are_as_named() {
        let mut random = Random::new(1);
        for flaw in Flaw::ALL.into_iter().cycle().take(3_000) {
            let page = page(&mut random);
            let line = flaw.spoil(page, &mut random);
            assert!(!line.is_empty() && !line.contains(&b'\n'));
            let json = serde_json::from_slice::<Value>(&line);
            let utf8 = str::from_utf8(&line).is_ok();
            match flaw {
                Flaw::Truncated => assert!(json.is_err() && utf8),
                Flaw::Latin1 => assert!(json.is_err() && !utf8),
                Flaw::TextMissing => assert!(json.is_ok_and(|page| page.get("text").is_none())),
                Flaw::TextNumber => assert!(json.is_ok_and(|page| page["text"].is_u64())),
                Flaw::Nested => {
                    assert!(json.is_err_and(|e| e.to_string().contains("recursion limit")))
                }
                Flaw::Framed => assert!(line[0] == 0 && line[5] == b'{' && utf8),
            }
        }
    }
}
