//! The memory of the whole process against the limit it runs under.
//!
//! ```text
//! window.max_memory: index ▸ overlay ▸ names            fixed at start
//! beside it:  consumer ▸ batches in flight ▸ producer   bounded queues
//!             largest pages ▸ cache of hot digests ▸ base
//! ```
//!
//! Every part is a bound, not an average: a process that keeps within its limit on a quiet day and is killed
//! on a busy one loses its window when the pages matter most. `check-config` prints the parts; `run` refuses to start
//! where their sum exceeds [`MAX_SHARE_OF_LIMIT`] of the cgroup's limit.

use crate::batch::{Delivery, PageSketch};
use crate::config::{Config, ConfigErrors, Place, Problem};
use crate::index::journal::Change;
use crate::index::judge::Judged;
use crate::index::names::NamesRing;
use crate::index::plan::Plan;
use crate::pipeline::CHANNEL_BATCHES;
use crate::sketch::BandKey;
use crate::transport::kafka::client;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Share of the cgroup's limit that the process may be planned for. The rest is for what no plan
/// knows: the allocator's fragments, page tables, the kernel's socket buffers, files being written.
pub const MAX_SHARE_OF_LIMIT: f64 = 0.9;

/// Bytes after which a batch of `run` takes no further page.
pub const BATCH_BYTES: usize = 1 << 20;

/// Code, librdkafka's and our own threads with their stacks and TLS state, metrics, the admin port: `filter`, which
/// has no Kafka client, is resident with 21 MiB on a small input; a client with its connections takes up to as much again.
pub const BASE_BYTES: u64 = 40 << 20;

/// librdkafka's `fetch.max.bytes`, which an answer on its way may take on top of the consumer's queue.
const FETCH_BYTES: u64 = 50 << 20;

/// Queue and fetches of [`client::snapshot_reader`], twice one chunk of a segment and its file's buffer.
const SNAPSHOT_BYTES: u64 = client::SNAPSHOT_QUEUE_BYTES + client::SNAPSHOT_FETCH_BYTES + (2 << 20);

/// Ids and URLs of a page and of its canonical in a batch.
const BATCH_NAMES_BYTES: usize = 4 * 80;

/// An entry of the cache of hot digests: 32 bytes with its links, and 17 in a hash table that may be
/// less than half full.
const EXACT_CACHE_ENTRY_BYTES: u64 = 72;

/// Longest ring of names: 2³¹ − 1 units of 8 bytes, whatever share of the memory it is given.
const MAX_RING_BYTES: u64 = 8 * (u32::MAX as u64 / 2);

/// Copies of a largest page while it is sketched: as received, out of its JSON, without its HTML.
const COPIES_OF_A_PAGE: u64 = 3;

/// What the process may come to take, in bytes, part by part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessPlan {
    /// Page slots and table, for the pages remembered.
    pub index: u64,
    /// Page slots and journal for the changes of open transactions.
    pub overlay: u64,
    /// Ring of ids and URLs.
    pub names: u64,
    /// Cache of hot digests.
    pub exact_cache: u64,
    /// The consumer's queue, and an answer on its way into it.
    pub consumer: u64,
    /// The producer's queue.
    pub producer: u64,
    /// Batches between the stages.
    pub batches: u64,
    /// One page of `input.max_page_bytes` in each sketch thread.
    pub largest_pages: u64,
    /// The queue of who writes the snapshot, and an answer on its way into it.
    pub snapshot: u64,
    /// [`BASE_BYTES`].
    pub base: u64,
}

