//! Text → spans of words, 64 bytes at a time.
//!
//! ```text
//! bytes   T h e   q u i c k - b r o w n
//! in      1 1 1 0 1 1 1 1 1 0 1 1 1 1 1      letters, digits and everything that is not ASCII
//! starts  1 0 0 0 1 0 0 0 0 0 1 0 0 0 0      in & !(in << 1)
//! ends    0 0 0 1 0 0 0 0 0 1 0 0 0 0 0 1    !in & (in << 1)
//! ```
//!
//! A span between two ASCII separators that is ASCII throughout is one word; another holds whole words too, and its
//! reader takes it character by character.

use crate::cpu::Cpu;

/// Bytes looked at together.
const BLOCK: usize = 64;

/// Places that are listed before they are handed on, two to a span.
const MAX_PLACES: usize = 512;

/// Spans that are handed on together, at most.
pub const MAX_SPANS: usize = MAX_PLACES / 2;

/// What is found next.
pub enum Found<'s> {
    /// Spans of ASCII, each a word: the first byte and the byte behind the last.
    Words(&'s [[usize; 2]]),
    /// A span with bytes outside ASCII, from and to.
    Mixed(usize, usize),
}

/// Finds the spans of one text, in order.
///
/// Borders are listed for many blocks before anything is done with them: how many lie in a block is nothing a branch
/// could foresee.
pub struct Scanner<'t> {
    blocks: &'t [[u8; BLOCK]],
    /// The rest, shorter than a block: the last byte is a separator, and no span stays open.
    last: [u8; BLOCK],
    /// Number of the next block.
    number: usize,
    /// Does the byte before it belong to a span?
    inside_before: u64,
    /// Where an ASCII span starts, where it ends, where the next one starts, and so on.
    places: [usize; MAX_PLACES],
    num_places: usize,
    /// The block at hand, if it is not all ASCII or begins in a span that is not.
    mixed: Option<MixedBlock>,
    /// Where the span that is open in such a block or at its end starts, and whether it is ASCII so far.
    start: usize,
    ascii: bool,
    /// A span that is to follow what was handed on last.
    next: Option<(usize, usize)>,
}

/// A block that is taken span by span.
struct MixedBlock {
    starts: u64,
    ends: u64,
    masks: Masks,
}

impl<'t> Scanner<'t> {
    /// Of this text.
    #[inline(always)]
    pub fn new(bytes: &'t [u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let mut last = [b' '; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        Self {
            blocks,
            last,
            number: 0,
            inside_before: 0,
            places: [0; MAX_PLACES],
            num_places: 0,
            mixed: None,
            start: 0,
            ascii: true,
            next: None,
        }
    }

    /// The next spans; `None` at the end.
    #[inline(always)]
    pub fn find_next(&mut self, cpu: Cpu) -> Option<Found<'_>> {
        // What was handed on is forgotten. An open span stays.
        if self.num_places % 2 == 1 {
            self.places[0] = self.places[self.num_places - 1];
        }
        self.num_places %= 2;
        loop {
            if self.next.is_none() && self.mixed.is_some() {
                self.next = self.mixed_span();
            }
            if self.next.is_some() || !self.list_borders(cpu) {
                break;
            }
        }
        if self.num_places >= 2 {
            return Some(Found::Words(self.places[..self.num_places].as_chunks().0));
        }
        self.next.take().map(|(start, end)| Found::Mixed(start, end))
    }

    /// Lists the borders in blocks of ASCII. Is the next block a mixed one? Otherwise there is no room for another or no
    /// other.
    #[inline(always)]
    fn list_borders(&mut self, cpu: Cpu) -> bool {
        while self.number <= self.blocks.len() && self.num_places <= MAX_PLACES - BLOCK {
            let masks = masks(cpu, self.blocks.get(self.number).unwrap_or(&self.last));
            let shifted = masks.inside << 1 | self.inside_before;
            let base = self.number * BLOCK;
            if !self.ascii || masks.beyond_ascii != 0 {
                let mut starts = masks.inside & !shifted;
                let ends = !masks.inside & shifted;
                if self.inside_before == 0 {
                    self.start = next(base, &mut starts);
                } else if self.ascii {
                    self.num_places -= 1;
                    self.start = self.places[self.num_places];
                }
                self.mixed = Some(MixedBlock { starts, ends, masks });
                return true;
            }
            let borders = masks.inside ^ shifted;
            list(borders, base, &mut self.places[self.num_places..]);
            self.num_places += borders.count_ones() as usize;
            self.inside_before = masks.inside >> (BLOCK - 1);
            self.number += 1;
        }
        false
    }

    /// Lists the spans of a mixed block up to the next that is not ASCII, or all that are left.
    #[inline(always)]
    fn mixed_span(&mut self) -> Option<(usize, usize)> {
        let base = self.number * BLOCK;
        let MixedBlock { starts, ends, masks } = self.mixed.as_mut()?;
        while *ends != 0 {
            let (start, end) = (self.start, next(base, ends));
            let ascii = self.ascii && !any_between(masks.beyond_ascii, base, start, end);
            self.ascii = true;
            self.start = next(base, starts);
            if !ascii {
                return Some((start, end));
            }
            self.places[self.num_places..][..2].copy_from_slice(&[start, end]);
            self.num_places += 2;
        }
        self.inside_before = masks.inside >> (BLOCK - 1);
        if self.inside_before == 1 {
            self.ascii &= !any_between(masks.beyond_ascii, base, self.start, base + BLOCK);
            if self.ascii {
                self.places[self.num_places] = self.start;
                self.num_places += 1;
            }
        }
        self.mixed = None;
        self.number += 1;
        None
    }
}

