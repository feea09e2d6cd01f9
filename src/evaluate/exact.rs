//! Exact resemblance, and an index that finds every earlier page of at least a given resemblance.
//!
//! ```text
//! text ─▶ set of shingles ─▶ Corpus: shingles numbered from the rarest up ─▶ ExactIndex: prefix filter ▸ verify
//! ```
//!
//! Two sets x, y of resemblance ≥ t share ⌈t·|x|⌉ members or more. So if the members of every set are put in one
//! order, the first |x| − ⌈t·|x|⌉ + 1 of x and the first |y| − ⌈t·|y|⌉ + 1 of y have one in common (Bayardo, Ma &
//! Srikant, WWW 2007). Of the shorter set |x| − ⌈2t/(1 + t)·|x|⌉ + 1 do, so two members that are both beyond that
//! need not be compared. With the rarest first, few pages share a prefix even if all share most of their text. Pages
//! of the wrong length and those whose shared member comes too late in either (Xiao et al., PPJoin, WWW 2008)
//! are left out; the rest is counted. Nothing is estimated: the answer is that of comparing all with all.

use crate::page::words;
use crate::sketch::keyed::mix;
use siphasher::sip::SipHasher13;

/// Keeps ⌈x⌉ of a product that should be whole from coming out one too high. Sets have far fewer than 10⁹ members.
const ROUNDING: f64 = 1e-9;

/// Marks the end of a chain of postings.
const NONE: u32 = u32::MAX;

/// Marks a page that the positional filter has ruled out.
const RULED_OUT: u32 = u32::MAX;

/// A text as sets see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shingled {
    /// Its distinct shingles, each as an unkeyed 64-bit hash, in rising order. Two different shingles of a million-page
    /// corpus fall together with a chance of about 1 %, and then move one resemblance in its third digit.
    pub set: Vec<u64>,
    /// Words.
    pub num_words: usize,
    /// Hash of all words in order.
    pub words_hash: u64,
}

impl Shingled {
    /// The shingles of `shingle_words` words each.
    pub fn of(text: &str, shingle_words: usize) -> Self {
        let unkeyed = SipHasher13::new();
        let words: Vec<u64> = words::plain(text).iter().map(|word| unkeyed.hash(word.as_bytes())).collect();
        let join = |words: &[u64]| words.iter().fold(0, |hash, word| mix(hash ^ word).wrapping_add(1));
        let mut set: Vec<u64> = words.windows(shingle_words).map(join).collect();
        set.sort_unstable();
        set.dedup();
        Self { set, num_words: words.len(), words_hash: join(&words) }
    }
}

/// The Jaccard similarity of two sets, each in rising order and without repetition; 1 if both are empty.
pub fn resemblance<T: Ord>(left: &[T], right: &[T]) -> f64 {
    of_overlap(overlap(left, right, 0).unwrap_or(0), left.len(), right.len())
}

fn of_overlap(num_shared: usize, left: usize, right: usize) -> f64 {
    let num_all = left + right - num_shared;
    if num_all == 0 { 1.0 } else { num_shared as f64 / num_all as f64 }
}

/// Members that two sets share, or `None` as soon as it is certain that they are fewer than `least`.
fn overlap<T: Ord>(left: &[T], right: &[T], least: usize) -> Option<usize> {
    let (mut i, mut j, mut num_shared) = (0, 0, 0);
    while i < left.len() && j < right.len() {
        if num_shared + (left.len() - i).min(right.len() - j) < least {
            return None;
        }
        let (x, y) = (&left[i], &right[j]);
        num_shared += usize::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    (num_shared >= least).then_some(num_shared)
}

/// Sets of shingles, gathered page by page.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    shingles: Vec<u64>,
    ends: Vec<usize>,
}

impl Gathered {
    /// Adds the next page's set.
    pub fn push(&mut self, set: &[u64]) {
        self.shingles.extend_from_slice(set);
        self.ends.push(self.shingles.len());
    }
}

/// The shingle sets of all pages, each shingle by its place in the order of rising page frequency: 4 bytes each.
#[derive(Debug, Clone)]
pub struct Corpus {
    ranks: Vec<u32>,
    ends: Vec<usize>,
    num_distinct: usize,
    /// Shingles below this are on one page only and cannot be shared.
    first_shared: u32,
}

impl Corpus {
    /// Numbers the shingles of these sets.
    pub fn new(gathered: Gathered) -> Self {
        let Gathered { shingles, ends } = gathered;
        let mut sorted = shingles.clone();
        sorted.sort_unstable();
        let mut distinct: Vec<(u64, u32)> = Vec::new();
        for run in sorted.chunk_by(|a, b| a == b) {
            distinct.push((run[0], u32::try_from(run.len()).unwrap_or(u32::MAX)));
        }
        drop(sorted);
        assert!(distinct.len() < NONE as usize, "a corpus for evaluation has fewer than 2³² distinct shingles");
        let mut by_frequency: Vec<u32> = (0..distinct.len() as u32).collect();
        by_frequency.sort_by_key(|&number| (distinct[number as usize].1, number));
        let first_shared = by_frequency.partition_point(|&number| distinct[number as usize].1 == 1) as u32;
        for (rank, &number) in by_frequency.iter().enumerate() {
            distinct[number as usize].1 = rank as u32;
        }
        drop(by_frequency);
        let dictionary = Dictionary::new(distinct);
        let mut ranks: Vec<u32> = shingles.iter().map(|&shingle| dictionary.rank(shingle)).collect();
        let mut start = 0;
        for &end in &ends {
            ranks[start..end].sort_unstable();
            start = end;
        }
        Self { ranks, ends, num_distinct: dictionary.entries.len(), first_shared }
    }

