//! HTML → text: a streaming tag strip in bounded memory.
//!
//! What is not shown as text (scripts, styles, templates) is left out; a tag is a word boundary
//! unless it is one that stands inside a word (`<b>`, `<em>`, …). Main-text extraction is another matter.

use lol_html::html_content::TextType;
use lol_html::{EndTagHandler, HtmlRewriter, MemorySettings, Settings, doc_text, element, text};
use std::cell::RefCell;
use std::rc::Rc;

/// The strip's own memory: room for some fifty thousand open elements, or attributes of one.
const MAX_BUFFER_BYTES: usize = 4 << 20;

/// Appends the text of `html` to `out`. False if its markup takes more memory than the strip has: what has been read by then
/// is not the page, and two pages with the same beginning must not be taken for copies.
#[must_use]
pub fn strip(html: &str, out: &mut String) -> bool {
    let raw = Rc::new(RefCell::new(String::with_capacity(html.len() / 2)));
    let inside_word = "b,i,em,strong,span,a,u,s,small,sub,sup,font,mark,abbr,code,wbr,q,cite,ins,del,bdi,bdo";
    let settings = Settings::new()
        .append_element_content_handler(element!("*", |element| {
            let name = element.tag_name();
            if !inside_word.split(',').any(|inline| inline == name) {
                raw.borrow_mut().push('\n');
                if let Some(handlers) = element.end_tag_handlers() {
                    let raw = raw.clone();
                    let at_end: EndTagHandler<'static> = Box::new(move |_| {
                        raw.borrow_mut().push('\n');
                        Ok(())
                    });
                    handlers.push(at_end);
                }
            }
            Ok(())
        }))
        .append_element_content_handler(text!("script,style,template,noscript,svg,iframe", |chunk| {
            chunk.remove();
            Ok(())
        }))
        .append_document_content_handler(doc_text!(|chunk| {
            let shown = matches!(chunk.text_type(), TextType::Data | TextType::RCData | TextType::PlainText);
            if shown && !chunk.removed() {
                raw.borrow_mut().push_str(chunk.as_str());
            }
            Ok(())
        }))
        .with_memory_settings(
            MemorySettings::new()
                .with_preallocated_parsing_buffer_size(1024)
                .with_max_allowed_memory_usage(MAX_BUFFER_BYTES),
        )
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    let whole = rewriter.write(html.as_bytes()).is_ok() && rewriter.end().is_ok();
    html_escape::decode_html_entities_to_string(raw.take(), out);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_a_reader_sees() {
        let table = [
            ("<p>One</p><p>two</p>", "One two"),
            ("<title>T</title><body>x<script>var y = 1;</script>z", "T x z"),
            ("<style>p{}</style>a<br>b", "a b"),
            ("un<b>break</b>able", "unbreakable"),
            ("caf&eacute; &amp; bar&#33;", "café & bar!"),
            ("<ul><li>1<li>2</ul>3", "1 2 3"),
            ("a <!-- not this --> b", "a b"),
            ("<div", ""),
            ("plain", "plain"),
        ];
        for (html, expected) in table {
            let mut out = String::new();
            assert!(strip(html, &mut out), "{html}");
            let collapsed = out.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(collapsed, expected, "{html}");
        }
    }
}
