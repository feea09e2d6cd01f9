//! k-permutation MinHash (Broder, 1997): the plain reference that tests compare with. Not a second
//! method: `run` and `filter` know only Fast Similarity Sketching.

use super::keyed::mix;

/// The least hash of the shingles under each of `num_slots` independent functions: O(n·k).
pub fn slots(shingles: &[u64], num_slots: usize) -> Vec<u64> {
    (0..num_slots as u64)
        .map(|function| shingles.iter().map(|shingle| mix(shingle ^ mix(!function))).min().unwrap_or(u64::MAX))
        .collect()
}

/// The share of equal slots: an unbiased estimate of the resemblance, of variance J(1−J)/k.
pub fn resemblance(left: &[u64], right: &[u64]) -> f64 {
    left.iter().zip(right).filter(|(l, r)| l == r).count() as f64 / left.len() as f64
}
