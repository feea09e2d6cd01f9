//! The odd sketch: what is kept of a page to verify candidates with (Mitzenmacher, Pagh & Pham, *Efficient Estimation
//! for High Similarities using Odd Sketches*, WWW 2014), here over the shingles themselves.
//!
//! Every distinct shingle flips one of n bits. The XOR of two such rows is the odd sketch of the shingles that only one
//! of the pages has: c of its n bits are set, and their number is m ≈ −n/2 · ln(1 − 2c/n). With S the sum of the
//! pages' distinct shingles, J = (S − m)/(S + m). Nothing is sampled, so the only error is that of bits flipped
//! twice: near 0.8 half that of as many one-bit slots (Li & König, WWW 2010).
//!
//! ```text
//! row of 64 bytes    [ 496 bits │ 12 bits: number of shingles │ 4 bits: form ]
//! ```
//!
//! | form | of pages with | the bits are |
//! | --- | --- | --- |
//! | 0 | up to n/16 shingles | a list of the shingles' places in the map (below), 16 bits each: compared exactly |
//! | 1 | up to T = 2n | the odd sketch of all shingles; a list is turned into one where the two meet |
//! | 2 + l | up to T·2^(l+1) | the odd sketch of the shingles whose hash begins with l + 1 zero bits |
//!
//! Pages that resemble each other are of like size, so their forms are the same or neighbours. A page that is judged
//! brings its rows in the neighbouring sampled forms too, and only its own is remembered.
//!
//! Repeated shingles must flip their bit once. A page's shingles set bits in a *map* of 2¹⁶ or more places, rows of n,
//! and its rows are folded by XOR: that counts what is distinct, needs no hash table and no branch. Two shingles in one
//! place of the map (at most one in 64) are taken for one, which lifts J by at most 0.0015.

use crate::cpu::Cpu;

/// Rows of the map that are folded into one.
const MAP_ROWS: usize = 128;

/// Bits of a row that hold its form and its number of shingles.
const HEADER_BITS: usize = 16;
const COUNT_BITS: u32 = 12;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
const MAX_FORM: u32 = (1 << (HEADER_BITS as u32 - COUNT_BITS)) - 1;

/// Form of a list of places.
const LIST: u32 = 0;
/// Form of an odd sketch of all shingles.
const ALL: u32 = 1;

/// The bits of a row's last word that are not its header.
const BITS: u64 = u64::MAX >> HEADER_BITS;

/// Most words in a row.
const MAX_WORDS: usize = 32;

/// Most shingles in an odd sketch, by the width of a row: the count's 12 bits leave a quarter for the error of the
/// estimate that a form is chosen by.
fn max_shingles(row_words: usize) -> f64 {
    (128 * row_words).min(3072) as f64
}

/// Bits of a place in the map of a row.
fn place_bits(row_words: usize) -> usize {
    if row_words <= 8 { 16 } else { 32 }
}

/// Places in a list.
fn list_length(row_words: usize) -> usize {
    (row_words * 64 - HEADER_BITS) / place_bits(row_words)
}

/// The level of a form: zero bits that begin the hashes of its shingles.
fn level_of(form: u32) -> u32 {
    form.saturating_sub(ALL)
}

/// Makes the rows of one page at a time.
#[derive(Debug, Clone)]
pub struct OddSketch {
    row_words: usize,
    /// All zeros between two pages: whoever reads it empties it.
    map: Vec<u64>,
}

impl OddSketch {
    /// For rows of `row_bytes`: 32, 64, 128 or 256.
    pub fn new(row_bytes: usize) -> Self {
        assert!([32, 64, 128, 256].contains(&row_bytes), "a row is 32, 64, 128 or 256 bytes");
        let row_words = row_bytes / 8;
        Self { row_words, map: vec![0; MAP_ROWS * row_words] }
    }

