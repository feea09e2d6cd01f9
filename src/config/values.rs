//! The plain shapes a setting's value can have, and the step from them to the resolved types.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::units;

/// A value that has passed its key's type and range check.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A count, or a size in bytes.
    Integer(u64),
    /// A share or a resemblance.
    Number(f64),
    /// A time span; `None` is the word `"none"`.
    Duration(Option<Duration>),
    /// Any text; where a setting can be off, empty is off.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// Free names and values.
    Options(BTreeMap<String, String>),
}

impl Value {
    /// The value as TOML, a size as `"64MiB"` if it is one.
    pub(super) fn to_toml(&self, is_size: bool) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Integer(bytes) if is_size => quoted(&units::show_size(*bytes)),
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => toml::Value::Float(*number).to_string(),
            Self::Duration(None) => quoted("none"),
            Self::Duration(Some(duration)) => quoted(&units::show_duration(*duration)),
            Self::Text(text) => quoted(text),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(|item| quoted(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Options(options) => {
                let members: Vec<_> =
                    options.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value))).collect();
                format!("{{{}}}", members.join(", "))
            }
        }
    }
}

/// A resolved type: made from the value of its key, or told what the value must be.
pub(super) trait FromValue: Sized {
    /// The error completes a sentence after the key: `must be …`. It must not repeat a secret.
    fn from_value(value: Value) -> Result<Self, String>;
}

/// A resolved type that takes a value of exactly one shape as it is.
macro_rules! plain {
    ($($shape:ident => $type:ty),+ $(,)?) => { $(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    Value::$shape(value) => Ok(value),
                    _ => Err(concat!("must be a value of the shape ", stringify!($shape)).to_owned()),
                }
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self { Self::$shape(value) }
        }
    )+ };
}

plain! {
    Flag => bool,
    Integer => u64,
    Number => f64,
    Duration => Option<Duration>,
    Text => String,
    List => Vec<String>,
    Options => BTreeMap<String, String>,
}

/// A narrower integer; the ranges of the table keep within it.
macro_rules! integer {
    ($($type:ty),+) => { $(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<Self, String> {
                let wide = u64::from_value(value)?;
                <$type>::try_from(wide).map_err(|_| format!("must be at most {}", <$type>::MAX))
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self { Self::Integer(value as u64) }
        }
    )+ };
}

integer!(usize, u8);

impl FromValue for Duration {
    fn from_value(value: Value) -> Result<Self, String> {
        Option::from_value(value)?.ok_or_else(|| "must be a duration".to_owned())
    }
}

impl From<Duration> for Value {
    fn from(duration: Duration) -> Self {
        Self::Duration(Some(duration))
    }
}

impl FromValue for Option<String> {
    fn from_value(value: Value) -> Result<Self, String> {
        Ok(Some(String::from_value(value)?).filter(|text| !text.is_empty()))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text.unwrap_or_default())
    }
}

impl FromValue for Option<PathBuf> {
    fn from_value(value: Value) -> Result<Self, String> {
        Ok(Option::<String>::from_value(value)?.map(PathBuf::from))
    }
}
