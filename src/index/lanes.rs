//! A bucket's sixteen entries at once. [`plain`] says what is done, stands in where the instructions are missing, and is
//! what they are tested against.
//!
//! [`equal`], for probes: of a loop over sixteen entries the compiler makes four vectors, but not the way from
//! them to a number. [`differing`], for inserts: sixteen bits at random, which AVX2 fetches eight at a time.

use crate::cpu::Cpu;

/// Entries in a bucket of one 64-byte cache line.
pub const BUCKET_ENTRIES: usize = 16;

/// One cache line of entries.
pub type Bucket = [u32; BUCKET_ENTRIES];

#[cfg(not(target_arch = "x86_64"))]
pub use portable::{differing, equal};
#[cfg(target_arch = "x86_64")]
pub use x86::{differing, equal};

/// What is meant, in any processor's terms.
pub mod plain {
    use super::Bucket;

    /// Bit `i` is set where entry `i`, within `mask`, is `tag`.
    pub fn equal(bucket: &Bucket, mask: u32, tag: u32) -> u32 {
        (0..).zip(bucket).map(|(at, entry)| u32::from(entry & mask == tag) << at).sum()
    }

    /// Bit `i` is set where bit `bit` of entry `i` is not the one that the bits below it number among those of `words`, which
    /// has 2 to the power of `bit` bits at least. `bit` is 5 to 31.
    pub fn differing(bucket: &Bucket, words: &[u32], bit: u32) -> u32 {
        let differs = |entry: &u32| {
            let number = entry & ((1 << bit) - 1);
            (words[number as usize / 32] >> (number % 32) ^ entry >> bit) & 1
        };
        (0..).zip(bucket).map(|(at, entry)| differs(entry) << at).sum()
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    use super::{Bucket, Cpu, plain};

    /// See [`plain::equal`].
    pub fn equal(_: Cpu, bucket: &Bucket, mask: u32, tag: u32) -> u32 {
        plain::equal(bucket, mask, tag)
    }

    /// See [`plain::differing`].
    pub fn differing(_: Cpu, bucket: &Bucket, words: &[u32], bit: u32) -> u32 {
        plain::differing(bucket, words, bit)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Bucket, Cpu};
    use std::arch::x86_64::*;

    /// See [`super::plain::equal`].
    #[inline(always)]
    pub fn equal(cpu: Cpu, bucket: &Bucket, mask: u32, tag: u32) -> u32 {
        match cpu {
            // SAFETY: this value is made only where AVX-512 has been seen.
            Cpu::Avx512(_) => unsafe { equal_avx512(bucket, mask, tag) },
            // SAFETY: SSE2 is part of x86-64.
            Cpu::Avx2(_) | Cpu::Portable => unsafe { equal_sse2(bucket, mask, tag) },
        }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn equal_avx512(bucket: &Bucket, mask: u32, tag: u32) -> u32 {
        // SAFETY: a bucket has the 64 bytes that are read, and they may lie anywhere.
        let entries = unsafe { _mm512_loadu_si512(bucket.as_ptr().cast()) };
        let tags = _mm512_and_si512(entries, _mm512_set1_epi32(mask as i32));
        _mm512_cmpeq_epi32_mask(tags, _mm512_set1_epi32(tag as i32)).into()
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn equal_sse2(bucket: &Bucket, mask: u32, tag: u32) -> u32 {
        let (fours, _) = bucket.as_chunks::<4>();
        let (mask, tag) = (_mm_set1_epi32(mask as i32), _mm_set1_epi32(tag as i32));
        // All ones where they are equal, and zero elsewhere.
        let [a, b, c, d] = std::array::from_fn(|at| {
            // SAFETY: four entries have the 16 bytes that are read, and they may lie anywhere.
            let entries = unsafe { _mm_loadu_si128(fours[at].as_ptr().cast()) };
            _mm_cmpeq_epi32(_mm_and_si128(entries, mask), tag)
        });
        _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d))) as u32
    }

    /// See [`super::plain::differing`].
    #[inline(always)]
    pub fn differing(cpu: Cpu, bucket: &Bucket, words: &[u32], bit: u32) -> u32 {
        assert!((5..32).contains(&bit) && words.len() >> (bit - 5) > 0, "there is a bit for every number");
        match cpu {
            // SAFETY: these values are made only where AVX2 has been seen, and what it asks for was just made sure of.
            Cpu::Avx512(_) | Cpu::Avx2(_) => unsafe { differing_avx2(bucket, words, bit) },
            Cpu::Portable => super::plain::differing(bucket, words, bit),
        }
    }

    /// # Safety
    ///
    /// The processor has AVX2, and `words` 2 to the power of `bit` bits at least.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn differing_avx2(bucket: &Bucket, words: &[u32], bit: u32) -> u32 {
        let (numbers, low) = (_mm256_set1_epi32((1 << bit) - 1), _mm256_set1_epi32(31));
        let mut differing = 0;
        for half in 0..2 {
            let first = bucket[half * 8..].as_ptr();
            // SAFETY: eight entries from `first` on are the bucket's.
            let entries = unsafe { _mm256_loadu_si256(first.cast()) };
            let number = _mm256_and_si256(entries, numbers);
            // SAFETY: a number has `bit` bits, and so many numbers have their word. Their 27 bits at most are no sign.
            let words = unsafe { _mm256_i32gather_epi32::<4>(words.as_ptr().cast(), _mm256_srli_epi32::<5>(number)) };
            let of_number = _mm256_srlv_epi32(words, _mm256_and_si256(number, low));
            let of_entry = _mm256_srl_epi32(entries, _mm_cvtsi32_si128(bit as i32));
            let odd = _mm256_slli_epi32::<31>(_mm256_xor_si256(of_number, of_entry));
            differing |= (_mm256_movemask_ps(_mm256_castsi256_ps(odd)) as u32) << (half * 8);
        }
        differing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket() -> impl Strategy<Value = Bucket> {
        proptest::array::uniform16(prop_oneof![Just(0), 0u32..4, any::<u32>()])
    }

    proptest! {
        #[test]
        fn the_fast_forms_are_the_plain_ones(bucket in bucket(), mask: u32, at in 0..BUCKET_ENTRIES, bit in 5u32..12, seed: u32) {
            let words: Vec<u32> = (0..1 << (bit - 5)).map(|at: u32| at.wrapping_add(seed).wrapping_mul(0x9E37_79B9)).collect();
            for cpu in Cpu::all() {
                for (mask, tag) in [(mask, bucket[at] & mask), (u32::MAX, 0), (0, 0), (mask, !mask)] {
                    prop_assert_eq!(equal(cpu, &bucket, mask, tag), plain::equal(&bucket, mask, tag));
                }
                prop_assert_eq!(differing(cpu, &bucket, &words, bit), plain::differing(&bucket, &words, bit));
            }
        }
    }
}
