//! Long arrays that begin as zeros: nothing is resident before it is written, and then in huge pages where the system
//! has them.
//!
//! The index is gigabytes read at random. With pages of 4 KiB most reads would walk the page tables first, which costs
//! as much as the read. Memory comes from `mmap` at a multiple of 2 MiB, so what an array may take beyond its length is
//! less than one huge page. Where the system refuses, everything works in small pages.
//!
//! An array written from front to back gets [`Zeroed::new`]: one fault of a huge page each time 2 MiB are used up. One written
//! at random gets [`Zeroed::scattered`]: it begins in small pages, or the first few hundred pages of a small input would make
//! all of it resident, and [`Zeroed::gather`] turns it into huge ones piece by piece.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A huge page of x86-64 and most of arm64, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Types for which all-zero bytes are a value, and which own nothing.
///
/// # Safety
///
/// That must be so.
pub unsafe trait Plain: Copy {}

// SAFETY: integers, and arrays of them.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// An array of fixed length, its start at a multiple of 64 bytes at least.
#[derive(Debug)]
pub struct Zeroed<T: Plain> {
    start: NonNull<T>,
    len: usize,
    memory: Memory,
}

// SAFETY: it owns its memory alone, as a vector does.
unsafe impl<T: Plain + Send> Send for Zeroed<T> {}
// SAFETY: shared, it gives shared references to its elements only.
unsafe impl<T: Plain + Sync> Sync for Zeroed<T> {}

impl<T: Plain> Zeroed<T> {
    /// `len` zeros, to be written more or less from front to back.
    pub fn new(len: usize) -> Self {
        let array = Self::scattered(len);
        array.expect_writes();
        array
    }

    /// `len` zeros, to be written all over.
    pub fn scattered(len: usize) -> Self {
        let layout = std::alloc::Layout::array::<T>(len).and_then(|layout| layout.align_to(64));
        let layout = layout.expect("the plan fits the address space");
        let (start, memory) = Memory::new(layout);
        Self { start: start.cast(), len, memory }
    }

    /// Asks for huge pages for all that has not been written yet.
    pub fn expect_writes(&self) {
        if self.memory.is_mapped() {
            let length = self.num_bytes().next_multiple_of(HUGE_PAGE_BYTES);
            system::advise_huge_pages(self.start.as_ptr().cast(), length);
        }
    }

    /// What makes the first `len` elements resident before they are written.
    pub fn populate(&self, len: usize) -> Populate {
        let bytes = if self.memory.is_mapped() { size_of::<T>() * len.min(self.len) } else { 0 };
        Populate { start: self.start.as_ptr().addr(), left: bytes.next_multiple_of(HUGE_PAGE_BYTES) }
    }

    /// Pieces that [`Zeroed::gather`] takes; 0 where there are no huge pages.
    pub fn num_pieces(&self) -> usize {
        if self.memory.is_mapped() { self.num_bytes().div_ceil(HUGE_PAGE_BYTES) } else { 0 }
    }

    /// Makes piece number `piece` one huge page, with all that is in it: some 0.2 ms. `scratch` is for the copy. Where the
    /// system has no huge page to give, the piece is in small pages as before.
    pub fn gather(&mut self, piece: usize, scratch: &mut Vec<u8>) {
        assert!(piece < self.num_pieces());
        let start = self.start.as_ptr().cast::<u8>().wrapping_add(piece * HUGE_PAGE_BYTES);
        let length = (self.num_bytes() - piece * HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        // SAFETY: `length` bytes from `start` on are the array's and `self` is borrowed for writing. Memory of `mmap` is all
        // initialised.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, length) };
        scratch.clear();
        scratch.extend_from_slice(bytes);
        system::forget_into_huge_page(start);
        bytes.copy_from_slice(scratch);
    }

    fn num_bytes(&self) -> usize {
        size_of::<T>() * self.len
    }
}

impl<T: Plain> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and `len` elements long until `memory` is dropped with `self`; zeros were a value of
        // `T`, and all that was written since are such values.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Zeroed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Makes an array resident, from any thread: finding memory and clearing it takes longer than filling it.
///
/// It holds addresses and touches nothing that can be read: once the array is gone it does nothing.
#[derive(Debug, Clone)]
pub struct Populate {
    start: usize,
    left: usize,
}

impl Populate {
    /// The next huge page. False when there is none left, or the system cannot do it.
    pub fn step(&mut self) -> bool {
        if self.left == 0 || !system::populate(self.start, HUGE_PAGE_BYTES) {
            return false;
        }
        self.start += HUGE_PAGE_BYTES;
        self.left -= HUGE_PAGE_BYTES;
        true
    }
}

/// Where the elements are, to be given back.
#[derive(Debug)]
enum Memory {
    Allocated(NonNull<u8>, std::alloc::Layout),
    /// Start and length as `mmap` gave them.
    Mapped(NonNull<u8>, usize),
}

impl Memory {
    /// Zeros of this layout, and their first byte. What is shorter than a huge page is the allocator's.
    fn new(layout: std::alloc::Layout) -> (NonNull<u8>, Self) {
        if layout.size() >= HUGE_PAGE_BYTES
            && let Some((start, length)) =
                system::map(layout.size().next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES)
        {
            // Within what was mapped: it is one huge page longer than it need be.
            let skip = start.as_ptr().addr().next_multiple_of(HUGE_PAGE_BYTES) - start.as_ptr().addr();
            let first = NonNull::new(start.as_ptr().wrapping_add(skip)).expect("it is behind one that is not null");
            return (first, Self::Mapped(start, length));
        }
        // One byte at least.
        let layout = std::alloc::Layout::from_size_align(layout.size().max(1), layout.align());
        let layout = layout.expect("it was a layout, or is one of a byte");
        // SAFETY: the layout is not of size 0.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        let start = start.unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        (start, Self::Allocated(start, layout))
    }

    fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(..))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match *self {
            // SAFETY: allocated in `new` with this layout, and freed here alone.
            Self::Allocated(start, layout) => unsafe { std::alloc::dealloc(start.as_ptr(), layout) },
            Self::Mapped(start, length) => system::unmap(start, length),
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::HUGE_PAGE_BYTES;
    use std::ptr::{NonNull, null_mut};

    /// Zeros that nothing else uses; `None` if the system has none left.
    pub fn map(length: usize) -> Option<(NonNull<u8>, usize)> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // The kernel's overcommit rule is told that most of it may never be used, as by any allocator.
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(null_mut(), length, access, kind | libc::MAP_NORESERVE, -1, 0) };
        (start != libc::MAP_FAILED).then(|| NonNull::new(start.cast())).flatten().map(|start| (start, length))
    }

    /// Ends a mapping of [`map`].
    pub fn unmap(start: NonNull<u8>, length: usize) {
        // SAFETY: the owner of the whole mapping is being dropped.
        unsafe { libc::munmap(start.as_ptr().cast(), length) };
    }

    /// Asks for huge pages from now on.
    pub fn advise_huge_pages(start: *mut u8, length: usize) {
        // SAFETY: this advice changes how memory is backed, never what is in it; a range that it does not suit is an error
        // that changes nothing.
        unsafe { libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE) };
    }

    /// Makes this memory resident, with what is in it. Linux 5.14 and newer.
    pub fn populate(start: usize, length: usize) -> bool {
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: this advice changes nothing that can be read or written; where nothing is mapped it is an error.
        unsafe { libc::madvise(start, length, libc::MADV_POPULATE_WRITE) == 0 }
    }

    /// Lets go of the small pages of a huge one, which is zeros then and becomes huge when it is next written.
    /// `MADV_COLLAPSE` does it with what is in them, in the same time, from Linux 6.1 on.
    pub fn forget_into_huge_page(start: *mut u8) {
        advise_huge_pages(start, HUGE_PAGE_BYTES);
        // SAFETY: the caller owns the piece and what is mapped behind its last byte. It reads as zeros from here on, a value of
        // any `Plain` type, or, should the call fail, as before.
        unsafe { libc::madvise(start.cast(), HUGE_PAGE_BYTES, libc::MADV_DONTNEED) };
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::ptr::NonNull;

    pub fn map(_: usize) -> Option<(NonNull<u8>, usize)> {
        None
    }

    pub fn unmap(_: NonNull<u8>, _: usize) {}

    pub fn advise_huge_pages(_: *mut u8, _: usize) {}

    pub fn populate(_: usize, _: usize) -> bool {
        false
    }

    pub fn forget_into_huge_page(_: *mut u8) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths about those at which something changes: nothing, one, a huge page, and each side of one.
    const LENGTHS: [usize; 7] = [0, 1, 1000, (2 << 20) / 8 - 1, (2 << 20) / 8, (2 << 20) / 8 + 1, 1_000_003];

    #[test]
    fn it_is_zeros_and_then_what_was_written() {
        for len in LENGTHS {
            for mut array in [Zeroed::<u64>::new(len), Zeroed::scattered(len)] {
                assert_eq!(array.len(), len);
                assert_eq!(array.as_ptr().addr() % 64, 0);
                assert!(array.iter().all(|word| *word == 0), "{len}");
                array.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64 + 1);
                // With or without a huge page, what is in it stays.
                (0..array.num_pieces()).for_each(|piece| array.gather(piece, &mut Vec::new()));
                let mut populate = array.populate(usize::MAX);
                while populate.step() {}
                assert!(array.iter().enumerate().all(|(at, word)| *word == at as u64 + 1), "{len}");
            }
        }
    }

    #[test]
    fn arrays_do_not_overlap() {
        let mut arrays: Vec<Zeroed<u32>> = LENGTHS.iter().map(|len| Zeroed::new(*len)).collect();
        for (number, array) in arrays.iter_mut().enumerate() {
            array.fill(number as u32);
        }
        for (number, array) in arrays.iter().enumerate() {
            assert!(array.iter().all(|it| *it == number as u32));
        }
    }
}
