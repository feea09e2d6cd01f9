//! The secret key of the sketches, and other secrets: values that must not show up anywhere.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::values::{FromValue, Value};

/// What is hashed under a key to get its id.
const ID_TEXT: &[u8] = b"pagesieve key id";

/// The 128-bit key all words are hashed under; whoever has it can forge colliding pages.
///
/// Its [`id`](Key::id) may be shown and is stored with all state; its value is never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// A key from its 16 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A key from its 32 hexadecimal digits, white space around them ignored.
    ///
    /// # Errors
    /// What is wrong with the text, without repeating any of it.
    pub fn from_hex(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let num_chars = text.chars().count();
        if num_chars != 32 {
            return Err(format!("must be 32 hexadecimal digits, has {num_chars} characters"));
        }
        let mut bytes = [0; 16];
        for (position, digit) in text.chars().enumerate() {
            let Some(nibble) = digit.to_digit(16) else {
                return Err(format!("must be 32 hexadecimal digits, character {} is none", position + 1));
            };
            let nibble = u8::try_from(nibble).expect("a hexadecimal digit is below 16");
            bytes[position / 2] = bytes[position / 2] << 4 | nibble;
        }
        Ok(Self(bytes))
    }

    /// The key as 32 hexadecimal digits: only for writing a key file.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The key's bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Eight hexadecimal digits that tell keys apart and say nothing about their value: half of
    /// the SipHash-1-3 of a constant under the key.
    #[must_use]
    pub fn id(&self) -> String {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(ID_TEXT);
        format!("{:08x}", hasher.finish() >> 32)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({})", self.id())
    }
}

impl FromValue for Option<Key> {
    fn from_value(value: Value) -> Result<Self, String> {
        let text = String::from_value(value)?;
        if text.is_empty() { Ok(None) } else { Key::from_hex(&text).map(Some) }
    }
}

/// A text that prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl FromValue for Option<Secret> {
    fn from_value(value: Value) -> Result<Self, String> {
        let text = String::from_value(value)?;
        Ok((!text.is_empty()).then(|| Secret::new(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_there_and_back() {
        let hex = "000102030405060708090a0b0c0d0e0f";
        let key = Key::from_hex(&format!(" {}\r\n", hex.to_uppercase())).unwrap();
        assert_eq!(key.bytes()[15], 15);
        assert_eq!(key.to_hex(), hex);
        assert_eq!(format!("{key:?}"), format!("Key({})", key.id()));
        // Stored with all state, so it must not change between versions.
        assert_eq!(key.id(), "34d13398");
    }

    #[test]
    fn wrong_keys_are_not_echoed() {
        let cases = [
            ("empty", "", "has 0"),
            ("31 digits", "0123456789abcdef0123456789abcde", "has 31"),
            ("33 digits", "0123456789abcdef0123456789abcdef0", "has 33"),
            ("no digit", "0123456789abcdef0123456789abcdeg", "character 32"),
            ("a sign", "+123456789abcdef0123456789abcdef", "character 1"),
            ("32 characters, 33 bytes", "0123456789abcdef0123456789abcdeé", "character 32"),
        ];
        for (name, text, expected) in cases {
            let error = Key::from_hex(text).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
            assert!(!error.contains("abc"), "{name}: {error}");
        }
    }

    #[test]
    fn secrets_print_as_stars() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }
}
