//! Cases of the verdict tests: lines and what must come of each, driven through `pagesieve filter`.

#![allow(dead_code, reason = "each test file uses the part it needs")]

use crate::support::{filter, line_of};
use crate::text::{Random, prose};
use serde_json::{Value, json};

/// What became of every line: `verdict line-of-canonical`, `skipped rule`, `rejected reason`.
pub fn verdicts(lines: &[Vec<u8>], settings: &[(&str, &str)]) -> Vec<String> {
    let run = filter(&lines.join(&b'\n'), settings, &["--tag"]);
    let mut found = vec![String::new(); lines.len()];
    for line in run.files.json_lines("out") {
        let said = &line["pagesieve"];
        let verdict = said["verdict"].as_str().expect("a tagged line has its verdict");
        let detail = match (&said["canonical"], &said["rule"]) {
            (Value::Object(canonical), _) => format!(" {}", line_of(&canonical["position"])),
            (_, Value::String(rule)) => format!(" {rule}"),
            _ => String::new(),
        };
        found[line_of(&said["position"]) - 1] = format!("{verdict}{detail}");
    }
    for line in run.rejected() {
        let reason = line["reason"].as_str().expect("a rejected line has a reason");
        found[line_of(&line["position"]) - 1] = format!("rejected {reason}");
    }
    found
}

/// One case: its name, its settings, and lines with what is expected of each.
pub struct Case {
    name: &'static str,
    settings: Vec<(&'static str, &'static str)>,
    pub lines: Vec<(Vec<u8>, String)>,
}

impl Case {
    pub fn new(name: &'static str) -> Self {
        Self { name, settings: Vec::new(), lines: Vec::new() }
    }

    pub fn with(mut self, key: &'static str, value: &'static str) -> Self {
        self.settings.push((key, value));
        self
    }

    pub fn line(mut self, line: impl Into<Vec<u8>>, expected: &str) -> Self {
        self.lines.push((line.into(), expected.to_owned()));
        self
    }

    pub fn page(self, url: &str, text: &str, expected: &str) -> Self {
        self.line(json!({"url": url, "text": text}).to_string(), expected)
    }

    pub fn page_at(self, url: &str, text: &str, seconds: i64, expected: &str) -> Self {
        self.line(json!({"url": url, "text": text, "fetched_at": seconds}).to_string(), expected)
    }

    /// So many pages of this time that resemble nothing.
    pub fn fillers(mut self, count: usize, seconds: i64) -> Self {
        for _ in 0..count {
            let number = self.lines.len();
            let text = prose(&mut Random(number as u64 + 1_000_000), 20).join(" ");
            self = self.page_at(&format!("filler {number}"), &text, seconds, "unique");
        }
        self
    }

    pub fn check(self) {
        let lines: Vec<Vec<u8>> = self.lines.iter().map(|(line, _)| line.clone()).collect();
        let found = verdicts(&lines, &self.settings);
        for (number, ((_, expected), found)) in self.lines.iter().zip(&found).enumerate() {
            assert_eq!(found, expected, "{}: line {}", self.name, number + 1);
        }
    }
}

/// A text of so many words.
pub fn words(seed: u64, count: usize) -> String {
    prose(&mut Random(seed), count).join(" ")
}
