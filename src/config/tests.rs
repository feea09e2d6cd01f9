//! The configuration from the outside: text and environment in, `Config` or problems out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::kind::Kind;
use super::schema::{KEYS, KeySpec};
use super::*;

mod mistakes;

const HEX: &str = "0123456789abcdef0123456789abcdef";

fn env(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    pairs.into_iter()
}

fn read(text: &str) -> Result<Config, ConfigErrors> {
    parse(text, "f.toml", env(&[]))
}

/// The lines of the report on a wrong text.
fn problems(text: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let errors = parse(text, "f.toml", env(pairs)).expect_err("the configuration is wrong");
    errors.to_string().lines().map(str::to_owned).collect()
}

/// A configuration `run` takes, secrets included.
fn complete() -> String {
    format!(
        "[input]\ntopics = ['a']\n[sketch]\nkey = '{HEX}'\n[output]\ntopic = 'b'\n\
         dead_letter_topic = 'c'\nstate_topic = 'd'\n[kafka]\nbrokers = ['localhost:9092']\n"
    )
}

#[test]
fn the_table_is_sound() {
    let mut seen_sections = Vec::new();
    for spec in KEYS {
        let KeySpec { path, doc, .. } = *spec;
        let _is_valid = spec.default_value();
        assert!(doc.ends_with('.') && !doc.contains(['|', '\n']), "{path}: {doc}");
        assert_eq!(KEYS.iter().filter(|other| other.path == path).count(), 1, "{path}");
        assert_eq!(schema::nearest(path).is_some(), spec.kind != Kind::Options, "{path}");
        if seen_sections.last() != Some(&spec.section()) {
            assert!(!seen_sections.contains(&spec.section()), "{path}: its section is split");
            seen_sections.push(spec.section());
        }
        if let Some(example) = spec.example {
            let example = format!("example = {example}").parse::<toml::Table>().unwrap();
            spec.kind.read(&example["example"]).unwrap();
        }
    }
}

#[test]
fn every_default_is_read_and_shown_again() {
    let shown = render_resolved(&Config::default()).parse::<toml::Table>().unwrap();
    let unshown = ["sketch.key_file", "kafka.sasl_password_file", "kafka.options"];
    for spec in KEYS {
        let value = spec.section().split('.').try_fold(&shown, |t, name| t.get(name)?.as_table());
        let value = value.and_then(|section| section.get(spec.name()));
        assert_eq!(value.is_none(), unshown.contains(&spec.path), "{}", spec.path);
        // Threads are resolved to what the machine has.
        if let Some(value) = value.filter(|_| spec.path != "pipeline.threads") {
            assert_eq!(spec.kind.read(value), Ok(spec.default_value()), "{}", spec.path);
        }
    }
}

#[test]
fn defaults_have_their_types() {
    let config = Config::default();
    assert_eq!(config.input.max_page_bytes, 16 << 20);
    assert_eq!(config.input.start, Start::Earliest);
    assert_eq!(config.input.fields.url, FieldPath(vec!["url".to_owned()]));
    assert_eq!(config.window.max_age, Some(Duration::from_secs(7 * 86_400)));
    assert_eq!(config.window.max_memory, 4 << 30);
    assert_eq!(config.policy.updated, Action::Tag);
    assert_eq!(config.admin.listen, Some(([127, 0, 0, 1], 9464).into()));
    assert_eq!(config.output.verdict_topic, None);
    assert!(config.pipeline.threads >= 1);
    assert!(config.sketch.key.is_none());
}

#[test]
fn the_template_gives_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let key_file = dir.path().join("key");
    std::fs::write(&key_file, format!("{HEX}\n")).unwrap();
    let filled = template().replace("\"pagesieve.key\"", &format!("'{}'", key_file.display()));
    let uncommented: Vec<_> = filled
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') && !setting.starts_with('"') => setting,
            _ => line,
        })
        .collect();
    for (name, text) in [("as it is", filled.clone()), ("uncommented", uncommented.join("\n"))] {
        let mut config = read(&text).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        config.check_for_run().unwrap();
        assert_eq!(config.sketch.key.unwrap().to_hex(), HEX);
        let defaults = Config::default();
        config.sketch.key = None;
        config.input.topics.clear();
        config.kafka.brokers.clear();
        config.output = defaults.output.clone();
        assert_eq!(render_resolved(&config), render_resolved(&defaults), "{name}");
    }
    assert!(filled.lines().all(|line| line.len() <= 102), "{filled}");
    // As it comes, the only thing wrong is that its key has not been made yet.
    let errors = read(&template()).unwrap_err();
    assert_eq!(errors.0.len(), 1, "{errors}");
    assert_eq!(errors.0[0].key, "sketch.key_file");
}

