//! One record of the state topic, in at most 250 bytes with a URL of ordinary length.
//!
//! All numbers are little-endian.
//!
//! ```text
//! version 1 │ kind │ sketch id 4 │ …
//! remember: flags 1 │ event time 4 │ topic │ partition 4 │ offset 8 │ digest 8 │ [URL key 8] │ [host 2]
//!           │ [replaced: topic, partition 4, offset 8] │ [bands: count 1, 4 each; bits: words 1, 8 each]
//!           │ [URL: length 2] │ [id: length 2]
//! forget:   topic │ partition 4 │ offset 8 │ URL key 8
//! window:   (nothing) every record before this one is of no concern
//! topic = length 1, bytes
//! ```

use super::SketchId;
use crate::sketch::BandKey;
use arrayvec::ArrayVec;

const VERSION: u8 = 1;
const REMEMBER: u8 = 1;
const FORGET: u8 = 2;
const WINDOW: u8 = 3;

const UPDATED: u8 = 1;
const SHORT: u8 = 2;
const HAS_URL_KEY: u8 = 4;
const HAS_HOST: u8 = 8;
const HAS_REPLACED: u8 = 16;
const HAS_URL: u8 = 32;
const HAS_ID: u8 = 64;
const ALL_FLAGS: u8 = UPDATED | SHORT | HAS_URL_KEY | HAS_HOST | HAS_REPLACED | HAS_URL | HAS_ID;

/// Most bands that can be set.
pub const MAX_BANDS: usize = 32;

/// Words of the widest row, 256 bytes.
pub const MAX_BIT_WORDS: usize = 32;

/// Names longer than this are left out: a record has to stay small.
const MAX_NAME_BYTES: usize = 4096;

/// Where a page came from, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedOrigin<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: u64,
}

/// A page that was remembered.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered<'a> {
    /// Where it came from.
    pub origin: NamedOrigin<'a>,
    /// Was it judged `updated`?
    pub updated: bool,
    /// Event time in seconds, 0 for none.
    pub event_time: u32,
    /// Digest.
    pub digest: u64,
    /// Keyed hash of its URL.
    pub url_key: Option<u64>,
    /// Keyed hash of its host.
    pub host_key: Option<u16>,
    /// The page of the same URL whose place it took.
    pub replaced: Option<NamedOrigin<'a>>,
    /// Only the digest counts; then `bands` and `bits` are empty.
    pub short: bool,
    /// Band keys.
    pub bands: ArrayVec<BandKey, MAX_BANDS>,
    /// Bits.
    pub bits: ArrayVec<u64, MAX_BIT_WORDS>,
    /// Its address.
    pub url: Option<&'a str>,
    /// The producer's own name for it.
    pub id: Option<&'a str>,
}

/// A record of the state topic.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, and a box would be an allocation each")]
pub enum StateRecord<'a> {
    /// A page was remembered.
    Remember(Remembered<'a>),
    /// A page was forgotten because a tombstone named it.
    Forget {
        /// Where the page came from.
        origin: NamedOrigin<'a>,
        /// Keyed hash of its URL.
        url_key: u64,
    },
    /// A new window begins.
    Window,
}

/// Why bytes are no state record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A later version of the program wrote it.
    #[error("written by another version of the format ({0})")]
    Version(u8),
    /// It is not what this program writes.
    #[error("damaged at byte {0}")]
    At(usize),
}

