//! The words of a stretch with characters outside ASCII, character by character.

use super::is_unspaced;
use std::sync::LazyLock;

/// What a character is to a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Class {
    /// It ends one.
    Separator,
    /// It is part of one, as it is.
    Lower,
    /// It is part of one, in lower case.
    Upper,
    /// It makes a word with its neighbour.
    Unspaced,
}

/// The classes of the characters below U+10000, made from the standard library's tables at the first use: one look-up
/// instead of three searches.
static CLASSES: LazyLock<Box<[Class; 0x1_0000]>> = LazyLock::new(|| {
    let mut classes = Box::new([Class::Separator; 0x1_0000]);
    for (code, class) in classes.iter_mut().enumerate() {
        *class = char::from_u32(code as u32).map_or(Class::Separator, search);
    }
    classes
});

fn search(c: char) -> Class {
    if !c.is_alphanumeric() {
        Class::Separator
    } else if is_unspaced(c) {
        Class::Unspaced
    } else if c.to_lowercase().eq([c]) {
        Class::Lower
    } else {
        Class::Upper
    }
}

/// Calls `each` with the UTF-8 bytes of every word of `text`. `word` is scratch space, kept by the caller so that
/// nothing is allocated per page.
pub fn for_each(text: &str, word: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    let classes = &**CLASSES;
    word.clear();
    // Where the character before this one began, if it is of an unspaced script, and whether it has a word already.
    let mut before: Option<(usize, bool)> = None;
    for (at, c) in text.char_indices() {
        let class = classes.get(c as usize).copied().unwrap_or_else(|| search(c));
        if class == Class::Unspaced {
            if !word.is_empty() {
                each(word);
                word.clear();
            }
            if let Some((start, _)) = before {
                each(&text.as_bytes()[start..at + c.len_utf8()]);
            }
            before = Some((at, before.is_some()));
            continue;
        }
        if let Some((start, false)) = before.take() {
            each(&text.as_bytes()[start..at]);
        }
        match class {
            Class::Lower => word.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Class::Upper => {
                for lower in c.to_lowercase() {
                    word.extend_from_slice(lower.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            _ if word.is_empty() => {}
            _ => {
                each(word);
                word.clear();
            }
        }
    }
    if let Some((start, false)) = before {
        each(&text.as_bytes()[start..]);
    }
    if !word.is_empty() {
        each(word);
    }
}
