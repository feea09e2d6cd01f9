//! State records → the window: what was remembered is remembered again, and nothing is judged.

use super::Partitions;
use crate::index::judge::Judge;
use crate::index::names::Named;
use crate::index::{Entry, Evicted, Origin};
use crate::state::SketchId;
use crate::state::record::{Damage, MAX_BIT_WORDS, NamedOrigin, Remembered, StateRecord};
use anyhow::{Context, Result, bail};

/// Partitions that are looked for in a list before they are looked up.
const MOST_MET: usize = 64;

/// Takes in state records, in their order.
pub struct Replay<'a> {
    /// Ids of the records that count.
    sketch: SketchId,
    partitions: &'a Partitions,
    judge: &'a mut Judge,
    /// Partitions met so far: few, and asked for with every record.
    met: Vec<(Box<str>, i32, u16)>,
    /// Records taken in.
    pub records: u64,
    /// Those of other sketches, before the window was begun anew.
    pub foreign: u64,
    /// Those that could not be read.
    pub damaged: u64,
    /// The id of the last record, if it is of other sketches.
    pub last_foreign: Option<SketchId>,
}

impl<'a> Replay<'a> {
    /// Into `judge`, which has an empty window.
    pub fn new(sketch: SketchId, partitions: &'a Partitions, judge: &'a mut Judge) -> Self {
        Self { sketch, partitions, judge, met: Vec::new(), records: 0, foreign: 0, damaged: 0, last_foreign: None }
    }

    /// A record is about to be taken in: its places in the index are on their way.
    pub fn expect(&self, decoded: &Result<(StateRecord, SketchId), Damage>) {
        if let Ok((StateRecord::Remember(page), _)) = decoded {
            self.judge.index().expect_keys(&page.bands, page.digest, page.url_key);
        }
    }

    /// Takes in a record. One that is damaged is counted and logged with its `place`.
    pub fn take(
        &mut self,
        decoded: &Result<(StateRecord, SketchId), Damage>,
        place: impl Fn() -> String,
    ) -> Result<()> {
        self.records += 1;
        self.last_foreign = None;
        match decoded {
            Ok((_, id)) if *id != self.sketch => {
                self.foreign += 1;
                self.last_foreign = Some(*id);
            }
            Ok((record, _)) => self.apply(record).with_context(place)?,
            Err(damage) => {
                self.damaged += 1;
                tracing::error!(place = place(), %damage, "a state record cannot be read");
            }
        }
        Ok(())
    }

    /// What was taken in is final.
    pub fn settle(&mut self) {
        self.judge.seal();
        self.judge.commit();
        self.judge.tally.clear();
    }

    fn apply(&mut self, record: &StateRecord) -> Result<()> {
        if self.judge.room() < 2 {
            self.settle();
        }
        match record {
            StateRecord::Window => self.judge.clear(),
            StateRecord::Forget { origin, url_key } => {
                let origin = self.origin(origin)?;
                self.judge.forget_origin(Some(*url_key), origin, Evicted::Forgotten);
            }
            StateRecord::Remember(page) => self.remember(page)?,
        }
        Ok(())
    }

    /// An origin by number, from one by name.
    fn origin(&mut self, named: &NamedOrigin) -> Result<Origin> {
        let NamedOrigin { topic, partition, offset } = *named;
        let known = self.met.iter().find(|(name, of_it, _)| *of_it == partition && **name == *topic);
        if let Some((.., source)) = known {
            return Ok(Origin { source: *source, offset });
        }
        let source = self.partitions.number(topic, partition).context("too many partitions")?;
        if self.met.len() < MOST_MET {
            self.met.push((topic.into(), partition, source));
        }
        Ok(Origin { source, offset })
    }

    fn remember(&mut self, page: &Remembered) -> Result<()> {
        let shape = self.judge.index().plan();
        let bit_words = shape.bit_words;
        if !page.short && (page.bits.len() != shape.bit_words || page.bands.len() + 2 != shape.keys_per_page) {
            bail!("a state record has another shape than its sketch id says");
        }
        let origin = self.origin(&page.origin)?;
        let replaced = page.replaced.map(|origin| self.origin(&origin)).transpose()?;
        // A short page has no bits, but a place for them.
        let zeroes = [0; MAX_BIT_WORDS];
        let entry = Entry {
            origin,
            updated: page.updated,
            event_time: page.event_time,
            digest: page.digest,
            url_key: page.url_key,
            host_key: page.host_key,
            short: page.short,
            bands: &page.bands,
            bits: if page.short { &zeroes[..bit_words] } else { &page.bits },
            names: Named { id: page.id, url: page.url },
        };
        self.judge.restore(&entry, replaced);
        Ok(())
    }
}
