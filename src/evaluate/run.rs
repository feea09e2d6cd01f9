//! The files of a run → which page went where, and whether that is what `filter` promises:
//!
//! - Every page is in exactly one of survivors, duplicates and rejected, and nothing else is in them.
//! - Survivors are their input lines byte for byte, in order.
//! - The canonical of a duplicate is a survivor that came earlier.
//! - Pages dropped for the same text have the same text.
//!
//! The contract is held here, page by page; a breach is counted and the first few are told.

use super::exact::{self, Gathered};
use super::{Files, Settings};
use crate::page::decode::Decoder;
use crate::page::{Decoded, EventTime, url_key};
use crate::transport::files::open_input;
use crate::verdict::Verdict;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Breaches told in words; the rest is counted.
const MAX_TOLD: usize = 20;

/// Where a page went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// To the survivors.
    Survived,
    /// To the duplicates: the number of its [`Duplicate`].
    Dropped(usize),
    /// To the rejected lines.
    Rejected,
}

/// A page of the input.
#[derive(Debug, Clone)]
pub struct PageFacts {
    /// `input:line`.
    pub position: String,
    /// Its line in its input, from 1.
    pub line: u64,
    /// Where it went.
    pub fate: Fate,
    /// Has it words to be judged by? Others survive and are never canonical.
    pub judged: bool,
    /// Its address, as given.
    pub url: Option<String>,
    /// Hash of its normalised address.
    pub url_key: Option<u64>,
    /// Event time in milliseconds since 1970.
    pub event_time_ms: Option<i64>,
    /// Words.
    pub num_words: usize,
    /// Hash of the text with white space collapsed.
    text_hash: u64,
    /// Hash of its words in order.
    words_hash: u64,
    /// Distinct shingles.
    pub num_shingles: usize,
}

/// A line of the duplicates.
#[derive(Debug, Clone)]
pub struct Duplicate {
    /// Number of the page, if that is of the input.
    pub page: Option<usize>,
    /// Number of its canonical, if that is a page of the input.
    pub canonical: Option<usize>,
    /// Why.
    pub verdict: Verdict,
    /// The estimate.
    pub resemblance: Option<f64>,
}

/// Who went where, and what was broken.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Contract {
    /// Lines of the input that are not blank.
    pub pages: u64,
    /// Lines among the survivors.
    pub survivors: u64,
    /// Duplicates by verdict.
    pub exact_duplicates: u64,
    /// Duplicates by verdict.
    pub near_duplicates: u64,
    /// Duplicates by verdict.
    pub unchanged: u64,
    /// Rejected lines.
    pub rejected: u64,
    /// Breaches.
    pub num_breaches: u64,
    /// The first of them, in words.
    pub breaches: Vec<String>,
}

impl Contract {
    fn breach(&mut self, told: impl FnOnce() -> String) {
        self.num_breaches += 1;
        if self.breaches.len() < MAX_TOLD {
            self.breaches.push(told());
        }
    }
}

/// A run, read.
#[derive(Debug)]
pub struct Run {
    /// All pages in the order of the input.
    pub pages: Vec<PageFacts>,
    /// All drops in the order of their file.
    pub drops: Vec<Duplicate>,
    /// The shingle sets of all pages; empty where a page is not judged.
    pub sets: Gathered,
    /// Was the contract kept?
    pub contract: Contract,
}

/// The place of a page: number of the input and line.
type Position = (usize, u64);

