//! What the table of keys looks like to people: the commented file of `pagesieve init`, and the
//! option table of the README.

use std::fmt::Write;

use super::kind::Kind;
use super::schema::{ChangeKind, KEYS, KeySpec};

/// Columns of a comment in the template.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Configuration of pagesieve.
#
# Every key is here with its default in a comment; take the # away to change it. The keys that are
# not commented are the ones `run` cannot do without. Any key can be set from the environment:
# PAGESIEVE__POLICY__THRESHOLD=0.9 goes before `threshold` in [policy].
";

/// A complete commented configuration with placeholders for what `run` cannot do without.
#[must_use]
pub fn template() -> String {
    let mut text = HEAD.to_owned();
    let mut section = "";
    for spec in KEYS {
        if spec.kind == Kind::Options {
            let _ = write!(text, "\n[{}]\n{}", spec.path, comment(spec));
            text.push_str("#\"security.protocol\" = \"sasl_ssl\"\n");
            continue;
        }
        if spec.section() != section {
            section = spec.section();
            let _ = writeln!(text, "\n[{section}]");
        }
        text.push_str(&comment(spec));
        let _ = match spec.example {
            Some(example) => writeln!(text, "{} = {example}", spec.name()),
            None => writeln!(text, "#{} = {}", spec.name(), spec.default),
        };
    }
    text
}

/// The doc line and, beside it or if that gets too long below it, the unit and valid values.
fn comment(spec: &KeySpec) -> String {
    let (doc, notes) = (spec.doc, unit_and_valid(spec));
    match notes.as_str() {
        "" => format!("# {doc}\n"),
        _ if doc.len() + notes.len() + 5 <= WIDTH => format!("# {doc} [{notes}]\n"),
        _ => format!("# {doc}\n# [{notes}]\n"),
    }
}

fn unit_and_valid(spec: &KeySpec) -> String {
    let valid = spec.kind.valid();
    let parts = [spec.unit, valid.as_str()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The option table of the README.
#[must_use]
pub fn markdown_table() -> String {
    let mut text =
        String::from("| key | default | unit, valid values | change | meaning |\n| --- | --- | --- | --- | --- |\n");
    for spec in KEYS {
        let default = match spec.example {
            Some(_) => "required by `run`".to_owned(),
            None => format!("`{}`", spec.default),
        };
        let change = match spec.change {
            ChangeKind::Free => "free",
            ChangeKind::Sketch => "new window",
            ChangeKind::Restart => "restart",
        };
        let (path, doc) = (spec.path, spec.doc);
        let cells = format!("`{path}` | {default} | {} | {change} | {doc}", unit_and_valid(spec));
        let _ = writeln!(text, "| {cells} |");
    }
    text
}
