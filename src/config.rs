//! Configuration: one TOML file and the environment, resolved and cross-checked once.
//!
//! ```text
//! file ──▶ source ─┐ settings with   ┌─▶ load ─▶ checks ─▶ Config ─▶ the rest of the program
//! env  ──▶ source ─┘ their places    │
//!            ▲          schema: the one table of keys
//!            └──────────────┴─▶ template (`init`, README) and show (`check-config`)
//! ```
//!
//! Nothing behind [`Config`] sees a string that still has to be understood: sizes are bytes, times
//! are [`std::time::Duration`], choices are enums, patterns are compiled, secrets are read. Each key's name, kind,
//! default, unit and doc line have one home, [`schema::KEYS`]; the check for unknown keys, the type
//! check, the overrides `PAGESIEVE__SECTION__KEY`, the commented template, the table of the README
//! and the printout are all driven by it.
//!
//! A wrong configuration is reported whole: every mistake on its own line with its key, its place
//! and what would be right ([`ConfigErrors`]). The process then exits with [`EXIT_CONFIG`] before
//! it has opened anything.
//!
//! Secrets never leave by accident: [`Key`], [`Secret`] and [`Options`] redact themselves in
//! `Debug`, the printout shows `***`, and no error echoes their value.

mod checks;
mod choices;
mod key;
pub mod kind;
mod load;
mod options;
mod problem;
pub mod schema;
mod settings;
mod show;
mod source;
mod template;
pub mod units;
mod values;

#[cfg(test)]
mod tests;

pub use choices::{Action, Delivery, Late, LogFormat, Mode, OnGap, VerdictRecords};
pub use key::{Key, Secret};
pub use load::{load, parse};
pub use options::Options;
pub use problem::{ConfigErrors, Place, Problem};
pub use settings::{
    Admin, Config, FieldPath, Fields, Input, Kafka, Log, Output, Pipeline, PolicySettings, Recovery, SketchSettings,
    SkipRules, Start, Window,
};
pub use show::render_resolved;
pub use source::environment;
pub use template::{markdown_table, template};

/// Exit code of a process whose configuration is wrong (`EX_USAGE` of sysexits, as other proxies
/// and daemons use it), so that a supervisor can tell it from a crash and not restart in a loop.
pub const EXIT_CONFIG: u8 = 64;
