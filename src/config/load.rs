//! From settings to [`Config`]: every value takes its type, secrets are read from their files, and
//! a wrong value is reported and stands in as its default, so that one pass finds all mistakes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::checks;
use super::key::{Key, Secret};
use super::options::Options;
use super::problem::{ConfigErrors, Place, Problem};
use super::schema;
use super::settings::{
    Admin, Config, Fields, Input, Kafka, Log, Output, Pipeline, PolicySettings, Recovery, SketchSettings, SkipRules,
    Snapshot, Window,
};
use super::source::{self, Source};
use super::values::{FromValue, Value};

/// Reads the file, if one is given, and the environment over it.
///
/// # Errors
/// Every mistake in either, a file that cannot be read included.
pub fn load(file: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigErrors> {
    let mut source = Source::default();
    if let Some(path) = file {
        let origin = path.display().to_string();
        match source::read(path) {
            Ok(text) => source.add_text(&text, &origin),
            Err(reason) => source.problems.push(Problem {
                key: String::new(),
                place: Place::File(origin),
                message: format!("cannot be read: {reason}"),
            }),
        }
    }
    source.add_environment(env);
    resolve(source)
}

/// Reads a configuration from its text, named `origin` in errors, and the environment over it.
///
/// # Errors
/// Every mistake in either.
pub fn parse(text: &str, origin: &str, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigErrors> {
    let mut source = Source::default();
    source.add_text(text, origin);
    source.add_environment(env);
    resolve(source)
}

impl Default for Config {
    fn default() -> Self {
        parse("", "defaults", std::iter::empty()).expect("the defaults are valid (tested)")
    }
}

fn resolve(source: Source) -> Result<Config, ConfigErrors> {
    let mut reader = Reader { source };
    let config = reader.config();
    let Source { settings, options, mut problems } = reader.source;
    for conflict in checks::conflicts(&config) {
        // A key that is wrong in itself stands in as its default: no more is said about it.
        let is_known = |problem: &Problem| conflict.keys.contains(&problem.key);
        if problems.iter().any(is_known) {
            continue;
        }
        let place_of = |key: &String| match key.strip_prefix("kafka.options.") {
            Some(name) => options.get(name).map(|(_, place)| place),
            None => settings.get(key.as_str()).map(|setting| &setting.place),
        };
        // The reported key may not be set at all; then one of the others is at fault.
        let place = conflict.keys.iter().find_map(place_of).unwrap_or(&Place::Unset).clone();
        problems.push(Problem { key: conflict.keys[0].clone(), place, message: conflict.message });
    }
    ConfigErrors::check(problems)?;
    Ok(config)
}

/// Gives each key's value its type.
struct Reader {
    source: Source,
}

impl Reader {
    /// The value of a key; a wrong one is reported, and its default taken.
    fn get<T: FromValue>(&mut self, path: &'static str) -> T {
        let spec = schema::find(path).expect("the key is in the table (tested)");
        if let Some(setting) = self.source.settings.get(path) {
            match spec.kind.read(&setting.value).and_then(T::from_value) {
                Ok(value) => return value,
                Err(message) => self.report(path, message),
            }
        }
        T::from_value(spec.default_value()).expect("the default of a key is valid (tested)")
    }

    fn report(&mut self, path: &'static str, message: String) {
        let place = self.source.settings.get(path).map_or(&Place::Unset, |setting| &setting.place);
        let problem = Problem { key: path.to_owned(), place: place.clone(), message };
        self.source.problems.push(problem);
    }

    /// A secret given as itself or in a file.
    fn secret<T>(
        &mut self,
        path: &'static str,
        file_path: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T>
    where
        Option<T>: FromValue,
    {
        let given: Option<T> = self.get(path);
        let file: Option<PathBuf> = self.get(file_path);
        let Some(file) = file else { return given };
        if given.is_some() {
            self.report(file_path, format!("is set together with {path}: give one of them"));
            return given;
        }
        // A secret in the place of its file's name must not be repeated by the error.
        if looks_like_key(&file) {
            self.report(file_path, format!("holds a key, not the name of a file: use {path}"));
            return None;
        }
        let shown = file.display().to_string();
        let secret =
            source::read(&file).map_err(|reason| format!("{shown:?} cannot be read: {reason}")).and_then(|text| {
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                parse(text).map_err(|reason| format!("the secret in {shown:?} {reason}"))
            });
        secret.map_err(|message| self.report(file_path, message)).ok()
    }

    fn config(&mut self) -> Config {
        Config {
            input: self.input(),
            sketch: SketchSettings {
                key: self.secret("sketch.key", "sketch.key_file", Key::from_hex),
                shingle_words: self.get("sketch.shingle_words"),
                bytes: self.get("sketch.bytes"),
                bands: self.get("sketch.bands"),
                rows: self.get("sketch.rows"),
                min_shingles: self.get("sketch.min_shingles"),
            },
            window: Window {
                max_age: self.get("window.max_age"),
                max_memory: self.get("window.max_memory"),
                names_share: self.get("window.names_share"),
                refresh_on_match: self.get("window.refresh_on_match"),
                late: self.get("window.late"),
                max_share_per_host: self.get("window.max_share_per_host"),
                exact_cache_entries: self.get("window.exact_cache_entries"),
            },
            policy: PolicySettings {
                threshold: self.get("policy.threshold"),
                exact_duplicate: self.get("policy.exact_duplicate"),
                near_duplicate: self.get("policy.near_duplicate"),
                unchanged: self.get("policy.unchanged"),
                updated: self.get("policy.updated"),
            },
            output: Output {
                topic: self.get("output.topic"),
                verdict_topic: self.get("output.verdict_topic"),
                dead_letter_topic: self.get("output.dead_letter_topic"),
                state_topic: self.get("output.state_topic"),
                mode: self.get("output.mode"),
                verdict_records: self.get("output.verdict_records"),
            },
            kafka: self.kafka(),
            pipeline: Pipeline {
                threads: threads(self.get("pipeline.threads")),
                batch_pages: self.get("pipeline.batch_pages"),
                batch_wait: self.get("pipeline.batch_wait"),
                drain_timeout: self.get("pipeline.drain_timeout"),
                prefetch_memory: self.get("pipeline.prefetch_memory"),
            },
            snapshot: Snapshot {
                directory: self.get("snapshot.directory"),
                interval: self.get("snapshot.interval"),
                max_disk: self.get("snapshot.max_disk"),
            },
            recovery: Recovery { max_wait: self.get("recovery.max_wait"), on_gap: self.get("recovery.on_gap") },
            admin: Admin { listen: self.get("admin.listen") },
            log: Log { format: self.get("log.format") },
            given: self.source.settings.keys().copied().collect(),
        }
    }

    fn input(&mut self) -> Input {
        Input {
            topics: self.get("input.topics"),
            fields: Fields {
                url: self.get("input.fields.url"),
                text: self.get("input.fields.text"),
                html: self.get("input.fields.html"),
                id: self.get("input.fields.id"),
                fetched_at: self.get("input.fields.fetched_at"),
                status: self.get("input.fields.status"),
                content_type: self.get("input.fields.content_type"),
            },
            max_page_bytes: self.get("input.max_page_bytes"),
            start: self.get("input.start"),
            skip: SkipRules {
                non_2xx: self.get("input.skip.non_2xx"),
                content_types: self.content_types(),
                url_patterns: self.get("input.skip.url_patterns"),
                headers: self.get("input.skip.headers"),
            },
        }
    }

    /// Media types are compared in lower case.
    fn content_types(&mut self) -> Vec<String> {
        let types: Vec<String> = self.get("input.skip.content_types");
        types.iter().map(|name| name.trim().to_ascii_lowercase()).collect()
    }

    fn kafka(&mut self) -> Kafka {
        // A table is flattened while it is read; what is left here is no table.
        let _: BTreeMap<String, String> = self.get(source::OPTIONS);
        let options = self.source.options.iter();
        let options = options.map(|(name, (text, _))| (name.clone(), text.clone())).collect();
        Kafka {
            brokers: self.get("kafka.brokers"),
            group: self.get("kafka.group"),
            instance: self.get("kafka.instance"),
            delivery: self.get("kafka.delivery"),
            commit_interval: self.get("kafka.commit_interval"),
            transaction_timeout: self.get("kafka.transaction_timeout"),
            create_topics: self.get("kafka.create_topics"),
            sasl_username: self.get("kafka.sasl_username"),
            sasl_password: self.secret("kafka.sasl_password", "kafka.sasl_password_file", |text| match text {
                "" => Err("is empty".to_owned()),
                text => Ok(Secret::new(text)),
            }),
            options: Options(options),
        }
    }
}

/// Whether the name of a file is a key, perhaps a mistyped one: many hexadecimal digits alone.
fn looks_like_key(file: &Path) -> bool {
    let name = file.to_string_lossy();
    let name = name.trim();
    name.len() >= 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The number of threads meant: 0 is one per core this process may use.
fn threads(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

impl FromValue for Vec<Regex> {
    fn from_value(value: Value) -> Result<Self, String> {
        let patterns = Vec::<String>::from_value(value)?;
        let compile = |pattern: &String| {
            Regex::new(pattern).map_err(|error| {
                // The first lines draw the pattern; the last one says what is wrong.
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default();
                let reason = reason.trim_start_matches("error: ");
                format!("must be regular expressions, {pattern:?} is none: {reason}")
            })
        };
        patterns.iter().map(compile).collect()
    }
}

impl FromValue for Vec<(String, String)> {
    fn from_value(value: Value) -> Result<Self, String> {
        let pair = |header: &String| {
            let (name, value) = header.split_once('=').filter(|(name, _)| !name.is_empty())?;
            Some((name.to_owned(), value.to_owned()))
        };
        let headers = Vec::<String>::from_value(value)?;
        headers
            .iter()
            .map(|header| pair(header).ok_or_else(|| format!("must be name=value, {header:?} is not")))
            .collect()
    }
}

impl FromValue for Option<SocketAddr> {
    fn from_value(value: Value) -> Result<Self, String> {
        match String::from_value(value)?.as_str() {
            "none" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                format!("must be an address with a port, as \"127.0.0.1:9464\", or \"none\", is {text:?}")
            }),
        }
    }
}
