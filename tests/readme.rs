//! The README's table of options is the one that the program prints, and its configuration works.

use pagesieve::config;

#[test]
fn the_option_table_is_the_programs() {
    let readme = include_str!("../README.md");
    let (_, after) =
        readme.split_once("<!-- options: printed by `pagesieve init --markdown` -->\n").expect("the marker is there");
    let (table, _) = after.split_once("\n<!-- /options -->").expect("the end marker is there");
    assert_eq!(table.trim(), config::markdown_table().trim(), "run `pagesieve init --markdown` and paste it");
}
