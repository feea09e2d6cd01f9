//! What happens to a text on its way to another address: the desk changes the date, an agency's client puts its own
//! navigation around it, a scraper swaps words, an editor adds, cuts, moves or shortens.
//!
//! The strength of an edit is drawn from the resemblance it should leave; what it does leave is counted afterwards.

use super::random::Random;
use super::sites::Sites;
use super::text::{Style, Writer};

/// A page's text in the parts that edits work on.
#[derive(Clone)]
pub(super) struct Body {
    /// The index of the site whose navigation frames it.
    pub site: usize,
    /// The script it is written in.
    pub style: Style,
    /// Headline, byline, paragraphs.
    pub article: Vec<String>,
}

/// The first paragraph that edits may cut or move: headline and byline stay.
const FIRST_PARAGRAPH: usize = 2;

/// Edits texts with what it has at hand.
#[derive(Clone, Copy)]
pub(super) struct Editor<'a> {
    pub writer: &'a Writer,
    pub sites: &'a Sites,
}

impl Editor<'_> {
    /// An edited copy. Four in five resemble their source by 0.8 or more, nearly all others by 0.5 or more.
    pub fn near_copy(self, source: &Body, random: &mut Random) -> Body {
        let wanted = if random.chance(0.8) { 0.8 + 0.19 * random.unit() } else { 0.55 + 0.25 * random.unit() };
        let mut copy = source.clone();
        let num_words = num_words(&copy.article) + self.sites.get(copy.site).num_frame_words();
        match random.below(8) {
            0 | 1 => {
                copy.site = self.sites.draw(random);
                let credit = format!("This article first appeared on {}.", self.writer.name(random));
                copy.article.push(credit);
            }
            2 => {
                self.redate(&mut copy, random);
                self.change_words(&mut copy, 0.002, random);
            }
            3 | 4 => self.change_words(&mut copy, share_to_change(wanted), random),
            5 => self.insert(&mut copy, (num_words as f64 * (1.0 / wanted - 1.0)) as usize, random),
            6 if random.chance(0.3) => move_paragraph(&mut copy, random),
            6 => remove(&mut copy, (num_words as f64 * (1.0 - wanted)) as usize, random),
            _ => abridge(&mut copy, (num_words as f64 * (1.0 - wanted)) as usize),
        }
        copy
    }

    /// The same page some time later: a few words changed, or all but its first paragraphs rewritten.
    pub fn update(self, source: &Body, random: &mut Random) -> Body {
        let mut copy = source.clone();
        if random.chance(0.5) {
            self.change_words(&mut copy, 0.03 * random.unit(), random);
            return copy;
        }
        let voice = self.writer.voice(copy.style, random);
        let rewritten = self.writer.article(&voice, num_words(&copy.article), random);
        let num_kept = random.between(1, 1 + copy.article.len() / 4);
        copy.article.truncate(num_kept);
        copy.article.extend(rewritten.into_iter().skip(num_kept));
        copy
    }

    /// Replaces one word by another, perhaps the same.
    pub fn change_one_word(self, copy: &mut Body, random: &mut Random) {
        let paragraph = random.below(copy.article.len());
        let mut words: Vec<&str> = copy.article[paragraph].split(' ').collect();
        let position = random.below(words.len());
        words[position] = self.writer.word(random);
        copy.article[paragraph] = words.join(" ");
    }

    /// Replaces, drops or adds a word at about the given share of all places.
    fn change_words(self, copy: &mut Body, share: f64, random: &mut Random) {
        each_word(&mut copy.article, |out, word| {
            if !random.chance(share) {
                out.push_str(word);
                return;
            }
            match random.below(5) {
                0 => {}
                1 => out.extend([word, " ", self.writer.word(random)]),
                _ => {
                    out.push_str(self.writer.word(random));
                    out.push_str(word.trim_start_matches(char::is_alphanumeric));
                }
            }
        });
    }

    /// Changes the byline's date and some of the other numbers.
    fn redate(self, copy: &mut Body, random: &mut Random) {
        let share = 0.3 + 0.5 * random.unit();
        let mut num_numbers = 0;
        each_word(&mut copy.article, |out, word| {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit());
            num_numbers += u32::from(is_number);
            // The first number is the day in the byline, unless the headline has one.
            if is_number && (num_numbers == 1 || random.chance(share)) {
                for char in word.chars() {
                    out.push(if char.is_ascii_digit() { random.pick(&['1', '2', '3', '7']) } else { char });
                }
            } else {
                out.push_str(word);
            }
        });
    }

    /// Adds a paragraph of about `num_words` words somewhere.
    fn insert(self, copy: &mut Body, num_words: usize, random: &mut Random) {
        let voice = self.writer.voice(copy.style, random);
        let paragraph = self.writer.paragraph(&voice, num_words.max(5), random);
        let position = random.between(FIRST_PARAGRAPH.min(copy.article.len()), copy.article.len());
        copy.article.insert(position, paragraph);
    }
}

/// The share of words to change for a resemblance J: of shingles of 5 words (1 − e)⁵ survive, and J = s / (2 − s).
/// To first order in e, which is at most 0.06.
fn share_to_change(resemblance: f64) -> f64 {
    (1.0 - resemblance) / (1.0 + resemblance) / 5.0
}

/// Words between spaces.
fn num_words(article: &[String]) -> usize {
    article.iter().map(|paragraph| paragraph.split(' ').count()).sum()
}