/// Calls `each` with the first byte of every span of letters, digits and bytes outside ASCII, the byte behind it, and
/// whether all of it is ASCII.
#[inline(always)]
pub fn spans(cpu: Cpu, bytes: &[u8], mut each: impl FnMut(usize, usize, bool)) {
    let mut scanner = Scanner::new(bytes);
    while let Some(found) = scanner.find_next(cpu) {
        match found {
            Found::Words(spans) => spans.iter().for_each(|[start, end]| each(*start, *end, true)),
            Found::Mixed(start, end) => each(start, end, false),
        }
    }
}

/// Writes the places of the bits set, and something behind them.
#[inline(always)]
fn list(mut bits: u64, base: usize, out: &mut [usize]) {
    let num_bits = bits.count_ones() as usize;
    let (eights, _) = out.first_chunk_mut::<BLOCK>().expect("there is room for a block").as_chunks_mut::<8>();
    // Most blocks of prose have 17 to 24 borders.
    for (at, eight) in eights.iter_mut().enumerate() {
        if at * 8 >= num_bits {
            break;
        }
        eight.fill_with(|| next(base, &mut bits));
    }
}

/// The place of the lowest bit, which is cleared; the end of the block if there is none.
#[inline(always)]
fn next(base: usize, bits: &mut u64) -> usize {
    let place = base + bits.trailing_zeros() as usize;
    *bits &= bits.wrapping_sub(1);
    place
}

/// Is a bit set from `start`, which may lie before the block, to before `end`?
#[inline(always)]
fn any_between(bits: u64, base: usize, start: usize, end: usize) -> bool {
    let below = |place: usize| if place < BLOCK { (1u64 << place) - 1 } else { u64::MAX };
    bits & below(end - base) & !below(start.saturating_sub(base)) != 0
}

