//! A stretch of the state topic in a file.
//!
//! ```text
//! header   1024 bytes: checksum 16 hexadecimal digits │ space │ JSON │ spaces │ newline     `head -n 1` shows it
//! chunk    payload length 4 │ records 4 │ first offset 8 │ next offset 8 │ checksum 8 │ payload
//! payload  (length 4 │ state record)…                                        numbers are little-endian
//! ```
//!
//! A segment is written to a file of another name, synced and renamed, so one that has its name is whole. What happens to
//! it later is found by the checksums (SipHash-1-3): of the header when it is opened, of each chunk when that is read.

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 1024;

/// The format that this program writes, and the only one there has been.
const FORMAT: u32 = 1;

/// A chunk is closed at this size.
const CHUNK_BYTES: usize = 256 << 10;

/// Longest chunk that is read: one record more than is closed at. Kafka's largest message is a gigabyte; no state record
/// has more than some kilobytes.
const MAX_CHUNK_BYTES: usize = 16 << 20;

const CHUNK_HEADER_BYTES: usize = 32;

/// Largest number in a header, as offsets in state records: those of all segments can be added up.
const MAX_NUMBER: u64 = (1 << 48) - 1;

/// Digits of the header's checksum, and the space behind them.
const CHECKSUM_BYTES: usize = 17;

/// What a segment says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format.
    pub pagesieve_segment: u32,
    /// Id of the sketches, as verdict records have it.
    pub sketch: String,
    /// What that id is of, for people; the key by its id.
    pub settings: String,
    /// The state topic.
    pub topic: String,
    /// How often the topic had been made anew, with offsets from zero, when this was written.
    pub era: u32,
    /// First offset that was read for it.
    pub first: u64,
    /// First offset that it does not hold.
    pub next: u64,
    /// Records.
    pub records: u64,
    /// Those of them by which a page is remembered.
    pub remembered: u64,
    /// Records by which a page that was remembered before gives way: it is replaced or forgotten.
    pub ended: u64,
    /// Pages remembered without an event time: they do not age.
    pub untimed: u64,
    /// Latest event time of a page, in seconds; 0 without any.
    pub latest: u32,
    /// Offset of the last record that begins a window: what is before it is of no concern.
    pub window: Option<u64>,
    /// Bytes of the chunks.
    pub chunk_bytes: u64,
}

impl Header {
    /// Of a segment without records.
    pub fn new(sketch: String, settings: &str, topic: &str, era: u32, first: u64) -> Self {
        // The header has room for so many with everything else at its longest.
        let settings = settings.chars().take(120).collect();
        Self {
            pagesieve_segment: FORMAT,
            sketch,
            settings,
            topic: topic.to_owned(),
            era,
            first,
            next: first,
            records: 0,
            remembered: 0,
            ended: 0,
            untimed: 0,
            latest: 0,
            window: None,
            chunk_bytes: 0,
        }
    }

