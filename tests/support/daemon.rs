//! `pagesieve run` as a child process.

use super::broker::Cluster;
use super::topics::Progress;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often a test that waits for the end of a topic says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(20);

/// A start, a restore or a rebalance on a machine with every core busy.
pub const SOON: Duration = Duration::from_secs(60);

/// Topics, group, instance and configuration of one test.
pub struct Setup {
    pub cluster: Cluster,
    pub name: String,
    pub inputs: Vec<String>,
    keys: BTreeMap<String, String>,
    dir: tempfile::TempDir,
}

impl Setup {
    /// Input and output topics of this many partitions, and a configuration that uses them.
    pub fn new(name: &str, partitions: i32) -> Self {
        Self::on(Cluster::shared(), name, partitions)
    }

    /// The same on another cluster than the shared one.
    pub fn on(cluster: Cluster, name: &str, partitions: i32) -> Self {
        let setup = Self::named(cluster, name);
        let wide = [("max.message.bytes", "2000000")];
        setup.cluster.create_topic(&setup.inputs[0], partitions, &[]);
        for topic in [setup.output(), setup.verdicts(), setup.dead_letters()] {
            setup.cluster.create_topic(&topic, partitions, &wide);
        }
        setup.cluster.create_topic(&setup.state(), 1, &[]);
        setup
    }

    /// The configuration alone.
    pub fn without_topics(name: &str) -> Self {
        Self::named(Cluster::shared(), name)
    }

    /// Names are new with every process, for clusters that outlive it.
    fn named(cluster: Cluster, name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let text = |value: &str| format!("{value:?}");
        let mut setup = Self {
            inputs: vec![format!("{name}.pages")],
            keys: BTreeMap::new(),
            dir: tempfile::tempdir().expect("a temporary directory"),
            name,
            cluster,
        };
        let brokers = setup.cluster.brokers.split(',').map(text).collect::<Vec<_>>().join(",");
        for (key, value) in [
            ("input.topics", format!("[{:?}]", setup.inputs[0])),
            ("sketch.key", text("00112233445566778899aabbccddeeff")),
            ("window.max_memory", text("64MiB")),
            ("output.topic", text(&setup.output())),
            ("output.verdict_topic", text(&setup.verdicts())),
            ("output.dead_letter_topic", text(&setup.dead_letters())),
            ("output.state_topic", text(&setup.state())),
            ("kafka.brokers", format!("[{brokers}]")),
            ("kafka.group", text(&setup.name)),
            ("kafka.instance", text(&setup.name)),
            ("admin.listen", text("127.0.0.1:0")),
            ("log.format", text("json")),
        ] {
            setup.set(key, value);
        }
        setup
    }

    /// Sets a key to a TOML value.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.keys.insert(key.to_owned(), value.into());
    }

    /// The same with a key set.
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.set(key, value);
        self
    }

    pub fn output(&self) -> String {
        format!("{}.out", self.name)
    }

    pub fn verdicts(&self) -> String {
        format!("{}.verdicts", self.name)
    }

    pub fn dead_letters(&self) -> String {
        format!("{}.dead", self.name)
    }

    pub fn state(&self) -> String {
        format!("{}.state", self.name)
    }

    /// A directory of the test's own.
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// What the group has committed of the input.
    pub fn progress(&self) -> Progress {
        self.cluster.progress(&self.name, &self.inputs)
    }

    /// The configuration.
    pub fn toml(&self) -> String {
        self.keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }

    /// Starts the daemon.
    pub fn start(&self) -> Daemon {
        self.spawn(&[], &[])
    }

    /// Starts the daemon with further arguments.
    pub fn start_with(&self, arguments: &[&str]) -> Daemon {
        self.spawn(arguments, &[])
    }

    /// Starts the daemon with these variables in its environment.
    pub fn start_in(&self, environment: &[(&str, &str)]) -> Daemon {
        self.spawn(&[], environment)
    }

    fn spawn(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (config, log) =
            (self.dir.path().join(format!("{number}.toml")), self.dir.path().join(format!("{number}.log")));
        fs::write(&config, self.toml()).expect("the configuration is written");
        let child = Command::new(env!("CARGO_BIN_EXE_pagesieve"))
            .args(["run", "-c"])
            .arg(&config)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .expect("the daemon starts");
        Daemon { child, log, started: Instant::now() }
    }

    /// Starts the daemon and waits until it takes pages.
    pub fn start_ready(&self) -> Daemon {
        let mut daemon = self.start();
        daemon.wait_ready();
        daemon
    }

    /// Waits until everything in the input topics is committed.
    pub fn wait_drained(&self, daemon: &mut Daemon, limit: Duration) {
        let progress = self.progress();
        let told = std::cell::Cell::new(Instant::now());
        daemon.wait("everything is committed", limit, |_| {
            if told.get().elapsed() > TELL_EVERY {
                told.set(Instant::now());
                println!("not drained yet: {:?}", progress.try_look());
            }
            progress.is_drained()
        });
    }
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
    pub started: Instant,
}

impl Daemon {
    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Messages of the log lines of this level.
    pub fn logged(&self, level: &str) -> Vec<String> {
        let lines = self.log();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.filter(|line| line["level"] == level).map(|line| line.to_string()).collect()
    }

    /// Waits for a condition; the daemon has to live until then.
    pub fn wait(&mut self, what: &str, limit: Duration, mut is_met: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + limit;
        while !is_met(self) {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                panic!("the daemon ended with {status} before {what}:\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "after {limit:?} not yet: {what}\n{}", self.log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until it is a member of its group and takes pages.
    pub fn wait_ready(&mut self) {
        self.wait("ready", SOON, |daemon| daemon.get("/readyz").is_some_and(|(code, _)| code == 200));
    }

    fn address(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains(r#""message":"starting""#))?;
        Some(serde_json::from_str::<serde_json::Value>(line).ok()?["admin"].as_str()?.to_owned())
    }

    /// Status and body of an answer of the admin port.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address()?).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Sum of a metric over all its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let body = self.get("/metrics").map(|(_, body)| body).unwrap_or_default();
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        body.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Resident bytes: now, and the highest so far.
    pub fn resident_bytes(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() << 10
        };
        (of("VmRSS:"), of("VmHWM:"))
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved; the child has not been waited for, so the id is still its own.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(sent, 0, "the daemon runs");
    }

    /// Waits for its end.
    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "still running after {limit:?}\n{}", self.log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// SIGTERM; it has to drain and exit with 0 in time.
    pub fn terminate(mut self) -> String {
        self.signal(libc::SIGTERM);
        let status = self.wait_exit(Duration::from_secs(25));
        assert!(status.success(), "{status}\n{}", self.log());
        self.log()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        self.wait_exit(SOON);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
