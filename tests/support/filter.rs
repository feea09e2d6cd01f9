//! Drives `pagesieve filter` as a process, on files of its own that vanish with it.

#![allow(dead_code, reason = "each test file uses the part it needs")]

use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The program without the settings of whoever runs the tests.
pub fn pagesieve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagesieve"));
    let inherited = std::env::vars_os().map(|(name, _)| name);
    inherited.filter(|name| name.to_string_lossy().starts_with("PAGESIEVE_")).for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// A directory for the files of one run.
pub struct Workshop(TempDir);

impl Workshop {
    pub fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("temporary paths are UTF-8").to_owned()
    }

    pub fn write(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).expect("it can be written");
        self.path(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        let path = PathBuf::from(self.path(name));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// One JSON value a line.
    pub fn json_lines(&self, name: &str) -> Vec<Value> {
        let content = self.read(name);
        let lines = content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("a line is JSON")).collect()
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).expect("the file is JSON")
    }
}

/// What a run of `filter` wrote.
pub struct Run {
    pub files: Workshop,
}

impl Run {
    pub fn survivors(&self) -> Vec<u8> {
        self.files.read("out")
    }

    pub fn duplicates(&self) -> Vec<Value> {
        self.files.json_lines("duplicates")
    }

    pub fn rejected(&self) -> Vec<Value> {
        self.files.json_lines("rejected")
    }

    pub fn report(&self) -> Value {
        self.files.json("report")
    }
}

/// Filters one input with all outputs, and succeeds.
pub fn filter(input: &[u8], settings: &[(&str, &str)], options: &[&str]) -> Run {
    let files = Workshop::new();
    let input = files.write("in.jsonl", input);
    let mut command = pagesieve();
    command.args(["filter", &input, "--quiet", "-o", &files.path("out"), "--duplicates", &files.path("duplicates")]);
    command.args(["--rejected", &files.path("rejected"), "--report", &files.path("report")]).args(options);
    settings.iter().for_each(|(key, value)| {
        command.env(format!("PAGESIEVE__{key}"), value);
    });
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Run { files }
}

/// The line of a position `input:line`.
pub fn line_of(position: &Value) -> usize {
    let position = position.as_str().expect("a position is a text");
    position.rsplit(':').next().and_then(|line| line.parse().ok()).expect("a position ends in its line")
}

/// Runs with these bytes as standard input; standard output is what comes back.
pub fn piped(input: &[u8], options: &[&str]) -> (Vec<u8>, String) {
    let mut command = pagesieve();
    command.arg("filter").args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("all is read"));
        child.wait_with_output().expect("it ends")
    });
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {stderr}", output.status);
    (output.stdout, stderr)
}
