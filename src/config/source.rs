//! Reads the TOML file and the environment into settings: a value and its place for each known
//! key. Unknown keys and broken TOML become problems here; values are not looked at yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::kind::{Kind, option_text, type_name};
use super::options;
use super::problem::{Place, Problem};
use super::schema::{self, ENVIRONMENT_PREFIX, KeySpec};

/// The path of the table of free names.
pub(super) const OPTIONS: &str = "kafka.options";

/// The environment variables of this process that are meant for pagesieve. Text that is no UTF-8
/// arrives with replacement characters, so that it fails its check rather than being ignored.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX))
}

/// One value that somebody set. It may be a secret, so there is no `Debug`.
pub(super) struct Setting {
    pub value: toml::Value,
    pub place: Place,
}

/// Everything that was set, by the path of its key, and what went wrong in reading it.
#[derive(Default)]
pub(super) struct Source {
    /// Settings of the table's keys, `kafka.options` excepted.
    pub settings: BTreeMap<&'static str, Setting>,
    /// librdkafka's properties by their own names.
    pub options: BTreeMap<String, (String, Place)>,
    pub problems: Vec<Problem>,
}

impl Source {
    /// Adds a configuration file's text; all of its syntax errors are found in one pass.
    pub fn add_text(&mut self, text: &str, origin: &str) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut file = File { text, origin, broken_lines: BTreeSet::new(), source: self };
        for error in errors {
            let start = error.span().map_or(text.len(), |span| span.start);
            let place = file.place(start);
            file.broken_lines.insert(file.line(start));
            let message = error.message().trim_end_matches(", expected nothing").to_owned();
            file.source.problems.push(Problem { key: String::new(), place, message });
        }
        file.walk("", table.get_ref());
    }

    /// Adds the overrides of the environment; of two for one key the later one holds.
    pub fn add_environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
                continue;
            };
            let path = rest.to_lowercase().replace("__", ".");
            let place = Place::Environment(name);
            if let Some(option) = path.strip_prefix("kafka.options.") {
                self.options.insert(options::name_from_environment(option), (text, place));
                continue;
            }
            match schema::find(&path) {
                Some(KeySpec { kind: Kind::Options, .. }) => {
                    let message = "must be set one by one, as PAGESIEVE__KAFKA__OPTIONS__CLIENT_ID";
                    self.problem(path, place, message);
                }
                Some(spec) => {
                    let value = spec.kind.from_environment(&text);
                    self.settings.insert(spec.path, Setting { value, place });
                }
                None => {
                    let nearest = schema::nearest(&path).map(KeySpec::environment_name);
                    self.problem(path, place, unknown("key", nearest));
                }
            }
        }
    }

    fn problem(&mut self, key: impl Into<String>, place: Place, message: impl Into<String>) {
        self.problems.push(Problem { key: key.into(), place, message: message.into() });
    }
}

/// A configuration file on its way into the settings.
struct File<'a> {
    text: &'a str,
    origin: &'a str,
    /// Lines with a syntax error, which has been reported: what the parser made of them has not.
    broken_lines: BTreeSet<usize>,
    source: &'a mut Source,
}

impl File<'_> {
    /// Line of a byte offset, from 1.
    fn line(&self, offset: usize) -> usize {
        self.text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Whether a syntax error lies on the lines of these byte offsets.
    fn is_broken(&self, start: usize, end: usize) -> bool {
        let lines = self.line(start)..=self.line(end.max(start));
        self.broken_lines.range(lines).next().is_some()
    }

    /// Line and column of a byte offset.
    fn place(&self, offset: usize) -> Place {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place::Line {
            origin: self.origin.to_owned(),
            line: self.line(offset),
            column: before[line_start..].chars().count() + 1,
        }
    }

    fn walk(&mut self, section: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let end = match value.get_ref() {
                DeValue::Table(_) => key.span().end,
                _ => value.span().end,
            };
            if self.is_broken(key.span().start, end) {
                continue;
            }
            let place = self.place(key.span().start);
            let path = match section {
                "" => key.get_ref().to_string(),
                _ => format!("{section}.{}", key.get_ref()),
            };
            self.entry(path, place, value);
        }
    }

    fn entry(&mut self, path: String, place: Place, value: &Spanned<DeValue<'_>>) {
        if let Some(spec) = schema::find(&path) {
            match (spec.kind, value.get_ref()) {
                (Kind::Options, DeValue::Table(table)) => self.options("", table),
                _ => {
                    let value = owned(value);
                    self.source.settings.insert(spec.path, Setting { value, place });
                }
            }
        } else if schema::is_section(&path) {
            match value.get_ref() {
                DeValue::Table(table) => self.walk(&path, table),
                _ => {
                    let message = format!("must be a section, is a {}", type_name(&owned(value)));
                    self.source.problem(path, place, message);
                }
            }
        } else {
            let message = match value.get_ref() {
                DeValue::Table(_) => unknown("section", schema::nearest_section(&path)),
                _ => unknown("key", schema::nearest(&path).map(|spec| spec.path)),
            };
            let hint = match path.starts_with("kafka.") && message.starts_with(UNKNOWN_ALONE) {
                true => "; librdkafka's properties go into [kafka.options]",
                false => "",
            };
            self.source.problem(path, place, message + hint);
        }
    }

    /// Flattens nested tables into dotted names: `security.protocol = "ssl"` without quotes around
    /// its name is one.
    fn options(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let place = self.place(key.span().start);
            if let DeValue::Table(table) = value.get_ref() {
                self.options(&format!("{name}."), table);
                continue;
            }
            let value = owned(value);
            let Some(text) = option_text(&value) else {
                let message = format!("must be a text, number or boolean, is a {}", type_name(&value));
                self.source.problem(format!("{OPTIONS}.{name}"), place, message);
                continue;
            };
            if self.source.options.contains_key(&name) {
                let message = "is set twice, dotted and in quotes";
                self.source.problem(format!("{OPTIONS}.{name}"), place, message);
                continue;
            }
            self.source.options.insert(name, (text, place));
        }
    }
}

/// A parsed value without its spans. One the parser recovered from a syntax error, or an integer
/// past 64 bits, may not convert: its text then fails the type check of its key.
fn owned(value: &Spanned<DeValue<'_>>) -> toml::Value {
    toml::Value::deserialize(ValueDeserializer::from(value.clone()))
        .unwrap_or_else(|_| toml::Value::String("a number out of range".to_owned()))
}

const UNKNOWN_ALONE: &str = "unknown key or section";

fn unknown(what: &str, nearest: Option<impl std::fmt::Display>) -> String {
    match nearest {
        Some(nearest) => format!("unknown {what}, the nearest is {nearest}"),
        None => UNKNOWN_ALONE.to_owned(),
    }
}

/// The text of a file, or why there is none.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}
