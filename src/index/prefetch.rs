//! Bringing memory into the cache before it is asked for.

/// Begins to bring in the cache line of `place`; costs an instruction, changes nothing. Does nothing where the
/// processor has no such instruction that Rust knows.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction (SSE, which every x86-64 has) is a hint: it reads nothing into the program, and faults on
    // no address, let alone on that of a reference.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
