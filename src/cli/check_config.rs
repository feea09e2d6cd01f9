//! `pagesieve check-config`: all mistakes of a configuration, or what it means in numbers.

mod load;
mod rows;
mod sizes;

use super::text;
use crate::config::{self, Action, Config};
use crate::evaluate::scurve;
use crate::index::plan::Plan;
use crate::memory::{self, ProcessPlan};
use crate::sketch::Shape;
use anyhow::{Result, bail};
use load::{Load, Outlook, Rate};
use sizes::Available;
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// True resemblances of the S-curve's table.
const RESEMBLANCES: [f64; 8] = [0.50, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95];

/// Options of `check-config`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Ask the brokers as well: topics, rights, size limits, retention, transactions
    #[arg(long)]
    connect: bool,
    /// Pages that come in, as 580/s, 35k/min, 2M/h or 50M/d: how long the memory lasts, what the state takes
    #[arg(long, value_name = "N/TIME")]
    rate: Option<Rate>,
    /// Share of the pages that is new and so remembered
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share, requires = "rate")]
    survivors: f64,
    /// Mean size of a record
    #[arg(long, value_name = "SIZE", default_value = "4600", value_parser = config::units::size, requires = "rate")]
    page_bytes: u64,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "must be above 0 and at most 1".to_owned())
}

/// Checks and prints.
pub fn run(args: &Args) -> Result<()> {
    let config = config::load(Some(&args.config), config::environment())?;
    let for_run = config.check_for_run();
    // Without brokers it is one for `filter`; what `run` would miss is then worth a note only.
    if args.connect || !config.kafka.brokers.is_empty() {
        for_run.clone()?;
    }
    let index = Plan::new(&config.window, &Shape::new(&config.sketch));
    let process = ProcessPlan::new(&config, &index);
    let root = Path::new("/");
    let available = Available { cgroup: memory::cgroup_limit(root), machine: memory::machine_memory(root) };
    let load = args.rate.map(|Rate(pages_per_second)| Load {
        pages_per_second,
        survivors: args.survivors,
        page_bytes: args.page_bytes as f64,
    });

    let mut out =
        format!("{}: no mistakes, configuration {}, key {}\n", args.config.display(), config.hash(), key(&config));
    if let Err(missing) = for_run {
        let keys: Vec<_> = missing.0.iter().map(|problem| problem.key.as_str()).collect();
        let _ = writeln!(out, "note: enough for `filter`; `run` also needs {}", keys.join(", "));
    }
    resolved(&config, &mut out);
    curve(&config, &mut out);
    out.push_str("\nMemory\n");
    sizes::rows(&config, &index, &process, available).render(&mut out);
    if let Some(load) = load {
        let _ = writeln!(
            out,
            "\n{} pages/s of {} bytes, a share of {} remembered",
            load::rate(load.pages_per_second),
            text::count(args.page_bytes),
            load.survivors
        );
        Outlook::new(&config, &index, load).rows(&config).render(&mut out);
    }
    // A closed pipe is no error.
    let _ = std::io::stdout().write_all(out.as_bytes());

    let connected = if args.connect { connect(&config) } else { Ok(()) };
    // Too little memory is a mistake in the configuration and decides the exit code.
    memory::check_config(&process, available.cgroup)?;
    connected
}

/// The key's id, never its value.
fn key(config: &Config) -> String {
    config.sketch.key.as_ref().map_or_else(|| "none (the public one)".to_owned(), config::Key::id)
}

/// The resolved configuration, indented TOML.
fn resolved(config: &Config, out: &mut String) {
    out.push_str("\nResolved configuration\n");
    for line in config::render_resolved(config).lines() {
        let indent = if line.is_empty() { "" } else { "  " };
        let _ = writeln!(out, "{indent}{line}");
    }
}

/// The S-curve in numbers.
fn curve(config: &Config, out: &mut String) {
    let shape = Shape::new(&config.sketch);
    let threshold = config.policy.threshold;
    let fate = match config.policy.near_duplicate {
        Action::Drop => "dropped",
        Action::Tag => "tagged",
        Action::Forward => "forwarded as a copy",
    };
    let _ = writeln!(
        out,
        "\nS-curve: {} bands of {} slots find candidates, {} bytes a page verify them (here of {} shingles), {threshold} is the threshold\n  \
         true resemblance  candidate  error of estimate  {fate}",
        shape.bands,
        shape.rows,
        shape.bytes,
        scurve::TYPICAL_SHINGLES
    );
    for resemblance in RESEMBLANCES {
        let candidate = scurve::candidate_probability(resemblance, &shape) * 100.0;
        let error = scurve::standard_error(resemblance, &shape);
        let dropped = scurve::drop_probability(resemblance, &shape, threshold) * 100.0;
        let percent = format!("{dropped:.2} %");
        let width = fate.len().max(8);
        let _ = writeln!(
            out,
            "  {resemblance:>16.2}  {candidate:>7.2} %  {:>17}  {percent:>width$}",
            format!("±{error:.3}")
        );
    }
}

/// What the brokers say: topics, rights, limits, retention, transactions.
fn connect(config: &Config) -> Result<()> {
    let findings = crate::transport::kafka::connect::check(config)?;
    report(findings.iter().map(|finding| (finding.ok, &*finding.what, &*finding.detail)))
}

/// Prints findings as a list of `ok` and `FAIL` with what was looked at and what was found; an error if any failed.
fn report<'a>(findings: impl IntoIterator<Item = (bool, &'a str, &'a str)>) -> Result<()> {
    let mut out = String::from("\nBrokers\n");
    let (mut checks, mut failures) = (0, 0);
    for (ok, what, detail) in findings {
        checks += 1;
        failures += usize::from(!ok);
        let mark = if ok { "ok  " } else { "FAIL" };
        let _ = writeln!(out, "  {mark}  {what}: {detail}");
    }
    let _ = std::io::stdout().write_all(out.as_bytes());
    if failures > 0 {
        bail!("{failures} of {checks} checks against the brokers failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_is_printed_in_numbers() {
        for (toml, expected) in [
            ("", "0.80    99.15 %             ±0.013   49.57 %"),
            ("[sketch]\nbands = 14\nrows = 8", "0.80    92.35 %             ±0.013   46.18 %"),
            ("[policy]\nnear_duplicate = 'tag'", "error of estimate  tagged"),
        ] {
            let config = config::parse(toml, "test", std::iter::empty()).unwrap();
            let mut out = String::new();
            curve(&config, &mut out);
            assert!(out.contains(expected), "{expected}: {out}");
        }
    }

    #[test]
    fn the_key_shows_its_id_only() {
        let hex = "0123456789abcdef0123456789abcdef";
        let toml = format!("[sketch]\nkey = '{hex}'");
        let config = config::parse(&toml, "test", std::iter::empty()).unwrap();
        let mut out = key(&config);
        assert_eq!(out.len(), 8);
        resolved(&config, &mut out);
        assert!(!out.contains(hex) && out.contains("***"), "{out}");
    }

    #[test]
    fn one_failed_check_fails() {
        assert!(report([(true, "topic crawl.pages", "4 partitions")]).is_ok());
        let error = report([(true, "a", "b"), (false, "c", "d")]).unwrap_err();
        assert_eq!(error.to_string(), "1 of 2 checks against the brokers failed");
    }

    #[test]
    fn shares() {
        for (text, ok) in [("1", true), ("0.6", true), ("0", false), ("1.1", false), ("nan", false), ("60%", false)] {
            assert_eq!(share(text).is_ok(), ok, "{text}");
        }
    }
}
