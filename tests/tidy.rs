//! The house's rules that a machine can check: who may know whom, and how long a file may be.

use std::fs;
use std::path::{Path, PathBuf};

/// Module → what it may use of the crate, itself left out. The core knows neither I/O nor metrics.
const MAY_USE: &[(&str, &[&str])] = &[
    ("config", &[]),
    ("cpu", &[]),
    ("crash_point", &[]),
    ("page", &["config", "cpu"]),
    ("sketch", &["page", "config", "cpu"]),
    ("verdict", &["page", "config"]),
    ("index", &["sketch", "page", "config", "verdict", "cpu"]),
    ("batch", &["index", "sketch", "page", "verdict"]),
    ("evaluate", &["batch", "index", "sketch", "page", "config", "verdict", "transport", "generate"]),
    ("generate", &[]),
    ("metrics", &[]),
    ("admin", &["metrics"]),
    ("logging", &[]),
    ("state", &["page", "config", "sketch", "crash_point"]),
    ("memory", &["batch", "index", "sketch", "config", "pipeline", "transport"]),
    ("transport", &["batch", "state", "index", "sketch", "page", "config", "verdict", "metrics", "crash_point"]),
    ("pipeline", &["transport", "batch", "index", "sketch", "page", "verdict", "metrics", "crash_point"]),
    (
        "daemon",
        &["admin", "batch", "pipeline", "transport", "state", "index", "sketch", "page", "config", "metrics", "memory"],
    ),
];

/// Crates that the core must do without.
const NOT_IN_THE_CORE: &[&str] = &["rdkafka", "prometheus", "tokio", "axum", "tracing", "std::fs", "std::net"];
const CORE: &[&str] = &["page", "sketch", "index", "verdict"];

/// A file longer than this wants splitting.
const MAX_LINES: usize = 500;

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the sources are there") {
        let path = entry.expect("they can be listed").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_keeps_to_the_house() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("it can be read");
        let relative = file.strip_prefix(&root).expect("it is below");
        let name = relative.display().to_string();
        let module = name.split(['/', '.']).next().unwrap_or_default().to_owned();
        if text.lines().count() > MAX_LINES {
            wrong.push(format!("{name}: over {MAX_LINES} lines"));
        }
        if name.ends_with("mod.rs") {
            wrong.push(format!("{name}: x.rs beside x/, no mod.rs"));
        }
        if !text.starts_with("//!") {
            wrong.push(format!("{name}: begins without saying what it is for"));
        }
        // Tests may look anywhere.
        let code = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        if name.ends_with("tests.rs") || name.contains("tests/") {
            continue;
        }
        if let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == module) {
            for used in code.split("crate::").skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                if !used.is_empty() && used != module && !allowed.contains(&used) {
                    wrong.push(format!("{name}: {module} may not know {used}"));
                }
            }
        } else if !["lib", "main", "cli"].contains(&module.as_str()) {
            wrong.push(format!("{name}: say in MAY_USE what {module} may know"));
        }
        for banned in NOT_IN_THE_CORE {
            if CORE.contains(&module.as_str()) && code.contains(&format!("{banned}::")) {
                wrong.push(format!("{name}: the core does without {banned}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What is fuzzed is what is shipped: those modules and no others, with the same crates of the same versions.
#[test]
fn the_fuzzed_crate_is_part_of_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("it can be read");
    let (program, fuzzed) = (read("Cargo.toml"), read("fuzz/Cargo.toml"));
    let dependencies = fuzzed.lines().skip_while(|line| !line.contains("word for word")).skip(1);
    for line in dependencies.take_while(|line| !line.is_empty()) {
        assert!(program.lines().any(|of_program| of_program == line), "not in Cargo.toml: {line}");
    }

    let library = read("fuzz/src/lib.rs");
    let modules = library.lines().filter_map(|line| line.strip_prefix("    pub mod ")?.strip_suffix(';'));
    let modules: Vec<&str> = modules.collect();
    for (module, used) in MAY_USE.iter().filter(|(module, _)| modules.contains(module)) {
        assert!(used.iter().all(|used| modules.contains(used)), "fuzz/src/lib.rs lacks what {module} may use");
    }

    let packages = |lock: &str| -> Vec<String> {
        let packages = lock.split("[[package]]").skip(1);
        packages.map(|package| package.lines().skip(1).take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let known = packages(&read("Cargo.lock"));
    // What the fuzzer brings along.
    let own = ["arbitrary", "libfuzzer-sys", "pagesieve-fuzz"].map(|name| format!("name = \"{name}\" "));
    for package in packages(&read("fuzz/Cargo.lock")) {
        let is_own = own.iter().any(|name| package.starts_with(name));
        assert!(is_own || known.contains(&package), "not in Cargo.lock, copy that to fuzz/ and build there: {package}");
    }
}
