//! A ring's memory, and which of its blocks are held.

use libc::{tpacket_block_desc, tpacket_hdr_v1};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::sys::Mapping;

/// The mapped blocks of a packet socket.
#[derive(Debug)]
pub(crate) struct Mapped {
    mapping: Mapping,
    block_size: usize,
    /// Whether each block is held here. The status alone does not distinguish a held block from one that the kernel has
    /// filled again.
    held: Box<[AtomicBool]>,
}

/// A held block; its drop returns it to the kernel.
#[derive(Debug)]
pub(crate) struct Held {
    ring: Arc<Mapped>,
    block: u32,
}

impl Mapped {
    /// Maps the socket's ring.
    pub(crate) fn new(fd: BorrowedFd<'_>, block_size: u32, blocks: u32) -> io::Result<Mapped> {
        let block_size = block_size as usize;
        let mapping = Mapping::shared(fd, block_size * blocks as usize)?;
        let held = (0..blocks).map(|_| AtomicBool::new(false)).collect();
        Ok(Mapped { mapping, block_size, held })
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.held.len() as u32
    }

    pub(crate) fn is_held(&self, block: u32) -> bool {
        // ORDER: Acquire; pairs with the Release in `Held::drop`.
        self.held[block as usize].load(Ordering::Acquire)
    }

    /// Takes a block if the kernel has handed it over and it is not held. Only one thread may call this at a time.
    pub(crate) fn take(ring: &Arc<Mapped>, block: u32) -> Option<Arc<Held>> {
        // ORDER: Acquire; pairs with the kernel's write barrier before it sets the status.
        let is_ready =
            |ring: &Mapped| ring.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        if ring.is_held(block) || !is_ready(ring) {
            return None;
        }
        // ORDER: Relaxed; only this thread takes blocks, and the thread that drops it gets it from this one.
        ring.held[block as usize].store(true, Ordering::Relaxed);
        Some(Arc::new(Held { ring: ring.clone(), block }))
    }

    fn start(&self, block: u32) -> NonNull<u8> {
        assert!(block < self.blocks(), "block {block} of {}", self.blocks());
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.mapping.start().add(block as usize * self.block_size) }
    }

    fn status(&self, block: u32) -> &AtomicU32 {
        let descriptor = self.start(block).cast::<tpacket_block_desc>().as_ptr();
        // SAFETY: the descriptor is at the start of the block, which is aligned to pages and stays mapped as long as
        // `self`. Kernel and process only ever access the status as a whole.
        unsafe { AtomicU32::from_ptr(&raw mut (*descriptor).hdr.bh1.block_status) }
    }
}

impl Held {
    /// The address of the block, and its size.
    pub(crate) fn bytes(&self) -> (NonNull<u8>, usize) {
        (self.ring.start(self.block), self.ring.block_size)
    }

    /// The block's header.
    pub(crate) fn header(&self) -> tpacket_hdr_v1 {
        let descriptor = self.ring.start(self.block).cast::<tpacket_block_desc>().as_ptr();
        // SAFETY: the kernel does not write a block that is held, and the union has one member.
        unsafe { (&raw const (*descriptor).hdr.bh1).read() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // ORDER: Release, both; all reads of the block come before. The kernel's full barrier pairs with the first, the
        // Acquire in `Mapped::is_held` with the second: a thread that sees the block free also sees its status.
        self.ring.status(self.block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.ring.held[self.block as usize].store(false, Ordering::Release);
    }
}
