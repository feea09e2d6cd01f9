//! Text → words: maximal runs of alphanumeric characters, lower-cased.
//!
//! Scripts that write no spaces (Han, Kana, Thai, Lao, Khmer, Burmese) have no such runs worth
//! comparing; there each pair of neighbouring characters is a word, and a character that stands
//! alone is one too. A run ends where one kind of script meets the other.
//!
//! [`plain`] says what a word is; [`for_each`] says the same without allocating, with a table for
//! ASCII. A property test holds them together.

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

/// ASCII byte → its lower-case form if alphanumeric, [`SEPARATOR`], or [`NOT_ASCII`].
const CLASS: [u8; 256] = {
    let mut table = [SEPARATOR; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphanumeric() {
            table[byte] = b.to_ascii_lowercase();
        } else if !b.is_ascii() {
            table[byte] = NOT_ASCII;
        }
        byte += 1;
    }
    table
};
const SEPARATOR: u8 = 0;
const NOT_ASCII: u8 = 0xFF;

/// Calls `each` with the UTF-8 bytes of every word of `text`, in order. `word` is scratch space,
/// kept by the caller so that nothing is allocated per page.
pub fn for_each(text: &str, word: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    let bytes = text.as_bytes();
    word.clear();
    let mut at = 0;
    while at < bytes.len() {
        match CLASS[usize::from(bytes[at])] {
            SEPARATOR => {
                if !word.is_empty() {
                    each(word);
                    word.clear();
                }
                at += 1;
            }
            NOT_ASCII => at = other(text, at, word, &mut each),
            lower => {
                word.push(lower);
                at += 1;
            }
        }
    }
    if !word.is_empty() {
        each(word);
    }
}

/// One character outside ASCII, or a whole run of an unspaced script, from byte `at`. Returns
/// where to go on.
#[cold]
fn other(text: &str, at: usize, word: &mut Vec<u8>, each: &mut impl FnMut(&[u8])) -> usize {
    let c = text[at..].chars().next().expect("`at` is before the end and on a character boundary");
    let next = at + c.len_utf8();
    if c.is_alphanumeric() && !is_unspaced(c) {
        let mut utf8 = [0; 4];
        for lower in c.to_lowercase() {
            word.extend_from_slice(lower.encode_utf8(&mut utf8).as_bytes());
        }
        return next;
    }
    if !word.is_empty() {
        each(word);
        word.clear();
    }
    if !c.is_alphanumeric() {
        return next;
    }
    let run = &text[at..];
    let length = run.find(|c: char| !c.is_alphanumeric() || !is_unspaced(c)).unwrap_or(run.len());
    let run = &run[..length];
    let mut starts = run.char_indices().map(|(start, _)| start);
    let (mut first, mut second) = (starts.next().unwrap_or(0), starts.next());
    if second.is_none() {
        each(run.as_bytes());
    }
    while let Some(middle) = second {
        second = starts.next();
        each(&run.as_bytes()[first..second.unwrap_or(run.len())]);
        first = middle;
    }
    at + length
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
