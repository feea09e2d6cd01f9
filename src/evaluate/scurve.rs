//! The S-curve: how likely a pair of pages of some true resemblance is to be found, and to be called
//! a near-duplicate.
//!
//! Two filters in a row decide. *Banding*: a band of r slots is shared with probability Jʳ, at least one of
//! b bands with 1 − (1 − Jʳ)ᵇ (Leskovec, Rajaraman, Ullman, *Mining of Massive Datasets*, 3.4).
//! *Verification*: the estimate from k slots of β bits has the variance (1−J)(J + 1/(2ᵝ−1))/k (Li & König, WWW
//! 2010) and is near enough normal for k ≥ 256.
//!
//! Both are those of independent slots; a fast similarity sketch errs less (0.8 of that on documentation pages, measured
//! with 40 keys). That a pair which shares a band agrees in r slots for certain is left out: it lifts the estimate by
//! about r·(1−J)/k, a fraction of the standard error. So is that pairs of one template share their error: over keys the
//! curve holds, but under one key such pairs are dropped, or kept, together more often than it says.

use crate::sketch::Shape;
use crate::sketch::bbit::CAUTION;

/// Probability that two pages of this true resemblance (0 to 1) share at least one band.
#[must_use]
pub fn candidate_probability(resemblance: f64, shape: &Shape) -> f64 {
    let band = resemblance.clamp(0.0, 1.0).powi(shape.rows as i32);
    1.0 - (1.0 - band).powi(shape.bands as i32)
}

/// Standard error of the estimated resemblance at this true resemblance.
#[must_use]
pub fn standard_error(resemblance: f64, shape: &Shape) -> f64 {
    let resemblance = resemblance.clamp(0.0, 1.0);
    let by_chance = 1.0 / (f64::from(1u32 << shape.bits) - 1.0);
    ((1.0 - resemblance) * (resemblance + by_chance) / shape.slots as f64).sqrt()
}

/// Probability that two pages of this true resemblance become candidates and that their estimate, less the caution taken
/// off it (`bbit::cautious`), is at or above `threshold`.
#[must_use]
pub fn drop_probability(resemblance: f64, shape: &Shape, threshold: f64) -> f64 {
    let error = standard_error(resemblance, shape);
    let threshold = threshold + f64::from(CAUTION) * standard_error(threshold, shape);
    let verified = if error > 0.0 {
        normal_tail((threshold - resemblance) / error)
    } else {
        f64::from(u8::from(resemblance >= threshold))
    };
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

    fn shape(bands: usize, rows: usize, slots: usize, bits: usize) -> Shape {
        Shape { bands, rows, slots, bits, ..Shape::new(&Config::default().sketch) }
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
            let found = candidate_probability(resemblance, &shape(bands, rows, 256, 2));
            assert!((found - expected).abs() < 5e-5, "{bands}x{rows} at {resemblance}: {found}");
        }
    }

    #[test]
    fn errors() {
        for (slots, bits, resemblance, expected) in [
            (256, 2, 0.8, 0.029_756), // sqrt(0.2 · (0.8 + 1/3) / 256)
            (512, 2, 0.8, 0.021_041),
            (1024, 2, 0.8, 0.014_878),
            (256, 1, 0.8, 0.0375), // sqrt(0.2 · 1.8 / 256)
            (256, 2, 1.0, 0.0),
        ] {
            let found = standard_error(resemblance, &shape(12, 5, slots, bits));
            assert!((found - expected).abs() < 1e-6, "{slots} slots of {bits} bits at {resemblance}: {found}");
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
        let default = shape(12, 5, 256, 2);
        // At the threshold the estimate has to be 0.4 standard errors above: 34.5 % of the candidates are.
        assert!((drop_probability(0.8, &default, 0.8) - 0.9915 * 0.3446).abs() < 1e-4);
        assert_eq!(drop_probability(1.0, &default, 1.0), 1.0);
        assert!(drop_probability(0.5, &default, 0.8) < 1e-6);
        assert!(drop_probability(0.95, &default, 0.8) > 0.9999);
        let curve: Vec<f64> =
            (0..=100).map(|percent| drop_probability(f64::from(percent) / 100.0, &default, 0.8)).collect();
        assert!(curve.is_sorted(), "{curve:?}");
    }

    /// The chance that the estimate is at or above the threshold without the normal approximation: each slot agrees
    /// with J + (1 − J)/2ᵝ.
    fn binomial_tail(resemblance: f64, shape: &Shape, threshold: f64) -> f64 {
        let by_chance = 1.0 / f64::from(1u32 << shape.bits);
        let agree = resemblance + (1.0 - resemblance) * by_chance;
        let mut log_term = shape.slots as f64 * (1.0 - agree).ln();
        let mut tail = 0.0;
        for agreeing in 0..=shape.slots {
            let estimate = (agreeing as f64 / shape.slots as f64 - by_chance) / (1.0 - by_chance);
            let error = standard_error(estimate.clamp(0.0, 1.0), shape);
            if estimate - f64::from(CAUTION) * error >= threshold {
                tail += log_term.exp();
            }
            log_term += ((shape.slots - agreeing) as f64 / (agreeing + 1) as f64).ln() + (agree / (1.0 - agree)).ln();
        }
        tail
    }

    proptest! {
        #[test]
        fn candidates_are_those_that_no_band_misses(j in 0.0f64..=1.0, bands in 1usize..33, rows in 1usize..17) {
            let band = (0..rows).fold(1.0, |product, _| product * j);
            let none = (0..bands).fold(1.0, |product, _| product * (1.0 - band));
            let found = candidate_probability(j, &shape(bands, rows, 1024, 2));
            prop_assert!((found - (1.0 - none)).abs() < 1e-12);
        }

        /// Counts of slots come in steps: half a step's probability is the normal's to be wrong by, and a little for skewness.
        #[test]
        fn the_estimate_is_near_enough_normal(
            j in 0.5f64..0.95, log_slots in 8u32..=10, bits in 1usize..=2, threshold in 0.6f64..0.95,
        ) {
            let shape = shape(12, 5, 1 << log_slots, bits);
            let normal = drop_probability(j, &shape, threshold);
            let exact = candidate_probability(j, &shape) * binomial_tail(j, &shape, threshold);
            let step = 1.0 / (1.0 - 1.0 / f64::from(1u32 << bits)) / shape.slots as f64;
            let tolerance = 0.03 + 0.5 * 0.3989 * step / standard_error(j, &shape);
            prop_assert!((normal - exact).abs() < tolerance, "{} {} {}", normal, exact, tolerance);
        }
    }
}
