//! A small crawl for the tests of `filter`, as lines.

#![allow(dead_code, reason = "each test file uses the part it needs")]

use crate::text::{Random, prose};
use serde_json::json;

/// A crawl of `count` lines: unique pages, exact and near copies, revisits with and without changes, short pages, lines
/// that are skipped or rejected. Copies come within some 500 lines of what they copy.
pub fn crawl(seed: u64, count: usize) -> Vec<String> {
    let mut random = Random(seed);
    let mut pages: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut lines = Vec::new();
    while lines.len() < count {
        let number = lines.len();
        let back = 1 + random.below(500);
        let kind = random.below(100);
        let earlier = pages.len().checked_sub(back);
        let (url, words) = match (kind, earlier) {
            (0..=2, _) => {
                lines.push(json!({"url": number, "text": "gone", "status": 404}).to_string());
                continue;
            }
            (3, _) => {
                lines.push(format!("not json {number}"));
                continue;
            }
            (4, _) => {
                lines.push(json!({"url": number}).to_string());
                continue;
            }
            (5..=14, Some(at)) => (number, pages[at].1.clone()),
            (15..=24, Some(at)) => (number, edited(&mut random, &pages[at].1, 2)),
            (25..=29, Some(at)) => pages[at].clone(),
            (30..=34, Some(at)) => (pages[at].0, edited(&mut random, &pages[at].1, 12)),
            (35..=39, _) => (number, prose(&mut random, 7)),
            _ => (number, prose(&mut random, 30 + number % 40)),
        };
        lines.push(
            json!({"url": format!("http://site{}.example/{url}", url % 7), "text": words.join(" "), "n": number})
                .to_string(),
        );
        pages.push((url, words));
    }
    lines
}

/// The page with some of its last words changed.
pub fn edited(random: &mut Random, words: &[&'static str], most: usize) -> Vec<&'static str> {
    let kept = words.len().saturating_sub(1 + random.below(most));
    let mut edited = words[..kept].to_vec();
    edited.extend(prose(random, words.len() - kept));
    edited
}

/// The lines as a file.
pub fn joined(lines: &[String]) -> Vec<u8> {
    let mut joined = lines.join("\n").into_bytes();
    joined.push(b'\n');
    joined
}

/// The lines of a file, with their ends.
pub fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}