    /// Appends the row of a page to `row`, and to `neighbours` the rows in the sampled forms before and after its own; rows
    /// of zeros where no page of twice or half its size could be of that form.
    ///
    /// `shingles` may hold repetitions; they are all of the page's that are of `level`.
    #[inline(always)]
    pub fn pack(&mut self, shingles: &[u64], level: u32, row: &mut Vec<u64>, neighbours: &mut Vec<u64>) {
        let most = max_shingles(self.row_words);
        let none = self.row_words;
        let (lowest, mut form) = (ALL + level, ALL + level);
        self.fill(shingles, level);
        let start = row.len();
        let taken = self.fold(form, row);
        if level == 0 && taken <= list_length(self.row_words) {
            row.truncate(start);
            self.fill(shingles, level);
            self.list(taken, row);
            neighbours.resize(neighbours.len() + 2 * none, 0);
            return;
        }
        let mut distinct = self.distinct(taken);
        while distinct > most && form < MAX_FORM {
            form += 1;
            distinct /= 2.0;
        }
        if form > lowest + 1 {
            self.fill(shingles, level_of(form - 1));
            self.fold(form - 1, neighbours);
        } else if form > lowest {
            neighbours.extend_from_slice(&row[start..]);
        } else {
            neighbours.resize(neighbours.len() + none, 0);
        }
        if form > lowest {
            row.truncate(start);
            self.fill(shingles, level_of(form));
            self.fold(form, row);
        }
        if form < MAX_FORM && distinct > most / 2.0 {
            self.fill(shingles, level_of(form + 1));
            self.fold(form + 1, neighbours);
        } else {
            neighbours.resize(neighbours.len() + none, 0);
        }
    }

    /// Sets the bits of the shingles of `level`.
    #[inline(always)]
    fn fill(&mut self, shingles: &[u64], level: u32) {
        match self.row_words {
            4 => fill_of::<{ 4 * MAP_ROWS }>(&mut self.map, shingles, level),
            8 => fill_of::<{ 8 * MAP_ROWS }>(&mut self.map, shingles, level),
            16 => fill_of::<{ 16 * MAP_ROWS }>(&mut self.map, shingles, level),
            _ => fill_of::<{ 32 * MAP_ROWS }>(&mut self.map, shingles, level),
        }
    }

    /// Distinct shingles of a map with so many places taken, those that share a place told apart by linear counting
    /// (Whang, 1990).
    fn distinct(&self, taken: usize) -> f64 {
        let places = (self.map.len() * 64) as f64;
        -places * (1.0 - (taken as f64).min(places - 1.0) / places).ln()
    }

    /// Appends the places in the map, in order, and empties it.
    fn list(&mut self, taken: usize, out: &mut Vec<u64>) {
        let mut row = [0; MAX_WORDS];
        let bits = place_bits(self.row_words);
        let each_word = 64 / bits;
        let mut number = 0;
        for (word, held) in self.map.iter_mut().enumerate() {
            let mut held = std::mem::take(held);
            while held != 0 {
                let place = word as u64 * 64 + u64::from(held.trailing_zeros());
                row[number / each_word] |= place << (number % each_word * bits);
                number += 1;
                held &= held - 1;
            }
        }
        row[self.row_words - 1] |= header_bits(taken as u64, LIST);
        out.extend_from_slice(&row[..self.row_words]);
    }

    /// Appends the odd sketch of the map, and empties that. The places that were taken in it.
    #[inline(always)]
    fn fold(&mut self, form: u32, out: &mut Vec<u64>) -> usize {
        match self.row_words {
            4 => self.fold_of::<4>(form, out),
            8 => self.fold_of::<8>(form, out),
            16 => self.fold_of::<16>(form, out),
            _ => self.fold_of::<32>(form, out),
        }
    }

    #[inline(always)]
    fn fold_of<const WORDS: usize>(&mut self, form: u32, out: &mut Vec<u64>) -> usize {
        let (rows, _) = self.map.as_chunks_mut::<WORDS>();
        let (mut parity, mut taken) = ([0u64; WORDS], [0u64; WORDS]);
        // Places taken in the columns under the header, which do not count.
        let mut under_header = 0;
        for row in rows {
            // Emptied here and not all at once before the next fill, whose loads would wait for that. It also tells
            // the compiler to take row by row and not, as it does otherwise, column by column.
            let row = std::mem::replace(row, [0; WORDS]);
            for word in 0..WORDS {
                parity[word] ^= row[word];
                taken[word] += u64::from(row[word].count_ones());
            }
            under_header += u64::from((row[WORDS - 1] & !BITS).count_ones());
        }
        let taken = taken.iter().sum::<u64>();
        parity[WORDS - 1] = parity[WORDS - 1] & BITS | header_bits(taken - under_header, form);
        out.extend_from_slice(&parity);
        taken as usize
    }
}

