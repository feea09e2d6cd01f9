//! The standard `process_*` metrics, read from `/proc/self` when they are asked for. Absent where there is no `/proc`.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Counter, Gauge, IntGauge, Opts, Registry};

use super::{Instrument, enter};

/// Clock ticks a second in `/proc/*/stat`: part of Linux's interface to programs, whatever the kernel's own rate.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) struct Process {
    /// Locked while it is moved forward, so that two renders at once do not add the same time twice.
    cpu_seconds: Mutex<Counter>,
    resident_bytes: IntGauge,
    virtual_bytes: IntGauge,
    threads: IntGauge,
    open_fds: IntGauge,
}

impl Process {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Option<Self>> {
        if fs::metadata("/proc/self/status").is_err() {
            return Ok(None);
        }
        let gauge = |name, help| IntGauge::register(registry, Opts::new(name, help), ());

        // The registry is made as the process starts: near enough, and free of the boot clock's drift.
        let start = Opts::new("process_start_time_seconds", "Start of the process, in seconds since 1970-01-01 UTC.");
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Gauge::register(registry, start, ())?.set(since_epoch.as_secs_f64());

        let cpu = Counter::new("process_cpu_seconds_total", "User and system CPU time spent.")?;
        Ok(Some(Self {
            cpu_seconds: Mutex::new(enter(registry, cpu)?),
            resident_bytes: gauge("process_resident_memory_bytes", "Memory resident in RAM.")?,
            virtual_bytes: gauge("process_virtual_memory_bytes", "Size of the address space.")?,
            threads: gauge("process_threads", "OS threads.")?,
            open_fds: gauge("process_open_fds", "Open file descriptors.")?,
        }))
    }

    /// Reads `/proc/self`; what cannot be read keeps its last value.
    pub(super) fn refresh(&self) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (key, unit, gauge) in [
            ("VmRSS:", 1024, &self.resident_bytes),
            ("VmSize:", 1024, &self.virtual_bytes),
            ("Threads:", 1, &self.threads),
        ] {
            if let Some(value) = status_field(&status, key) {
                gauge.set(value * unit);
            }
        }
        if let Ok(fds) = fs::read_dir("/proc/self/fd") {
            // One of them is the listing itself.
            self.open_fds.set(fds.count() as i64 - 1);
        }

        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let cpu = self.cpu_seconds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spent) = cpu_seconds(&stat).map(|now| now - cpu.get()).filter(|spent| *spent > 0.0) {
            cpu.inc_by(spent);
        }
    }
}

/// The number after `key` in `/proc/self/status`, in the unit the kernel writes (kB for sizes).
fn status_field(status: &str, key: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// `utime` + `stime`, fields 14 and 15 of `/proc/self/stat`. The name in field 2 may hold spaces and parentheses, so they
/// are counted from the last parenthesis, after which field 3 comes first.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut ticks = after_name.split_whitespace().skip(11).map(str::parse::<f64>);
    Some((ticks.next()?.ok()? + ticks.next()?.ok()?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        for (case, stat, expected) in [
            ("plain", format!("7 (pagesieve) {rest}"), Some(3.0)),
            ("name with blanks", format!("7 (a b c) {rest}"), Some(3.0)),
            ("name with parentheses", format!("7 (a) (b)) {rest}"), Some(3.0)),
            ("cut short", "7 (pagesieve) S 1".to_owned(), None),
            ("empty", String::new(), None),
        ] {
            assert_eq!(cpu_seconds(&stat), expected, "{case}");
        }
    }

    #[test]
    fn status_fields() {
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t1024 kB\nThreads:\t3\n";
        for (key, expected) in [("VmRSS:", Some(1024)), ("Threads:", Some(3)), ("VmSwap:", None)] {
            assert_eq!(status_field(status, key), expected, "{key}");
        }
    }
}
