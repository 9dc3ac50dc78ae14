//! The CPUs that used a flow: the list of (CPU, block) in its head and beyond.
//!
//! An entry is one word, so no thread sees half of it. While the flow lives, entries are only added, each by its
//! own CPU. A block is started before it is listed.

use super::*;

/// Entries of a line of the list; the last word links to the next line.
pub(super) const ENTRIES: usize = WORDS - 1;

/// An entry of the list, in 48 bits: the CPU and the block; 0 is none.
pub(super) fn entry(cpu: CpuTag, block: u32) -> u64 {
    (u64::from(block) + 1) << 16 | cpu.0
}

pub(super) fn block_of(entry: u64) -> usize {
    (entry >> 16) as usize - 1
}

impl FlowSlots {
    /// The block of a CPU that is not the flow's first CPU, if it has one.
    #[inline]
    pub(super) fn further_block(&self, flow: &FlowLines, cpus: u64, cpu: CpuTag) -> Option<&Line> {
        if (cpus >> 16) as u16 == cpu.0 as u16 {
            return Some(self.blocks.line(block_of(cpus >> 16)));
        }
        // ORDER: Acquire, as in `blocks_of`: this follows lines that other CPUs listed.
        let list = flow[LIST].load(Ordering::Acquire);
        let mut further = Entries { slots: self, list, next: 0 };
        further.find(|(of, _)| *of == cpu.0 as u16).map(|(_, block)| block)
    }

    /// The block of a CPU, if it has one.
    pub(super) fn own_block(&self, slot: u32, cpu: CpuTag) -> Option<&Line> {
        self.blocks_of(slot).find(|(of, _)| *of == cpu.0 as u16).map(|(_, block)| block)
    }

    /// Every CPU with a block in this flow (as a tag), and the block.
    #[inline]
    pub(super) fn blocks_of(&self, slot: u32) -> impl Iterator<Item = (u16, &Line)> {
        let head = self.head(slot);
        // ORDER: Acquire, here and in `Entries`; pairs with the Release of `publish`: a listed block was started
        // before.
        let cpus = head[CPUS].load(Ordering::Acquire);
        let first = cpus & (SHARED - 1);
        let first = (first != 0).then(|| (first as u16, self.first_block(slot)));
        let second = cpus >> 16;
        let rest = if second == 0 { 0 } else { head[LIST].load(Ordering::Acquire) };
        let second = (second != 0).then(|| (second as u16, self.blocks.line(block_of(second))));
        first.into_iter().chain(second).chain(Entries { slots: self, list: rest, next: 0 })
    }

    /// Takes a block from the pool, starts it with this packet and lists it. Returns `false` when no block is
    /// left.
    pub(super) fn begin_block(
        &self,
        slot: u32,
        stamp: u32,
        writer: &mut SlotWriter,
        packet: &Sample,
    ) -> bool {
        let pool = &self.free_blocks;
        let Some(block) = writer.lines.take(pool) else { return false };
        block::start(self.blocks.line(block as usize), stamp, packet);
        let listed = self.publish(slot, entry(writer.cpu, block), writer);
        if !listed {
            writer.lines.give_back(block, pool);
        }
        listed
    }

    /// Adds an entry at the end of the flow's list. Returns `false` when the entry needs a line and none is left.
    pub(super) fn publish(&self, slot: u32, entry: u64, writer: &mut SlotWriter) -> bool {
        let head = self.head(slot);
        // ORDER: Acquire, since this follows lines that other CPUs wrote; Release, which pairs with the Acquire in
        // `blocks_of`: the block was started before.
        let mut cpus = head[CPUS].load(Ordering::Acquire);
        while cpus >> 16 == 0 {
            let both = cpus | entry << 16;
            match head[CPUS].compare_exchange(cpus, both, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => cpus = other,
            }
        }
        let mut link = &head[LIST];
        loop {
            let mut list = link.load(Ordering::Acquire);
            if list == 0 {
                let Some(line) = writer.lines.take(&self.free_blocks) else { return false };
                let words = self.blocks.line(line as usize);
                for word in words {
                    word.store(0, Ordering::Relaxed);
                }
                words[0].store(entry, Ordering::Relaxed);
                let new = u64::from(line) + 1;
                match link.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return true,
                    Err(theirs) => {
                        writer.lines.give_back(line, &self.free_blocks);
                        list = theirs;
                    }
                }
            }
            let words = self.blocks.line(list as usize - 1);
            for word in &words[..ENTRIES] {
                if word.load(Ordering::Relaxed) == 0
                    && word.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    return true;
                }
            }
            link = &words[ENTRIES];
        }
    }

    /// Passes to `line` all lines that a flow took from the pool: those of further CPUs' blocks and those of the
    /// list. No thread may use the flow any more.
    #[inline]
    pub(super) fn lines_of(&self, head: &Line, mut line: impl FnMut(u32)) {
        // ORDER: Relaxed, here and below; no other thread uses the flow.
        let second = head[CPUS].load(Ordering::Relaxed) >> 16;
        if second == 0 {
            return;
        }
        line(block_of(second) as u32);
        let first = head[LIST].load(Ordering::Relaxed);
        for (_, block) in (Entries { slots: self, list: first, next: 0 }).numbers() {
            line(block);
        }
        let mut list = first;
        while list != 0 {
            let number = list as u32 - 1;
            list = self.blocks.line(number as usize)[ENTRIES].load(Ordering::Relaxed);
            line(number);
        }
    }
}

/// The entries of a list, starting at its first line.
pub(super) struct Entries<'a> {
    slots: &'a FlowSlots,
    /// The number of the line plus 1; 0 at the end.
    list: u64,
    next: usize,
}

impl<'a> Entries<'a> {
    /// The CPUs (as tags) with the numbers of their blocks.
    pub(super) fn numbers(mut self) -> impl Iterator<Item = (u16, u32)> + use<'a> {
        std::iter::from_fn(move || self.next_entry().map(|e| (e as u16, block_of(e) as u32)))
    }

    pub(super) fn next_entry(&mut self) -> Option<u64> {
        if self.list == 0 {
            return None;
        }
        if self.next == ENTRIES {
            let line = self.slots.blocks.line(self.list as usize - 1);
            // ORDER: Acquire, as in `blocks_of`.
            self.list = line[ENTRIES].load(Ordering::Acquire);
            self.next = 0;
            return self.next_entry();
        }
        let line = self.slots.blocks.line(self.list as usize - 1);
        let entry = line[self.next].load(Ordering::Acquire);
        self.next += 1;
        // Entries are filled from the first one on.
        (entry != 0).then_some(entry)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (u16, &'a Line);

    #[inline]
    fn next(&mut self) -> Option<(u16, &'a Line)> {
        let slots = self.slots;
        self.next_entry().map(|entry| (entry as u16, slots.blocks.line(block_of(entry))))
    }
}