#[test]
fn what_is_resolved_is_read_back() {
    let text = "[input]\nstart = 2026-01-31T00:00:00Z\n[input.fields]\nurl = '/metadata/source~1URL'\nid = ''\nhtml = '/'\n\
         [input.skip]\nurl_patterns = ['^ftp:', '\\?p=\\d+$']\nheaders = ['a=b=c']\n\
         [window]\nmax_age = 'none'\nmax_memory = '500MB'\nmax_share_per_host = 0.01\n\
         [pipeline]\nthreads = 3\nbatch_wait = 0\n[admin]\nlisten = 'none'\n\
         [kafka.options]\nsecurity.protocol = 'ssl'\n'queue.buffering.max.ms' = 5\n'enable.ssl.certificate.verification' = false\n";
    let config = read(text).unwrap();
    assert_eq!(config.input.fields.url.0, ["metadata", "source/URL"]);
    assert!(config.input.fields.id.is_off() && !config.input.fields.html.is_off());
    assert_eq!(config.input.start, Start::At { epoch_ms: 1_769_817_600_000 });
    assert_eq!(config.input.skip.headers, [("a".to_owned(), "b=c".to_owned())]);
    assert_eq!(config.window.max_memory, 500_000_000);
    assert_eq!((config.window.max_age, config.admin.listen), (None, None));
    assert_eq!(config.pipeline.batch_wait, Duration::ZERO);
    let options: Vec<_> = (&config.kafka.options).into_iter().collect();
    let expected = BTreeMap::from([
        ("enable.ssl.certificate.verification".to_owned(), "false".to_owned()),
        ("queue.buffering.max.ms".to_owned(), "5".to_owned()),
        ("security.protocol".to_owned(), "ssl".to_owned()),
    ]);
    assert_eq!(options, expected.iter().collect::<Vec<_>>());
    let shown = render_resolved(&config);
    assert_eq!(render_resolved(&read(&shown).unwrap()), shown);
}

#[test]
fn the_environment_wins() {
    let text = "[policy]\nthreshold = 7\n[kafka.options]\n'security.protocol' = 'ssl'\n";
    let config = parse(
        text,
        "f.toml",
        env(&[
            ("PAGESIEVE__POLICY__THRESHOLD", "0.6"),
            ("PAGESIEVE__POLICY__THRESHOLD", "0.7"),
            ("PAGESIEVE__INPUT__TOPICS", "a, b,"),
            ("PAGESIEVE__INPUT__SKIP__URL_PATTERNS", "['a{1,2}', 'b']"),
            ("PAGESIEVE__INPUT__FIELDS__URL", "/metadata/sourceURL"),
            ("PAGESIEVE__INPUT__SKIP__NON_2XX", "false"),
            ("PAGESIEVE__SKETCH__BYTES", "128"),
            ("PAGESIEVE__SKETCH__KEY", HEX),
            ("PAGESIEVE__WINDOW__MAX_MEMORY", "1073741824"),
            ("PAGESIEVE__KAFKA__OPTIONS__SECURITY_PROTOCOL", "sasl_ssl"),
            ("PAGESIEVE__KAFKA__OPTIONS__LOG_LEVEL", "7"),
        ]),
    )
    .unwrap();
    assert_eq!(config.policy.threshold, 0.7);
    assert_eq!(config.input.topics, ["a", "b"]);
    assert_eq!(config.input.skip.url_patterns.len(), 2);
    assert_eq!(config.input.fields.url.0, ["metadata", "sourceURL"]);
    assert!(!config.input.skip.non_2xx);
    assert_eq!(config.sketch.bytes, 128);
    assert_eq!(config.window.max_memory, 1 << 30);
    assert_eq!(config.kafka.options["security.protocol"], "sasl_ssl");
    assert_eq!(config.kafka.options["log_level"], "7");
    assert!(config.is_given("policy.threshold") && !config.is_given("policy.unchanged"));
}

#[test]
fn what_only_run_needs() {
    read(&complete()).unwrap().check_for_run().unwrap();
    let errors = Config::default().check_for_run().unwrap_err();
    let keys: Vec<_> = errors.0.iter().map(|problem| problem.key.as_str()).collect();
    let required: Vec<_> = KEYS.iter().filter(|spec| spec.example.is_some()).collect();
    assert_eq!(keys.len(), required.len(), "{errors}");
    assert!(required.iter().all(|spec| keys.contains(&spec.path)), "{errors}");
    assert!(errors.to_string().contains("PAGESIEVE__KAFKA__BROKERS"), "{errors}");
    assert!(errors.to_string().contains("keygen"), "{errors}");
    // A shadow run writes verdicts only.
    let shadow = "[output]\nmode = 'verdicts'\nverdict_topic = 'v'\nstate_topic = 's'";
    let errors = read(shadow).unwrap().check_for_run().unwrap_err();
    assert!(errors.0.iter().all(|problem| !problem.key.starts_with("output")), "{errors}");
}

