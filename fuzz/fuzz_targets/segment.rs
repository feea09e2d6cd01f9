//! Bytes of a snapshot's file ─▶ header, chunks, records. The first byte says what the rest is:
//!
//! ```text
//! a   a file as it is
//! s   a file whose checksums are put right, so that what is behind them is reached
//! e   edits of a sound segment, four bytes each
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use pagesieve_fuzz::memory;
use pagesieve_fuzz::state::segment::{Chunk, Damage, HEADER_BYTES, Header, Reader, Writer};
use pagesieve_fuzz::state::snapshot::{Limits, Segment, outdated, steps};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::LazyLock;

/// See the layout in `src/state/segment.rs`.
const CHUNK_HEADER_BYTES: usize = 32;

/// The header as text and as numbers, and what a reader's buffer begins with.
const FIXED_BYTES: usize = 16 << 10;

/// All chunks up to the first damage, if there is one.
fn read(file: &[u8]) -> (Option<Header>, Vec<Chunk>, Option<Damage>) {
    let mut reader = match memory::within(FIXED_BYTES, || Reader::new(file)) {
        Ok(reader) => reader,
        Err(damage) => return (None, Vec::new(), Some(damage)),
    };
    let (mut chunks, mut chunk) = (Vec::new(), Chunk::default());
    let damage = loop {
        let before = reader.next();
        match memory::within(FIXED_BYTES + 2 * file.len(), || reader.read(&mut chunk)) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(damage) => break Some(damage),
        }
        assert!(before <= chunk.first && chunk.first < chunk.next && chunk.next == reader.next());
        assert!(chunk.records().map(<[u8]>::len).sum::<usize>() <= file.len());
        chunks.push(chunk.clone());
        assert!(chunks.len() <= file.len() / CHUNK_HEADER_BYTES, "it never ends");
    };
    (Some(reader.header().clone()), chunks, damage)
}

fn checksum(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// Puts every checksum right, as far as the lengths lead.
fn seal(file: &mut [u8]) {
    let Some((header, mut rest)) = file.split_at_mut_checked(HEADER_BYTES) else { return };
    let digits = format!("{:016x}", checksum(&[&header[17..]]));
    header[..16].copy_from_slice(digits.as_bytes());
    while let Some((head, behind)) = rest.split_at_mut_checked(CHUNK_HEADER_BYTES) {
        let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        let Some((payload, behind)) = behind.split_at_mut_checked(length) else { return };
        let checksum = checksum(&[&head[..24], payload]);
        head[24..].copy_from_slice(&checksum.to_le_bytes());
        rest = behind;
    }
}

/// A sound segment of many small chunks: the writer's own are too large to be changed much.
static SOUND: LazyLock<(Vec<u8>, Header, Vec<Chunk>)> = LazyLock::new(|| {
    let begin = |first| Header::new("0123abcd".into(), "text 2, key 77", "crawl.state", 0, first);
    let writer = |first| Writer::new(Cursor::new(Vec::new()), begin(first)).expect("memory can be written");
    let mut whole = writer(5);
    for first in (5..65).step_by(10) {
        let mut part = writer(first);
        for offset in first..first + 8 {
            let record = vec![offset as u8; (offset % 5) as usize * 20];
            part.push(offset, &record, |header| header.remembered += 1).expect("memory can be written");
        }
        let bytes = part.finish().expect("memory can be written").0.into_inner();
        let (header, chunks, _) = read(&bytes);
        let header = header.expect("it is sound");
        chunks.iter().for_each(|chunk| whole.adopt(chunk, &header).expect("memory can be written"));
    }
    let bytes = whole.finish().expect("memory can be written").0.into_inner();
    let (header, chunks, damage) = read(&bytes);
    assert!(damage.is_none() && chunks.len() == 6);
    (bytes, header.expect("it is sound"), chunks)
});

/// place 2 │ what is done there 1 │ with which byte, or how many 1
fn edited(edits: &[u8]) -> Vec<u8> {
    let mut file = SOUND.0.clone();
    for edit in edits.as_chunks::<4>().0 {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (file.len() + 1);
        let until = (at + usize::from(edit[3])).min(file.len());
        match edit[2] % 5 {
            0 if at < file.len() => file[at] = edit[3],
            1 if at < file.len() => file[at] ^= edit[3],
            2 => drop(file.drain(at..until)),
            3 => drop(file.splice(at..at, file[at..until].to_vec())),
            4 => file.truncate(at),
            _ => {}
        }
    }
    file
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'e' => {
            let (header, chunks, damage) = read(&edited(rest));
            // Whatever was done to it, only what was written comes out, and in order.
            let mut written = SOUND.2.iter();
            assert!(chunks.iter().all(|chunk| written.any(|one| one == chunk)));
            assert!(header.as_ref().is_none_or(|header| *header == SOUND.1));
            assert!(damage.is_some() || chunks.len() == SOUND.2.len());
        }
        _ => {
            let mut file = rest.to_vec();
            if *kind == b's' {
                seal(&mut file);
            }
            let (Some(header), ..) = read(&file) else { return };
            let segments =
                [Segment { path: PathBuf::new(), header: header.clone() }, Segment { path: PathBuf::new(), header }];
            for high in [0, segments[0].header.next, u64::MAX] {
                steps(&segments, 0, high);
                let limits = Limits { oldest: Some(7), capacity_pages: high, max_bytes: high };
                outdated(&segments, &limits);
            }
        }
    }
});
