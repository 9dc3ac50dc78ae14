//! Maps of the programs, mapped into memory: user space reads and writes them without a system call.

use bytemuck::Pod;
use libbpf_rs::MapCore;
use memmap2::{MmapOptions, MmapRaw};
use rxsteer_core::CpuId;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A BPF array that is mapped into memory.
#[derive(Debug)]
pub(crate) struct Array<T> {
    memory: MmapRaw,
    len: u32,
    /// Bytes from one element to the next: the size of a `T`, or less if the programs keep only its first words.
    stride: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// Maps `map`, which must be an array created with `BPF_F_MMAPABLE`.
    pub(crate) fn new(map: &impl MapCore) -> io::Result<Array<T>> {
        let len = map.max_entries();
        // The kernel rounds elements up to eight bytes; the sizes of these elements are multiples of eight.
        let stride = map.value_size() as usize;
        assert!(stride <= size_of::<T>() && stride.is_multiple_of(8) && align_of::<T>() <= 8);
        let memory =
            MmapOptions::new().len(len as usize * stride).map_raw(map.as_fd().as_raw_fd())?;
        Ok(Array { memory, len, stride, of: PhantomData })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    fn at(&self, index: u32) -> *mut T {
        assert!(index < self.len, "an element of the array");
        // SAFETY: the memory has `len` elements, `stride` bytes each, and `index` is below that.
        unsafe { self.memory.as_mut_ptr().add(index as usize * self.stride).cast() }
    }

    /// The present value of the element; words that are not kept are 0. A program may write the element at the same time:
    /// each word is read whole, but two words may be from different moments.
    pub(crate) fn get(&self, index: u32) -> T {
        let mut value = T::zeroed();
        let from = self.at(index).cast::<u64>();
        let kept = &mut bytemuck::bytes_of_mut(&mut value)[..self.stride];
        for (word, to) in kept.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // SAFETY: a word of the element; the memory is aligned to a page, so each word is.
            *to = unsafe { from.add(word).read_volatile() }.to_ne_bytes();
        }
        value
    }

    /// The number at `offset` bytes in the element.
    pub(crate) fn get_number(&self, index: u32, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.stride, "a number of the element");
        // SAFETY: the number lies within the element and is aligned; the programs load and store it whole.
        let number = unsafe { AtomicU32::from_ptr(self.at(index).byte_add(offset).cast()) };
        // ORDER: Acquire: what was counted before this number was written is visible as well.
        number.load(Ordering::Acquire)
    }

    /// Replaces the first 8 bytes of the element if they equal `old`.
    pub(crate) fn exchange_word(&self, index: u32, old: u64, new: u64) {
        // SAFETY: an element has 8 bytes at least, and is aligned to them; the programs load and store it in
        // whole numbers.
        let word = unsafe { AtomicU64::from_ptr(self.at(index).cast()) };
        // ORDER: Relaxed: it publishes nothing else. A failure is fine: the word has already changed.
        let _ = word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Raises the number at `offset` bytes in the element to `value`, modulo 2³². It never lowers the number if a program
    /// raises it further at the same time.
    pub(crate) fn raise_number(&self, index: u32, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.stride, "a number of the element");
        // SAFETY: the number lies within the element and is aligned; the programs load and store it whole.
        let number = unsafe { AtomicU32::from_ptr(self.at(index).byte_add(offset).cast()) };
        let raised = |now: u32| (value.wrapping_sub(now) as i32 > 0).then_some(value);
        // ORDER: Release, as in the programs. A failure is fine: the number is already that high.
        let _ = number.fetch_update(Ordering::Release, Ordering::Relaxed, raised);
    }

    /// Replaces only the number at `offset` bytes in the element.
    pub(crate) fn set_number(&self, index: u32, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.stride, "a number of the element");
        // SAFETY: the number lies within the element and is aligned; the programs load and store it whole.
        let number = unsafe { AtomicU32::from_ptr(self.at(index).byte_add(offset).cast()) };
        // ORDER: Release, as in the programs.
        number.store(value, Ordering::Release);
    }

    /// Replaces word `word` of the element. No program may write it at the same time.
    pub(crate) fn set_word(&mut self, index: u32, word: usize, value: u64) {
        assert!(word < self.stride / 8, "a word of the element");
        // SAFETY: as in `get`; the mapping is writable.
        unsafe { self.at(index).cast::<u64>().add(word).write_volatile(value) };
    }

    /// Word `word` of the element.
    pub(crate) fn get_word(&self, index: u32, word: usize) -> u64 {
        assert!(word < self.stride / 8, "a word of the element");
        // SAFETY: as in `get`.
        unsafe { self.at(index).cast::<u64>().add(word).read_volatile() }
    }

    /// Replaces the element, or the part of it that is kept. No program may write it at the same time.
    pub(crate) fn set(&mut self, index: u32, value: T) {
        self.write(index, &value);
    }

    /// The same for a value that is too large to be passed by value.
    pub(crate) fn write(&mut self, index: u32, value: &T) {
        let to = self.at(index).cast::<u64>();
        let kept = &bytemuck::bytes_of(value)[..self.stride];
        for (word, from) in kept.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: as in `get`; the mapping is writable.
            unsafe { to.add(word).write_volatile(u64::from_ne_bytes(*from)) };
        }
    }
}

/// A number among the programs' variables, which is mapped into memory.
#[derive(Debug)]
pub(crate) struct Variable {
    memory: MmapRaw,
    offset: usize,
}

impl Variable {
    /// The number at `offset` bytes in `map`, which holds the programs' variables.
    pub(crate) fn new(map: &impl MapCore, offset: usize) -> io::Result<Variable> {
        let size = map.value_size() as usize;
        assert!(offset.is_multiple_of(4) && offset + 4 <= size, "a number of the map");
        let memory = MmapOptions::new().len(size).map_raw(map.as_fd().as_raw_fd())?;
        Ok(Variable { memory, offset })
    }

    fn number(&self) -> &AtomicU32 {
        // SAFETY: the number lies within the memory, which lives as long as `self`, and is aligned; the programs load
        // it whole.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().add(self.offset).cast()) }
    }

    pub(crate) fn get(&self) -> u32 {
        // ORDER: Relaxed: one thread sets it, and nothing else is published by it.
        self.number().load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u32) {
        // ORDER: Relaxed, as above.
        self.number().store(value, Ordering::Relaxed);
    }
}

/// Activates the configuration with number `index`, or starts to steer the interface with that index.
pub(crate) fn activate(active: &mut u32, index: u32) {
    // SAFETY: the word is valid and aligned; the programs only load it.
    let active = unsafe { AtomicU32::from_ptr(active) };
    // ORDER: Release: the configuration has been written before it is activated. The programs' later loads depend on
    // this one.
    active.store(index, Ordering::Release);
}

/// Sets the CPU of a bucket, while the programs read it.
pub(crate) fn set_bucket(entry: &mut u16, cpu: CpuId) {
    // SAFETY: the number is valid and aligned; the programs only load it, whole.
    let entry = unsafe { AtomicU16::from_ptr(entry) };
    // ORDER: Relaxed: nothing else is published by it.
    entry.store(cpu.get(), Ordering::Relaxed);
}
