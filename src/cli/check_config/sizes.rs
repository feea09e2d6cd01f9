//! What a configuration takes of memory, as rows.

use super::rows::Rows;
use crate::cli::text;
use crate::config::Config;
use crate::index::plan::Plan;
use crate::index::table::MAX_ID_BITS;
use crate::memory::{self, MAX_SHARE_OF_LIMIT, ProcessPlan};

/// Bytes of id and URL together that the estimate of named pages goes by.
const NAME_BYTES: u64 = 80;
/// What such a page takes in the ring: 12 bytes more, rounded up to 8.
const NAMED_PAGE_BYTES: u64 = (NAME_BYTES + 12).next_multiple_of(8);

/// Memory there is, in bytes, where it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Available {
    /// The limit of the cgroup.
    pub cgroup: Option<u64>,
    /// The machine's.
    pub machine: Option<u64>,
}

/// The memory section.
pub fn rows(config: &Config, index: &Plan, process: &ProcessPlan, available: Available) -> Rows {
    let mut rows = Rows::default();
    let size = |bytes: u64| text::bytes(bytes as f64);
    let capacity = index.capacity_pages as u64;
    let bytes_per_page = |bytes: u64| format!("{:.1} bytes", bytes as f64 / capacity as f64);
    rows.push("pages that fit", text::count(capacity), "");
    rows.push("a page in the index", bytes_per_page(process.index), "");
    rows.push("a page in all", bytes_per_page(process.window()), "with its share of overlay and names");
    rows.push("", "", "");

    rows.push("index", size(process.index), "");
    let overlay_pages = text::count(index.overlay_pages() as u64);
    rows.push("overlay", size(process.overlay), format!("changes of open transactions: {overlay_pages} pages"));
    rows.push("names ring", size(process.names), names_note(index, capacity));
    let unused = config.window.max_memory.saturating_sub(process.window());
    let at_widest = index.num_slots == 1 << MAX_ID_BITS;
    let note = match at_widest {
        true => format!("{} of window.max_memory lie idle: no index holds more pages", size(unused)),
        false => "window.max_memory".to_owned(),
    };
    rows.push("window", size(process.window()), note);
    if process.exact_cache > 0 {
        rows.push("exact cache", size(process.exact_cache), "window.exact_cache_entries");
    }
    rows.push("consumer queue", size(process.consumer), "pipeline.prefetch_memory and a fetch on its way");
    rows.push("producer queue", size(process.producer), "until acknowledged");
    let threads = match config.pipeline.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    rows.push("batches", size(process.batches), format!("in flight at their fullest, {threads}"));
    let largest = format!("one of input.max_page_bytes in each of {threads}");
    rows.push("largest pages", size(process.largest_pages), largest.replace("each of 1 thread", "1 thread"));
    if process.snapshot > 0 {
        rows.push("snapshot", size(process.snapshot), "reading the state topic to write it to disk");
    }
    rows.push("base", size(process.base), "code, thread stacks, Kafka clients, metrics");
    rows.push("whole process", size(process.total()), "the most it comes to; untouched memory is not resident");
    rows.push("", "", "");

    let share = |limit: u64| text::percent(process.total(), limit);
    match available.cgroup {
        Some(limit) => {
            let verdict = if process.total() as f64 > limit as f64 * MAX_SHARE_OF_LIMIT { "TOO MUCH: " } else { "" };
            let most = MAX_SHARE_OF_LIMIT * 100.0;
            rows.push("cgroup limit", size(limit), format!("{verdict}{} used of at most {most:.0} %", share(limit)));
        }
        None => rows.push("cgroup limit", "none", ""),
    }
    if let Some(machine) = available.machine {
        let warning = if process.total() > machine { "WARNING: too small; " } else { "" };
        rows.push("this machine", size(machine), format!("{warning}{} used", share(machine)));
    }
    rows
}

/// What the ring of names can hold.
fn names_note(index: &Plan, capacity: u64) -> String {
    if index.names_bytes == 0 {
        return "off: verdicts give the canonical's position only".to_owned();
    }
    let named = memory::ring_bytes(index) / NAMED_PAGE_BYTES;
    if named >= capacity {
        return format!("names every page at {NAME_BYTES} bytes of id and URL each");
    }
    format!("names the newest {} pages at {NAME_BYTES} bytes of id and URL each", text::count(named))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::sketch::Shape;

    fn rendered(toml: &str, available: Available) -> String {
        let config = config::parse(toml, "test", std::iter::empty()).unwrap();
        let index = Plan::new(&config.window, &Shape::new(&config.sketch));
        let process = ProcessPlan::new(&config, &index);
        let mut out = String::new();
        rows(&config, &index, &process, available).render(&mut out);
        out
    }

    #[test]
    fn every_limit_is_told() {
        let none = Available::default();
        let cgroup = |bytes| Available { cgroup: Some(bytes), machine: None };
        for (case, toml, available, expected) in [
            ("no limit", "", none, "cgroup limit"),
            ("enough", "", cgroup(16 << 30), "used of at most 90 %"),
            ("too little", "", cgroup(4 << 30), "TOO MUCH: "),
            ("a small machine", "", Available { cgroup: None, machine: Some(1 << 30) }, "WARNING: too small"),
            ("no names", "[window]\nnames_share = 0.0", none, "off: verdicts give"),
            ("few names", "", none, "names the newest"),
            ("many names", "[window]\nnames_share = 0.6", none, "names every page"),
            ("more than ids", "[window]\nmax_memory = '1TiB'", none, "lie idle"),
            ("one thread", "[pipeline]\nthreads = 1", none, "input.max_page_bytes in 1 thread"),
        ] {
            let text = rendered(toml, available);
            assert!(text.contains(expected), "{case}: {text}");
        }
        assert!(!rendered("", cgroup(16 << 30)).contains("TOO MUCH"));
    }
}
