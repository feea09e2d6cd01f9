//! `pagesieve evaluate`: what a filter run dropped and kept, measured.

use super::text;
use crate::config;
use crate::evaluate::measure::{Measures, Pair};
use crate::evaluate::run::Contract;
use crate::evaluate::truth::Agreement;
use crate::evaluate::{self, Evaluation, Files, Settings, Share};
use crate::transport::files::open_output;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// Options of `evaluate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The input of the filter run; for several inputs give it several times, in their order
    #[arg(long, value_name = "FILE", required = true)]
    pages: Vec<String>,
    /// What the run wrote with -o
    #[arg(long, value_name = "FILE")]
    survivors: PathBuf,
    /// What the run wrote with --duplicates
    #[arg(long, value_name = "FILE")]
    duplicates: PathBuf,
    /// What the run wrote with --rejected
    #[arg(long, value_name = "FILE")]
    rejected: Option<PathBuf>,
    /// What `generate` wrote with --truth
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// The threshold of the run [default: 0.8]
    #[arg(long, value_name = "0.5..1")]
    threshold: Option<String>,
    /// Words in a shingle [default: 5]
    #[arg(long, value_name = "1..16")]
    shingle_words: Option<String>,
    /// The window of the run; older survivors need not have been found [default: 7d]
    #[arg(long, value_name = "DURATION")]
    window: Option<String>,
    /// The configuration of the run; the options above override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Everything measured, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Pairs to show of each sort
    #[arg(long, value_name = "N", default_value_t = 3)]
    examples: usize,
}