    fn to_bytes(&self) -> io::Result<[u8; HEADER_BYTES]> {
        let json = serde_json::to_string(self)?;
        if CHECKSUM_BYTES + json.len() >= HEADER_BYTES {
            return Err(io::Error::other("the header is too long for its place"));
        }
        let mut bytes = [b' '; HEADER_BYTES];
        bytes[CHECKSUM_BYTES..][..json.len()].copy_from_slice(json.as_bytes());
        bytes[HEADER_BYTES - 1] = b'\n';
        let checksum = format!("{:016x}", checksum(&[&bytes[CHECKSUM_BYTES..]]));
        bytes[..16].copy_from_slice(checksum.as_bytes());
        Ok(bytes)
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Damage> {
        let (digits, json) = bytes.split_at(CHECKSUM_BYTES);
        // A later format may have another header behind the same beginning: it is not damage.
        let version = |text: &[u8]| -> Option<u32> {
            let rest = text.strip_prefix(b"{\"pagesieve_segment\":")?;
            std::str::from_utf8(&rest[..rest.iter().position(|byte| !byte.is_ascii_digit())?]).ok()?.parse().ok()
        };
        match version(json) {
            None => return Err(Damage::NoSegment),
            Some(FORMAT) => {}
            Some(other) => return Err(Damage::Format(other)),
        }
        let found = std::str::from_utf8(&digits[..16]).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        if found != Some(checksum(&[json])) {
            return Err(Damage::At(0));
        }
        let header: Self = serde_json::from_slice(json).map_err(|_| Damage::At(CHECKSUM_BYTES as u64))?;
        let Self { first, next, records, remembered, ended, untimed, chunk_bytes, .. } = header;
        let numbers = [next, records, remembered, ended, untimed, chunk_bytes];
        if first > next || numbers.iter().any(|number| *number > MAX_NUMBER) {
            return Err(Damage::At(CHECKSUM_BYTES as u64));
        }
        Ok(header)
    }
}

/// Why a segment, or the rest of it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It does not begin as one.
    #[error("it is no segment of a snapshot")]
    NoSegment,
    /// A later version of the program wrote it.
    #[error("it has format {0}, this program reads {FORMAT}")]
    Format(u32),
    /// A checksum is wrong, or what it is of makes no sense.
    #[error("it is damaged at byte {0}")]
    At(u64),
    /// It ends too early.
    #[error("it ends at byte {0}, before all it should hold")]
    Truncated(u64),
    /// The system would not read it.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

fn checksum(parts: &[&[u8]]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = SipHasher13::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// Records of a stretch of offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// First offset that was read for it.
    pub first: u64,
    /// First offset that it does not hold.
    pub next: u64,
    num_records: u32,
    payload: Vec<u8>,
}

impl Chunk {
    /// The records, in order.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.payload[..];
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            // In a chunk whose checksum is right there is as much as it says.
            let (record, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(record)
        })
    }

    fn header(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.num_records.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.next.to_le_bytes());
        let checksum = checksum(&[&bytes[..24], &self.payload]);
        bytes[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// Writes a segment.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    header: Header,
    open: Chunk,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins one; until [`Writer::finish`] it has no header.
    pub fn new(mut out: W, header: Header) -> io::Result<Self> {
        out.write_all(&[0; HEADER_BYTES])?;
        let open = Chunk { first: header.next, next: header.next, ..Chunk::default() };
        Ok(Self { out, header, open })
    }

    /// What it will say of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes so far, those of the open chunk included.
    pub fn bytes(&self) -> u64 {
        self.header.chunk_bytes + self.open.payload.len() as u64
    }

    /// All offsets before `next` have been read, the last of them without a record: they were ends of transactions.
    pub fn pass(&mut self, next: u64) {
        self.header.next = self.header.next.max(next);
    }

    /// Appends the record at `offset`. `count` adds what it is to the header.
    pub fn push(&mut self, offset: u64, record: &[u8], count: impl FnOnce(&mut Header)) -> io::Result<()> {
        if self.open.payload.len() + record.len() > CHUNK_BYTES && self.open.num_records > 0 {
            self.close_chunk()?;
        }
        self.open.payload.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.open.payload.extend_from_slice(record);
        self.open.num_records += 1;
        self.open.next = offset + 1;
        self.header.records += 1;
        self.header.next = offset + 1;
        count(&mut self.header);
        Ok(())
    }

    /// Appends a whole chunk of a segment whose header has been taken over.
    pub fn copy(&mut self, chunk: &Chunk) -> io::Result<()> {
        self.out.write_all(&chunk.header())?;
        self.out.write_all(&chunk.payload)?;
        Ok(())
    }

    /// Appends a whole chunk of a segment, of whose header it takes what is said of all its records: it may seem younger,
    /// and to hold other pages, than it does.
    pub fn adopt(&mut self, chunk: &Chunk, of: &Header) -> io::Result<()> {
        self.copy(chunk)?;
        let header = &mut self.header;
        header.chunk_bytes += (CHUNK_HEADER_BYTES + chunk.payload.len()) as u64;
        header.records += u64::from(chunk.num_records);
        header.next = chunk.next;
        (header.untimed, header.latest) = (of.untimed, of.latest);
        // So that nothing before it is thought to be replaced by what it holds.
        (header.remembered, header.ended) = (of.remembered.min(header.records), of.remembered.max(of.ended));
        header.window = of.window.filter(|offset| *offset < chunk.next);
        (self.open.first, self.open.next) = (chunk.next, chunk.next);
        Ok(())
    }

    fn close_chunk(&mut self) -> io::Result<()> {
        if self.open.num_records > 0 {
            self.out.write_all(&self.open.header())?;
            self.out.write_all(&self.open.payload)?;
            self.header.chunk_bytes += (CHUNK_HEADER_BYTES + self.open.payload.len()) as u64;
            (self.open.first, self.open.num_records) = (self.open.next, 0);
            self.open.payload.clear();
        }
        Ok(())
    }

    /// Writes what is left and the header.
    pub fn finish(mut self) -> io::Result<(W, Header)> {
        self.close_chunk()?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&self.header.to_bytes()?)?;
        self.out.flush()?;
        Ok((self.out, self.header))
    }
}

