//! Text of a configuration file ─▶ configuration or mistakes. What loads can be shown, and what is shown loads as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pagesieve_fuzz::config::{Config, ConfigErrors, Place, parse, render_resolved};

/// Secrets are shown as stars, and no file that the text may name is opened: the environment says otherwise.
fn read(text: &str, key: Option<String>) -> Result<Config, ConfigErrors> {
    let no_files = ["SKETCH__KEY_FILE", "KAFKA__SASL_PASSWORD_FILE"].map(|name| (name, String::new()));
    let overrides = no_files.into_iter().chain(key.map(|key| ("SKETCH__KEY", key)));
    parse(text, "file", overrides.map(|(name, value)| (format!("PAGESIEVE__{name}"), value)))
}

fn is_named(errors: &ConfigErrors) {
    for problem in &errors.0 {
        let has_place = matches!(problem.place, Place::Line { .. } | Place::Environment(_));
        assert!(has_place || !problem.key.is_empty(), "{problem:?}");
    }
    assert_eq!(errors.to_string().lines().count(), errors.0.len(), "a line each: {errors:?}");
}

fuzz_target!(|text: &str| {
    let config = match read(text, None) {
        Ok(config) => config,
        Err(errors) => return is_named(&errors),
    };
    config.check().expect("it has been checked");
    if let Err(errors) = config.check_for_run() {
        is_named(&errors);
    }
    let shown = render_resolved(&config);
    let key = config.sketch.key.as_ref().map(|key| key.to_hex());
    let again = read(&shown, key).unwrap_or_else(|errors| panic!("{errors}\n{shown}"));
    assert_eq!(render_resolved(&again), shown);
    assert_eq!(again.hash(), config.hash());
});
