//! The kinds of settings: what a key's value may look like, and its check.

use std::collections::BTreeMap;
use std::time::Duration;

use super::units;
pub use super::values::Value;

/// What a key's value may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number in a range, both ends included.
    Integer(u64, u64),
    /// One of these whole numbers.
    IntegerOf(&'static [u64]),
    /// A number in a range, both ends included.
    Number(f64, f64),
    /// A number above 0, up to 1.
    Share,
    /// A size in bytes in a range, both ends included.
    Size(u64, u64),
    /// A duration in a range, both ends included.
    Duration(Duration, Duration),
    /// A duration in a range, or `"none"`.
    DurationOrNone(Duration, Duration),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any text.
    Text,
    /// A text, a time of TOML, or milliseconds since 1970: where to start reading.
    Start,
    /// A list of texts.
    List,
    /// A table of free names, nested or dotted, with texts, numbers or booleans.
    Options,
}

impl Kind {
    /// The valid values in words, for errors and documentation; empty if there is no limit.
    #[must_use]
    pub fn valid(&self) -> String {
        let time = |time: &Duration| units::show_duration(*time);
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Integer(min, max) => format!("from {min} to {max}"),
            Self::IntegerOf(values) => any_of(values.iter().map(ToString::to_string)),
            Self::Number(min, max) => format!("from {min} to {max}"),
            Self::Share => "above 0, up to 1".to_owned(),
            Self::Size(min, max) => {
                format!("from {} to {}", units::show_size(*min), units::show_size(*max))
            }
            Self::Duration(min, max) => format!("from {} to {}", time(min), time(max)),
            Self::DurationOrNone(min, max) => {
                format!("from {} to {}, or \"none\"", time(min), time(max))
            }
            Self::OneOf(words) => any_of(words.iter().map(|word| format!("{word:?}"))),
            Self::Start => "\"earliest\", \"latest\" or a time with its zone".to_owned(),
            Self::Text | Self::List | Self::Options => String::new(),
        }
    }

    /// The kind with its valid values, as the end of `must be …`.
    fn wanted(&self) -> String {
        let noun = match self {
            Self::Integer(..) => "a whole number ",
            Self::Number(..) | Self::Share => "a number ",
            Self::Size(..) => "a size ",
            Self::Duration(..) | Self::DurationOrNone(..) => "a duration with a unit, ",
            Self::Text => "a text in quotes",
            Self::List => "a list of texts, as [\"one\", \"two\"]",
            Self::Options => "a table of texts, numbers and booleans",
            Self::Flag | Self::IntegerOf(_) | Self::OneOf(_) | Self::Start => "",
        };
        format!("{noun}{}", self.valid())
    }

    /// Checks a value of the file or the environment.
    ///
    /// # Errors
    /// `must be …, is …`; what it is is told by its type alone where the value may be anything,
    /// so that no secret is repeated.
    pub fn read(&self, value: &toml::Value) -> Result<Value, String> {
        let wrong = || format!("must be {}, is {}", self.wanted(), self.describe(value));
        if let (Self::Size(..) | Self::Duration(..) | Self::DurationOrNone(..), Some(text)) = (self, value.as_str()) {
            return self.read_units(text).map_err(|form| match form {
                Some(form) => format!("must be {form}, is {text:?}"),
                None => wrong(),
            });
        }
        self.read_plain(value).ok_or_else(wrong)
    }

    /// Checks a text with a unit; the error is the form it should have, or none if its form is
    /// right and it lies outside the range.
    fn read_units(&self, text: &str) -> Result<Value, Option<String>> {
        match self {
            Self::Size(min, max) => {
                let bytes = units::size(text).map_err(Some)?;
                (*min..=*max).contains(&bytes).then_some(Value::Integer(bytes)).ok_or(None)
            }
            Self::DurationOrNone(..) if text == "none" => Ok(Value::Duration(None)),
            Self::Duration(min, max) | Self::DurationOrNone(min, max) => {
                let time = units::duration(text).map_err(Some)?;
                (*min..=*max).contains(&time).then_some(Value::Duration(Some(time))).ok_or(None)
            }
            _ => Err(None),
        }
    }

    /// Checks a value without a unit.
    fn read_plain(&self, value: &toml::Value) -> Option<Value> {
        let integer = || value.as_integer().and_then(|number| u64::try_from(number).ok());
        let number = || value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
        match self {
            Self::Flag => value.as_bool().map(Value::Flag),
            Self::Integer(min, max) | Self::Size(min, max) => {
                integer().filter(|number| (*min..=*max).contains(number)).map(Value::Integer)
            }
            Self::IntegerOf(valid) => integer().filter(|number| valid.contains(number)).map(Value::Integer),
            Self::Number(min, max) => number().filter(|number| (*min..=*max).contains(number)).map(Value::Number),
            Self::Share => number().filter(|share| *share > 0.0 && *share <= 1.0).map(Value::Number),
            Self::Duration(min, _) | Self::DurationOrNone(min, _) => {
                let zero = integer()? == 0 && min.is_zero();
                zero.then_some(Value::Duration(Some(Duration::ZERO)))
            }
            Self::OneOf(words) => {
                let text = value.as_str().filter(|text| words.contains(text));
                text.map(|text| Value::Text(text.to_owned()))
            }
            Self::Text => value.as_str().map(|text| Value::Text(text.to_owned())),
            Self::Start => match value {
                toml::Value::String(text) => Some(Value::Text(text.clone())),
                toml::Value::Datetime(time) => Some(Value::Text(time.to_string())),
                toml::Value::Integer(epoch_ms) => Some(Value::Text(epoch_ms.to_string())),
                _ => None,
            },
            Self::List => {
                let items = value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned));
                items.collect::<Option<_>>().map(Value::List)
            }
            Self::Options => {
                let mut options = BTreeMap::new();
                for (name, value) in value.as_table()? {
                    options.insert(name.clone(), option_text(value)?);
                }
                Some(Value::Options(options))
            }
        }
    }

    /// The wrong value itself where it can only be a mistyped one, else its type.
    fn describe(&self, value: &toml::Value) -> String {
        let anything = matches!(self, Self::Text | Self::List | Self::Options);
        match value {
            toml::Value::Array(_) | toml::Value::Table(_) => format!("a {}", type_name(value)),
            _ if anything => format!("a {}", type_name(value)),
            _ => value.to_string(),
        }
    }

    /// What the text of an environment variable stands for: a list is TOML in brackets or
    /// separated by commas, numbers and booleans go without quotes, everything else is text.
    #[must_use]
    pub fn from_environment(&self, text: &str) -> toml::Value {
        let trimmed = text.trim();
        let parsed = match self {
            Self::Flag => trimmed.parse().ok().map(toml::Value::Boolean),
            Self::Integer(..) | Self::IntegerOf(_) => trimmed.parse().ok().map(toml::Value::Integer),
            Self::Number(..) | Self::Share => trimmed.parse().ok().map(toml::Value::Float),
            Self::List => Some(list(trimmed)),
            _ => None,
        };
        parsed.unwrap_or_else(|| toml::Value::String(text.to_owned()))
    }
}

/// A list from TOML in brackets, else from commas, blanks around the items and empty ones dropped.
fn list(text: &str) -> toml::Value {
    if text.starts_with('[')
        && let Ok(mut table) = format!("list = {text}").parse::<toml::Table>()
        && let Some(list @ toml::Value::Array(_)) = table.remove("list")
    {
        return list;
    }
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    toml::Value::Array(items.map(|item| toml::Value::String(item.to_owned())).collect())
}

/// The text of an option's value, which may also be a number or a boolean.
pub(super) fn option_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The name of a TOML value's type as a person would say it.
pub(super) fn type_name(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "text",
        toml::Value::Integer(_) => "whole number",
        toml::Value::Float(_) => "number",
        toml::Value::Boolean(_) => "boolean",
        toml::Value::Datetime(_) => "date",
        toml::Value::Array(_) => "list",
        toml::Value::Table(_) => "table",
    }
}

/// `a, b or c`.
fn any_of(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    match items.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