    /// Number of pages.
    pub fn num_pages(&self) -> usize {
        self.ends.len()
    }

    /// The set of page number `page`, rarest shingle first.
    pub fn set(&self, page: usize) -> &[u32] {
        let start = if page == 0 { 0 } else { self.ends[page - 1] };
        &self.ranks[start..self.ends[page]]
    }

    /// The exact resemblance of two pages.
    pub fn resemblance(&self, left: usize, right: usize) -> f64 {
        resemblance(self.set(left), self.set(right))
    }
}

/// Shingle → rank. The hashes are uniform, so their top bits lead to a stretch of one or two entries.
struct Dictionary {
    entries: Vec<(u64, u32)>,
    starts: Vec<u32>,
    shift: u32,
}

impl Dictionary {
    fn new(entries: Vec<(u64, u32)>) -> Self {
        let bits = entries.len().max(2).next_power_of_two().trailing_zeros();
        let shift = 64 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (place, (shingle, _)) in entries.iter().enumerate() {
            while starts.len() <= (shingle >> shift) as usize {
                starts.push(place as u32);
            }
        }
        starts.resize((1 << bits) + 1, entries.len() as u32);
        Self { entries, starts, shift }
    }

    fn rank(&self, shingle: u64) -> u32 {
        let top = (shingle >> self.shift) as usize;
        let stretch = &self.entries[self.starts[top] as usize..self.starts[top + 1] as usize];
        stretch.iter().find(|entry| entry.0 == shingle).expect("every shingle of the corpus is in its dictionary").1
    }
}

/// Finds, among the pages put into it, all of at least `floor` resemblance.
#[derive(Debug)]
pub struct ExactIndex<'c> {
    corpus: &'c Corpus,
    floor: f64,
    /// Shared shingle → its newest posting, in the short prefixes and in the rest of the prefixes.
    heads: [Vec<u32>; 2],
    postings: Vec<Posting>,
    /// Scratch: members shared so far with each page, and the pages that have a count.
    counts: Vec<u32>,
    touched: Vec<u32>,
}

/// The two parts of a prefix.
const SHORT: usize = 0;
const REST: usize = 1;

/// A shared shingle in a set's prefix.
struct Place {
    place: usize,
    /// The shingle's number in `heads`.
    number: usize,
    half: usize,
}

/// A page has a shingle at this place of its prefix.
#[derive(Debug, Clone, Copy)]
struct Posting {
    page: u32,
    place: u32,
    next: u32,
}

impl<'c> ExactIndex<'c> {
    /// An empty index over pages of `corpus`; `floor` is above 0 and at most 1.
    pub fn new(corpus: &'c Corpus, floor: f64) -> Self {
        assert!(floor > 0.0 && floor <= 1.0, "a prefix filter needs a floor above 0");
        Self {
            corpus,
            floor,
            heads: std::array::from_fn(|_| vec![NONE; corpus.num_distinct - corpus.first_shared as usize]),
            postings: Vec::new(),
            counts: vec![0; corpus.num_pages()],
            touched: Vec::new(),
        }
    }

