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
pub fn normalise(raw: &str) -> (Cow<'_, str>, Option<String>) {
    let trimmed = raw.trim();
    let Ok(mut url) = Url::parse(trimmed) else {
        return (Cow::Borrowed(trimmed), None);
    };
    if url.fragment().is_some_and(|f| !f.starts_with(['!', '/'])) {
        url.set_fragment(None);
    }
    let host = url.host_str().map(str::to_owned);
    (Cow::Owned(url.into()), host)
}

#[cfg(test)]
mod tests {
    use super::*;

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
