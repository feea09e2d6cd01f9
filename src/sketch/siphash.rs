//! SipHash-1-3 (Aumasson & Bernstein, 2012) of many short messages at once: the hash of the crate `siphasher`, to
//! which the tests hold it, in loops that the compiler turns into vectors.

/// The state of `L` hashes under one key.
#[derive(Debug, Clone, Copy)]
pub struct State<const L: usize> {
    v: [[u64; L]; 4],
}

#[inline(always)]
fn each<const L: usize>(a: [u64; L], b: [u64; L], with: impl Fn(u64, u64) -> u64) -> [u64; L] {
    let mut out = [0; L];
    for lane in 0..L {
        out[lane] = with(a[lane], b[lane]);
    }
    out
}

impl<const L: usize> State<L> {
    /// The state before the first word of any message.
    #[inline(always)]
    pub fn new([k0, k1]: [u64; 2]) -> Self {
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { v: v.map(|word| [word; L]) }
    }

    /// Takes the next 8 bytes of every message.
    #[inline(always)]
    pub fn absorb(&mut self, words: &[u64; L]) {
        self.v[3] = each(self.v[3], *words, |a, b| a ^ b);
        self.round();
        self.v[0] = each(self.v[0], *words, |a, b| a ^ b);
    }

    /// The hashes, after the last block.
    #[inline(always)]
    pub fn finish(mut self) -> [u64; L] {
        self.v[2] = self.v[2].map(|word| word ^ 0xFF);
        for _ in 0..3 {
            self.round();
        }
        let [v0, v1, v2, v3] = self.v;
        each(each(v0, v1, |a, b| a ^ b), each(v2, v3, |a, b| a ^ b), |a, b| a ^ b)
    }

    #[inline(always)]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.v;
        v0 = each(v0, v1, u64::wrapping_add);
        v2 = each(v2, v3, u64::wrapping_add);
        v1 = each(v1, v0, |a, b| a.rotate_left(13) ^ b);
        v3 = each(v3, v2, |a, b| a.rotate_left(16) ^ b);
        v0 = v0.map(|word| word.rotate_left(32));
        v2 = each(v2, v1, u64::wrapping_add);
        v0 = each(v0, v3, u64::wrapping_add);
        v1 = each(v1, v2, |a, b| a.rotate_left(17) ^ b);
        v3 = each(v3, v0, |a, b| a.rotate_left(21) ^ b);
        v2 = v2.map(|word| word.rotate_left(32));
        self.v = [v0, v1, v2, v3];
    }
}

/// The last block of a message of `length` bytes: what is left of it (less than 8 bytes), and its length.
#[inline(always)]
pub fn last_block(rest: u64, length: usize) -> u64 {
    rest | (length as u64) << 56
}

/// The hashes of messages of one or two blocks each, the first of which counts only where the last says that it is not
/// the only one. The last costs four rounds, another one a fifth: less than to sort messages by their number of blocks.
#[inline(always)]
pub fn up_to_two_blocks(key: [u64; 2], first: &[u64], last: &[u64], out: &mut [u64]) {
    for ((first, last), hash) in first.iter().zip(last).zip(out) {
        let one = State::<1>::new(key);
        let mut two = one;
        two.absorb(&[*first]);
        let has_two = *last >> 56 >= 8;
        let mut state = one;
        for word in 0..4 {
            state.v[word][0] = if has_two { two.v[word][0] } else { one.v[word][0] };
        }
        state.absorb(&[*last]);
        [*hash] = state.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    proptest! {
        #[test]
        fn hashes_are_those_of_the_crate(key: [u64; 2], messages in proptest::collection::vec(any::<[u8; 16]>(), 8)) {
            let plain = SipHasher13::new_with_keys(key[0], key[1]);
            for length in 0..16 {
                let halves = |bytes: &[u8; 16]| {
                    let mut padded = [0; 16];
                    padded[..length].copy_from_slice(&bytes[..length]);
                    [0, 8].map(|at| u64::from_le_bytes(padded[at..at + 8].try_into().unwrap()))
                };
                let [low, high] = [0, 1].map(|half| messages.iter().map(|bytes| halves(bytes)[half]).collect::<Vec<_>>());
                let mut found = [0; 8];
                let mut lanes = State::<8>::new(key);
                let rest = if length < 8 { &low } else { &high };
                let last: Vec<u64> = rest.iter().map(|rest| last_block(*rest, length)).collect();
                up_to_two_blocks(key, &low, &last, &mut found);
                if length >= 8 {
                    lanes.absorb(low[..].as_array().unwrap());
                }
                lanes.absorb(last[..].as_array().unwrap());
                let expected: Vec<u64> = messages.iter().map(|bytes| plain.hash(&bytes[..length])).collect();
                prop_assert_eq!(&found[..], &expected[..]);
                prop_assert_eq!(&lanes.finish()[..], &expected[..]);
            }
        }
    }
}
