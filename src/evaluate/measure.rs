//! Recall, precision and the error of the estimate, over all pages and by length.

use super::exact::{Corpus, ExactIndex};
use super::run::{Duplicate, Fate, PageFacts};
use super::scurve::drop_probability;
use super::{Settings, Share};
use crate::verdict::Verdict;
use serde::Serialize;
use std::collections::HashMap;

/// Resemblance from which a page surely has to be dropped at a threshold of 0.8: about two standard errors of an
/// estimate from 64 bytes above it.
pub const SURELY_NEAR: f64 = 0.85;

/// Resemblance below which a page surely must not be dropped: two standard errors on the other side.
pub const SURELY_APART: f64 = 0.75;

/// Resemblance that a pair should reach to be dropped, if nothing were estimated.
pub const NEAR: f64 = 0.8;

/// Error of the estimate that is still good: more than four standard errors at 0.8.
pub const GOOD_ERROR: f64 = 0.06;

/// Survivors of at least this resemblance are looked for: none below bears on a measure.
const FLOOR: f64 = 0.7;

/// Pages by their number of words: names and upper ends.
const LENGTHS: [(&str, usize); 4] =
    [("to 60 words", 60), ("61 to 200", 200), ("201 to 1,000", 1_000), ("over 1,000", usize::MAX)];

/// Ranges of the curve from [`FLOOR`] to 1, and their width.
const CURVE_POINTS: usize = 12;
const CURVE_STEP: f64 = (1.0 - FLOOR) / CURVE_POINTS as f64;

/// Keeps a resemblance on the edge of a range from falling below it.
const ROUNDING: f64 = 1e-9;

/// Pairs kept to be looked at; the measures count them all.
const MAX_PAIRS: usize = 1_000;

/// Pages whose most alike earlier survivor has a resemblance in a range: the S-curve as it was.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CurvePoint {
    /// Lower end of the range; the upper one is that of the next, or 1 included.
    pub from: f64,
    /// Pages.
    pub pages: u64,
    /// Those of them that were dropped, for whatever page.
    pub dropped: u64,
    /// Those that should have been by [`drop_probability`], if each had that one relative only.
    pub predicted: f64,
}

/// What is measured of a set of pages.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measures {
    /// Pages that can be measured: judged, with enough shingles.
    pub pages: u64,
    /// Those of them that were dropped.
    pub drops: u64,
    /// Of the pages with an earlier survivor of 0.85 or more: dropped.
    pub recall_085: Share,
    /// Of the pages with an earlier survivor of 0.8 or more: dropped.
    pub recall_080: Share,
    /// Of the drops: 0.75 or more with their canonical.
    pub precision_075: Share,
    /// Of the drops: the threshold or more with their canonical.
    pub precision_threshold: Share,
    /// Of the near-duplicates: 0.75 or more with their canonical.
    pub near_precision_075: Share,
    /// Of the near-duplicates: the threshold or more with their canonical.
    pub near_precision_threshold: Share,
    /// Of the drops: estimate within 0.06 of the exact resemblance.
    pub within_006: Share,
    /// Of the near-duplicates: estimate within 0.06 of the exact resemblance.
    pub near_within_006: Share,
    /// Mean of estimate − exact over the near-duplicates.
    pub bias: f64,
    /// Root of the mean square of estimate − exact over the near-duplicates.
    pub rmse: f64,
}

impl Measures {
    /// Counts a pair; until [`Measures::finish`] `bias` and `rmse` are sums.
    fn count_drop(&mut self, pair: &Pair, threshold: f64) {
        self.drops += 1;
        let is_near = pair.verdict == Some(Verdict::NearDuplicate.name());
        self.precision_075.count(pair.exact >= SURELY_APART);
        self.precision_threshold.count(pair.exact >= threshold);
        if is_near {
            self.near_precision_075.count(pair.exact >= SURELY_APART);
            self.near_precision_threshold.count(pair.exact >= threshold);
        }
        if let Some(error) = pair.resemblance.map(|estimate| estimate - pair.exact) {
            self.within_006.count(error.abs() <= GOOD_ERROR);
            if is_near {
                self.near_within_006.count(error.abs() <= GOOD_ERROR);
                self.bias += error;
                self.rmse += error * error;
            }
        }
    }

