//! Sentences, paragraphs and articles of words drawn from the vocabulary. It reads like prose seen from afar:
//!
//! > By Bronea Thamis, 14 March 2026. The stenart of groma could not plion, and 412 of his deagrel were told ...
//!
//! Each article has a topic, a few dozen mostly rare words that it returns to; so two articles share hardly a
//! shingle, as two real ones do, and a compressor finds what it finds in real ones.

use super::random::{Random, mix};
use super::words::Vocabulary;

/// The script and typography of an article.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// ASCII only.
    Plain,
    /// Latin letters, some accented, and curly quotes.
    Typographic,
    /// Cyrillic letters.
    Cyrillic,
    /// Chinese characters, without spaces.
    Han,
}

impl Style {
    /// The language named on the page.
    pub fn language(self) -> &'static str {
        match self {
            Style::Plain => "en",
            Style::Typographic => "fr",
            Style::Cyrillic => "ru",
            Style::Han => "zh",
        }
    }
}

/// How an article is written: its style and the words it returns to.
pub(super) struct Voice<'a> {
    style: Style,
    topic: Vec<&'a str>,
}

/// Words in an article's topic.
const TOPIC_WORDS: usize = 32;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Writes articles with the words of a vocabulary.
pub(super) struct Writer {
    vocabulary: Vocabulary,
}

impl Writer {
    /// The writer of a seed.
    pub fn new(seed: u64) -> Self {
        Writer { vocabulary: Vocabulary::new(seed) }
    }

    /// A voice with a topic of its own.
    pub fn voice(&self, style: Style, random: &mut Random) -> Voice<'_> {
        Voice { style, topic: (0..TOPIC_WORDS).map(|_| self.vocabulary.topic(random)).collect() }
    }

    /// An article of about `num_words` words: a headline, a byline with the date, paragraphs.
    pub fn article(&self, voice: &Voice, num_words: usize, random: &mut Random) -> Vec<String> {
        let mut headline = String::new();
        let mut written = self.sentence(&mut headline, voice, random.between(4, 9), random);
        headline.pop();
        let mut byline = format!("By {} {}, ", self.name(random), self.name(random));
        push_date(&mut byline, random);
        written += 6;
        let mut article = vec![headline, byline];
        while written < num_words {
            let paragraph_words = random.between(30, 90).min((num_words - written).max(12));
            let paragraph = self.paragraph(voice, paragraph_words, random);
            written += paragraph_words;
            article.push(paragraph);
        }
        article
    }

    /// A paragraph of about `num_words` words.
    pub fn paragraph(&self, voice: &Voice, num_words: usize, random: &mut Random) -> String {
        let mut paragraph = String::with_capacity(num_words * 7);
        let mut written = 0;
        while written < num_words {
            if written > 0 && voice.style != Style::Han {
                paragraph.push(' ');
            }
            let sentence_words = random.between(5, 28).min((num_words - written).max(3));
            written += self.sentence(&mut paragraph, voice, sentence_words, random);
        }
        paragraph
    }

    /// A capitalised word, as a person or a town has it.
    pub fn name(&self, random: &mut Random) -> String {
        let mut name = self.vocabulary.topic(random).to_string();
        capitalise(&mut name, 0);
        name
    }

    /// A word of the commoner kind.
    pub fn word(&self, random: &mut Random) -> &str {
        self.vocabulary.content(random)
    }

    /// Appends a sentence of `num_words` words, closed by one mark, and gives back `num_words`.
    fn sentence(&self, out: &mut String, voice: &Voice, num_words: usize, random: &mut Random) -> usize {
        let han = voice.style == Style::Han;
        let mut after_function_word = false;
        for position in 0..num_words {
            if position > 0 && !han {
                out.push(' ');
            }
            if position > 0 && random.chance(0.006) {
                push_number(out, random);
            } else {
                // 47 of 100 words come out as function words, and seldom two in a row, about as in English.
                after_function_word = random.chance(if after_function_word { 0.3 } else { 0.62 });
                let word = if after_function_word {
                    self.vocabulary.function(random)
                } else if random.chance(0.25) {
                    random.pick(&voice.topic)
                } else {
                    self.vocabulary.content(random)
                };
                push_word(out, word, (voice.style, position == 0), random);
            }
            if position + 1 < num_words && random.chance(0.06) {
                out.push(if han { '，' } else { ',' });
            }
        }
        out.push(if han { '。' } else { random.pick(&['.', '.', '.', '.', '.', '.', '.', '.', '?', '!']) });
        num_words
    }
}

