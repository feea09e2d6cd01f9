//! The truth of a generated crawl against what happened to its pages.

use super::Share;
use super::run::{Duplicate, Fate, Lines, PageFacts};
use crate::generate::{Kind, Truth};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// What is expected of a near copy too close to the threshold to say.
const EITHER: &str = "either";

/// What happened to a page that went to the survivors: the file does not say by which verdict.
const SURVIVED: &str = "survived";

/// What happened to a page that went to the rejected lines.
const REJECTED: &str = "rejected";

/// How a run agrees with the truth.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Agreement {
    /// By kind and expected verdict.
    pub rows: Vec<Row>,
    /// Of all pages but those that may go either way: what was expected happened.
    pub accuracy: Share,
    /// Of the drops of copies: the canonical is the page that the copy was made from.
    pub canonical: Share,
}

/// The pages of one kind of which the same is expected.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// How they came about.
    pub kind: Kind,
    /// The verdict expected of them.
    pub expect: String,
    /// Pages.
    pub pages: u64,
    /// Of those what was expected of them happened; of pages that may go either way, all.
    pub right: u64,
    /// Pages by what happened to them: a verdict of a duplicate, `survived` or `rejected`.
    pub happened: BTreeMap<&'static str, u64>,
}

/// Compares a run with the truth of its first input.
pub fn compare(path: &Path, pages: &[PageFacts], drops: &[Duplicate]) -> Result<Agreement> {
    let name = path.display().to_string();
    // Lines rise within an input, so the first input ends where they do not.
    let end = pages.windows(2).position(|pair| pair[1].line <= pair[0].line).map_or(pages.len(), |last| last + 1);
    let by_line: HashMap<u64, usize> = pages[..end].iter().enumerate().map(|(at, page)| (page.line, at)).collect();
    let mut rows: BTreeMap<(Kind, String), Row> = BTreeMap::new();
    let mut agreement = Agreement::default();
    let mut lines = Lines::open(&name)?;
    let mut num_pages = 0;
    while let Some((number, line)) = lines.next()? {
        let truth: Truth = serde_json::from_slice(line).with_context(|| format!("line {number} of {name}"))?;
        let Some(&at) = by_line.get(&truth.line) else {
            bail!("{name} speaks of line {}, which the input does not have: is it of another crawl?", truth.line);
        };
        num_pages += 1;
        let happened = match pages[at].fate {
            Fate::Survived => SURVIVED,
            Fate::Rejected => REJECTED,
            Fate::Dropped(drop) => drops[drop].verdict.name(),
        };
        let right = is_right(&truth.expect, happened);
        if truth.expect != EITHER {
            agreement.accuracy.count(right);
        }
        if let (Fate::Dropped(drop), Some(of)) = (pages[at].fate, truth.of) {
            agreement.canonical.count(drops[drop].canonical == by_line.get(&of).copied());
        }
        let Truth { kind, expect, .. } = truth;
        let row = rows.entry((kind, expect.clone())).or_insert_with(|| Row {
            kind,
            expect,
            pages: 0,
            right: 0,
            happened: BTreeMap::new(),
        });
        row.pages += 1;
        row.right += u64::from(right);
        *row.happened.entry(happened).or_default() += 1;
    }
    if num_pages != end {
        bail!("{name} speaks of {num_pages} of the {end} pages of the input: is it of another crawl?");
    }
    agreement.rows = rows.into_values().collect();
    Ok(agreement)
}

/// Did what was expected happen? Whether a survivor was unique, updated or skipped cannot be seen.
fn is_right(expect: &str, happened: &str) -> bool {
    match expect {
        EITHER => happened != REJECTED,
        "unique" | "updated" | "skipped" => happened == SURVIVED,
        expect => expect == happened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right() {
        let table = [
            ("unique", "survived", true),
            ("updated", "survived", true),
            ("skipped", "survived", true),
            ("unique", "near_duplicate", false),
            ("exact_duplicate", "exact_duplicate", true),
            ("exact_duplicate", "near_duplicate", false),
            ("near_duplicate", "survived", false),
            ("rejected", "rejected", true),
            ("rejected", "survived", false),
            ("either", "survived", true),
            ("either", "near_duplicate", true),
            ("either", "rejected", false),
        ];
        for (expect, happened, right) in table {
            assert_eq!(is_right(expect, happened), right, "{expect}, {happened}");
        }
    }
}
