//! The sketches of fixed pages. If this fails, what turns bytes into words or words into sketches has
//! changed, and remembered windows no longer compare: give `TEXT_VERSION` a new number, then the new values.

use pagesieve::config::{Config, Key};
use pagesieve::page::TEXT_VERSION;
use pagesieve::sketch::{Shape, Sketcher, Sketches};
use siphasher::sip::SipHasher13;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// The expected (words, short, digest, hash of bands, bits and neighbours).
type Expected = (u64, bool, u64, u64);

/// Name, text, and what is expected of it.
const PAGES: [(&str, &str, Expected); 6] = [
    ("empty", "", (0, true, GOLDEN[0].0, GOLDEN[0].1)),
    ("short", "Page not  found", (3, true, GOLDEN[1].0, GOLDEN[1].1)),
    (
        "English",
        "The quick brown fox jumps over the lazy dog, while 12 other foxes watch from the hill; none of them moves at all.",
        (23, false, GOLDEN[2].0, GOLDEN[2].1),
    ),
    (
        "Accents and İ",
        "Überall dort, wo Œuvres en français côtoient İstanbul'da yazılan şiirler, zählt jedes Wort nur einmal – stimmt's?",
        (18, false, GOLDEN[3].0, GOLDEN[3].1),
    ),
    (
        "No spaces",
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。iPhone15も知らぬ。",
        (31, false, GOLDEN[4].0, GOLDEN[4].1),
    ),
    (
        "One word",
        "spam spam spam spam spam spam spam spam spam spam spam spam spam spam spam spam",
        (16, true, GOLDEN[5].0, GOLDEN[5].1),
    ),
];

const GOLDEN: [(u64, u64); 6] = [
    (0x607e_3558_0179_4085, 0x9182_39bf_3799_c375),
    (0xc8a2_b657_574f_6389, 0x9182_39bf_3799_c375),
    (0x3e2d_e49c_1b36_0f87, 0xb225_82a8_879f_0345),
    (0x8caf_e654_6a96_4e2e, 0xe972_7da5_d86a_f236),
    (0x4d72_80f3_49c9_1529, 0xdb7f_27b0_4a1f_e57c),
    (0x505e_d210_7b7a_788b, 0x9182_39bf_3799_c375),
];

#[test]
fn sketches_of_fixed_pages() {
    assert_eq!(TEXT_VERSION, 2);
    let shape = Shape::new(&Config::default().sketch);
    let mut sketcher = Sketcher::new(shape, &Key::from_hex(KEY).unwrap());
    let mut wrong = Vec::new();
    for (name, text, expected) in PAGES {
        let mut sketch = Sketches::default();
        let summary = sketcher.sketch(text, &mut sketch);
        let bands = sketch.bands.iter().flat_map(|band| band.0.to_le_bytes());
        let words = sketch.bits.iter().chain(&sketch.neighbours);
        let bytes: Vec<u8> = bands.chain(words.flat_map(|word| word.to_le_bytes())).collect();
        let found = (summary.num_words, summary.short, summary.digest, SipHasher13::new().hash(&bytes));
        if found != expected {
            wrong.push(format!("{name}: ({}, {}, {:#x}, {:#x})", found.0, found.1, found.2, found.3));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