/// Reads and checks a run.
pub fn read(files: &Files, settings: &Settings) -> Result<Run> {
    let inputs = Inputs(&files.pages);
    let mut contract = Contract::default();
    let duplicates = read_duplicates(&files.duplicates, &inputs, &mut contract)?;
    let rejected = files.rejected.as_deref().map(|path| read_rejected(path, &inputs, &mut contract)).transpose()?;
    let by_position: HashMap<Position, usize> =
        duplicates.iter().enumerate().map(|(number, line)| (line.position, number)).collect();

    let mut survivors = Lines::open(&files.survivors.display().to_string())?;
    let mut survivor = survivors.next()?.map(|(number, line)| (number, line.to_vec()));
    let mut num_missing = 0;
    let mut reader = PageReader::new(settings);
    let (mut pages, mut numbers) = (Vec::<PageFacts>::new(), HashMap::new());
    for (input, name) in files.pages.iter().enumerate() {
        let mut lines = Lines::open(name)?;
        while let Some((number, line)) = lines.next()? {
            let position = (input, number);
            let mut page = reader.read(line, format!("{name}:{number}"), number);
            let given = rejected.as_ref().map(|rejected| rejected.contains(&position));
            let undecodable = page.fate == Fate::Rejected;
            if given.is_some_and(|given| undecodable && !given) {
                contract.breach(|| format!("{} cannot be decoded and is not among the rejected lines", page.position));
            }
            let is_rejected = given.unwrap_or(undecodable);
            page.fate = match by_position.get(&position) {
                Some(_) if is_rejected => {
                    contract.breach(|| format!("{} is both among the duplicates and rejected", page.position));
                    Fate::Rejected
                }
                Some(number) => Fate::Dropped(*number),
                None if is_rejected => Fate::Rejected,
                None => Fate::Survived,
            };
            if page.fate == Fate::Survived {
                if survivor.as_ref().is_some_and(|(_, survivor)| survivor == line) {
                    survivor = survivors.next()?.map(|(number, line)| (number, line.to_vec()));
                    contract.survivors += 1;
                } else {
                    num_missing += 1;
                    contract.breach(|| match &survivor {
                        Some((at, _)) => {
                            format!("{} went nowhere: line {at} of the survivors is not it", page.position)
                        }
                        None => format!("{} went nowhere: the survivors end before it", page.position),
                    });
                }
            }
            contract.rejected += u64::from(page.fate == Fate::Rejected);
            numbers.insert(position, pages.len());
            pages.push(page);
        }
    }
    contract.pages = pages.len() as u64;
    while let Some((number, _)) = survivor {
        contract.survivors += 1;
        contract.breach(|| format!("line {number} of the survivors is not the input line that is due there"));
        survivor = survivors.next()?.map(|(number, line)| (number, line.to_vec()));
    }
    if let Some(rejected) = &rejected {
        for position in rejected.iter().filter(|position| !numbers.contains_key(*position)) {
            contract.breach(|| format!("rejected {} is not a page of the input", inputs.name(*position)));
        }
    }
    let drops = drops(&duplicates, &numbers, &pages, settings, &inputs, &mut contract);
    let dropped = contract.exact_duplicates + contract.near_duplicates + contract.unchanged;
    let given_rejected = rejected.map_or(contract.rejected, |rejected| rejected.len() as u64);
    if num_missing == 0 && contract.pages != contract.survivors + dropped + given_rejected {
        let Contract { pages, survivors, .. } = contract;
        contract.breach(|| {
            format!("{pages} pages are not {survivors} survivors + {dropped} duplicates + {given_rejected} rejected")
        });
    }
    Ok(Run { pages, drops, sets: reader.sets, contract })
}