/// One bit a byte.
struct Masks {
    /// Letters, digits, bytes outside ASCII.
    inside: u64,
    /// Bytes outside ASCII.
    beyond_ascii: u64,
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn masks(cpu: Cpu, block: &[u8; BLOCK]) -> Masks {
    match cpu {
        // SAFETY: this value is made only where AVX-512 has been seen.
        Cpu::Avx512(_) => unsafe { avx512_masks(block) },
        // SAFETY: SSE2 is part of x86-64.
        Cpu::Avx2(_) | Cpu::Portable => unsafe { sse2_masks(block) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn avx512_masks(block: &[u8; BLOCK]) -> Masks {
    use std::arch::x86_64::*;
    // SAFETY: a block has the 64 bytes that are read, and they may lie anywhere.
    let bytes = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
    // Unsigned: what is below the first letter or digit wraps round to the top.
    let from = |bytes, first: u8| _mm512_sub_epi8(bytes, _mm512_set1_epi8(first as i8));
    let lower = _mm512_or_si512(bytes, _mm512_set1_epi8(0x20));
    let letter = _mm512_cmplt_epu8_mask(from(lower, b'a'), _mm512_set1_epi8(26));
    let digit = _mm512_cmplt_epu8_mask(from(bytes, b'0'), _mm512_set1_epi8(10));
    let beyond_ascii = _mm512_movepi8_mask(bytes);
    Masks { inside: letter | digit | beyond_ascii, beyond_ascii }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn sse2_masks(block: &[u8; BLOCK]) -> Masks {
    use std::arch::x86_64::*;
    let mut masks = Masks { inside: 0, beyond_ascii: 0 };
    let (parts, _) = block.as_chunks::<16>();
    for (number, part) in parts.iter().enumerate() {
        // SAFETY: a part has the 16 bytes that are read, and they may lie anywhere.
        let bytes = unsafe { _mm_loadu_si128(part.as_ptr().cast()) };
        // Signed comparisons: what is outside ASCII is negative, and taken by its sign.
        let lower = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
        let letter = _mm_and_si128(
            _mm_cmpgt_epi8(lower, _mm_set1_epi8(b'a' as i8 - 1)),
            _mm_cmplt_epi8(lower, _mm_set1_epi8(b'z' as i8 + 1)),
        );
        let digit = _mm_and_si128(
            _mm_cmpgt_epi8(bytes, _mm_set1_epi8(b'0' as i8 - 1)),
            _mm_cmplt_epi8(bytes, _mm_set1_epi8(b'9' as i8 + 1)),
        );
        let word = _mm_or_si128(_mm_or_si128(letter, digit), bytes);
        masks.inside |= u64::from(_mm_movemask_epi8(word) as u16) << (number * 16);
        masks.beyond_ascii |= u64::from(_mm_movemask_epi8(bytes) as u16) << (number * 16);
    }
    masks
}

#[cfg(not(target_arch = "x86_64"))]
fn masks(_: Cpu, block: &[u8; BLOCK]) -> Masks {
    plain_masks(block)
}

/// The same, byte by byte: the portable form and the oracle of the other.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn plain_masks(block: &[u8; BLOCK]) -> Masks {
    let bits = |of: fn(u8) -> bool| (0..BLOCK).fold(0, |bits, at| bits | u64::from(of(block[at])) << at);
    Masks { inside: bits(|b| b.is_ascii_alphanumeric() || !b.is_ascii()), beyond_ascii: bits(|b| !b.is_ascii()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
        let inside = |b: &u8| b.is_ascii_alphanumeric() || !b.is_ascii();
        let mut found = Vec::new();
        let mut at = 0;
        for run in bytes.chunk_by(|a, b| inside(a) == inside(b)) {
            if inside(&run[0]) {
                found.push((at, at + run.len(), run.is_ascii()));
            }
            at += run.len();
        }
        found
    }

    fn fast(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
        let mut found = Vec::new();
        spans(Cpu::detect(), bytes, |start, end, ascii| found.push((start, end, ascii)));
        found
    }

    #[test]
    fn every_byte_is_what_it_is() {
        for byte in 0..=255 {
            let mut block = [b' '; BLOCK];
            block[17] = byte;
            let expected = plain_masks(&block);
            for cpu in Cpu::all() {
                let found = masks(cpu, &block);
                assert_eq!((found.inside, found.beyond_ascii), (expected.inside, expected.beyond_ascii), "{byte}");
            }
        }
    }

    #[test]
    fn spans_across_the_edges_of_blocks() {
        for length in [0, 1, 62, 63, 64, 65, 127, 128, 129, 200, 257] {
            for start in 0..3 {
                for byte in [b'x', 0xC3] {
                    let mut bytes = vec![b' '; start];
                    bytes.resize(start + length, b'x');
                    for at in [start, start + length / 2, (start + length).saturating_sub(1)] {
                        let mut bytes = bytes.clone();
                        if at < bytes.len() {
                            bytes[at] = byte;
                        }
                        assert_eq!(fast(&bytes), plain(&bytes), "{length} bytes from {start}");
                        bytes.extend_from_slice(b" y");
                        assert_eq!(fast(&bytes), plain(&bytes), "{length} bytes from {start}, and more");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn fast_is_plain(bytes in proptest::collection::vec(prop_oneof![
            4 => Just(b'a'), 2 => Just(b' '), 1 => any::<u8>()], 0..3000)) {
            prop_assert_eq!(fast(&bytes), plain(&bytes));
        }
    }
}
