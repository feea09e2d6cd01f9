//! Text → words: maximal runs of alphanumeric characters, lower-cased.
//!
//! Scripts that write no spaces (Han, Kana, Thai, Lao, Khmer, Burmese) have no such runs worth
//! comparing; there each pair of neighbouring characters is a word, and a character that stands
//! alone is one too. A run ends where one kind of script meets the other.
//!
//! [`plain`] says what a word is; [`for_each`] says the same without allocating, and so does the hot path
//! (`sketch::word_hashes`), on the same two readers: [`scan`] finds the words of ASCII text 64 bytes at a time, [`unicode`]
//! reads what is left. Property tests hold them together.

pub mod scan;
pub mod unicode;

use crate::cpu::Cpu;

/// The words of `text`, written for clarity: the oracle of [`for_each`].
pub fn plain(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty()) {
        let chars: Vec<char> = run.chars().collect();
        for piece in chars.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b)) {
            if !is_unspaced(piece[0]) {
                words.push(piece.iter().flat_map(|c| c.to_lowercase()).collect());
            } else if piece.len() == 1 {
                words.push(piece.iter().collect());
            } else {
                words.extend(piece.windows(2).map(|pair| pair.iter().collect::<String>()));
            }
        }
    }
    words
}

/// Is `c` of a script that writes no spaces between words?
pub fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0E00..=0x0EFF       // Thai, Lao
        | 0x1000..=0x109F     // Burmese
        | 0x1780..=0x17FF     // Khmer
        | 0x3040..=0x30FF     // Hiragana, Katakana
        | 0x31F0..=0x31FF     // Katakana extensions
        | 0x3400..=0x4DBF     // Han extension A
        | 0x4E00..=0x9FFF     // Han
        | 0xF900..=0xFAFF     // Han compatibility
        | 0xFF66..=0xFF9F     // half-width Katakana
        | 0x20000..=0x3FFFF) // Han extensions B and on
}

/// Calls `each` with the UTF-8 bytes of every word of `text`, in order. `word` is scratch space,
/// kept by the caller so that nothing is allocated per page.
pub fn for_each(text: &str, word: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    scan::spans(Cpu::Portable, text.as_bytes(), |start, end, ascii| {
        if ascii {
            word.clear();
            word.extend(text.as_bytes()[start..end].iter().map(u8::to_ascii_lowercase));
            each(word);
        } else {
            let mut words = unicode::Words::new(&text[start..end], word);
            while let Some(word) = words.next_word() {
                each(word);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fast(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for_each(text, &mut Vec::new(), |word| words.push(String::from_utf8(word.to_vec()).expect("words are UTF-8")));
        words
    }

    #[test]
    fn what_a_word_is() {
        let table: [(&str, &[&str]); 12] = [
            ("", &[]),
            (" …—!\0", &[]),
            ("The quick-brown FOX", &["the", "quick", "brown", "fox"]),
            ("don't snake_case 3.14", &["don", "t", "snake", "case", "3", "14"]),
            ("Ärger ŒUVRE", &["ärger", "œuvre"]),
            ("İstanbul", &["i\u{307}stanbul"]),
            ("東京都", &["東京", "京都"]),
            ("水", &["水"]),
            ("iPhone東京15", &["iphone", "東京", "15"]),
            ("a水b", &["a", "水", "b"]),
            ("ไทย", &["ไท", "ทย"]),
            ("Привет, МИР", &["привет", "мир"]),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text), expected, "{text}");
            assert_eq!(fast(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn fast_is_plain(text in "([a-zA-Z0-9 .,'é水東ไß\u{0}\u{300}-]|\\PC){0,80}") {
            prop_assert_eq!(fast(&text), plain(&text));
        }
    }
}
