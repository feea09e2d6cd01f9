//! Places where a test has the process die, so that a crash is shown to be harmless at each step and not only wherever
//! a signal happens to fall.
//!
//! With the feature `crash-points`, `PAGESIEVE_CRASH_AT=before-commit:7` ends the process with SIGKILL when the place of
//! that name is reached for the seventh time. Without the feature nothing of this is in the program.

/// The place `name` is reached.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn reach(_name: &str) {}

/// The place `name` is reached: dies there if it is the one, and for the last time that was asked for.
#[cfg(feature = "crash-points")]
pub fn reach(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("PAGESIEVE_CRASH_AT").ok()?;
        let parsed = text.split_once(':').and_then(|(name, times)| Some((name.to_owned(), times.parse().ok()?)));
        let (name, times): (String, u64) = parsed.expect("PAGESIEVE_CRASH_AT is name:times");
        Some((name, AtomicU64::new(times)))
    });
    if let Some((_, left)) = wanted.as_ref().filter(|(wanted, _)| wanted == name)
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        // SAFETY: no memory is involved, and the process is our own.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        // Another thread may take the signal: this one goes no further.
        loop {
            std::thread::park();
        }
    }
}