/// Appends the record's bytes to `out`.
pub fn encode(record: &StateRecord, sketch: SketchId, out: &mut Vec<u8>) {
    let kind = match record {
        StateRecord::Remember(_) => REMEMBER,
        StateRecord::Forget { .. } => FORGET,
        StateRecord::Window => WINDOW,
    };
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&sketch.0.to_le_bytes());
    match record {
        StateRecord::Window => {}
        StateRecord::Forget { origin, url_key } => {
            put_origin(out, origin);
            out.extend_from_slice(&url_key.to_le_bytes());
        }
        StateRecord::Remember(page) => {
            let short_name = |name: &Option<&str>| name.is_some_and(|name| name.len() <= MAX_NAME_BYTES);
            let flags = [
                (page.updated, UPDATED),
                (page.short, SHORT),
                (page.url_key.is_some(), HAS_URL_KEY),
                (page.host_key.is_some(), HAS_HOST),
                (page.replaced.is_some(), HAS_REPLACED),
                (short_name(&page.url), HAS_URL),
                (short_name(&page.id), HAS_ID),
            ];
            out.push(flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum());
            out.extend_from_slice(&page.event_time.to_le_bytes());
            put_origin(out, &page.origin);
            out.extend_from_slice(&page.digest.to_le_bytes());
            page.url_key.into_iter().for_each(|key| out.extend_from_slice(&key.to_le_bytes()));
            page.host_key.into_iter().for_each(|key| out.extend_from_slice(&key.to_le_bytes()));
            page.replaced.iter().for_each(|origin| put_origin(out, origin));
            if !page.short {
                out.push(page.bands.len() as u8);
                page.bands.iter().for_each(|band| out.extend_from_slice(&band.0.to_le_bytes()));
                out.push(page.bits.len() as u8);
                page.bits.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            }
            for name in [page.url, page.id].into_iter().flatten().filter(|name| name.len() <= MAX_NAME_BYTES) {
                out.extend_from_slice(&(name.len() as u16).to_le_bytes());
                out.extend_from_slice(name.as_bytes());
            }
        }
    }
}

fn put_origin(out: &mut Vec<u8>, origin: &NamedOrigin) {
    // Kafka's topic names have at most 249 bytes.
    out.push(origin.topic.len() as u8);
    out.extend_from_slice(origin.topic.as_bytes());
    out.extend_from_slice(&origin.partition.to_le_bytes());
    out.extend_from_slice(&origin.offset.to_le_bytes());
}

