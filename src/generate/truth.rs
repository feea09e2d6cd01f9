//! What is known of a generated page: how it came about, from which page, how much it resembles that one, and the
//! verdict a filter should give. The resemblance is exact, counted on the sets of shingles and not estimated.

use super::random::mix;
use serde::{Deserialize, Serialize};

/// A near copy is surely found at a threshold of 0.8 from this resemblance on: the threshold and about two standard
/// errors of an estimate from 64 bytes.
pub(super) const SURELY_NEAR: f64 = 0.85;

/// Below this resemblance a copy surely passes: two standard errors on the other side.
pub(super) const PERHAPS_NEAR: f64 = 0.75;

/// Words to a shingle.
const SHINGLE_WORDS: usize = 5;

/// How a page came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A text never seen before.
    Fresh,
    /// An earlier fresh page under another URL, edited.
    NearCopy,
    /// The words of an earlier fresh page under another URL; case, punctuation and white space may differ.
    ExactCopy,
    /// An earlier fresh page again: same URL (perhaps spelled otherwise), same words.
    RevisitUnchanged,
    /// An earlier fresh page again with other words: a few, or nearly all.
    RevisitUpdated,
    /// A text of fewer than eight shingles, never seen before.
    Short,
    /// An earlier short page under another URL; only white space may differ.
    ShortCopy,
    /// A text never seen before, fetched before the window began.
    Late,
    /// Not to be judged: an error answer, a picture, nothing to read.
    Skipped,
    /// A line that cannot be read as a page.
    Bad,
}

/// What is known of one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The line, from 1.
    pub line: u64,
    /// How the page came about.
    pub kind: Kind,
    /// The line of the page it was made from: always a fresh or a short one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// Jaccard similarity of the sets of 5-word shingles of this page and of `of`. Words are maximal runs of
    /// alphanumeric characters, lower-cased. For a copy of a short page: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resemblance: Option<f64>,
    /// The verdict at a threshold of 0.8, or `either` for a near copy too close to the threshold to say.
    pub expect: String,
    /// The skip rule or reject reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The verdict expected of a page of this kind.
pub(super) fn expected(kind: Kind, resemblance: Option<f64>) -> &'static str {
    match (kind, resemblance) {
        (Kind::NearCopy, Some(r)) if r >= SURELY_NEAR => "near_duplicate",
        (Kind::NearCopy, Some(r)) if r >= PERHAPS_NEAR => "either",
        (Kind::Fresh | Kind::NearCopy | Kind::Short | Kind::Late, _) => "unique",
        (Kind::ExactCopy | Kind::ShortCopy, _) => "exact_duplicate",
        (Kind::RevisitUnchanged, _) => "unchanged",
        (Kind::RevisitUpdated, _) => "updated",
        (Kind::Skipped, _) => "skipped",
        (Kind::Bad, _) => "rejected",
    }
}

/// The exact Jaccard similarity of the shingle sets of two texts; 1 if neither has a shingle.
pub fn resemblance(a: &str, b: &str) -> f64 {
    let (a, b) = (shingles(a), shingles(b));
    let (mut i, mut j, mut num_shared) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        num_shared += usize::from(a[i] == b[j]);
        let (x, y) = (a[i], b[j]);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    let num_all = a.len() + b.len() - num_shared;
    if num_all == 0 { 1.0 } else { num_shared as f64 / num_all as f64 }
}

/// The shingles of a text, each as 64 bits, in rising order and each once. Two of a page's few thousand shingles
/// fall together by chance once in 10¹² pages.
pub(super) fn shingles(text: &str) -> Vec<u64> {
    let mut last_words = [0; SHINGLE_WORDS];
    let mut num_words = 0;
    let mut shingles = Vec::with_capacity(text.len() / 6);
    let mut word = None;
    // A space after the end closes the last word.
    for char in text.chars().chain([' ']) {
        if char.is_ascii_alphanumeric() {
            word = Some(fold(word.unwrap_or(0), char.to_ascii_lowercase()));
        } else if char.is_alphanumeric() {
            word = Some(char.to_lowercase().fold(word.unwrap_or(0), fold));
        } else if let Some(hash) = word.take() {
            last_words.rotate_left(1);
            last_words[SHINGLE_WORDS - 1] = mix(hash);
            num_words += 1;
            if num_words >= SHINGLE_WORDS {
                shingles.push(last_words.iter().fold(0, |hash, word| mix(hash ^ word).wrapping_add(1)));
            }
        }
    }
    shingles.sort_unstable();
    shingles.dedup();
    shingles
}

/// A character added to a word's hash, as in FNV-1a.
fn fold(hash: u64, char: char) -> u64 {
    (hash ^ u64::from(char) ^ 0xcbf2_9ce4_8422_2325).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The definition, word for word.
    fn plain(text: &str) -> HashSet<Vec<String>> {
        let words: Vec<String> = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(|word| word.chars().flat_map(char::to_lowercase).collect())
            .collect();
        words.windows(SHINGLE_WORDS).map(<[String]>::to_vec).collect()
    }

    proptest! {
        #[test]
        fn resemblance_is_the_jaccard_similarity(a in "([abÉж1]{1,2}[ ,.]{1,2}){0,40}", b in "([abéЖ1]{1,2}[ ,.]){0,40}") {
            let (x, y) = (plain(&a), plain(&b));
            let all = x.union(&y).count();
            let jaccard = if all == 0 { 1.0 } else { x.intersection(&y).count() as f64 / all as f64 };
            prop_assert_eq!(shingles(&a).len(), x.len());
            prop_assert_eq!(resemblance(&a, &b), jaccard);
        }
    }

    #[test]
    fn verdicts_at_the_edges() {
        for (resemblance, expected_verdict) in
            [(0.749, "unique"), (0.75, "either"), (0.849, "either"), (0.85, "near_duplicate"), (1.0, "near_duplicate")]
        {
            assert_eq!(expected(Kind::NearCopy, Some(resemblance)), expected_verdict, "{resemblance}");
        }
    }

    #[test]
    fn truth_reads_back() {
        let truth = Truth {
            line: 7,
            kind: Kind::RevisitUnchanged,
            of: Some(3),
            resemblance: None,
            expect: "unchanged".into(),
            reason: None,
        };
        let json = serde_json::to_string(&truth).expect("plain data");
        assert_eq!(json, r#"{"line":7,"kind":"revisit_unchanged","of":3,"expect":"unchanged"}"#);
        assert_eq!(serde_json::from_str::<Truth>(&json).expect("its own output"), truth);
    }
}
