//! Seeded text for the tests: words of English in random order, and pairs of pages whose true resemblance is known.

/// SplitMix64 (Steele, Lea & Flood, 2014): the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        pagesieve::sketch::keyed::mix(self.0)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

const WORDS: &str = "\
the of and to in is was for with on as by at from this that are were an have not which their be has more also \
first time people year state work house water city world school day number part place small large company group \
system program question government night point home room mother area money story fact month lot right study book \
eye job word business issue side kind head service friend father power hour game line end member law car name \
president team minute idea body information back parent face others level office door health person art war \
history party result change morning reason research girl guy moment air teacher force education foot boy age \
policy music market sense nation plan college interest death experience effect use class control field development \
role effort rate heart drug show leader light voice wife police mind price report decision son view relationship \
town road arm difference value building action season society tax director position player record paper space \
ground form event official matter center couple site project activity star table need court oil situation cost \
industry figure street image phone data picture practice piece land product doctor wall patient worker news test \
movie north love support technology step baby computer type attention film tree source river garden winter bridge";

/// A text of `num_words` English words drawn at random. With some two hundred words to draw from, a shingle of five
/// comes up twice in a page of 5,000 words once in thirty thousand pages.
pub fn prose(random: &mut Random, num_words: usize) -> Vec<&'static str> {
    thread_local!(static LIST: Vec<&'static str> = WORDS.split_whitespace().collect());
    LIST.with(|list| (0..num_words).map(|_| list[random.below(list.len())]).collect())
}