/// Reads a segment, chunk by chunk.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    at: u64,
    /// Bytes of the chunks behind that.
    left: u64,
    next: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(mut input: R) -> Result<Self, Damage> {
        let mut bytes = [0; HEADER_BYTES];
        let got = read_up_to(&mut input, &mut bytes)?;
        if got < HEADER_BYTES {
            return Err(if got < CHECKSUM_BYTES { Damage::NoSegment } else { Damage::Truncated(got as u64) });
        }
        let header = Header::from_bytes(&bytes)?;
        Ok(Self { input, next: header.first, left: header.chunk_bytes, header, at: HEADER_BYTES as u64 })
    }

    /// What it says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The offset behind the last chunk that was read.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Reads the next chunk into `chunk`. False at the end.
    pub fn read(&mut self, chunk: &mut Chunk) -> Result<bool, Damage> {
        if self.left == 0 {
            // The last record may be followed by offsets that no reader sees.
            self.next = self.header.next;
            return Ok(false);
        }
        let mut head = [0; CHUNK_HEADER_BYTES];
        let got = read_up_to(&mut self.input, &mut head)?;
        if got < CHUNK_HEADER_BYTES {
            return Err(Damage::Truncated(self.at + got as u64));
        }
        let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        let eight = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let bytes = (CHUNK_HEADER_BYTES + length) as u64;
        if length > MAX_CHUNK_BYTES || bytes > self.left {
            return Err(Damage::At(self.at));
        }
        chunk.num_records = u32::from_le_bytes(head[4..8].try_into().expect("four bytes"));
        (chunk.first, chunk.next) = (eight(8), eight(16));
        // Memory grows with what is there, not with what a damaged length says.
        chunk.payload.clear();
        let got = (&mut self.input).take(length as u64).read_to_end(&mut chunk.payload)?;
        if got < length {
            return Err(Damage::Truncated(self.at + (CHUNK_HEADER_BYTES + got) as u64));
        }
        let follows = chunk.first >= self.next && chunk.next > chunk.first && chunk.next <= self.header.next;
        if checksum(&[&head[..24], &chunk.payload]) != eight(24) || !follows {
            return Err(Damage::At(self.at));
        }
        self.at += bytes;
        self.left -= bytes;
        self.next = chunk.next;
        Ok(true)
    }
}

