//! What can be wrong with a configuration: a list of problems, each with its key and its place.

use std::fmt::{self, Write};

/// Where a setting was made; orders a report from the file's first line on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The configuration file as a whole.
    File(String),
    /// In the configuration file, line and column counted from 1 in characters.
    Line {
        /// The file as it was named by the caller.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// In this environment variable.
    Environment(String),
    /// Nowhere: the default holds, or the value came from the command line.
    Unset,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(origin) => out.write_str(origin),
            Self::Line { origin, line, column } => write!(out, "{origin}:{line}:{column}"),
            Self::Environment(name) => out.write_str(name),
            Self::Unset => out.write_str("configuration"),
        }
    }
}

/// One mistake in the configuration. Never holds the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key it is about, dotted; empty when it is about the file.
    pub key: String,
    /// Where the value came from.
    pub place: Place,
    /// What is wrong and what would be right, without a full stop.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write_line(&self.key, out)?;
            out.write_str(": ")?;
        }
        write_line(&self.message, out)
    }
}

/// Keeps a wrong key or value that is repeated on its line, whatever is in it.
fn write_line(text: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        match c.is_control() {
            true => write!(out, "{}", c.escape_default())?,
            false => out.write_char(c)?,
        }
    }
    Ok(())
}

/// All mistakes of a configuration, one line each in print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Problem>);

impl ConfigErrors {
    /// `Ok` if there is nothing to report; else all of it, in the order of the places.
    pub(super) fn check(mut problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by(|a, b| (&a.place, &a.key).cmp(&(&b.place, &b.key)));
        problems.dedup();
        Err(Self(problems))
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.0.iter().enumerate() {
            let newline = if position == 0 { "" } else { "\n" };
            write!(out, "{newline}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
