//! The S-curve: how likely a pair of pages of some true resemblance is to be found, and to be called
//! a near-duplicate.
//!
//! Two filters in a row decide. *Banding*: a band of r slots is shared with probability Jʳ, at least one of
//! b bands with 1 − (1 − Jʳ)ᵇ (Leskovec, Rajaraman, Ullman, *Mining of Massive Datasets*, 3.4).
//! *Verification*: the odd sketch's estimate is near enough normal; its error is that of bits flipped twice
//! ([`odd::standard_error`]) and hangs on the pages' length.
//!
//! Banding is that of independent slots; a fast similarity sketch's repel each other, which makes the curve a little
//! steeper. That pairs of one template share their error is left out: over keys the curve holds, but under one key such
//! pairs are dropped, or kept, together more often than it says.

use crate::sketch::{Shape, odd};

/// Distinct shingles of the pages that errors are stated for: a page of 500 words.
pub const TYPICAL_SHINGLES: f64 = 496.0;

/// Probability that two pages of this true resemblance (0 to 1) share at least one band.
#[must_use]
pub fn candidate_probability(resemblance: f64, shape: &Shape) -> f64 {
    let band = resemblance.clamp(0.0, 1.0).powi(shape.rows as i32);
    1.0 - (1.0 - band).powi(shape.bands as i32)
}

/// Standard error of the estimated resemblance at this true resemblance, for pages of [`TYPICAL_SHINGLES`].
#[must_use]
pub fn standard_error(resemblance: f64, shape: &Shape) -> f64 {
    odd::standard_error(resemblance.clamp(0.0, 1.0), TYPICAL_SHINGLES, shape.bytes)
}

/// Probability that two pages of this true resemblance become candidates and that their estimate is at or above
/// `threshold`.
#[must_use]
pub fn drop_probability(resemblance: f64, shape: &Shape, threshold: f64) -> f64 {
    let resemblance = resemblance.clamp(0.0, 1.0);
    let verified = normal_tail(odd::deviations_from(threshold, resemblance, TYPICAL_SHINGLES, shape.bytes));
    candidate_probability(resemblance, shape) * verified
}

/// Probability that a standard normal variable is above `z`: Abramowitz & Stegun 26.2.17, error below 7.5e-8.
fn normal_tail(z: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    if z < 0.0 {
        return 1.0 - normal_tail(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let polynomial = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * polynomial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use proptest::prelude::*;

    fn shape(bands: usize, rows: usize, bytes: usize) -> Shape {
        Shape { bands, rows, bytes, ..Shape::new(&Config::default().sketch) }
    }

    #[test]
    fn candidates() {
        for (bands, rows, resemblance, expected) in [
            (12, 5, 0.0, 0.0),
            (12, 5, 0.5, 0.3168),
            (12, 5, 0.8, 0.9915),
            (12, 5, 1.0, 1.0),
            (14, 8, 0.8, 0.92355),
            (16, 6, 0.8, 0.9923),
            (1, 1, 0.3, 0.3),
        ] {
            let found = candidate_probability(resemblance, &shape(bands, rows, 64));
            assert!((found - expected).abs() < 5e-5, "{bands}x{rows} at {resemblance}: {found}");
        }
    }

    #[test]
    fn errors() {
        // Simulated with 2,000 random pairs of 500 shingles: .0243, .0137 and .0094.
        for (bytes, resemblance, expected) in [(32, 0.8, 0.023), (64, 0.8, 0.0133), (128, 0.8, 0.0087), (64, 1.0, 0.0)]
        {
            let found = standard_error(resemblance, &shape(12, 5, bytes));
            assert!((found - expected).abs() < 1e-3, "{bytes} bytes at {resemblance}: {found}");
        }
    }

    #[test]
    fn tails() {
        for (z, expected) in
            [(0.0, 0.5), (1.0, 0.158_655_25), (1.96, 0.024_997_9), (3.0, 0.001_349_9), (-1.0, 0.841_344_75)]
        {
            assert!((normal_tail(z) - expected).abs() < 1e-7, "{z}: {}", normal_tail(z));
        }
        assert!(normal_tail(40.0) == 0.0 && normal_tail(-40.0) == 1.0);
    }

    #[test]
    fn drops() {
        let default = shape(12, 5, 64);
        // At the threshold half of the candidates are above it.
        assert!((drop_probability(0.8, &default, 0.8) - 0.9915 / 2.0).abs() < 1e-4);
        assert_eq!(drop_probability(1.0, &default, 1.0), 1.0);
        assert!(drop_probability(0.5, &default, 0.8) < 1e-6);
        assert!(drop_probability(0.95, &default, 0.8) > 0.9999);
        let curve: Vec<f64> =
            (0..=100).map(|percent| drop_probability(f64::from(percent) / 100.0, &default, 0.8)).collect();
        assert!(curve.is_sorted(), "{curve:?}");
    }

    proptest! {
        #[test]
        fn candidates_are_those_that_no_band_misses(j in 0.0f64..=1.0, bands in 1usize..33, rows in 1usize..17) {
            let band = (0..rows).fold(1.0, |product, _| product * j);
            let none = (0..bands).fold(1.0, |product, _| product * (1.0 - band));
            let found = candidate_probability(j, &shape(bands, rows, 64));
            prop_assert!((found - (1.0 - none)).abs() < 1e-12);
        }
    }
}
