//! What goes into the judge and what comes out.

use super::Origin;
use super::names::Named;
use crate::page::{EventTime, SkipRule};
use crate::sketch::BandKey;
use crate::verdict::Verdict;
use std::ops::Range;

/// A page to be judged: what the sketch stage hands over.
#[derive(Debug, Clone, Copy)]
pub struct Sketched<'a> {
    /// Where it came from.
    pub origin: Origin,
    /// When it was fetched.
    pub event_time: EventTime,
    /// Keyed hash of its normalised URL.
    pub url_key: Option<u64>,
    /// Keyed hash of its host.
    pub host_key: Option<u16>,
    /// Digest of its words, or of its text if short.
    pub digest: u64,
    /// Too short for anything but the digest.
    pub short: bool,
    /// May it be remembered?
    pub remember: bool,
    /// Its band keys.
    pub bands: &'a [BandKey],
    /// Its bits: what is kept of it to verify with.
    pub bits: &'a [u64],
    /// Its bits at the neighbouring levels; see [`crate::sketch::odd`].
    pub neighbours: &'a [u64],
    /// Its names.
    pub names: Named<'a>,
}

/// What the judge says.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The rule, if the verdict is `skipped`.
    pub rule: Option<SkipRule>,
    /// The remembered page it was measured against.
    pub canonical: Option<Canonical>,
    /// Estimated resemblance with the canonical; 1 if the words are the same.
    pub resemblance: Option<f32>,
    /// Was it remembered?
    pub remembered: bool,
    /// The page whose place it took.
    pub replaced: Option<Origin>,
    /// Its event time in the window, in seconds, or [`NO_TIME`].
    pub event_time: u32,
}

/// The page that another was measured against.
#[derive(Debug, Clone, PartialEq)]
pub struct Canonical {
    /// Where it came from.
    pub origin: Origin,
    /// Its event time.
    pub event_time: u32,
    /// Its id in the caller's text of names, if it is known.
    pub id: Option<Range<u32>>,
    /// Its URL in the same.
    pub url: Option<Range<u32>>,
}
