//! Counts what is allocated, so that a target can say how much its input may cost.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does the work, this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(HELD.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Does `work`, which may hold `most_bytes` more at any time than was held before.
pub fn within<R>(most_bytes: usize, work: impl FnOnce() -> R) -> R {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = work();
    let taken = MOST.load(Relaxed) - before;
    assert!(taken <= most_bytes, "{taken} bytes were allocated, {most_bytes} are allowed");
    result
}