    /// The places of a set's prefix that hold a shared shingle.
    fn prefix(&self, set: &'c [u32]) -> impl Iterator<Item = Place> + use<'c> {
        let beyond = |share: f64| set.len() - (share * set.len() as f64 - ROUNDING).ceil() as usize;
        let (short, length) = (beyond(2.0 * self.floor / (1.0 + self.floor)) + 1, beyond(self.floor) + 1);
        let first_shared = self.corpus.first_shared;
        set[..length.min(set.len())].iter().enumerate().filter_map(move |(place, &rank)| {
            let number = rank.checked_sub(first_shared)? as usize;
            Some(Place { place, number, half: if place < short { SHORT } else { REST } })
        })
    }

    /// Puts a page in. A page without shingles is never found.
    pub fn insert(&mut self, page: usize) {
        for Place { place, number, half } in self.prefix(self.corpus.set(page)) {
            let next = std::mem::replace(&mut self.heads[half][number], self.postings.len() as u32);
            self.postings.push(Posting { page: page as u32, place: place as u32, next });
        }
    }

    /// Appends to `found` every page put in whose resemblance to `page` is at least the floor, with it.
    pub fn find(&mut self, page: usize, found: &mut Vec<(usize, f64)>) {
        let set = self.corpus.set(page);
        let share = self.floor / (1.0 + self.floor);
        let least_shared = |other: usize| (share * (set.len() + other) as f64 - ROUNDING).ceil() as usize;
        let shortest = (self.floor * set.len() as f64 - ROUNDING).ceil() as usize;
        let longest = (set.len() as f64 / self.floor + ROUNDING).floor() as usize;
        self.touched.clear();
        for Place { place, number, half } in self.prefix(set) {
            // Once both are past the short prefix they stay there, so what is passed over was not missing from a
            // count before.
            let halves = if half == SHORT { &self.heads[..] } else { &self.heads[..=SHORT] };
            for heads in halves {
                let mut at = heads[number];
                while at != NONE {
                    let posting = self.postings[at as usize];
                    at = posting.next;
                    let length = self.corpus.set(posting.page as usize).len();
                    let count = &mut self.counts[posting.page as usize];
                    if *count == RULED_OUT || length < shortest || length > longest {
                        continue;
                    }
                    if *count == 0 {
                        self.touched.push(posting.page);
                    }
                    let rest = (set.len() - place).min(length - posting.place as usize);
                    *count = if *count as usize + rest >= least_shared(length) { *count + 1 } else { RULED_OUT };
                }
            }
        }
        for other in self.touched.drain(..) {
            let other = other as usize;
            if std::mem::take(&mut self.counts[other]) == RULED_OUT {
                continue;
            }
            let theirs = self.corpus.set(other);
            if let Some(shared) = overlap(set, theirs, least_shared(theirs.len())) {
                let exact = of_overlap(shared, set.len(), theirs.len());
                if exact >= self.floor {
                    found.push((other, exact));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn resemblance_of_small_sets() {
        let table: [(&[u64], &[u64], f64); 6] = [
            (&[], &[], 1.0),
            (&[], &[1], 0.0),
            (&[1, 2, 3], &[1, 2, 3], 1.0),
            (&[1, 2, 3], &[2, 3, 4], 0.5),
            (&[1, 2, 3, 4], &[1, 2, 3, 4, 5], 0.8),
            (&[1, 9], &[2, 3, 4, 5, 6, 7, 8], 0.0),
        ];
        for (left, right, expected) in table {
            assert_eq!(resemblance(left, right), expected, "{left:?} {right:?}");
            assert_eq!(resemblance(right, left), expected, "{right:?} {left:?}");
        }
    }

    #[test]
    fn shingles_of_a_text() {
        let shingles = |text| Shingled::of(text, 5);
        let six = shingles("One two, three FOUR five six");
        assert_eq!((six.set.len(), six.num_words), (2, 6));
        assert!(shingles("one two three four").set.is_empty());
        assert_eq!(shingles("a a a a a a a a a").set.len(), 1);
        assert_eq!(shingles("one-two three four five"), shingles("One two three. Four five"));
        assert_ne!(shingles("one two three four five").set, shingles("two one three four five").set);
        assert_ne!(shingles("one two").words_hash, shingles("two one").words_hash);
        let (left, right) =
            ("the same words again and again, but not quite", "the same words again and again, but not all");
        let exact = resemblance(&shingles(left).set, &shingles(right).set);
        assert_eq!(exact, crate::generate::resemblance(left, right));
    }

    /// Sets that share a lot: each is a stretch of a few common runs with some members left out.
    fn sets() -> impl Strategy<Value = Vec<BTreeSet<u64>>> {
        let set = (0u64..4, 0u64..12, 0u64..30, prop::collection::btree_set(0u64..40, 0..8), any::<bool>()).prop_map(
            |(run, start, length, without, own)| {
                let own = own.then_some(1_000_000 + run * 7919 + start * 31 + length);
                (start..start + length)
                    .filter(|m| !without.contains(m))
                    .map(|m| mix(run << 32 | m))
                    .chain(own)
                    .collect()
            },
        );
        prop::collection::vec(set, 1..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn the_index_finds_what_comparing_all_finds(sets in sets(), floor in 0.2f64..=1.0, each_second: bool) {
            let floor = (floor * 20.0).round() / 20.0;
            let sets: Vec<Vec<u64>> = sets.into_iter().map(|set| set.into_iter().collect()).collect();
            let mut gathered = Gathered::default();
            sets.iter().for_each(|set| gathered.push(set));
            let corpus = Corpus::new(gathered);
            let mut index = ExactIndex::new(&corpus, floor);
            let kept = |page: usize| !each_second || page.is_multiple_of(2);
            for page in 0..sets.len() {
                let mut found = Vec::new();
                index.find(page, &mut found);
                found.sort_by_key(|(other, _)| *other);
                let all = (0..page).filter(|other| kept(*other) && !sets[*other].is_empty());
                let expected: Vec<(usize, f64)> = all
                    .map(|other| (other, resemblance(&sets[page], &sets[other])))
                    .filter(|(_, exact)| *exact >= floor)
                    .collect();
                prop_assert_eq!(found, expected);
                if kept(page) {
                    index.insert(page);
                }
            }
        }
    }
}