    fn finish(&mut self) {
        let number = self.near_within_006.whole.max(1) as f64;
        self.bias /= number;
        self.rmse = (self.rmse / number).sqrt();
    }
}

/// A page and the survivor it is held against.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// The page.
    pub position: String,
    /// Its address.
    pub url: Option<String>,
    /// Words of the page.
    pub num_words: usize,
    /// The survivor: the canonical of a drop, for a missed page the most alike.
    pub survivor: String,
    /// Its address.
    pub survivor_url: Option<String>,
    /// Why it was dropped, if it was.
    pub verdict: Option<&'static str>,
    /// Estimated resemblance, if it was dropped.
    pub resemblance: Option<f64>,
    /// Exact resemblance.
    pub exact: f64,
    /// Highest exact resemblance with an earlier survivor of another URL; 0 if below 0.7.
    pub best: f64,
    /// Earlier survivors of another URL with 0.7 or more: each was a candidate that could be overrated.
    pub num_similar: usize,
}

/// All measures.
#[derive(Debug)]
pub struct Measured {
    /// Over all pages.
    pub overall: Measures,
    /// By length of the page.
    pub by_length: Vec<(&'static str, Measures)>,
    /// Share dropped by the highest resemblance with an earlier survivor.
    pub curve: Vec<CurvePoint>,
    /// Drops of less than 0.75, lowest first.
    pub wrong_drops: Vec<Pair>,
    /// Survivors with an earlier survivor of 0.85 or more, highest first.
    pub missed: Vec<Pair>,
    /// Every near-duplicate.
    pub near_duplicates: Vec<Pair>,
}

/// Measures a run.
pub fn measure(pages: &[PageFacts], drops: &[Duplicate], corpus: &Corpus, settings: &Settings) -> Measured {
    let mut survivors = Survivors::new(pages, corpus, settings);
    let mut by_length = LENGTHS.map(|(name, _)| (name, Measures::default()));
    let mut overall = Measures::default();
    let mut curve = curve();
    let (mut wrong_drops, mut missed, mut near_duplicates) = (Vec::new(), Vec::new(), Vec::new());
    for (number, page) in pages.iter().enumerate() {
        if !page.judged {
            continue;
        }
        if page.num_shingles >= settings.shape.min_shingles {
            let length = LENGTHS.iter().position(|(_, most)| page.num_words <= *most).expect("the last has no end");
            let similar = survivors.similar_to(number);
            let pair = match page.fate {
                Fate::Dropped(drop) => drops[drop].canonical.map(|canonical| (canonical, Some(&drops[drop]))),
                _ => similar.best.map(|(best, _)| (best, None)),
            };
            // A revisit that is like its own earlier version is `updated`: it has not been missed.
            let dropped = matches!(page.fate, Fate::Dropped(_));
            let best = similar.best.map(|(_, exact)| exact).filter(|_| dropped || !similar.own);
            if let Some(best) = best {
                let point = &mut curve[((best - FLOOR) / CURVE_STEP + ROUNDING) as usize];
                point.pages += 1;
                point.dropped += u64::from(dropped);
                point.predicted += drop_probability(best, &settings.shape, settings.threshold);
            }
            let pair = pair.map(|(other, drop)| Pair {
                position: page.position.clone(),
                url: page.url.clone(),
                num_words: page.num_words,
                survivor: pages[other].position.clone(),
                survivor_url: pages[other].url.clone(),
                verdict: drop.map(|drop| drop.verdict.name()),
                resemblance: drop.and_then(|drop| drop.resemblance),
                exact: corpus.resemblance(number, other),
                best: similar.best.map_or(0.0, |(_, exact)| exact),
                num_similar: similar.number,
            });
            for measures in [&mut overall, &mut by_length[length].1] {
                measures.pages += 1;
                if let Some(best) = best {
                    if best >= NEAR {
                        measures.recall_080.count(dropped);
                    }
                    if best >= SURELY_NEAR {
                        measures.recall_085.count(dropped);
                    }
                }
                if let Some(pair) = pair.as_ref().filter(|_| dropped) {
                    measures.count_drop(pair, settings.threshold);
                }
            }
            if let Some(pair) = pair {
                match page.fate {
                    Fate::Dropped(_) => {
                        if pair.exact < SURELY_APART {
                            wrong_drops.push(pair.clone());
                        }
                        if pair.verdict == Some(Verdict::NearDuplicate.name()) {
                            near_duplicates.push(pair);
                        }
                    }
                    _ if pair.best >= SURELY_NEAR && !similar.own => missed.push(pair),
                    _ => {}
                }
            }
        }
        if page.fate == Fate::Survived {
            survivors.add(number);
        }
    }
    overall.finish();
    by_length.iter_mut().for_each(|(_, measures)| measures.finish());
    wrong_drops.sort_by(|a, b| a.exact.total_cmp(&b.exact));
    missed.sort_by(|a, b| b.exact.total_cmp(&a.exact));
    wrong_drops.truncate(MAX_PAIRS);
    missed.truncate(MAX_PAIRS);
    Measured { curve, overall, by_length: by_length.into(), wrong_drops, missed, near_duplicates }
}

/// The ranges of the curve; the last holds only pairs of resemblance 1.
fn curve() -> Vec<CurvePoint> {
    let from = |point: usize| ((FLOOR + point as f64 * CURVE_STEP) * 1e3).round() / 1e3;
    (0..=CURVE_POINTS).map(|point| CurvePoint { from: from(point), ..CurvePoint::default() }).collect()
}

/// The survivors so far, as far as a filter has to remember them: not those that a newer version of the same URL
/// has replaced, nor those that are older than the page at hand by more than the window.
struct Survivors<'a> {
    pages: &'a [PageFacts],
    index: ExactIndex<'a>,
    settings: &'a Settings,
    max_age_ms: Option<i64>,
    newest: HashMap<u64, usize>,
    replaced: Vec<bool>,
    found: Vec<(usize, f64)>,
}