/// Reads a record. Any bytes at all give a record or say where they are damaged. There is one way to write a record: what
/// [`encode`] would write otherwise is damaged too.
pub fn decode(bytes: &[u8]) -> Result<(StateRecord<'_>, SketchId), Damage> {
    let mut reader = Reader { bytes, at: 0 };
    let version = reader.u8()?;
    if version != VERSION {
        return Err(Damage::Version(version));
    }
    let kind = reader.u8()?;
    let sketch = SketchId(reader.u32()?);
    let record = match kind {
        WINDOW => StateRecord::Window,
        FORGET => StateRecord::Forget { origin: reader.origin()?, url_key: reader.u64()? },
        REMEMBER => StateRecord::Remember(reader.remembered()?),
        _ => return Err(Damage::At(1)),
    };
    if reader.at != bytes.len() {
        return Err(Damage::At(reader.at));
    }
    Ok((record, sketch))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..length)).ok_or(Damage::At(self.at))?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        Ok(self.take(N)?.try_into().expect("as long as asked for"))
    }

    fn u8(&mut self) -> Result<u8, Damage> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Damage> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of things, of which there are no more than `most`.
    fn count(&mut self, most: usize) -> Result<usize, Damage> {
        let at = self.at;
        let count = usize::from(self.u8()?);
        if count <= most { Ok(count) } else { Err(Damage::At(at)) }
    }

    fn text(&mut self, length: usize) -> Result<&'a str, Damage> {
        let at = self.at;
        std::str::from_utf8(self.take(length)?).map_err(|_| Damage::At(at))
    }

    fn origin(&mut self) -> Result<NamedOrigin<'a>, Damage> {
        let length = usize::from(self.u8()?);
        let topic = self.text(length)?;
        let at = self.at;
        let partition = i32::from_le_bytes(self.array()?);
        let offset = self.u64()?;
        if partition < 0 || offset >> 48 != 0 {
            return Err(Damage::At(at));
        }
        Ok(NamedOrigin { topic, partition, offset })
    }

    fn remembered(&mut self) -> Result<Remembered<'a>, Damage> {
        let at = self.at;
        let flags = self.u8()?;
        if flags & !ALL_FLAGS != 0 {
            return Err(Damage::At(at));
        }
        let has = |flag: u8| flags & flag != 0;
        let event_time = self.u32()?;
        let origin = self.origin()?;
        let digest = self.u64()?;
        let url_key = has(HAS_URL_KEY).then(|| self.u64()).transpose()?;
        let host_key = has(HAS_HOST).then(|| self.u16()).transpose()?;
        let replaced = has(HAS_REPLACED).then(|| self.origin()).transpose()?;
        let (mut bands, mut bits) = (ArrayVec::new(), ArrayVec::new());
        if !has(SHORT) {
            let num_bands = self.count(MAX_BANDS)?;
            let bytes = self.take(num_bands * 4)?;
            bands.extend(bytes.as_chunks().0.iter().map(|four| BandKey(u32::from_le_bytes(*four))));
            let num_words = self.count(MAX_BIT_WORDS)?;
            bits.extend(self.take(num_words * 8)?.as_chunks().0.iter().map(|eight| u64::from_le_bytes(*eight)));
        }
        let mut name = |flag| -> Result<Option<&'a str>, Damage> {
            if !has(flag) {
                return Ok(None);
            }
            let at = self.at;
            let length = usize::from(self.u16()?);
            if length > MAX_NAME_BYTES {
                return Err(Damage::At(at));
            }
            self.text(length).map(Some)
        };
        let (url, id) = (name(HAS_URL)?, name(HAS_ID)?);
        Ok(Remembered {
            origin,
            updated: has(UPDATED),
            event_time,
            digest,
            url_key,
            host_key,
            replaced,
            short: has(SHORT),
            bands,
            bits,
            url,
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page() -> Remembered<'static> {
        Remembered {
            origin: NamedOrigin { topic: "crawl.pages", partition: 3, offset: 123_456_789 },
            updated: true,
            event_time: 1_800_000_000,
            digest: 42,
            url_key: Some(7),
            host_key: Some(9),
            replaced: Some(NamedOrigin { topic: "crawl.pages", partition: 2, offset: 5 }),
            short: false,
            bands: (0..12).map(BandKey).collect(),
            bits: (0..8).collect(),
            url: Some("https://example.com/2026/11/some-article-with-a-usual-slug"),
            id: None,
        }
    }

    #[test]
    fn what_is_written_is_read_and_small() {
        let plain = Remembered { replaced: None, ..page() };
        let short = Remembered {
            short: true,
            bands: ArrayVec::new(),
            bits: ArrayVec::new(),
            id: Some("x"),
            url: None,
            ..page()
        };
        let bare = Remembered { url_key: None, host_key: None, ..short.clone() };
        for (record, most) in [
            (StateRecord::Remember(page()), 280),
            (StateRecord::Remember(plain), 250),
            (StateRecord::Remember(short), 90),
            (StateRecord::Remember(bare), 90),
            (StateRecord::Forget { origin: page().origin, url_key: 1 }, 50),
            (StateRecord::Window, 6),
        ] {
            let mut bytes = Vec::new();
            encode(&record, SketchId(0xABCD), &mut bytes);
            assert!(bytes.len() <= most, "{}", bytes.len());
            assert_eq!(decode(&bytes), Ok((record, SketchId(0xABCD))));
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            bytes.push(0);
            assert!(decode(&bytes).is_err());
        }
        assert_eq!(decode(&[2, 1]), Err(Damage::Version(2)));
    }

    /// They would come out of [`encode`] otherwise than they went in.
    #[test]
    fn what_is_never_written_is_damaged() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        let named = Remembered { id: Some(&longest), ..page() };
        let mut bytes = Vec::new();
        encode(&StateRecord::Remember(named), SketchId(1), &mut bytes);
        assert!(decode(&bytes).is_ok());

        let mut flagged = bytes.clone();
        flagged[6] |= 128;
        assert_eq!(decode(&flagged), Err(Damage::At(6)));

        let at = bytes.len() - MAX_NAME_BYTES - 2;
        bytes[at..at + 2].copy_from_slice(&(MAX_NAME_BYTES as u16 + 1).to_le_bytes());
        bytes.push(b'x');
        assert_eq!(decode(&bytes), Err(Damage::At(at)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_damaged(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
