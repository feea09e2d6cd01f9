//! Markup ─▶ text, without the JSON around it, which a fuzzer would have to keep whole.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pagesieve_fuzz::{memory, page::html};

/// The strip may hold four megabytes of open elements, however short the markup is.
const FIXED_BYTES: usize = 8 << 20;

fuzz_target!(|markup: &str| {
    let strip = |markup: &str| {
        let mut text = String::from("before ");
        let is_whole = memory::within(FIXED_BYTES + 64 * markup.len(), || html::strip(markup, &mut text));
        let text = text.strip_prefix("before ").expect("it appends").to_owned();
        is_whole.then_some(text)
    };
    if let Some(text) = strip(markup) {
        // An entity may stand for a character that is longer than it: `&nGt;`.
        assert!(text.len() <= 2 * markup.len());
    }
    // What is no markup is text as it is.
    let escaped = html_escape::encode_text(markup);
    assert_eq!(strip(&escaped).as_deref(), Some(markup));
});