/// The survivors that resemble a page.
struct Similar {
    /// The most alike of another URL, with its exact resemblance.
    best: Option<(usize, f64)>,
    /// Number of those of another URL.
    number: usize,
    /// Is there one of the same URL?
    own: bool,
}

impl<'a> Survivors<'a> {
    fn new(pages: &'a [PageFacts], corpus: &'a Corpus, settings: &'a Settings) -> Self {
        Self {
            pages,
            index: ExactIndex::new(corpus, FLOOR),
            settings,
            max_age_ms: settings.max_age.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)),
            newest: HashMap::new(),
            replaced: vec![false; pages.len()],
            found: Vec::new(),
        }
    }

    fn similar_to(&mut self, number: usize) -> Similar {
        let page = &self.pages[number];
        self.found.clear();
        self.index.find(number, &mut self.found);
        let mut similar = Similar { best: None, number: 0, own: false };
        for &(other, exact) in &self.found {
            let survivor = &self.pages[other];
            let times = page.event_time_ms.zip(survivor.event_time_ms).zip(self.max_age_ms);
            let too_old = times.is_some_and(|((now, then), max_age)| then < now.saturating_sub(max_age));
            if self.replaced[other] || too_old {
                continue;
            }
            if page.url_key.is_some() && page.url_key == survivor.url_key {
                similar.own = true;
                continue;
            }
            similar.number += 1;
            if similar.best.is_none_or(|(_, highest)| exact > highest) {
                similar.best = Some((other, exact));
            }
        }
        similar
    }

    fn add(&mut self, number: usize) {
        let page = &self.pages[number];
        if let Some(key) = page.url_key {
            let newest = self.newest.entry(key).or_insert(number);
            if *newest != number {
                if page.event_time_ms < self.pages[*newest].event_time_ms {
                    return;
                }
                self.replaced[std::mem::replace(newest, number)] = true;
            }
        }
        if page.num_shingles >= self.settings.shape.min_shingles {
            self.index.insert(number);
        }
    }
}