/// Appends a word in a style, with a capital or not.
fn push_word(out: &mut String, word: &str, (style, capital): (Style, bool), random: &mut Random) {
    let start = out.len();
    match style {
        Style::Plain => out.push_str(word),
        Style::Typographic if random.chance(0.03) => {
            out.push('“');
            out.push_str(word);
            out.push('”');
        }
        Style::Typographic if random.chance(0.15) => out.extend(word.chars().map(accented)),
        Style::Typographic => out.push_str(word),
        Style::Cyrillic => out.extend(word.chars().map(cyrillic)),
        Style::Han => {
            // A word is always the same one or two of the 8,192 commoner characters, whatever its letters mean.
            let bits = word.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
            let num_chars = if word.len() <= 3 { 1 } else { 2 };
            out.extend((0..num_chars).filter_map(|n| char::from_u32(0x4e00 + (bits >> (13 * n)) as u32 % 8_192)));
        }
    }
    if capital {
        capitalise(out, start);
    }
}

/// Makes the letter at `start` a capital, if it has one of the same length.
fn capitalise(text: &mut String, start: usize) {
    let Some(first) = text[start..].chars().next() else {
        return;
    };
    if let Some(upper) = first.to_uppercase().next().filter(|upper| upper.len_utf8() == first.len_utf8()) {
        text.replace_range(start..start + first.len_utf8(), upper.encode_utf8(&mut [0; 4]));
    }
}

fn accented(letter: char) -> char {
    match letter {
        'e' => 'é',
        'a' => 'à',
        'o' => 'ô',
        'i' => 'î',
        'u' => 'ü',
        'c' => 'ç',
        other => other,
    }
}

/// The Cyrillic letter of about the same sound.
fn cyrillic(letter: char) -> char {
    const LETTERS: [char; 26] = [
        'а', 'б', 'ц', 'д', 'е', 'ф', 'г', 'х', 'и', 'й', 'к', 'л', 'м', 'н', 'о', 'п', 'я', 'р', 'с', 'т', 'у', 'в',
        'ш', 'ж', 'ы', 'з',
    ];
    (letter as usize).checked_sub('a' as usize).and_then(|n| LETTERS.get(n).copied()).unwrap_or(letter)
}

/// Appends a date, a share, a large number or a small one.
fn push_number(out: &mut String, random: &mut Random) {
    match random.below(4) {
        0 => push_date(out, random),
        1 => *out += &format!("{}.{}%", random.between(1, 99), random.below(10)),
        2 => *out += &format!("{},{:03}", random.between(1, 900), random.below(1_000)),
        _ => *out += &random.between(2, 500).to_string(),
    }
}

/// Appends a date such as `14 March 2026`.
fn push_date(out: &mut String, random: &mut Random) {
    *out += &format!("{} {} {}", random.between(1, 28), random.pick(&MONTHS), random.between(2019, 2026));
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLES: [Style; 4] = [Style::Plain, Style::Typographic, Style::Cyrillic, Style::Han];

    #[test]
    fn articles_are_as_long_as_asked() {
        let (writer, mut random) = (Writer::new(1), Random::new(2));
        for num_words in [50, 300, 5_000] {
            let voice = writer.voice(Style::Plain, &mut random);
            let text = writer.article(&voice, num_words, &mut random).join("\n");
            let written = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).count();
            // Up to a sentence more, and numbers that are two words or three.
            assert!((num_words..num_words * 21 / 20 + 15).contains(&written), "{written} for {num_words}");
        }
    }

    #[test]
    fn styles_write_their_script() {
        let (writer, mut random) = (Writer::new(1), Random::new(2));
        for style in STYLES {
            let voice = writer.voice(style, &mut random);
            let text = writer.paragraph(&voice, 400, &mut random);
            let share = |range: std::ops::RangeInclusive<char>| {
                text.chars().filter(|c| range.contains(c)).count() as f64 / text.chars().count() as f64
            };
            match style {
                Style::Plain => assert!(text.is_ascii()),
                Style::Typographic => {
                    assert!(text.contains('é') && text.contains('“') && share('a'..='z') > 0.7)
                }
                Style::Cyrillic => assert!(share('А'..='я') > 0.7, "{text}"),
                Style::Han => assert!(share('\u{4e00}'..='\u{9fff}') > 0.8 && text.contains('。'), "{text}"),
            }
            assert!(!text.contains('\n') && !text.contains("  "));
            assert_eq!(text.chars().next().map(char::is_lowercase), Some(false), "{text}");
        }
    }
}
