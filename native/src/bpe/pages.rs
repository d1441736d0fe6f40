//! Zeroed arrays in large pages.
//!
//! A table that is looked up at random has most of its cost in memory: a fault a page when it is new, and a miss of
//! the processor's page table at every look-up. Pages of 2 MiB have a five-hundredth of both. Linux gives them to who
//! asks (`madvise`); elsewhere, and where they are switched off, all works the same in small ones.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
const LARGE: usize = 2 << 20;

/// A type of which all zeros are a value.
///
/// # Safety
/// Zeroed memory must be a valid value, and dropping one must do nothing.
pub unsafe trait Zeroed: Copy {}

/// An array of zeros that is written to in place.
pub struct Pages<T: Zeroed> {
    start: NonNull<T>,
    len: usize,
    /// How many bytes were mapped, and where; otherwise the array was allocated
    mapped: Option<(NonNull<u8>, usize)>,
}

// SAFETY: it owns its memory, as a `Vec` does.
unsafe impl<T: Zeroed + Send> Send for Pages<T> {}
unsafe impl<T: Zeroed + Sync> Sync for Pages<T> {}

impl<T: Zeroed> Pages<T> {
    /// `len` zeros, at least one.
    pub fn new(len: usize) -> Self {
        let len = len.max(1);
        let Ok(layout) = Layout::array::<T>(len) else {
            panic!("an array of {len} is larger than memory can be");
        };
        #[cfg(target_os = "linux")]
        if layout.size() >= LARGE
            && let Some((place, bytes, start)) = map(layout.size())
        {
            let (start, mapped) = (start.cast(), Some((place, bytes)));
            return Self { start, len, mapped };
        }
        // SAFETY: the layout has a size, because `len` and the size of a slot are not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let Some(start) = start else {
            handle_alloc_error(layout)
        };
        Self {
            start: start.cast(),
            len,
            mapped: None,
        }
    }
}

/// Map this many bytes in large pages: what was mapped, its length, and where the first page begins.
#[cfg(target_os = "linux")]
fn map(bytes: usize) -> Option<(NonNull<u8>, usize, NonNull<u8>)> {
    let room = bytes.checked_add(LARGE)?;
    // SAFETY: a new private mapping touches no memory that is there; the start moves up by less than the room added.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let place = libc::mmap(std::ptr::null_mut(), room, access, flags, -1, 0);
        if place == libc::MAP_FAILED {
            return None;
        }
        let place = NonNull::new(place.cast::<u8>())?;
        let start = place.add(place.align_offset(LARGE));
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        Some((place, room, start))
    }
}

/// Ask for large pages for what a vector has not yet written.
pub fn advise<T>(vector: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        let spare = vector.spare_capacity_mut();
        let bytes = size_of_val(spare);
        let start = spare.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(LARGE);
        if skipped < bytes && bytes - skipped >= LARGE {
            // SAFETY: advice about memory that the vector owns; it changes nothing that is in it.
            unsafe {
                let whole = (bytes - skipped) / LARGE * LARGE;
                libc::madvise(start.add(skipped).cast(), whole, libc::MADV_HUGEPAGE);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = vector;
}

impl<T: Zeroed> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie there, zeros or what was written, for as long as this lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroed> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroed> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: what was mapped is unmapped once, and what was allocated goes back with its layout.
        unsafe {
            match self.mapped {
                #[cfg(target_os = "linux")]
                Some((place, bytes)) => {
                    libc::munmap(place.as_ptr().cast(), bytes);
                }
                #[cfg(not(target_os = "linux"))]
                Some(_) => {}
                None => dealloc(
                    self.start.as_ptr().cast(),
                    Layout::array::<T>(self.len).unwrap_or(Layout::new::<T>()),
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: zero is a number.
    unsafe impl Zeroed for u64 {}

    #[test]
    fn small_and_large_arrays_are_zeroed_and_kept() {
        for len in [1, 1000, 1 << 19, 3 << 19] {
            let mut pages: Pages<u64> = Pages::new(len);
            assert_eq!(pages.len(), len);
            assert!(pages.iter().all(|&value| value == 0));
            (pages[0], pages[len - 1]) = (7, 9);
            assert_eq!(
                (pages[0], pages[len - 1]),
                if len == 1 { (9, 9) } else { (7, 9) }
            );
        }
    }

    #[test]
    fn advice_changes_nothing() {
        let mut vector: Vec<u32> = Vec::with_capacity(4 << 20);
        vector.extend([1, 2, 3]);
        advise(&mut vector);
        vector.extend(0..1000);
        assert_eq!((vector[0], vector[1002]), (1, 999));
    }
}