/// Fills `bytes` as far as there is something.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match input.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn written(records: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let header = Header::new("0123abcd".into(), "text 2, key 77", "crawl.state", 3, 5);
        let mut writer = Writer::new(Cursor::new(Vec::new()), header).expect("memory can be written");
        for (offset, record) in records {
            writer.push(*offset, record, |header| header.remembered += 1).expect("memory can be written");
        }
        writer.finish().expect("memory can be written").0.into_inner()
    }

    fn read(bytes: &[u8]) -> Result<(Header, Vec<Vec<u8>>), Damage> {
        let mut reader = Reader::new(bytes)?;
        let (mut chunk, mut found) = (Chunk::default(), Vec::new());
        while reader.read(&mut chunk)? {
            found.extend(chunk.records().map(<[u8]>::to_vec));
        }
        Ok((reader.header().clone(), found))
    }

    #[test]
    fn what_is_written_is_read() {
        let records: Vec<_> = (0..5000u64).map(|i| (7 + 2 * i, vec![i as u8; i as usize % 400])).collect();
        let bytes = written(&records);
        let (header, found) = read(&bytes).expect("it is sound");
        assert_eq!(found, records.iter().map(|(_, record)| record.clone()).collect::<Vec<_>>());
        assert_eq!((header.first, header.next, header.records, header.remembered), (5, 7 + 2 * 4999 + 1, 5000, 5000));
        assert_eq!(header.chunk_bytes as usize, bytes.len() - HEADER_BYTES);
        assert!(bytes.len() > 3 * CHUNK_BYTES, "it has several chunks");
        let line = bytes.split(|byte| *byte == b'\n').next().expect("a first line");
        assert!(line.len() == HEADER_BYTES - 1 && line.is_ascii());
        assert_eq!(read(&written(&[])).expect("an empty one is sound").1.len(), 0);
    }

    #[test]
    fn longest_header_fits() {
        let longest = "x".repeat(300);
        let header = Header {
            first: MAX_NUMBER,
            next: MAX_NUMBER,
            records: MAX_NUMBER,
            remembered: MAX_NUMBER,
            ended: MAX_NUMBER,
            untimed: MAX_NUMBER,
            latest: u32::MAX,
            window: Some(u64::MAX),
            chunk_bytes: MAX_NUMBER,
            // Kafka allows 249 characters, none of which JSON escapes.
            ..Header::new("ffffffff".into(), &longest, &"t".repeat(249), u32::MAX, 0)
        };
        assert_eq!(Header::from_bytes(&header.to_bytes().expect("it fits")).expect("it is sound"), header);
    }

    /// Their sums overflowed, and so did the place where its chunks end.
    #[test]
    fn a_header_that_makes_no_sense_is_damaged() {
        let sound = Header::new("0123abcd".into(), "", "crawl.state", 0, 5);
        for header in [
            Header { chunk_bytes: MAX_NUMBER + 1, ..sound.clone() },
            Header { remembered: u64::MAX, ..sound.clone() },
            Header { next: 4, ..sound },
        ] {
            let read = Header::from_bytes(&header.to_bytes().expect("it fits"));
            assert!(matches!(read, Err(Damage::At(17))), "{header:?}");
        }
    }

    /// A damaged length made the reader allocate 16 MiB before it looked how much there is.
    #[test]
    fn a_chunk_takes_no_more_memory_than_there_is_of_it() {
        let mut bytes = written(&[(7, vec![1; 100])]);
        let read = |bytes: &[u8]| {
            let (mut reader, mut chunk) = (Reader::new(bytes).expect("its header is sound"), Chunk::default());
            let damage = reader.read(&mut chunk).expect_err("its chunk is not");
            assert!(chunk.payload.capacity() <= 1024, "{}", chunk.payload.capacity());
            damage
        };
        bytes[HEADER_BYTES..][..4].copy_from_slice(&(MAX_CHUNK_BYTES as u32).to_le_bytes());
        assert!(matches!(read(&bytes), Damage::At(1024)), "it would end behind the segment");
        let large = Header { chunk_bytes: MAX_NUMBER, next: 8, ..Header::new(String::new(), "", "crawl.state", 0, 5) };
        bytes[..HEADER_BYTES].copy_from_slice(&large.to_bytes().expect("it fits"));
        assert!(matches!(read(&bytes), Damage::Truncated(at) if at == bytes.len() as u64));
    }

    #[test]
    fn other_files_are_none() {
        assert!(matches!(read(b""), Err(Damage::NoSegment)));
        assert!(matches!(read(&[b'x'; 5000]), Err(Damage::NoSegment)));
        let mut later = written(&[]);
        let at = later.windows(3).position(|three| three == b":1,").expect("the format");
        later[at + 1] = b'2';
        assert!(matches!(read(&later), Err(Damage::Format(2))));
    }

    proptest! {
        #[test]
        fn every_flipped_bit_and_every_cut_is_found(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..60), at: prop::sample::Index,
            bit in 0u32..8,
        ) {
            let records: Vec<_> = (5..).zip(records).collect();
            let bytes = written(&records);
            let at = at.index(bytes.len());
            prop_assert!(read(&bytes[..at]).is_err(), "cut at {}", at);
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            // The case of a digit of the checksum, and the byte behind it, mean nothing.
            if at >= CHECKSUM_BYTES {
                prop_assert!(read(&flipped).is_err(), "bit {} of byte {}", bit, at);
            } else if let Ok(found) = read(&flipped) {
                prop_assert_eq!(found, read(&bytes).expect("it is sound"));
            }
        }

        #[test]
        fn any_bytes_are_a_segment_or_damaged(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let _ = read(&bytes);
            let mut behind_header = written(&[]);
            behind_header.extend(bytes);
            let _ = read(&behind_header);
        }
    }
}
