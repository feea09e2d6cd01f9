//! Chance that comes out the same for ever: xoshiro256++ seeded by SplitMix64, both by Blackman and Vigna
//! (<https://prng.di.unimi.it/>), and draws built on them from additions, products and quotients only. The
//! platform's `ln` and `exp` may differ in the last bit from machine to machine, so none is called.

/// A random number generator: xoshiro256++.
#[derive(Clone, Debug)]
pub(super) struct Random([u64; 4]);

impl Random {
    /// The generator of a seed; any seed will do, zero too.
    pub fn new(seed: u64) -> Self {
        // SplitMix64: the n-th state word is the mixed n-th multiple of its increment.
        Random([1, 2, 3, 4].map(|n: u64| mix(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `end`, which is not 0. The bias of the multiplication is below 2⁻⁴⁰ for any `end` used here.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of the items, which are not none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A log-normal number of the given median: e to a normal deviate of standard deviation `sigma`.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        // The sum of twelve uniform numbers has variance 1 and is normal enough for page lengths.
        let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        // e^x = (1 + x/1024)^1024 within half a percent for the x that occur: ten squarings.
        (0..10).fold(1.0 + sigma * normal / 1024.0, |power, _| power * power) * median
    }
}

/// The finisher of SplitMix64, a bijection in which every input bit moves every output bit.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Draws an index with given odds in constant time: Walker's alias method, built as by Vose (1991).
#[derive(Clone, Debug)]
pub(super) struct Odds(Vec<Cell>);

/// A cell is drawn like any other and stands for itself or, with the rest of its probability, for its alias.
#[derive(Clone, Debug)]
struct Cell {
    /// The probability of itself in units of 2⁻³².
    own: u32,
    alias: u32,
}

impl Odds {
    /// Odds in proportion to the weights, which are positive and not none.
    pub fn new(weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        let mut left: Vec<f64> = weights.iter().map(|weight| weight * weights.len() as f64 / total).collect();
        let mut cells: Vec<Cell> = (0..weights.len() as u32).map(|alias| Cell { own: u32::MAX, alias }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..cells.len()).partition(|&i| left[i] < 1.0);
        // Each small cell is filled up to 1 from a large one, which may become small by it.
        while let (Some(&rich), Some(poor)) = (large.last(), small.pop()) {
            cells[poor] = Cell { own: (left[poor] * (1u64 << 32) as f64) as u32, alias: rich as u32 };
            left[rich] -= 1.0 - left[poor];
            if left[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Odds(cells)
    }

    /// Zipf–Mandelbrot odds: the n-th of `count` (from 0) has weight 1 / (n + `shift`).
    pub fn zipf(count: usize, shift: f64) -> Self {
        Odds::new(&(0..count).map(|n| 1.0 / (n as f64 + shift)).collect::<Vec<_>>())
    }

    /// An index.
    pub fn draw(&self, random: &mut Random) -> usize {
        let bits = random.bits();
        // The upper half chooses the cell, the lower between its two.
        let index = (((bits >> 32) * self.0.len() as u64) >> 32) as usize;
        let cell = &self.0[index];
        if bits as u32 <= cell.own { index } else { cell.alias as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the authors' C code, seeded with SplitMix64 from 0.
    #[test]
    fn follows_the_published_generators() {
        let mut random = Random::new(0);
        assert_eq!(random.0[0], 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.bits(), 0x5317_5d61_490b_23df);
    }

    /// 200,000 draws; five standard deviations is 0.6 % of all. Odds that ignored their weights would be off by 15 %.
    #[test]
    fn odds_are_as_given() {
        let weights = [4.0, 1.0, 0.5, 2.5, 2.0];
        let (odds, mut random, mut counts) = (Odds::new(&weights), Random::new(7), [0u32; 5]);
        for _ in 0..200_000 {
            counts[odds.draw(&mut random)] += 1;
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            assert!((f64::from(count) / 200_000.0 - weight / 10.0).abs() < 0.006, "{counts:?}");
        }
    }

    /// mean = median · e^(σ²/2): 100 · e^0.28125 = 132.5; half of the draws lie below the median.
    #[test]
    fn log_normal_has_its_mean_and_median() {
        let mut random = Random::new(3);
        let draws: Vec<f64> = (0..100_000).map(|_| random.log_normal(100.0, 0.75)).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let below = draws.iter().filter(|&&x| x < 100.0).count();
        assert!((mean - 132.5).abs() < 2.0, "mean {mean}");
        assert!((below as f64 / 1e5 - 0.5).abs() < 0.01, "below the median {below}");
    }

    #[test]
    fn draws_stay_in_their_range() {
        let mut random = Random::new(1);
        let mut seen = [false; 4];
        for _ in 0..1_000 {
            seen[random.between(3, 6) - 3] = true;
            assert_eq!(random.below(1), 0);
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert_eq!(seen, [true; 4]);
    }
}
