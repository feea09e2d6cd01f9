//! The words of a stretch with characters outside ASCII, character by character.

use super::is_unspaced;
use std::str::Chars;
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

/// The words of one text, in order. `scratch` is for those that are not in the text as they are, and kept by the caller
/// so that nothing is allocated per page.
pub struct Words<'t, 's> {
    text: &'t str,
    chars: Chars<'t>,
    classes: &'static [Class; 0x1_0000],
    scratch: &'s mut Vec<u8>,
    /// Has the character before this one a word with it?
    paired: bool,
}

impl<'t, 's> Words<'t, 's> {
    /// Of this text.
    #[inline(always)]
    pub fn new(text: &'t str, scratch: &'s mut Vec<u8>) -> Self {
        Self { text, chars: text.chars(), classes: &CLASSES, scratch, paired: false }
    }

    /// The UTF-8 bytes of the next word.
    #[inline(always)]
    pub fn next_word(&mut self) -> Option<&[u8]> {
        loop {
            let start = self.place();
            let c = self.chars.next()?;
            match self.class(c) {
                Class::Separator => {}
                Class::Lower => return Some(self.spaced(start)),
                Class::Upper => return Some(self.lowered(start, c)),
                Class::Unspaced => {
                    let end = self.place();
                    let after = self.chars.clone().next().filter(|after| self.class(*after) == Class::Unspaced);
                    let alone = !std::mem::replace(&mut self.paired, after.is_some());
                    if after.is_some() || alone {
                        let end = end + after.map_or(0, char::len_utf8);
                        return Some(&self.text.as_bytes()[start..end]);
                    }
                }
            }
        }
    }

    /// Bytes before the next character.
    #[inline(always)]
    fn place(&self) -> usize {
        self.text.len() - self.chars.as_str().len()
    }

    #[inline(always)]
    fn class(&self, c: char) -> Class {
        self.classes.get(c as usize).copied().unwrap_or_else(|| search(c))
    }

    /// The word that begins at `start` with letters that have been read: a stretch of the text if it is in lower case.
    #[inline(always)]
    fn spaced(&mut self, start: usize) -> &[u8] {
        loop {
            let end = self.place();
            let mut after = self.chars.clone();
            match after.next().map(|c| (c, self.class(c))) {
                Some((_, Class::Lower)) => self.chars = after,
                Some((c, Class::Upper)) => {
                    self.chars = after;
                    return self.lowered(start, c);
                }
                _ => return &self.text.as_bytes()[start..end],
            }
        }
    }

    /// The word that begins at `start`, where `upper` is the letter that was read last and the first that is not in lower
    /// case.
    fn lowered(&mut self, start: usize, upper: char) -> &[u8] {
        let end = self.place() - upper.len_utf8();
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.text.as_bytes()[start..end]);
        self.push_lower(upper);
        loop {
            let start = self.place();
            let mut after = self.chars.clone();
            match after.next().map(|c| (c, self.class(c))) {
                Some((c, Class::Lower)) => {
                    self.chars = after;
                    self.scratch.extend_from_slice(&self.text.as_bytes()[start..start + c.len_utf8()]);
                }
                Some((c, Class::Upper)) => {
                    self.chars = after;
                    self.push_lower(c);
                }
                _ => return self.scratch,
            }
        }
    }

    fn push_lower(&mut self, upper: char) {
        for lower in upper.to_lowercase() {
            self.scratch.extend_from_slice(lower.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}
