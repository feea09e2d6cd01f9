//! What is said of a page, and what is done with it.

use crate::config::{Action, PolicySettings};
use crate::page::{Reject, SkipRule};

/// What the judge says of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// Nothing in the window resembles it.
    Unique,
    /// Another URL's remembered page has the same words.
    ExactDuplicate,
    /// Verified resemblance to another URL's remembered page at or above the threshold.
    NearDuplicate,
    /// A revisit with the same words.
    Unchanged,
    /// A revisit with other words that are no copy of another page.
    Updated,
    /// Nothing to judge: forwarded untouched, not remembered.
    Skipped,
    /// Should be judgeable but is not: to the dead letters.
    Rejected,
}

impl Verdict {
    /// Every verdict, in the order of its number.
    pub const ALL: [Self; 7] = [
        Self::Unique,
        Self::ExactDuplicate,
        Self::NearDuplicate,
        Self::Unchanged,
        Self::Updated,
        Self::Skipped,
        Self::Rejected,
    ];

    /// The verdict's name in records, headers, reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::ExactDuplicate => "exact_duplicate",
            Self::NearDuplicate => "near_duplicate",
            Self::Unchanged => "unchanged",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
            Self::Rejected => "rejected",
        }
    }

    /// Is a page with this verdict republished under every policy?
    pub fn survives(self) -> bool {
        matches!(self, Self::Unique | Self::Updated | Self::Skipped)
    }

    /// Does a page with this verdict name a canonical page?
    pub fn is_duplicate(self) -> bool {
        matches!(self, Self::ExactDuplicate | Self::NearDuplicate | Self::Unchanged)
    }
}

/// Why a page was not judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotJudged {
    /// Nothing to judge.
    Skipped(SkipRule),
    /// Not judgeable.
    Rejected(Reject),
}

/// What is done with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Republished as it came.
    Forward,
    /// Republished with the verdict attached.
    Tag,
    /// Not republished.
    Drop,
    /// To the dead letters, with the reason.
    DeadLetter,
}

/// Verdict → disposition.
#[derive(Debug, Clone, Copy)]
pub struct Policy([Disposition; 7]);

impl Policy {
    /// The configured policy. Survivors are never dropped: the settings cannot say so.
    pub fn new(settings: &PolicySettings) -> Self {
        let of = |action| match action {
            Action::Forward => Disposition::Forward,
            Action::Tag => Disposition::Tag,
            Action::Drop => Disposition::Drop,
        };
        Self([
            Disposition::Forward,
            of(settings.exact_duplicate),
            of(settings.near_duplicate),
            of(settings.unchanged),
            of(settings.updated),
            Disposition::Forward,
            Disposition::DeadLetter,
        ])
    }

    /// What is done with a page of this verdict.
    pub fn disposition(&self, verdict: Verdict) -> Disposition {
        self.0[verdict as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn default_actions() {
        let policy = Policy::new(&Config::default().policy);
        let expected = [
            (Verdict::Unique, Disposition::Forward),
            (Verdict::ExactDuplicate, Disposition::Drop),
            (Verdict::NearDuplicate, Disposition::Drop),
            (Verdict::Unchanged, Disposition::Tag),
            (Verdict::Updated, Disposition::Tag),
            (Verdict::Skipped, Disposition::Forward),
            (Verdict::Rejected, Disposition::DeadLetter),
        ];
        for (verdict, disposition) in expected {
            assert_eq!(policy.disposition(verdict), disposition, "{}", verdict.name());
        }
        assert!(Verdict::ALL.iter().enumerate().all(|(number, verdict)| *verdict as usize == number));
    }
}
