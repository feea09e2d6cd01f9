//! Measures what a run of `filter` dropped and kept: against its contract, against exact resemblance, and against the
//! truth of a generated crawl.
//!
//! ```text
//! pages, survivors, duplicates, rejected ─▶ run: who is where, contract ─┐
//!                                    └─▶ exact: shingle sets, index ────┴─▶ measure: recall, precision, error
//! truth of `generate` ──────────────────────────────────────────────────▶ truth: expected ▸ happened
//! ```
//!
//! What is asked of a filter:
//!
//! - *Recall*: of the pages that an earlier survivor of another URL resembles by 0.85 or more, which share was dropped?
//! - *Precision*: of the pages dropped, which share resembles the canonical they were dropped for by 0.75 or more?
//! - *Error*: how far is the estimated resemblance from the exact one?
//!
//! Resemblance is that of the sets of shingles, counted and not estimated; only pages with `min_shingles` or more take
//! part. Nothing here makes a sketch, so a mistake in it cannot hide itself.

pub mod exact;
pub mod measure;
pub mod run;
pub mod scurve;
pub mod truth;

#[cfg(test)]
mod tests;

use crate::config::{Config, Input};
use crate::sketch::Shape;
use anyhow::Result;
use exact::Corpus;
use measure::{CurvePoint, Measures, Pair};
use run::{Contract, Run};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::path::PathBuf;
use std::time::Duration;
use truth::Agreement;

/// The files of a run of `filter`.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Its inputs, in the order and by the names that it was given.
    pub pages: Vec<String>,
    /// What it wrote with `-o`.
    pub survivors: PathBuf,
    /// What it wrote with `--duplicates`.
    pub duplicates: PathBuf,
    /// What it wrote with `--rejected`; without it the lines that cannot be decoded are taken for rejected.
    pub rejected: Option<PathBuf>,
    /// What `generate` wrote with `--truth`, of the first input.
    pub truth: Option<PathBuf>,
}

/// The settings of that run, as far as they bear on what it should have done.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How records are decoded.
    pub input: Input,
    /// Words in a shingle, shingles of a short page; the rest only for what is to be expected.
    pub shape: Shape,
    /// Verified resemblance from which a page was dropped.
    pub threshold: f64,
    /// Length of the window: an older survivor need not have been found.
    pub max_age: Option<Duration>,
}

impl Settings {
    /// The settings of a configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            input: config.input.clone(),
            shape: Shape::new(&config.sketch),
            threshold: config.policy.threshold,
            max_age: config.window.max_age,
        }
    }
}

/// A share as a fraction, so that it is clear of how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Those that have the property.
    pub part: u64,
    /// Those that were asked.
    pub whole: u64,
}

impl Share {
    /// Counts one.
    pub fn count(&mut self, has: bool) {
        self.part += u64::from(has);
        self.whole += 1;
    }

    /// The share, in [0, 1]; 1 of none, since none is missing.
    pub fn value(self) -> f64 {
        if self.whole == 0 { 1.0 } else { self.part as f64 / self.whole as f64 }
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Share", 3)?;
        object.serialize_field("part", &self.part)?;
        object.serialize_field("whole", &self.whole)?;
        object.serialize_field("share", &(self.whole > 0).then(|| self.value()))?;
        object.end()
    }
}

/// All that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Evaluation {
    /// Who went where, and every breach of what `filter` promises.
    pub contract: Contract,
    /// The threshold of the run.
    pub threshold: f64,
    /// Over all pages with enough shingles.
    pub overall: Measures,
    /// The same by length of the page.
    pub by_length: Vec<(&'static str, Measures)>,
    /// Share dropped by the highest resemblance with an earlier survivor: the S-curve as it was.
    pub curve: Vec<CurvePoint>,
    /// Drops whose exact resemblance is below 0.75, lowest first.
    pub wrong_drops: Vec<Pair>,
    /// Survivors with an earlier survivor of 0.85 or more, highest first.
    pub missed: Vec<Pair>,
    /// Every near-duplicate, in the order of the input.
    #[serde(skip)]
    pub near_duplicates: Vec<Pair>,
    /// How the run agrees with the truth of a generated crawl.
    pub truth: Option<Agreement>,
}

/// Reads the files of a run and measures it.
pub fn evaluate(files: &Files, settings: &Settings) -> Result<Evaluation> {
    let Run { pages, drops, sets, contract } = run::read(files, settings)?;
    let corpus = Corpus::new(sets);
    let measured = measure::measure(&pages, &drops, &corpus, settings);
    let truth = files.truth.as_deref().map(|path| truth::compare(path, &pages, &drops)).transpose()?;
    Ok(Evaluation {
        contract,
        threshold: settings.threshold,
        overall: measured.overall,
        by_length: measured.by_length,
        curve: measured.curve,
        wrong_drops: measured.wrong_drops,
        missed: measured.missed,
        near_duplicates: measured.near_duplicates,
        truth,
    })
}
