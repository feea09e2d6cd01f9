//! The S-curve: how likely a pair of pages of some true resemblance is to be found, and to be called
//! a near-duplicate.
//!
//! Two filters in a row decide. *Banding*: a band of r slots is shared with probability Jʳ, at least one of
//! b bands with 1 − (1 − Jʳ)ᵇ (Leskovec, Rajaraman, Ullman, *Mining of Massive Datasets*, 3.4).
//! *Verification*: the estimate from k slots of β bits has the variance (1−J)(J + 1/(2ᵝ−1))/k (Li & König, WWW
//! 2010) and is near enough normal for k ≥ 256.
//!
//! Both are those of independent slots; a fast similarity sketch errs a little less. That a pair which
//! shares a band agrees in r slots for certain is left out: it lifts the estimate by about r·(1−J)/k, a fraction
//! of the standard error.

use crate::sketch::Shape;

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

/// Probability that two pages of this true resemblance become candidates and are estimated at or above `threshold`.
#[must_use]
pub fn drop_probability(resemblance: f64, shape: &Shape, threshold: f64) -> f64 {
    let error = standard_error(resemblance, shape);
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
        // At the threshold half of the candidates are estimated below it.
        assert!((drop_probability(0.8, &default, 0.8) - 0.9915 / 2.0).abs() < 1e-4);
        assert_eq!(drop_probability(1.0, &default, 1.0), 1.0);
        assert!(drop_probability(0.5, &default, 0.8) < 1e-6);
        assert!(drop_probability(0.95, &default, 0.8) > 0.9999);
        let curve: Vec<f64> =
            (0..=100).map(|percent| drop_probability(f64::from(percent) / 100.0, &default, 0.8)).collect();
        assert!(curve.is_sorted(), "{curve:?}");
    }
}
