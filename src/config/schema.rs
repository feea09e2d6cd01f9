//! The one declarative table of settings and what can be asked of it.
//!
//! Adding a setting takes four lines: here in [`KEYS`], a field in `settings`, its reading in
//! `load`, its printing in `show`. A test fails if one of them is missing.

mod keys;

pub use keys::KEYS;

use super::kind::{Kind, Value};

/// How alike, from 0 to 1, a known name must be to an unknown one to be offered for it: below, the
/// offer would only mislead. A transposition in a name of five letters gives 0.8.
const NEAREST_MIN: f64 = 0.6;

/// The prefix of environment variables that override settings.
pub const ENVIRONMENT_PREFIX: &str = "PAGESIEVE__";

/// What a changed value means for a process that finds the state of another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The remembered window is kept and judged by the new value.
    Free,
    /// Sketches or texts would no longer be comparable: refused unless `--new-window` is given.
    Sketch,
    /// Wiring, without bearing on what a remembered page means: read once at the start.
    Restart,
}

/// All there is to say about one key.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// The dotted path, as `policy.threshold`.
    pub path: &'static str,
    /// What the value may be.
    pub kind: Kind,
    /// The default as TOML text.
    pub default: &'static str,
    /// The unit, or what the value names.
    pub unit: &'static str,
    /// One line that says what the setting does.
    pub doc: &'static str,
    /// Whether the value must never be shown.
    pub secret: bool,
    /// What a changed value means for existing state.
    pub change: ChangeKind,
    /// For a key `run` cannot do without: an example value as TOML text.
    pub example: Option<&'static str>,
}

impl KeySpec {
    /// The section: `input.fields` of `input.fields.url`.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.path.rsplit_once('.').expect("every key has a section").0
    }

    /// The last part: `url` of `input.fields.url`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.path.rsplit_once('.').expect("every key has a section").1
    }

    /// The environment variable that overrides it.
    #[must_use]
    pub fn environment_name(&self) -> String {
        environment_name(self.path)
    }

    /// The default as a checked value.
    #[must_use]
    pub fn default_value(&self) -> Value {
        let default = format!("default = {}", self.default).parse::<toml::Table>();
        let default = default.expect("a default of the table is TOML (tested)");
        self.kind.read(&default["default"]).expect("a default of the table is valid (tested)")
    }

    /// Whether two runs that differ in this setting alone may give the same page different
    /// verdicts. Secrets are left out: the key of the sketches has an id of its own.
    #[must_use]
    pub fn bears_on_verdicts(&self) -> bool {
        let judging = ["input.fields", "input.skip", "sketch", "window", "policy"];
        let by_section = judging.contains(&self.section()) || self.path == "input.max_page_bytes";
        // Verdicts are the same with and without the exact cache.
        by_section && !self.secret && self.path != "window.exact_cache_entries"
    }
}

/// The environment variable of a path: `PAGESIEVE__POLICY__THRESHOLD` of `policy.threshold`.
#[must_use]
pub fn environment_name(path: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", path.to_uppercase().replace('.', "__"))
}

/// The key with this path.
#[must_use]
pub fn find(path: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|spec| spec.path == path)
}

/// Whether some key lies below this path.
#[must_use]
pub fn is_section(path: &str) -> bool {
    KEYS.iter().any(|spec| spec.section() == path || spec.section().starts_with(&format!("{path}.")))
}

/// The known key most like an unknown one, if any is like it: by its whole path, or by its last
/// part, which finds a key that stands in the wrong section.
#[must_use]
pub fn nearest(path: &str) -> Option<&'static KeySpec> {
    let likeness = |spec: &KeySpec| {
        let leaf = path.rsplit('.').next().unwrap_or(path);
        let whole = strsim::normalized_damerau_levenshtein(path, spec.path);
        let last = strsim::normalized_damerau_levenshtein(leaf, spec.name());
        // Of two equally like last parts the one in the likelier section wins.
        last.max((whole + last) / 2.0) + 0.01 * whole
    };
    // `kafka.options` is a section to whoever looks for a key.
    KEYS.iter()
        .filter(|spec| spec.kind != Kind::Options)
        .map(|spec| (likeness(spec), spec))
        .filter(|(likeness, _)| *likeness >= NEAREST_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, spec)| spec)
}

/// The section most like an unknown one, if any is like it.
#[must_use]
pub fn nearest_section(path: &str) -> Option<&'static str> {
    KEYS.iter()
        .map(|spec| (strsim::normalized_damerau_levenshtein(path, spec.section()), spec.section()))
        .filter(|(likeness, _)| *likeness >= NEAREST_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, section)| section)
}