/// Evaluates.
pub fn run(args: &Args) -> Result<()> {
    let options = [
        ("POLICY__THRESHOLD", &args.threshold),
        ("SKETCH__SHINGLE_WORDS", &args.shingle_words),
        ("WINDOW__MAX_AGE", &args.window),
    ];
    let overrides = options.into_iter().filter_map(|(key, value)| Some((format!("PAGESIEVE__{key}"), value.clone()?)));
    let config = config::load(args.config.as_deref(), config::environment().chain(overrides))?;
    let files = Files {
        pages: args.pages.clone(),
        survivors: args.survivors.clone(),
        duplicates: args.duplicates.clone(),
        rejected: args.rejected.clone(),
        truth: args.truth.clone(),
    };
    let evaluation = evaluate::evaluate(&files, &Settings::new(&config))?;
    if let Some(path) = &args.report {
        let mut file = open_output(path)?;
        serde_json::to_writer_pretty(&mut file, &evaluation).context("cannot write the report")?;
        file.write_all(b"\n").and_then(|()| file.close()).context("cannot write the report")?;
    }
    match std::io::stdout().write_all(render(&evaluation, args.examples).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    match evaluation.contract.num_breaches {
        0 => Ok(()),
        breaches => bail!("the run breaks the contract of filter: {} breaches", text::count(breaches)),
    }
}

/// The whole report as text.
fn render(evaluation: &Evaluation, num_examples: usize) -> String {
    let mut out = String::new();
    contract(&mut out, &evaluation.contract);
    measures(&mut out, evaluation);
    curve(&mut out, evaluation);
    if let Some(agreement) = &evaluation.truth {
        truth(&mut out, agreement);
    }
    let near = &evaluation.near_duplicates;
    let step = near.len().div_ceil(num_examples.max(1)).max(1);
    pairs(&mut out, "near-duplicates, one here and there", near.iter().step_by(step).take(num_examples));
    pairs(&mut out, "drops of less than 0.75, the lowest", evaluation.wrong_drops.iter().take(num_examples));
    pairs(&mut out, "survivors that had one of 0.85 or more, the highest", evaluation.missed.iter().take(num_examples));
    out
}

fn contract(out: &mut String, contract: &Contract) {
    let mut row = |name: &str, number: u64| {
        let _ = writeln!(out, "{name:<20}{:>12}  {:>7}", text::count(number), text::percent(number, contract.pages));
    };
    row("pages", contract.pages);
    row("survivors", contract.survivors);
    row("exact duplicates", contract.exact_duplicates);
    row("near-duplicates", contract.near_duplicates);
    row("unchanged", contract.unchanged);
    row("rejected", contract.rejected);
    let _ = match contract.num_breaches {
        0 => writeln!(out, "contract            kept: every page in one place, survivors byte for byte and in order"),
        breaches => writeln!(out, "contract            BROKEN {} times", text::count(breaches)),
    };
    for breach in &contract.breaches {
        let _ = writeln!(out, "  {breach}");
    }
}

/// The measures as rows, all pages and each length as columns.
fn measures(out: &mut String, evaluation: &Evaluation) {
    let threshold = evaluation.threshold;
    let columns: Vec<(&str, &Measures)> = std::iter::once(("all", &evaluation.overall))
        .chain(evaluation.by_length.iter().map(|(name, measures)| (*name, measures)))
        .collect();
    let names: String = columns.iter().map(|(name, _)| format!("{name:>15}")).collect();
    let _ = writeln!(out, "\n{:<44}{names}", "resemblance counted, not estimated");
    let mut row = |name: &str, cell: &dyn Fn(&Measures) -> String| {
        let cells: String = columns.iter().map(|(_, measures)| format!("{:>15}", cell(measures))).collect();
        let _ = writeln!(out, "{name:<44}{cells}");
    };
    let share =
        |share: Share| if share.whole == 0 { "–".to_owned() } else { format!("{:.2} %", share.value() * 100.0) };
    let of = |share: Share| text::count(share.whole);
    let signed = |number: f64, measures: &Measures| {
        if measures.near_within_006.whole == 0 { "–".to_owned() } else { format!("{number:+.4}") }
    };
    row("pages with enough shingles", &|m| text::count(m.pages));
    row("  dropped", &|m| text::count(m.drops));
    row("    near-duplicates", &|m| of(m.near_precision_075));
    row("have an earlier survivor of 0.85 or more", &|m| of(m.recall_085));
    row("  dropped (recall)", &|m| share(m.recall_085));
    row("have an earlier survivor of 0.8 or more", &|m| of(m.recall_080));
    row("  dropped", &|m| share(m.recall_080));
    row("drops of 0.75 or more (precision)", &|m| share(m.precision_075));
    row(&format!("drops of {threshold} or more"), &|m| share(m.precision_threshold));
    row("near-duplicates of 0.75 or more", &|m| share(m.near_precision_075));
    row(&format!("near-duplicates of {threshold} or more"), &|m| share(m.near_precision_threshold));
    row("drops estimated within 0.06", &|m| share(m.within_006));
    row("near-duplicates estimated within 0.06", &|m| share(m.near_within_006));
    row("  mean error of these", &|m| signed(m.bias, m));
    row("  root mean square error of these", &|m| signed(m.rmse, m).replace('+', ""));
}

/// The share dropped by the highest resemblance with an earlier survivor, beside what the S-curve promises.
fn curve(out: &mut String, evaluation: &Evaluation) {
    let _ = writeln!(out, "\n{:<24}{:>12}{:>12}{:>12}", "most alike survivor", "pages", "dropped", "predicted");
    for (at, point) in evaluation.curve.iter().enumerate().filter(|(_, point)| point.pages > 0) {
        let range = match evaluation.curve.get(at + 1) {
            Some(next) => format!("{:.3} to {:.3}", point.from, next.from),
            None => "1".to_owned(),
        };
        let share = |part: f64| format!("{:.2} %", part / point.pages as f64 * 100.0);
        let (dropped, predicted) = (share(point.dropped as f64), share(point.predicted));
        let _ = writeln!(out, "{range:<24}{:>12}{dropped:>12}{predicted:>12}", text::count(point.pages));
    }
}

fn truth(out: &mut String, agreement: &Agreement) {
    let verdicts = ["survived", "exact_duplicate", "near_duplicate", "unchanged", "rejected"];
    let names: String = verdicts.iter().map(|name| format!("{name:>17}")).collect();
    let _ = writeln!(out, "\n{:<20}{:<17}{:>8}{:>10}{names}", "kind", "expected", "pages", "right");
    for row in &agreement.rows {
        let kind = serde_json::to_value(row.kind).ok();
        let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
        let right =
            if row.expect == "either" { "–".to_owned() } else { format!("{:.2} %", percent(row.right, row.pages)) };
        let cells: String = verdicts
            .iter()
            .map(|verdict| match row.happened.get(verdict) {
                Some(number) => format!("{:>17}", text::count(*number)),
                None => format!("{:>17}", "·"),
            })
            .collect();
        let _ = writeln!(out, "{kind:<20}{:<17}{:>8}{right:>10}{cells}", row.expect, text::count(row.pages));
    }
    let line = |share: Share| format!("{:.3} % of {}", share.value() * 100.0, text::count(share.whole));
    let _ = writeln!(out, "as expected: {} that cannot go either way", line(agreement.accuracy));
    let _ = writeln!(out, "canonical is the page the copy was made from: {} dropped copies", line(agreement.canonical));
}

fn percent(part: u64, whole: u64) -> f64 {
    Share { part, whole }.value() * 100.0
}

fn pairs<'p>(out: &mut String, title: &str, pairs: impl Iterator<Item = &'p Pair>) {
    let mut pairs = pairs.peekable();
    if pairs.peek().is_none() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for pair in pairs {
        let estimate = pair.resemblance.map_or(String::new(), |estimate| format!("estimated {estimate:.3}, "));
        let _ = writeln!(out, "  {estimate}exact {:.3}, {} words", pair.exact, text::count(pair.num_words as u64));
        let _ = writeln!(out, "    {}", pair.url.as_deref().unwrap_or(&pair.position));
        let _ = writeln!(out, "    {}", pair.survivor_url.as_deref().unwrap_or(&pair.survivor));
    }
}
