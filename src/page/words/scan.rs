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

/// Calls `each` with the first byte of every span of letters, digits and bytes outside ASCII, the byte behind it, and
/// whether all of it is ASCII.
#[inline(always)]
pub fn spans(cpu: Cpu, bytes: &[u8], mut each: impl FnMut(usize, usize, bool)) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    // The rest is shorter than a block: the last byte is a separator, and no span stays open.
    let mut last = [b' '; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    let (mut inside_before, mut start, mut ascii) = (0, 0, true);
    for number in 0..=blocks.len() {
        let base = number * BLOCK;
        let Masks { inside, beyond_ascii } = masks(cpu, blocks.get(number).unwrap_or(&last));
        let shifted = inside << 1 | inside_before;
        let mut starts = inside & !shifted;
        let mut ends = !inside & shifted;
        if inside_before == 0 {
            start = next(base, &mut starts);
        }
        inside_before = inside >> (BLOCK - 1);
        if ascii && beyond_ascii == 0 {
            while ends != 0 {
                each(start, next(base, &mut ends), true);
                start = next(base, &mut starts);
            }
            continue;
        }
        while ends != 0 {
            let end = next(base, &mut ends);
            each(start, end, ascii && !any_between(beyond_ascii, base, start, end));
            ascii = true;
            start = next(base, &mut starts);
        }
        ascii &= inside_before == 0 || !any_between(beyond_ascii, base, start, base + BLOCK);
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
    let word = |at: usize| i64::from_le_bytes(block[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    let bytes = _mm512_set_epi64(word(7), word(6), word(5), word(4), word(3), word(2), word(1), word(0));
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
        let half = |at: usize| i64::from_le_bytes(part[at..at + 8].try_into().expect("eight bytes"));
        let bytes = _mm_set_epi64x(half(8), half(0));
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
            4 => Just(b'a'), 2 => Just(b' '), 1 => any::<u8>()], 0..400)) {
            prop_assert_eq!(fast(&bytes), plain(&bytes));
        }
    }
}