/// The length is known here, so no access is checked.
#[inline(always)]
fn fill_of<const WORDS: usize>(map: &mut [u64], shingles: &[u64], level: u32) {
    let map: &mut [u64; WORDS] = map.try_into().expect("the map is as long as its row says");
    if level == 0 {
        for &shingle in shingles {
            map[(shingle >> 6) as usize % WORDS] |= 1 << (shingle % 64);
        }
        return;
    }
    for &shingle in shingles {
        let of_level = u64::from(shingle.leading_zeros() >= level);
        map[(shingle >> 6) as usize % WORDS] |= of_level << (shingle % 64);
    }
}

fn header_bits(count: u64, form: u32) -> u64 {
    count.min(MAX_COUNT) << (64 - HEADER_BITS) | u64::from(form) << (64 - HEADER_BITS as u32 + COUNT_BITS)
}

/// A row's form and number of shingles.
fn header(row: &[u64]) -> (u32, u32) {
    let bits = (row[row.len() - 1] >> (64 - HEADER_BITS)) as u32;
    (bits >> COUNT_BITS, bits & MAX_COUNT as u32)
}

/// The places of a row that is a list.
fn places(row: &[u64]) -> impl Iterator<Item = u64> {
    let bits = place_bits(row.len());
    (0..header(row).1 as usize).map(move |number| {
        let at = number * bits;
        row[at / 64] >> (at % 64) & ((1 << bits) - 1)
    })
}

/// The odd sketch of a row that is a list.
fn unlisted<'r>(row: &[u64], out: &'r mut [u64; MAX_WORDS]) -> &'r [u64] {
    let row_bits = row.len() as u64 * 64;
    let mut count = 0;
    for column in places(row).map(|place| place % row_bits).filter(|column| *column < row_bits - HEADER_BITS as u64) {
        out[column as usize / 64] ^= 1 << (column % 64);
        count += 1;
    }
    out[row.len() - 1] |= header_bits(count, ALL);
    &out[..row.len()]
}

/// Rows → resemblance.
#[derive(Debug, Clone)]
pub struct Estimator {
    cpu: Cpu,
    /// By number of differing bits, the likeliest number of differing shingles.
    differing: Vec<f32>,
}

impl Estimator {
    /// For rows of `row_bytes`.
    pub fn new(row_bytes: usize) -> Self {
        let bits = (row_bytes * 8 - HEADER_BITS) as f64;
        let differing = |set: usize| {
            let set = set as f64;
            let expected = if 2.0 * set < bits { -bits / 2.0 * (1.0 - 2.0 * set / bits).ln() } else { f64::INFINITY };
            // So few that most likely none fell on another: then J is exact, as it must be for a pair on the threshold.
            (if expected - set < 0.5 { set } else { expected }) as f32
        };
        Self { cpu: Cpu::detect(), differing: (0..=row_bytes * 8).map(differing).collect() }
    }

    /// The estimated resemblance of a page, given by its row and those of the neighbouring forms, and a remembered row,
    /// in [0, 1]. Zero if their sizes alone put it below one half.
    pub fn resemblance(&self, row: &[u64], neighbours: &[u64], remembered: &[u64]) -> f32 {
        self.cpu.run(
            #[inline(always)]
            || self.resemblance_of(row, neighbours, remembered),
        )
    }

    #[inline(always)]
    fn resemblance_of(&self, row: &[u64], neighbours: &[u64], remembered: &[u64]) -> f32 {
        let ((own, own_count), (other, other_count)) = (header(row), header(remembered));
        if own_count == 0 || other_count == 0 {
            return 0.0;
        }
        let (before, after) = neighbours.split_at(row.len());
        let mut scratch = [0; MAX_WORDS];
        match (own, other) {
            (LIST, LIST) => listed(row, remembered),
            (LIST, ALL) => self.estimate(unlisted(row, &mut scratch), remembered),
            (ALL, LIST) => self.estimate(row, unlisted(remembered, &mut scratch)),
            _ if own == other => self.estimate(row, remembered),
            _ if own == other + 1 => self.estimate(before, remembered),
            _ if own + 1 == other => self.estimate(after, remembered),
            _ => 0.0,
        }
    }

    /// Of two odd sketches of one level.
    #[inline(always)]
    fn estimate(&self, left: &[u64], right: &[u64]) -> f32 {
        let last = left.len() - 1;
        let set: u32 = left[..last].iter().zip(right).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
            + ((left[last] ^ right[last]) & BITS).count_ones();
        let sum = (header(left).1 + header(right).1) as f32;
        let differing = self.differing[set as usize];
        if differing >= sum { 0.0 } else { (sum - differing) / (sum + differing) }
    }
}