/// Checks every duplicate and finds its canonical; they keep their order, by which fates name them.
fn drops(
    lines: &[Claim],
    numbers: &HashMap<Position, usize>,
    pages: &[PageFacts],
    settings: &Settings,
    inputs: &Inputs,
    contract: &mut Contract,
) -> Vec<Duplicate> {
    let mut drops = Vec::with_capacity(lines.len());
    for line in lines {
        let page = numbers.get(&line.position).copied();
        let canonical = line.canonical.and_then(|position| numbers.get(&position).copied());
        let name = || inputs.name(line.position);
        match line.verdict {
            Verdict::ExactDuplicate => contract.exact_duplicates += 1,
            Verdict::NearDuplicate => contract.near_duplicates += 1,
            _ => contract.unchanged += 1,
        }
        match (page, canonical) {
            (None, _) => contract.breach(|| format!("duplicate {} is not a page of the input", name())),
            (_, None) => contract.breach(|| format!("duplicate {} names no canonical of the input", name())),
            (Some(page), Some(canonical)) => {
                let (page, canonical_page) = (&pages[page], &pages[canonical]);
                if canonical >= numbers[&line.position] {
                    contract.breach(|| format!("{}: canonical {} came later", name(), canonical_page.position));
                }
                if canonical_page.fate != Fate::Survived || !canonical_page.judged {
                    contract.breach(|| format!("{}: canonical {} is no survivor", name(), canonical_page.position));
                }
                if line.verdict != Verdict::NearDuplicate && !page.has_words_of(canonical_page, settings) {
                    contract.breach(|| format!("{}: {} has other words", name(), canonical_page.position));
                }
                if line.verdict == Verdict::NearDuplicate
                    && line.resemblance.is_none_or(|resemblance| resemblance + 1e-4 < settings.threshold)
                {
                    contract.breach(|| format!("{}: a resemblance below the threshold", name()));
                }
            }
        }
        let Claim { verdict, resemblance, .. } = *line;
        drops.push(Duplicate { page, canonical, verdict, resemblance });
    }
    drops
}

impl PageFacts {
    /// Is it the same text as `filter` sees it: the same words, or for a short page the same but for white space?
    fn has_words_of(&self, other: &Self, settings: &Settings) -> bool {
        if self.num_shingles < settings.shape.min_shingles {
            self.text_hash == other.text_hash
        } else {
            self.words_hash == other.words_hash
        }
    }
}

/// Lines → facts and shingles.
struct PageReader<'s> {
    settings: &'s Settings,
    decoder: Decoder,
    sets: Gathered,
}

impl<'s> PageReader<'s> {
    fn new(settings: &'s Settings) -> Self {
        Self { settings, decoder: Decoder::new(&settings.input), sets: Gathered::default() }
    }

    fn read(&mut self, line: &[u8], position: String, number: u64) -> PageFacts {
        let mut facts = PageFacts {
            position,
            line: number,
            fate: Fate::Survived,
            judged: false,
            url: None,
            url_key: None,
            event_time_ms: None,
            num_words: 0,
            text_hash: 0,
            words_hash: 0,
            num_shingles: 0,
        };
        let mut set = Vec::new();
        let mut scratch = String::new();
        match self.decoder.decode(line, &mut scratch) {
            Decoded::Page(page) => {
                let text = exact::Shingled::of(page.text, self.settings.shape.shingle_words);
                facts.judged = text.num_words > 0;
                facts.num_words = text.num_words;
                facts.words_hash = text.words_hash;
                facts.text_hash = collapsed_hash(page.text);
                facts.num_shingles = text.set.len();
                facts.url = page.url.map(|url| url.into_owned());
                facts.url_key =
                    facts.url.as_deref().map(|url| SipHasher13::new().hash(url_key::normalise(url).0.as_bytes()));
                facts.event_time_ms = match page.event_time {
                    EventTime::At(millis) => Some(millis),
                    EventTime::Absent | EventTime::Unreadable => None,
                };
                set = text.set;
            }
            Decoded::Skipped { names, .. } => facts.url = names.url.map(|url| url.into_owned()),
            Decoded::Rejected(_) => facts.fate = Fate::Rejected,
        }
        self.sets.push(&set);
        facts
    }
}

/// The text with white space and NULs collapsed, as the digest of short pages sees it.
fn collapsed_hash(text: &str) -> u64 {
    let parts = text.split(|c: char| c.is_whitespace() || c == '\0').filter(|part| !part.is_empty());
    SipHasher13::new().hash(parts.collect::<Vec<_>>().join(" ").as_bytes())
}

/// The names of the inputs.
struct Inputs<'n>(&'n [String]);

