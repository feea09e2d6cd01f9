//! The URL key: what makes two records visits of the same page.
//!
//! Any string is a URL. One that parses is normalised as browsers do it (case of scheme and host,
//! default port, dot segments, percent signs) and loses its fragment, unless the fragment is a
//! route of a script-driven site (`#!…`, `#/…`). Nothing else is guessed: query parameters and
//! `http` against `https` stay apart, because merging two pages costs a page and keeping them apart
//! costs only a comparison.

use std::borrow::Cow;
use url::Url;

/// The normalised form of `raw`, and its host where it has one.
pub fn normalise(raw: &str) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
    let trimmed = raw.trim();
    if let Some(host) = host_of_plain(trimmed) {
        return (Cow::Borrowed(trimmed), Some(Cow::Borrowed(host)));
    }
    parsed(trimmed)
}

/// The same of any URL, plain or not.
fn parsed(trimmed: &str) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
    let Ok(mut url) = Url::parse(trimmed) else {
        return (Cow::Borrowed(trimmed), None);
    };
    if url.fragment().is_some_and(|f| !f.starts_with(['!', '/'])) {
        url.set_fragment(None);
    }
    let host = url.host_str().map(|host| Cow::Owned(host.to_owned()));
    (Cow::Owned(url.into()), host)
}

/// The host of a URL of the plainest kind, which most are and which is normal as it stands: `http` or `https`, a name in
/// lower case, no port, a path without dot segments, and only characters that nobody would write otherwise. To parse such
/// a URL takes four times as long.
fn host_of_plain(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http")?;
    let rest = rest.strip_prefix('s').unwrap_or(rest).strip_prefix("://")?;
    let (host, path) = rest.split_at(rest.bytes().position(|byte| KINDS[usize::from(byte)] & HOST == 0)?);
    // A last label that begins with a digit may be part of an address, two hyphens may begin Punycode, and what a hyphen at
    // either end of a label does hangs on the label's length.
    let last_label = host.rsplit('.').next().unwrap_or_default();
    let is_name = last_label.starts_with(|c: char| c.is_ascii_lowercase())
        && !host.starts_with(['.', '-'])
        && !host.as_bytes().windows(2).any(|pair| matches!(pair, b".." | b"--" | b".-" | b"-."));
    let bytes = path.as_bytes();
    let is_plain = path.starts_with('/')
        && bytes.iter().all(|byte| KINDS[usize::from(*byte)] & BEHIND_HOST != 0)
        && !bytes.windows(2).any(|pair| pair == b"/.")
        && !bytes.windows(3).any(|three| matches!(three, b"%2e" | b"%2E"));
    (is_name && is_plain).then_some(host)
}

/// Characters of a plain host, and of what follows it.
const HOST: u8 = 1;
const BEHIND_HOST: u8 = 2;

const KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        let c = byte as u8;
        if c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.') {
            kinds[byte] |= HOST;
        }
        if c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'~' | b'/' | b'?' | b'&' | b'=' | b'%' | b'+')
        {
            kinds[byte] |= BEHIND_HOST;
        }
        byte += 1;
    }
    kinds
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_plain_is_normal(
            url in r"(http|https|ftp|HTTP)(://|:|:/|:///)([a-z]{1,3}|[0-9]{1,3}|0x[0-9a-f]|xn--[a-z0-9]{1,5}|[a-zA-Z0-9_-]|\.){0,6}(:80|:443|:8080|@)?([a-zA-Z0-9]|[/.?#%&=+_~-]|/\.|%2[eE]|%[0-9a-f]{2}|[ \t!'()*,;:@|^`{}\[\]<>é]){0,12}",
        ) {
            prop_assert_eq!(normalise(&url), parsed(url.trim()));
        }

        #[test]
        fn plain_urls_are_normal(
            url in r"https?://([a-z0-9-]{1,4}\.){0,3}[a-z0-9-]{0,4}\.?(/[a-zA-Z0-9._~&=%+?-]{0,6}){0,4}",
        ) {
            prop_assert_eq!(normalise(&url), parsed(&url));
        }
    }

    #[test]
    fn most_urls_are_plain_and_the_longest_are_normal() {
        for url in ["https://www.example.com/", "http://a-b.example/News/2026/1_a.html?id=7&p=%C3%A9+x"] {
            assert!(host_of_plain(url).is_some(), "{url}");
        }
        for long in ["a".repeat(70), "a.".repeat(150) + "a", "a-b".repeat(500), "-".to_owned() + &"a".repeat(300)] {
            let url = format!("http://{long}/{}", "b".repeat(9_000));
            assert_eq!(normalise(&url), parsed(&url));
        }
    }

    #[test]
    fn visits_of_the_same_page() {
        let same = [
            ("http://Example.COM/a", "http://example.com/a"),
            ("http://example.com:80/a", "http://example.com/a"),
            ("https://example.com", "https://example.com/"),
            ("http://example.com/a#top", "http://example.com/a"),
            ("http://example.com/b/../a", "http://example.com/a"),
            (" http://example.com/a\n", "http://example.com/a"),
            ("page 17", "page 17"),
        ];
        for (left, right) in same {
            assert_eq!(normalise(left).0, normalise(right).0, "{left}");
        }
        let apart = [
            ("http://example.com/a", "https://example.com/a"),
            ("http://example.com/a?x=1", "http://example.com/a"),
            ("http://example.com/#!/a", "http://example.com/#!/b"),
            ("http://example.com/A", "http://example.com/a"),
        ];
        for (left, right) in apart {
            assert_ne!(normalise(left).0, normalise(right).0, "{left}");
        }
        assert_eq!(normalise("http://Example.com/a").1.as_deref(), Some("example.com"));
        assert_eq!(normalise("page 17").1, None);
    }
}
