//! What outlives the process: the state topic's records, and the rebuilding of the window from them.
//!
//! Recovery never judges again. Judging the input a second time, in another interleaving of its
//! partitions, could remember pages that were never emitted and drop last copies against them. Instead each
//! transaction carries one record for every page that it remembered ([`record`]), and a restart replays
//! those, from a [`snapshot`] on disk as far as there is one and from the topic behind it.

pub mod record;
pub mod segment;
pub mod snapshot;

use crate::config::{Config, Key};
use crate::page::TEXT_VERSION;
use siphasher::sip::SipHasher13;

/// Names everything that makes two sketches comparable: text version, fields, shape and key. State of another
/// id is never mixed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SketchId(pub u32);

impl SketchId {
    /// The id of sketches made by this configuration under this key.
    pub fn new(config: &Config, key: &Key) -> Self {
        let (sketch, fields) = (&config.sketch, &config.input.fields);
        let text = format!(
            "text {TEXT_VERSION} fields {:?} {:?} {:?} shingle {} bytes {} bands {} rows {} min {} key {}",
            fields.url,
            fields.text,
            fields.html,
            sketch.shingle_words,
            sketch.bytes,
            sketch.bands,
            sketch.rows,
            sketch.min_shingles,
            key.id(),
        );
        Self((SipHasher13::new().hash(text.as_bytes()) >> 32) as u32)
    }

    /// What the id is of, for people; the names of fields left out.
    pub fn describe(config: &Config, key: &Key) -> String {
        let sketch = &config.sketch;
        format!(
            "text {TEXT_VERSION}, shingles of {} words, {} bytes, {} bands of {}, key {}",
            sketch.shingle_words,
            sketch.bytes,
            sketch.bands,
            sketch.rows,
            key.id(),
        )
    }
}

impl std::fmt::Display for SketchId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}