impl Inputs<'_> {
    /// The place that `input:line` names. An input may be spelled otherwise than it was for `filter`, as long
    /// as its last part tells it from the others.
    fn position(&self, text: &str) -> Result<Position> {
        let parsed = text.rsplit_once(':').and_then(|(name, line)| Some((name, line.parse::<u64>().ok()?)));
        let Some((name, line)) = parsed else { bail!("{text:?} is not a position input:line") };
        let last = |name: &str| Path::new(name).file_name().map(|name| name.to_owned());
        let mut alike = self.0.iter().enumerate().filter(|(_, known)| last(known) == last(name)).map(|(at, _)| at);
        let input = match self.0.iter().position(|known| known == name) {
            Some(input) => Some(input),
            None if self.0.len() == 1 => Some(0),
            None => alike.next().filter(|_| alike.next().is_none()),
        };
        match input {
            Some(input) => Ok((input, line)),
            None => bail!("{name:?} is not one of the inputs given with --pages"),
        }
    }

    fn name(&self, (input, line): Position) -> String {
        format!("{}:{line}", self.0[input])
    }
}

/// A line of `--duplicates`, its positions understood.
struct Claim {
    position: Position,
    verdict: Verdict,
    canonical: Option<Position>,
    resemblance: Option<f64>,
}

#[derive(Deserialize)]
struct DuplicateLine {
    position: String,
    verdict: String,
    canonical: Option<CanonicalLine>,
    resemblance: Option<f64>,
}

#[derive(Deserialize)]
struct CanonicalLine {
    position: String,
}

fn read_duplicates(path: &Path, inputs: &Inputs, contract: &mut Contract) -> Result<Vec<Claim>> {
    let name = path.display().to_string();
    let mut lines = Lines::open(&name)?;
    let (mut duplicates, mut seen) = (Vec::new(), HashSet::new());
    while let Some((number, line)) = lines.next()? {
        let parsed = serde_json::from_slice::<DuplicateLine>(line).map_err(anyhow::Error::from).and_then(|line| {
            let verdict = Verdict::ALL.into_iter().find(|verdict| verdict.name() == line.verdict);
            let Some(verdict) = verdict.filter(|verdict| verdict.is_duplicate()) else {
                bail!("{:?} is no verdict of a duplicate", line.verdict);
            };
            Ok(Claim {
                position: inputs.position(&line.position)?,
                verdict,
                canonical: line.canonical.map(|canonical| inputs.position(&canonical.position)).transpose()?,
                resemblance: line.resemblance,
            })
        });
        let duplicate = parsed.with_context(|| format!("line {number} of {name}"))?;
        if !seen.insert(duplicate.position) {
            contract.breach(|| format!("{} is among the duplicates twice", inputs.name(duplicate.position)));
        }
        duplicates.push(duplicate);
    }
    Ok(duplicates)
}

fn read_rejected(path: &Path, inputs: &Inputs, contract: &mut Contract) -> Result<HashSet<Position>> {
    #[derive(Deserialize)]
    struct Line {
        position: String,
    }
    let name = path.display().to_string();
    let mut lines = Lines::open(&name)?;
    let mut rejected = HashSet::new();
    while let Some((number, line)) = lines.next()? {
        let parsed = serde_json::from_slice::<Line>(line).map_err(anyhow::Error::from);
        let position = parsed.and_then(|line| inputs.position(&line.position));
        let position = position.with_context(|| format!("line {number} of {name}"))?;
        if !rejected.insert(position) {
            contract.breach(|| format!("{} is rejected twice", inputs.name(position)));
        }
    }
    Ok(rejected)
}

/// The lines of a file that are not blank, as `filter` counts them.
pub(super) struct Lines {
    name: String,
    reader: BufReader<Box<dyn std::io::Read + Send>>,
    line: Vec<u8>,
    /// Number of the line read last, from 1; blank ones count.
    number: u64,
}

impl Lines {
    pub(super) fn open(name: &str) -> Result<Self> {
        let reader = BufReader::with_capacity(1 << 18, open_input(name, Default::default())?);
        Ok(Self { name: name.to_owned(), reader, line: Vec::new(), number: 0 })
    }

    /// The next line with its number, without its newline.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        loop {
            self.line.clear();
            let read = self.reader.read_until(b'\n', &mut self.line);
            if read.with_context(|| format!("cannot read {} after line {}", self.name, self.number))? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
            }
            if !self.line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some((self.number, &self.line)));
            }
        }
    }
}