#[test]
fn secrets_are_read_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let key = file("key", &format!("{HEX}\n"));
    let password = file("password", " two words \n\n");
    let bad = file("bad", "0123456789abcdefXYZ");
    let text =
        format!("[sketch]\nkey_file = '{key}'\n[kafka]\nsasl_username = 'me'\nsasl_password_file = '{password}'\n");
    let config = read(&text).unwrap();
    assert_eq!(config.sketch.key.unwrap().to_hex(), HEX);
    // One newline at the end is the editor's, the rest is the password.
    assert_eq!(config.kafka.sasl_password.unwrap().expose(), " two words \n");

    let both = problems(&format!("[sketch]\nkey = '{HEX}'\nkey_file = '{key}'"), &[]);
    assert_eq!(both, ["f.toml:3:1: sketch.key_file: is set together with sketch.key: give one of them"]);
    let missing = problems("[sketch]\nkey_file = '/no/such/file'", &[]);
    assert!(missing[0].starts_with("f.toml:2:1: sketch.key_file: \"/no/such/file\" cannot be read: "));
    let wrong = problems(&format!("[sketch]\nkey_file = '{bad}'"), &[]);
    assert!(wrong[0].contains("must be 32 hexadecimal digits, has 19") && !wrong[0].contains("XYZ"));
    let config = load(Some(&dir.path().join("none.toml")), env(&[])).unwrap_err();
    assert!(config.to_string().contains("none.toml: cannot be read"), "{config}");
}

#[test]
fn secrets_never_show() {
    let secrets = [HEX, "hunter2", "s3cr3t", "-----BEGIN"];
    let text = complete()
        + "sasl_username = 'me'\nsasl_password = 'hunter2'\n[kafka.options]\n\
           'ssl.key.password' = 's3cr3t'\n'ssl.key.pem' = '-----BEGIN'\n'client.id' = 'seen'\n";
    let config = read(&text).unwrap();
    let shown = render_resolved(&config);
    assert!(shown.contains(&config.sketch.key.unwrap().id()) && shown.contains("\"seen\""), "{shown}");
    for text in [format!("{config:?}"), format!("{config:#?}"), shown] {
        assert!(text.contains("***"), "{text}");
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    }

    let wrong = [
        "[sketch]\nkey = '0123456789abcdef0123456789abcdeX'",
        "[sketch]\nkey = '0123456789abcdef'",
        "[sketch]\nkey = 0123456789abcdef0123456789abcdef",
        "[sketch]\nkey = \"0123456789abcdef",
        "[sketch]\nkey = 123456789",
        "[sketch]\nkey = ['0123456789abcdef0123456789abcdef']",
        "[sketch]\nkey_file = '0123456789abcdef0123456789abcdef'",
        "[sketch]\nkey_file = '0123456789abcdef0123456789abc'",
        "[sketch]\nkee = '0123456789abcdef0123456789abcdef'",
        "sketch = '0123456789abcdef0123456789abcdef'",
        "[kafka]\nsasl_password = '0123456789abcdef'",
        "[kafka.options]\n'sasl.password' = ['0123456789']",
    ];
    for text in wrong {
        let report = format!("{:?} {}", read(text).unwrap_err(), read(text).unwrap_err());
        assert!(!report.contains("0123456") && !report.contains("1234567"), "{text}: {report}");
    }
    let report = problems("", &[("PAGESIEVE__SKETCH__KEY", "0123456789"), ("PAGESIEVE__SKETCH__KEEY", "0123456789")]);
    assert!(report.len() == 2 && !report.join("\n").contains("0123456"), "{report:?}");
}

#[test]
fn the_hash_follows_what_bears_on_verdicts() {
    let hash = |text: &str| read(text).unwrap().hash();
    let base = hash("");
    assert_eq!(base.len(), 16);
    let cases = [
        ("[policy]\nthreshold = 0.8", true),
        ("[window]\nmax_age = '168h'", true),
        ("[pipeline]\nthreads = 7", true),
        ("[window]\nexact_cache_entries = 0", true),
        ("[sketch]\nkey = '0123456789abcdef0123456789abcdef'", true),
        ("[kafka]\ngroup = 'other'", true),
        ("[policy]\nthreshold = 0.81", false),
        ("[sketch]\nbands = 13", false),
        ("[input.skip]\nnon_2xx = false", false),
        ("[input]\nmax_page_bytes = '1MiB'", false),
    ];
    for (text, is_same) in cases {
        assert_eq!(hash(text) == base, is_same, "{text}");
    }
}

#[test]
fn the_readme_table_has_a_line_for_each_key() {
    let table = markdown_table();
    assert_eq!(table.lines().count(), KEYS.len() + 2);
    for line in table.lines() {
        assert_eq!(line.matches('|').count(), 6, "{line}");
    }
}

proptest::proptest! {
    /// Whatever is in a file, there is an answer and no panic.
    #[test]
    fn any_text_is_answered(text in "(\\[|\\]|\\{|\\}|=|\"|'|\\.|\n|,|#|input|kafka|options|topics|é|1|true|[a-z ]){0,60}") {
        let _ = read(&text);
    }
}