/// Of two lists.
fn listed(left: &[u64], right: &[u64]) -> f32 {
    let (mut lefts, mut rights) = (places(left).peekable(), places(right).peekable());
    let mut common = 0;
    while let (Some(l), Some(r)) = (lefts.peek(), rights.peek()) {
        let (l, r) = (*l, *r);
        common += u32::from(l == r);
        lefts.next_if(|_| l <= r);
        rights.next_if(|_| r <= l);
    }
    common as f32 / (header(left).1 + header(right).1 - common) as f32
}

/// The differing bits of the rows of two pages of `shingles` distinct shingles each, of this resemblance.
struct Differing {
    mean: f64,
    variance: f64,
    /// How the mean changes with the resemblance.
    slope: f64,
}

impl Differing {
    /// With p = (1 − e^(−2m/n))/2 the share of set bits and m fixed, the variance is n·p·(1 − p) − m·e^(−4m/n). Where a
    /// sample is taken, that of its resemblance comes on top.
    fn expected(resemblance: f64, shingles: f64, row_bytes: usize) -> Self {
        let (bits, most) = ((row_bytes * 8 - HEADER_BITS) as f64, max_shingles(row_bytes / 8));
        let sampled = (shingles / most).log2().ceil().max(0.0).exp2().recip();
        let sum = 2.0 * shingles * sampled;
        let differing = sum * (1.0 - resemblance) / (1.0 + resemblance);
        let single = (-2.0 * differing / bits).exp();
        let share = (1.0 - single) / 2.0;
        let slope = -single * 2.0 * sum / (1.0 + resemblance).powi(2);
        let of_bits = (bits * share * (1.0 - share) - differing * single * single).max(0.0);
        let of_sample = resemblance * (1.0 - resemblance) * 2.0 / (sum + differing) * (1.0 - sampled);
        Self { mean: bits * share, variance: of_bits + of_sample * slope * slope, slope }
    }
}

/// Is a page of so many distinct shingles compared by a list, and so exactly?
fn is_exact(shingles: f64, row_bytes: usize) -> bool {
    shingles <= list_length(row_bytes / 8) as f64
}

/// The standard error of an estimate at this resemblance (above 0) between pages of `shingles` distinct shingles each.
pub fn standard_error(resemblance: f64, shingles: f64, row_bytes: usize) -> f64 {
    let Differing { variance, slope, .. } = Differing::expected(resemblance, shingles, row_bytes);
    if is_exact(shingles, row_bytes) { 0.0 } else { variance.sqrt() / -slope }
}