/// Rewrites an article word by word; `write` appends what a word becomes.
fn each_word(article: &mut [String], mut write: impl FnMut(&mut String, &str)) {
    for paragraph in article {
        let mut out = String::with_capacity(paragraph.len() + 32);
        for word in paragraph.split(' ') {
            let end = out.len();
            write(&mut out, word);
            if out.len() > end {
                out.push(' ');
            }
        }
        out.pop();
        *paragraph = out;
    }
}

/// Takes a paragraph out and puts it in elsewhere.
fn move_paragraph(copy: &mut Body, random: &mut Random) {
    if copy.article.len() <= FIRST_PARAGRAPH {
        return;
    }
    let paragraph = copy.article.remove(random.between(FIRST_PARAGRAPH, copy.article.len() - 1));
    let position = random.between(FIRST_PARAGRAPH, copy.article.len());
    copy.article.insert(position, paragraph);
}

/// Removes about `num_to_cut` words in one run: from a random paragraph on, whole ones and the head of the next.
fn remove(copy: &mut Body, num_to_cut: usize, random: &mut Random) {
    let start = random.between(FIRST_PARAGRAPH.min(copy.article.len()), copy.article.len());
    let mut left = num_to_cut.max(1);
    for paragraph in &mut copy.article[start..] {
        let kept: Vec<&str> = paragraph.split(' ').skip(left).collect();
        left = left.saturating_sub(paragraph.split(' ').count());
        *paragraph = kept.join(" ");
    }
    copy.article.retain(|paragraph| !paragraph.is_empty());
    // The run began too near the end: the rest goes from there.
    abridge(copy, left);
}

/// Cuts the last `num_to_cut` words and what is left empty.
fn abridge(copy: &mut Body, mut num_to_cut: usize) {
    while num_to_cut > 0 && copy.article.len() > FIRST_PARAGRAPH {
        let last = copy.article.len() - 1;
        let num_words = copy.article[last].split(' ').count();
        if num_words > num_to_cut {
            let kept: Vec<&str> = copy.article[last].split(' ').take(num_words - num_to_cut).collect();
            copy.article[last] = kept.join(" ") + " …";
            return;
        }
        num_to_cut -= num_words;
        copy.article.truncate(last);
    }
}

/// The same words typed otherwise: other case, punctuation or white space, or no change at all.
pub(super) fn retype(text: &str, random: &mut Random) -> String {
    match random.below(5) {
        0 => text.to_ascii_uppercase(),
        1 => text.replace('\n', "\n\n").replace(". ", ".  "),
        2 => text.replace(['\n', ' '], "\t"),
        3 => text.replace(", ", " — ").replace(". ", "; ").replace(['“', '”'], "\""),
        _ => text.to_string(),
    }
}

/// The same text with other white space between its words.
pub(super) fn respace(text: &str, random: &mut Random) -> String {
    text.replace(' ', random.pick(&["  ", "\n", "\t", " \n ", " "]))
}

#[cfg(test)]
mod tests {
    use super::super::truth::resemblance;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    }

    #[test]
    fn retyped_and_respaced_texts_keep_their_words() {
        let text = "Home | News\nCaf\u{e9} “Brio”, by 12 March 2026. It rose 3.5%, or 1,200; then?\n© 2026";
        let mut random = Random::new(5);
        for _ in 0..60 {
            assert_eq!(words(&retype(text, &mut random)), words(text));
            let respaced = respace(text, &mut random);
            assert!(respaced.split_whitespace().eq(text.split_whitespace()), "{respaced:?}");
        }
    }

    /// For every length down to the shortest: no edit panics, empties the text or leaves another text altogether.
    #[test]
    fn near_copies_resemble_their_source() {
        let (writer, mut random) = (Writer::new(1), Random::new(2));
        let sites = Sites::new(3, &writer);
        let editor = Editor { writer: &writer, sites: &sites };
        let mut num_high = 0;
        for round in 0..1_500 {
            let voice = writer.voice(Style::Plain, &mut random);
            let article = writer.article(&voice, [60, 200, 500, 3_000][round % 4], &mut random);
            let source = Body { site: sites.draw(&mut random), style: Style::Plain, article };
            let copy = editor.near_copy(&source, &mut random);
            let texts = [&source, &copy].map(|body| sites.get(body.site).frame(&body.article));
            let resemblance = resemblance(&texts[0], &texts[1]);
            assert!(resemblance > 0.2, "{resemblance}\n{}\n{}", texts[0], texts[1]);
            num_high += usize::from(resemblance >= 0.8);
        }
        assert!((900..1_400).contains(&num_high), "{num_high} of 1,500 at 0.8 or above");
    }

    #[test]
    fn cuts_are_exact_in_words() {
        let article: Vec<String> = ["head line", "by me", "a b c", "d e f g"].map(String::from).to_vec();
        let body = Body { site: 0, style: Style::Plain, article };
        for (num_to_cut, expected) in [(0, "a b c|d e f g"), (1, "a b c|d e f …"), (4, "a b c"), (6, "a …"), (99, "")]
        {
            let mut copy = body.clone();
            abridge(&mut copy, num_to_cut);
            assert_eq!(copy.article[FIRST_PARAGRAPH..].join("|"), expected, "{num_to_cut} cut");
        }
        for num_to_cut in 1..7 {
            let mut copy = body.clone();
            remove(&mut copy, num_to_cut, &mut Random::new(num_to_cut as u64));
            assert_eq!(words(&copy.article.join(" ")).len(), 11 - num_to_cut);
        }
    }
}
