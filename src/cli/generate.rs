//! `pagesieve generate`: a sample crawl with known truth.

use super::text;
use crate::generate::{Generator, Settings};
use crate::transport::files::{Output, open_output};
use crate::transport::kafka::feed::Feed;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Options of `generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of pages
    #[arg(value_name = "PAGES", default_value_t = 20_000)]
    pages: u64,
    /// Pages as JSON lines (.gz and .zst compress)
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Into this Kafka topic instead of a file, keyed by URL
    #[arg(long, value_name = "TOPIC", requires = "brokers", conflicts_with = "output")]
    topic: Option<String>,
    /// Brokers of the topic, as host:port,…
    #[arg(long, value_name = "LIST")]
    brokers: Option<String>,
    /// Pages a second into the topic [default: as fast as it takes them]
    #[arg(long, value_name = "PAGES", requires = "topic")]
    rate: Option<f64>,
    /// What is known of each page, as JSON lines
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Another seed, another crawl
    #[arg(long, default_value_t = Settings::default().seed)]
    seed: u64,
    /// Share of near-copies
    #[arg(long, default_value_t = Settings::default().near_copies)]
    near_copies: f64,
    /// Share of exact copies
    #[arg(long, default_value_t = Settings::default().exact_copies)]
    exact_copies: f64,
    /// Share of revisits, half of them unchanged
    #[arg(long, default_value_t = Settings::default().revisits)]
    revisits: f64,
    /// Share of pages too short for a sketch
    #[arg(long, default_value_t = Settings::default().short)]
    short: f64,
    /// Share of pages older than the window
    #[arg(long, default_value_t = Settings::default().late)]
    late: f64,
    /// Share of pages with nothing to judge
    #[arg(long, default_value_t = Settings::default().skipped)]
    skipped: f64,
    /// Share of records that cannot be judged
    #[arg(long, default_value_t = Settings::default().bad)]
    bad: f64,
    /// Mean length in words
    #[arg(long, default_value_t = Settings::default().mean_words)]
    mean_words: u32,
}

enum Destination {
    File(Output),
    Topic(Feed),
}

/// Generates.
pub fn run(args: &Args) -> Result<()> {
    let settings = Settings {
        pages: args.pages,
        seed: args.seed,
        near_copies: args.near_copies,
        exact_copies: args.exact_copies,
        revisits: args.revisits,
        short: args.short,
        late: args.late,
        skipped: args.skipped,
        bad: args.bad,
        mean_words: args.mean_words,
        ..Settings::default()
    };
    settings.check().map_err(anyhow::Error::msg)?;
    let mut pages = match (&args.topic, &args.brokers) {
        (Some(topic), Some(brokers)) => Destination::Topic(Feed::new(brokers, topic, args.rate)?),
        _ => Destination::File(open_output(&args.output)?),
    };
    let mut truth = args.truth.as_deref().map(open_output).transpose()?;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(args.pages) } else { ProgressBar::hidden() };
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {human_pos} pages  {per_sec}  {eta} left").expect("a constant"),
    );
    let mut bytes = 0;
    for record in Generator::new(settings) {
        bytes += record.line.len() as u64 + 1;
        match &mut pages {
            Destination::Topic(feed) => feed.send(record.url.as_deref(), &record.line)?,
            Destination::File(file) => match file.write_all(&record.line).and_then(|()| file.write_all(b"\n")) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                written => written.context("cannot write the pages")?,
            },
        }
        if let Some(truth) = &mut truth {
            serde_json::to_writer(&mut *truth, &record.truth).context("cannot write the truth")?;
            truth.write_all(b"\n").context("cannot write the truth")?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    match pages {
        Destination::Topic(feed) => feed.finish()?,
        Destination::File(file) => file.close().context("cannot write the pages")?,
    }
    truth.map(|truth| truth.close()).transpose().context("cannot write the truth")?;
    eprintln!("{} pages, {}", text::count(args.pages), text::bytes(bytes as f64));
    Ok(())
}