/// How many standard deviations of the differing bits lie between those of such pages and those of `threshold`: above 0
/// if their estimate is likely to be below it.
pub fn deviations_from(threshold: f64, resemblance: f64, shingles: f64, row_bytes: usize) -> f64 {
    let expected = |resemblance| Differing::expected(resemblance, shingles, row_bytes);
    let (found, wanted) = (expected(resemblance), expected(threshold));
    let apart = found.mean - wanted.mean;
    // Bits of a page with itself do not vary: zero is then at or above any threshold.
    if found.variance == 0.0 || is_exact(shingles, row_bytes) {
        return if resemblance >= threshold { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    apart / found.variance.sqrt()
}

/// The row by its definition, one shingle at a time and sorted out by a set: the oracle of [`OddSketch`].
pub fn plain(shingles: &[u64], form: u32, row_bytes: usize) -> Vec<u64> {
    let row_bits = row_bytes as u64 * 8;
    let of_level = shingles.iter().filter(|shingle| shingle.leading_zeros() >= level_of(form));
    let places: std::collections::BTreeSet<u64> =
        of_level.map(|shingle| shingle % (row_bits * MAP_ROWS as u64)).collect();
    let mut row = vec![0u64; row_bytes / 8];
    let last = row.len() - 1;
    if form == LIST {
        let bits = place_bits(row.len());
        for (number, place) in places.iter().enumerate() {
            row[number * bits / 64] |= place << (number * bits % 64);
        }
        row[last] |= header_bits(places.len() as u64, form);
        return row;
    }
    let mut count = 0;
    for column in places.iter().map(|place| place % row_bits).filter(|column| *column < row_bits - 16) {
        row[column as usize / 64] ^= 1 << (column % 64);
        count += 1;
    }
    row[last] |= header_bits(count, form);
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::keyed::mix;
    use proptest::prelude::*;

    fn shingles(seed: u64, count: u64) -> Vec<u64> {
        (0..count).map(|i| mix(mix(seed) ^ i)).collect()
    }

    fn rows(shingles: &[u64], bytes: usize) -> (Vec<u64>, Vec<u64>) {
        let mut sketch = OddSketch::new(bytes);
        let [first, again] = [(); 2].map(|()| {
            let (mut row, mut neighbours) = (Vec::new(), Vec::new());
            sketch.pack(shingles, 0, &mut row, &mut neighbours);
            (row, neighbours)
        });
        assert_eq!(first, again, "nothing is left of the page before");
        first
    }

    proptest! {
        #[test]
        fn fast_is_plain(
            seed: u64, count in prop_oneof![1u64..80, 1u64..9000], wide in 0u32..4, repeated in 0usize..500,
        ) {
            let bytes = 32usize << wide;
            let mut shingles = shingles(seed, count);
            let (row, neighbours) = rows(&shingles, bytes);
            let form = header(&row).0;
            prop_assert!(count as f64 / f64::from(1 << level_of(form)) < max_shingles(bytes / 8) * 1.25);
            if form == LIST {
                let mut scratch = [0; MAX_WORDS];
                prop_assert_eq!(&plain(&shingles, ALL, bytes)[..], unlisted(&row, &mut scratch));
            }
            prop_assert_eq!(&row, &plain(&shingles, form, bytes));
            let (before, after) = neighbours.split_at(bytes / 8);
            if form > ALL {
                prop_assert_eq!(before, &plain(&shingles, form - 1, bytes)[..]);
            }
            if header(after) != (0, 0) {
                prop_assert_eq!(after, &plain(&shingles, form + 1, bytes)[..]);
            }
            shingles.reverse();
            shingles.extend_from_within(..repeated.min(shingles.len()));
            prop_assert_eq!((row, neighbours), rows(&shingles, bytes), "order and repetition do not count");
        }

        /// Two pages of sizes up to 2:1 always have a form in common, whichever is judged.
        #[test]
        fn like_sizes_compare(
            seed: u64, small in prop_oneof![8u64..100, 8u64..5000], more in 1.0f64..1.6, wide in 0u32..4,
        ) {
            let bytes = 32usize << wide;
            let large = shingles(seed, (small as f64 * more) as u64);
            let small = &large[..small as usize];
            let truth = small.len() as f32 / large.len() as f32;
            let (a, b) = (rows(&large, bytes), rows(small, bytes));
            let estimator = Estimator::new(bytes);
            for found in [estimator.resemblance(&a.0, &a.1, &b.0), estimator.resemblance(&b.0, &b.1, &a.0)] {
                let error = standard_error(f64::from(truth), small.len() as f64 * 1.45, bytes) as f32;
                prop_assert!((found - truth).abs() < 0.03 + 6.0 * error, "{} at {}, error {}", found, truth, error);
            }
        }
    }

    #[test]
    fn short_pages_are_compared_exactly() {
        let estimator = Estimator::new(64);
        for (count, common) in [(8, 4), (8, 6), (20, 16), (31, 25), (31, 0)] {
            let left = shingles(1, count);
            let mut right = shingles(2, count);
            right[..common].copy_from_slice(&left[..common]);
            let (row, neighbours) = rows(&left, 64);
            let truth = common as f32 / (2 * count as usize - common) as f32;
            assert_eq!(estimator.resemblance(&row, &neighbours, &rows(&right, 64).0), truth, "{common} of {count}");
        }
    }

    #[test]
    fn a_page_is_like_itself_and_like_no_other() {
        for count in [1, 8, 31, 32, 500, 1024, 1025, 5000, 70_000] {
            let estimator = Estimator::new(64);
            let (row, neighbours) = rows(&shingles(1, count), 64);
            assert_eq!(estimator.resemblance(&row, &neighbours, &row), 1.0);
            let other = rows(&shingles(2, count), 64).0;
            let found = estimator.resemblance(&row, &neighbours, &other);
            assert!(found < 0.6, "{count} shingles: {found}");
        }
    }

    #[test]
    fn sizes_far_apart_are_no_copies() {
        let estimator = Estimator::new(64);
        let (row, neighbours) = rows(&shingles(1, 600), 64);
        for count in [3000, 30_000, 300_000] {
            let large = rows(&shingles(1, count), 64);
            assert!(estimator.resemblance(&row, &neighbours, &large.0) < 0.6, "{count}");
            assert!(estimator.resemblance(&large.0, &large.1, &row) < 0.6, "{count}");
        }
    }
}
