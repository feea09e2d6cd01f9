//! The pages that copies and revisits are made from: a bounded sample of what was generated, newer pages more likely.

use super::edit::Body;
use super::random::Random;

/// How many pages are kept: 20 MB of text at the default length. As a new page replaces any one of them, a page stays
/// for as many more on average, and few copies come from further back than ten times that.
const MAX_SOURCES: usize = 4_000;

/// A page that may be copied.
pub(super) struct Source {
    pub line: u64,
    pub url: String,
    pub body: Body,
    pub event_time_ms: i64,
}

/// The pages kept.
#[derive(Default)]
pub(super) struct Sources(Vec<Source>);

impl Sources {
    /// Keeps a page, in the place of a random one if all are taken.
    pub fn keep(&mut self, source: Source, random: &mut Random) {
        if self.0.len() < MAX_SOURCES {
            self.0.push(source);
        } else {
            self.0[random.below(MAX_SOURCES)] = source;
        }
    }

    /// Takes a page out, any with the same chance, unless there is none or the one drawn is older than `oldest_ms`.
    /// It is put back with [`put_back`](Self::put_back) unless a copy of it passes the filter: a survivor may
    /// resemble later copies more than their common source does, and the truth about those would be wrong.
    pub fn take(&mut self, oldest_ms: i64, random: &mut Random) -> Option<Source> {
        if self.0.is_empty() {
            return None;
        }
        let source = self.0.swap_remove(random.below(self.0.len()));
        (source.event_time_ms >= oldest_ms).then_some(source)
    }

    /// Puts a page back that was taken.
    pub fn put_back(&mut self, source: Source) {
        self.0.push(source);
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::Style;
    use super::*;

    fn source(line: u64) -> Source {
        let body = Body { site: 0, style: Style::Plain, article: Vec::new() };
        Source { line, url: String::new(), body, event_time_ms: line as i64 }
    }

    #[test]
    fn keeps_no_more_than_its_bound() {
        let (mut sources, mut random) = (Sources::default(), Random::new(1));
        for line in 0..3 * MAX_SOURCES as u64 {
            sources.keep(source(line), &mut random);
            assert_eq!(sources.0.len(), MAX_SOURCES.min(line as usize + 1));
        }
        // 1/e of the second 4,000 are expected to be left, all 4,000 of them if the newest were refused.
        let num_newest = sources.0.iter().filter(|s| s.line >= 2 * MAX_SOURCES as u64).count();
        assert!((2_350..2_700).contains(&num_newest), "{num_newest}");
    }

    #[test]
    fn the_aged_are_forgotten() {
        let (mut sources, mut random) = (Sources::default(), Random::new(1));
        assert!(sources.take(0, &mut random).is_none());
        sources.keep(source(5), &mut random);
        let taken = sources.take(5, &mut random).expect("not too old");
        sources.put_back(taken);
        assert!(sources.take(6, &mut random).is_none());
        assert!(sources.0.is_empty());
    }
}