impl ProcessPlan {
    /// What `run` may take with this configuration, `index` being the plan of its index.
    pub fn new(config: &Config, index: &Plan) -> Self {
        let journal = (index.max_changes * size_of::<Change>()) as u64;
        let slots_bytes = (index.index_bytes as u64).saturating_sub(journal);
        let overlay_slots = slots_bytes * index.overlay_pages() as u64 / index.num_slots as u64;
        let names_per_slot = if index.names_bytes > 0 { NamesRing::BYTES_PER_SLOT } else { 0 };
        let threads = config.pipeline.threads as u64;
        Self {
            index: slots_bytes - overlay_slots,
            overlay: journal + overlay_slots,
            names: ring_bytes(index) + (names_per_slot * index.num_slots) as u64,
            exact_cache: config.window.exact_cache_entries as u64 * EXACT_CACHE_ENTRY_BYTES,
            consumer: config.pipeline.prefetch_memory + option_bytes(config, "fetch.max.bytes", 1, FETCH_BYTES),
            producer: client::producer_queue_bytes(config),
            batches: batches_in_flight(threads) * batch_bytes(config, index),
            largest_pages: threads * COPIES_OF_A_PAGE * config.input.max_page_bytes as u64,
            snapshot: config.snapshot.directory.as_ref().map_or(0, |_| SNAPSHOT_BYTES),
            base: BASE_BYTES,
        }
    }

    /// Bytes within `window.max_memory`.
    pub fn window(&self) -> u64 {
        self.index + self.overlay + self.names
    }

    /// Bytes of the whole process.
    pub fn total(&self) -> u64 {
        let Self { exact_cache, consumer, producer, batches, largest_pages, snapshot, base, .. } = self;
        self.window() + exact_cache + consumer + producer + batches + largest_pages + snapshot + base
    }
}

/// Bytes of the ring that names are written to.
pub fn ring_bytes(index: &Plan) -> u64 {
    (index.names_bytes as u64).min(MAX_RING_BYTES)
}

fn option_bytes(config: &Config, name: &str, unit: u64, default: u64) -> u64 {
    let given = config.kafka.options.get(name).and_then(|text| text.trim().parse::<u64>().ok());
    given.map_or(default, |number| number.saturating_mul(unit))
}

/// Most batches that exist at once: each sketch thread works on one between two channels, the source fills one,
/// the judge and the publisher have one each and a channel between them. Those in the recycling channel are not on top: a new one is
/// made only when that channel is empty.
fn batches_in_flight(threads: u64) -> u64 {
    let channel = CHANNEL_BATCHES as u64;
    threads * (1 + 2 * channel) + 3 + channel
}

/// A full batch with everything the stages add to it, its lists grown by doubling.
fn batch_bytes(config: &Config, index: &Plan) -> u64 {
    let page = size_of::<Delivery>()
        + size_of::<PageSketch>()
        + size_of::<Judged>()
        + config.sketch.bands * size_of::<BandKey>()
        + 3 * index.bit_words * 8
        + BATCH_NAMES_BYTES;
    2 * (BATCH_BYTES + config.pipeline.batch_pages * page) as u64
}

/// The memory limit of this process's cgroup or of the nearest one above it, in bytes; `None`: no limit.
///
/// `root` is `/` but in tests. Version 2 (`memory.max`) and version 1 (`memory.limit_in_bytes`) are read where
/// they are mounted by default, from the process's own group up: in a container its group may be the root of what is
/// mounted, under a service manager it is a few levels down, and the smallest limit on the way counts.
pub fn cgroup_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    // hierarchy:controllers:path, the controllers of version 2 being empty.
    let path_of = |is_it: fn(&str) -> bool| {
        let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines.find(|(controllers, _)| is_it(controllers)).map_or("/", |(_, path)| path)
    };
    let v1 = path_of(|controllers| controllers.split(',').any(|name| name == "memory"));
    let v2 = path_of(str::is_empty);
    let places = [
        ("sys/fs/cgroup", v2, "memory.max"),
        ("sys/fs/cgroup/unified", v2, "memory.max"),
        ("sys/fs/cgroup/memory", v1, "memory.limit_in_bytes"),
    ];
    let limits = places.into_iter().flat_map(|(mount, path, file)| {
        // A path may begin with `..` where the group lies outside the namespace: that part cannot be seen.
        let is_name = |part: &Component| matches!(part, Component::Normal(_));
        let path: PathBuf = Path::new(path).components().filter(is_name).collect();
        let folders: Vec<PathBuf> = path.ancestors().map(|folder| root.join(mount).join(folder)).collect();
        folders.into_iter().filter_map(move |folder| limit(&fs::read_to_string(folder.join(file)).ok()?))
    });
    limits.min()
}

