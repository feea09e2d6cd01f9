//! Where log events go: to standard error, as text for people or JSON for collectors.
//!
//! `RUST_LOG` decides what is logged (`info`, `pagesieve=debug,rdkafka=warn`); the configured level applies without it.
//! Standard output stays free for pages.

use std::env::{self, VarError};
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One readable line an event; colours on a terminal.
    #[default]
    Text,
    /// One JSON object an event, its fields at the top level.
    Json,
}

/// What is logged if neither `RUST_LOG` nor the configured level can be read.
const LAST_RESORT: &str = "info";

/// Starts logging at `default_level` (a level or any filter) unless `RUST_LOG` says otherwise. A filter that cannot be
/// read is reported once and passed over. The first call of a process counts; later ones change nothing.
pub fn start(format: Format, default_level: &str) {
    let (filter, complaints) = choose_filter(env::var("RUST_LOG"), default_level);
    // The convention of no-color.org: set and not empty.
    let colour = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match format {
        Format::Text => builder.with_ansi(colour).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        for complaint in complaints {
            // Not as an event: the very filter that took over might hide it.
            eprintln!("pagesieve: {complaint}");
        }
    }
}

/// The first of `RUST_LOG` and `default_level` that can be read, and what is wrong with those before it.
fn choose_filter(rust_log: Result<String, VarError>, default_level: &str) -> (EnvFilter, Vec<String>) {
    let mut complaints = Vec::new();
    let from_environment = match rust_log {
        Ok(text) if !text.trim().is_empty() => Some(text),
        Err(VarError::NotUnicode(_)) => {
            complaints.push("RUST_LOG is not UTF-8 and is ignored".to_owned());
            None
        }
        Ok(_) | Err(VarError::NotPresent) => None,
    };
    for (source, text) in [("RUST_LOG", from_environment.as_deref()), ("the configured log level", Some(default_level))]
    {
        let Some(text) = text else { continue };
        match EnvFilter::builder().parse(text) {
            Ok(filter) => return (filter, complaints),
            Err(error) => complaints.push(format!("{source} is ignored: {text:?}: {error}")),
        }
    }
    (EnvFilter::new(LAST_RESORT), complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_filter_that_can_be_read_counts() {
        let not_unicode = || Err(VarError::NotUnicode("?".into()));
        let set = |text: &str| Ok(text.to_owned());
        let unset = || Err(VarError::NotPresent);
        for (case, rust_log, level, expected, num_complaints) in [
            ("RUST_LOG wins", set("debug"), "warn", "debug", 0),
            ("targets", set("pagesieve=trace,warn"), "info", "pagesieve=trace,warn", 0),
            ("no RUST_LOG", unset(), "warn", "warn", 0),
            ("empty RUST_LOG", set(" "), "warn", "warn", 0),
            ("bad RUST_LOG", set("pagesieve=loud"), "warn", "warn", 1),
            ("RUST_LOG not UTF-8", not_unicode(), "warn", "warn", 1),
            ("bad level", unset(), "a=loud", LAST_RESORT, 1),
            ("all bad", set("a=loud"), "b=loud", LAST_RESORT, 2),
        ] {
            let (filter, complaints) = choose_filter(rust_log, level);
            assert_eq!(filter.to_string(), expected, "{case}");
            assert_eq!(complaints.len(), num_complaints, "{case}: {complaints:?}");
        }
    }

    #[test]
    fn starting_twice_is_harmless() {
        start(Format::Text, "info");
        start(Format::Json, "debug");
    }
}
