//! The words that pages are written in: real English function words as often as English has them, and thirty
//! thousand content words that no language has, in a Zipf distribution. Together they give shingles the statistics
//! of prose (a shingle of function words alone is rare, one shared by chance rarer) without a corpus to ship.

use super::random::{Odds, Random};
use std::collections::HashSet;

/// Function words with their number in the Brown corpus, a million words of American English (Kučera and Francis, 1967).
const FUNCTION_WORDS: &str = "\
the 6997 of 3641 and 2885 to 2615 a 2324 in 2134 that 1059 is 1010 was 982 he 955 for 949 it 876 with 729 as 725 \
his 700 on 674 be 638 at 538 by 530 i 517 this 514 had 513 not 461 are 439 but 438 from 437 or 421 have 394 an 374 \
they 362 which 356 one 330 you 328 were 328 her 304 all 300 she 286 there 272 would 271 their 267 we 265 him 262 \
been 247 has 244 when 233 who 225 will 224 more 222 no 220 if 220 out 210 so 198 said 196 what 191 up 190 its 186 \
about 182 into 179 than 179 them 179 can 177 only 175 other 170 new 164 some 162 could 160 time 160 these 157 \
two 141 may 140 then 138 do 136 first 136 any 135 my 132 now 131 such 130 like 129 our 125 over 124 man 121 me 118 \
even 117 most 116 made 113 after 107 also 107 did 104 many 103 before 102 must 102 through 97 back 97 years 97 \
where 94 much 94 your 92 way 91 well 90 down 90 should 89 because 88 each 88 just 87 those 85 people 85 how 83 \
too 83 little 83 state 81 good 81 very 80 make 79 world 79 still 78 own 78 see 77 men 76 work 76 long 75 get 75 \
here 75 between 73 both 73 life 72 being 71 under 70 never 70 day 69 same 69 another 68 know 68 while 68 last 68 \
us 67 might 67 great 67 old 66 year 66 off 64 come 63 since 63 against 63 go 62 came 62 right 61 used 61 take 61 \
three 61 himself 60 few 60 house 59 use 59 during 59 without 58 again 58 place 57 around 56 however 55 home 55 \
small 54 found 54 thought 52 went 51 say 50 part 50 once 50 general 50 high 50 upon 50 school 49 every 49 does 49 \
got 48 left 48 number 47 course 47 war 46 until 46 always 46 away 46 something 45 fact 45 though 44 water 44 \
less 44 public 44 put 44 think 43 almost 43 hand 43 enough 43 far 43 took 43 head 42 yet 42 government 42 system 42 \
better 41 set 41 told 41 nothing 41 night 41 end 41 why 40 called 40 eyes 40 find 40 going 40 look 40 asked 40 \
later 40 knew 40";

/// How many content words there are: about what a year of a newspaper uses more than once.
const NUM_CONTENT_WORDS: usize = 30_000;

const ONSETS: [&str; 24] = [
    "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "br", "cl", "dr", "gr", "pl", "pr", "st",
    "tr", "th", "sh",
];
const VOWELS: [&str; 9] = ["a", "e", "i", "o", "u", "e", "a", "ea", "io"];
const CODAS: [&str; 12] = ["", "", "", "", "n", "r", "l", "s", "t", "nd", "m", "rt"];

/// The function and content words with their odds.
pub(super) struct Vocabulary {
    function: Vec<&'static str>,
    function_odds: Odds,
    content: Vec<Box<str>>,
    content_odds: Odds,
}

impl Vocabulary {
    /// The vocabulary of a seed.
    pub fn new(seed: u64) -> Self {
        let counted: Vec<&str> = FUNCTION_WORDS.split(' ').collect();
        let (function, counts): (Vec<&str>, Vec<f64>) = counted
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1].parse::<f64>().expect("a count follows each word")))
            .unzip();

        let mut random = Random::new(seed);
        let mut taken: HashSet<String> = function.iter().map(|word| word.to_string()).collect();
        let mut content = Vec::with_capacity(NUM_CONTENT_WORDS);
        while content.len() < NUM_CONTENT_WORDS {
            // Frequent words are the shorter ones, as everywhere.
            let most_syllables = match content.len() {
                ..2_000 => 2,
                2_000..15_000 => 3,
                _ => 4,
            };
            let num_syllables = random.between(2, most_syllables);
            let mut word = String::new();
            for _ in 0..num_syllables {
                word += random.pick(&ONSETS);
                word += random.pick(&VOWELS);
            }
            word += random.pick(&CODAS);
            if taken.insert(word.clone()) {
                content.push(word.into_boxed_str());
            }
        }
        Vocabulary {
            function_odds: Odds::new(&counts),
            function,
            // The shift makes the commonest content word about as common as the hundredth word of English.
            content_odds: Odds::zipf(content.len(), 30.0),
            content,
        }
    }

    /// A function word, as often as English has it.
    pub fn function(&self, random: &mut Random) -> &str {
        self.function[self.function_odds.draw(random)]
    }

    /// A content word, as often as its rank says.
    pub fn content(&self, random: &mut Random) -> &str {
        &self.content[self.content_odds.draw(random)]
    }

    /// A content word, each as often as any other: the mostly rare words that a page is about.
    pub fn topic(&self, random: &mut Random) -> &str {
        &self.content[random.below(self.content.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_distinct_lower_case_letters() {
        let vocabulary = Vocabulary::new(1);
        assert!(vocabulary.function.len() >= 200, "{}", vocabulary.function.len());
        assert_eq!(vocabulary.content.len(), NUM_CONTENT_WORDS);
        let all = vocabulary.function.iter().copied().chain(vocabulary.content.iter().map(AsRef::as_ref));
        let mut seen = HashSet::new();
        for word in all {
            assert!(word.bytes().all(|b| b.is_ascii_lowercase()), "{word}");
            assert!(seen.insert(word), "{word} twice");
        }
    }

    /// `the` is 6,997 of about 54,000 counted: 12.8 %; drawn evenly it would be 0.4 %.
    #[test]
    fn the_is_the_commonest() {
        let (vocabulary, mut random) = (Vocabulary::new(1), Random::new(2));
        let num_the = (0..10_000).filter(|_| vocabulary.function(&mut random) == "the").count();
        assert!((1_050..1_600).contains(&num_the), "{num_the}");
    }
}