/// The limit in the file's text. Version 2 writes `max` for none, version 1 the largest number of whole pages.
fn limit(text: &str) -> Option<u64> {
    const NO_LIMIT: u64 = 1 << 62;
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)
}

/// The machine's memory in bytes, where `root` (`/` but in tests) tells.
pub fn machine_memory(root: &Path) -> Option<u64> {
    let table = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

/// Whether the process keeps within [`MAX_SHARE_OF_LIMIT`] of this limit.
///
/// # Errors
/// By how much it does not, and what would fit.
pub fn check(plan: &ProcessPlan, limit: Option<u64>) -> Result<(), String> {
    let Some(limit) = limit else { return Ok(()) };
    let allowed = (limit as f64 * MAX_SHARE_OF_LIMIT) as u64;
    if plan.total() <= allowed {
        return Ok(());
    }
    let mebibytes = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
    let beside = plan.total() - plan.window();
    // Below this the window is no window.
    const LEAST: u64 = 16 << 20;
    let advice = match allowed.checked_sub(beside).filter(|left| *left >= LEAST) {
        Some(left) => format!("window.max_memory = \"{}MiB\" fits", left >> 20),
        None => format!(
            "{} of it are not the window's: raise the limit, or lower pipeline.threads, \
             pipeline.prefetch_memory or input.max_page_bytes",
            mebibytes(beside)
        ),
    };
    Err(format!(
        "the process may come to {}, over {:.0} % of its cgroup's limit of {}: {advice}",
        mebibytes(plan.total()),
        MAX_SHARE_OF_LIMIT * 100.0,
        mebibytes(limit)
    ))
}

/// [`check`] as a mistake in the configuration: exit code 64, before anything is opened.
///
/// # Errors
/// The one mistake, at `window.max_memory`.
pub fn check_config(plan: &ProcessPlan, limit: Option<u64>) -> Result<(), ConfigErrors> {
    let problem = |message| Problem { key: "window.max_memory".to_owned(), place: Place::Unset, message };
    check(plan, limit).map_err(|message| ConfigErrors(vec![problem(message)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::sketch::Shape;

    const MIB: u64 = 1 << 20;

    fn plan_of(toml: &str) -> (Config, ProcessPlan) {
        let config = config::parse(toml, "test", std::iter::empty()).unwrap();
        let index = Plan::new(&config.window, &Shape::new(&config.sketch));
        let plan = ProcessPlan::new(&config, &index);
        (config, plan)
    }

    #[test]
    fn the_window_is_max_memory_and_the_rest_is_named() {
        let (config, plan) = plan_of("[pipeline]\nthreads = 4");
        assert!(plan.window() <= config.window.max_memory);
        assert!(plan.window() as f64 > config.window.max_memory as f64 * 0.98);
        assert_eq!(plan.largest_pages, 4 * 3 * 16 * MIB);
        assert_eq!(plan.consumer, (64 + 50) * MIB);
        assert_eq!(plan.producer, 128 * MIB);
        assert_eq!(batches_in_flight(4), 25);
        // 25 batches of twice (1 MiB and 1,024 times what is kept of a page).
        assert!((50 * MIB..125 * MIB).contains(&plan.batches), "{}", plan.batches);
        let (_, no_names) = plan_of("[window]\nnames_share = 0.0\nexact_cache_entries = 0");
        assert_eq!((no_names.names, no_names.exact_cache), (0, 0));
        let (_, most) = plan_of("[window]\nmax_memory = '16TiB'");
        assert!(most.window() < 64 << 30, "ids and ring have an end: {}", most.window());
    }

    #[test]
    fn options_of_the_client_count() {
        let (_, plan) = plan_of(
            "[pipeline]\nprefetch_memory = '1GiB'\n\
             [kafka.options]\n'queue.buffering.max.kbytes' = 2048\n'fetch.max.bytes' = 1048576",
        );
        assert_eq!((plan.producer, plan.consumer), (2 * MIB, 1025 * MIB));
        let (_, plan) = plan_of("[input]\nmax_page_bytes = '100MiB'");
        assert_eq!(plan.producer, 200 * MIB);
    }

    #[test]
    fn limits_are_found_in_both_versions() {
        const V1: &str = "9:name=systemd:/\n4:memory,hugetlb:/docker/abc\n0::/\n";
        const V2: &str = "0::/system.slice/pagesieve.service\n";
        type Files = &'static [(&'static str, &'static str)];
        let cases: [(&str, &str, Files, Option<u64>); 10] = [
            ("nothing", "", &[], None),
            ("v2, a container", "0::/\n", &[("memory.max", "4294967296\n")], Some(4 << 30)),
            ("v2, no limit", "0::/\n", &[("memory.max", "max\n")], None),
            (
                "v2, a service",
                V2,
                &[("system.slice/pagesieve.service/memory.max", "1000\n"), ("system.slice/memory.max", "max\n")],
                Some(1000),
            ),
            (
                "v2, the slice above is smaller",
                V2,
                &[("system.slice/pagesieve.service/memory.max", "1000"), ("system.slice/memory.max", "900")],
                Some(900),
            ),
            ("v2, outside the namespace", "0::/../other\n", &[("memory.max", "77")], Some(77)),
            ("v1, own group seen as root", V1, &[("memory/memory.limit_in_bytes", "123\n")], Some(123)),
            ("v1, below the mount", V1, &[("memory/docker/abc/memory.limit_in_bytes", "124\n")], Some(124)),
            ("v1, no limit", V1, &[("memory/memory.limit_in_bytes", "9223372036854771712\n")], None),
            ("no number", "0::/\n", &[("memory.max", "lots")], None),
        ];
        for (name, groups, files, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            let write = |path: PathBuf, text: &str| {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write(root.path().join("proc/self/cgroup"), groups);
            files.iter().for_each(|(path, text)| write(root.path().join("sys/fs/cgroup").join(path), text));
            assert_eq!(cgroup_limit(root.path()), expected, "{name}");
        }
    }

    #[test]
    fn the_machine_tells_its_memory() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(machine_memory(root.path()), None);
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemTotal:       2048 kB\nMemFree: 1 kB\n").unwrap();
        assert_eq!(machine_memory(root.path()), Some(2 * MIB));
    }

    #[test]
    fn over_the_limit_is_refused_with_what_would_fit() {
        let (_, plan) = plan_of("[pipeline]\nthreads = 4");
        let total = plan.total();
        let just_enough = (total as f64 / MAX_SHARE_OF_LIMIT).ceil() as u64;
        for (limit, fits) in [(None, true), (Some(just_enough), true), (Some(just_enough - 2), false), (Some(0), false)]
        {
            assert_eq!(check(&plan, limit).is_ok(), fits, "{limit:?}");
        }
        let message = check(&plan, Some(4096 * MIB)).unwrap_err();
        let (_, advised) = message.split_once("window.max_memory = ").expect("it says what fits");
        let size = advised.split('"').nth(1).unwrap();
        let (_, smaller) = plan_of(&format!("[window]\nmax_memory = '{size}'\n[pipeline]\nthreads = 4"));
        assert_eq!(check(&smaller, Some(4096 * MIB)), Ok(()), "{message}");
        let hopeless = check(&plan, Some(128 * MIB)).unwrap_err();
        assert!(hopeless.contains("raise the limit"), "{hopeless}");
        let errors = check_config(&plan, Some(4096 * MIB)).unwrap_err();
        assert!(errors.to_string().starts_with("configuration: window.max_memory: the process may come to"));
    }
}
