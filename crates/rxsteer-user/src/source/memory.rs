//! Frames that are already in memory: read once, and received as often as needed without a copy.

use super::{Fill, Source};
use crate::block::Block;
use crate::memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to wait for a source that has no frame ready.
const PAUSE: Duration = Duration::from_millis(1);

/// A source over blocks in memory.
#[derive(Clone, Debug)]
pub struct MemorySource {
    blocks: Arc<[Arc<Block>]>,
    next_block: usize,
    /// The index of the next frame for [`Source::fill`], in the next block.
    next_frame: usize,
    rounds_left: u64,
    frames_done: u64,
    frames_total: u64,
}

impl MemorySource {
    /// Reads all frames of `source`, to be received `rounds` times. It uses at most `most_blocks` blocks of
    /// [`crate::block::BLOCK_BYTES`] each.
    pub fn load(source: &mut dyn Source, most_blocks: usize, rounds: u64) -> MemorySource {
        let mut blocks = Vec::new();
        let mut fill = Fill::More;
        while fill == Fill::More && blocks.len() < most_blocks {
            let mut block = Block::new();
            fill = source.fill(&mut block);
            if !block.is_empty() {
                blocks.push(Arc::new(block));
            }
        }
        MemorySource::new(blocks.into(), rounds)
    }

    /// Reads all frames of `source`, to be received once. Returns `None` if they need more than `most_blocks` blocks or
    /// more memory than is available, or if `stop` is set before they are read. The frames read so far are lost then.
    pub fn load_all(
        source: &mut dyn Source,
        most_blocks: usize,
        stop: &AtomicBool,
    ) -> Option<MemorySource> {
        let mut blocks = Vec::new();
        let mut fill = Fill::More;
        while fill == Fill::More {
            // ORDER: Relaxed; a request without data.
            if blocks.len() == most_blocks
                || !memory::is_available(memory::RESERVE)
                || stop.load(Ordering::Relaxed)
            {
                return None;
            }
            let mut block = Block::new();
            while fill == Fill::More && !block.is_full() {
                let frames = block.len();
                fill = source.fill(&mut block);
                if block.len() == frames && fill == Fill::More {
                    // The pipe has no data.
                    if stop.load(Ordering::Relaxed) {
                        return None;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
            if !block.is_empty() {
                blocks.push(Arc::new(block));
            }
        }
        Some(MemorySource::new(blocks.into(), 1))
    }

    /// The frames of `blocks`, to be received `rounds` times.
    #[must_use]
    pub fn new(blocks: Arc<[Arc<Block>]>, rounds: u64) -> MemorySource {
        let frames: u64 = blocks.iter().map(|block| block.len() as u64).sum();
        MemorySource {
            next_block: 0,
            next_frame: 0,
            rounds_left: if frames == 0 { 0 } else { rounds },
            frames_done: 0,
            frames_total: frames.saturating_mul(rounds),
            blocks,
        }
    }

    fn advance(&mut self) -> Fill {
        self.next_frame = 0;
        self.next_block += 1;
        if self.next_block == self.blocks.len() {
            self.next_block = 0;
            self.rounds_left -= 1;
        }
        self.state()
    }

    fn state(&self) -> Fill {
        if self.rounds_left == 0 { Fill::End } else { Fill::More }
    }
}

impl Source for MemorySource {
    fn fill(&mut self, into: &mut Block) -> Fill {
        while self.rounds_left != 0 {
            let block = self.blocks[self.next_block].clone();
            for frame in &block.frames()[self.next_frame..] {
                if !into.push_again(&block, frame) {
                    return Fill::More;
                }
                self.next_frame += 1;
                self.frames_done += 1;
            }
            self.advance();
        }
        Fill::End
    }

    fn shared_block(&mut self) -> Option<(Arc<Block>, Fill)> {
        // An empty or finished source returns an empty block, so that it ends in both cases.
        let Some(block) = self.blocks.get(self.next_block).filter(|_| self.rounds_left != 0) else {
            return Some((Arc::new(Block::default()), Fill::End));
        };
        let block = block.clone();
        self.frames_done += block.len() as u64;
        let fill = self.advance();
        Some((block, fill))
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((self.frames_done, self.frames_total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic::SyntheticSource;

    #[test]
    fn everything_is_loaded_or_nothing() {
        let stop = AtomicBool::new(false);
        let load = |most_blocks| {
            let spec = "packets=2000,flows=9".parse().expect("a specification");
            MemorySource::load_all(&mut SyntheticSource::new(spec, 1, (0, 1)), most_blocks, &stop)
        };
        let mut loaded = load(100).expect("2000 frames fit");
        let (mut frames, mut block) = (0, Block::new());
        loop {
            block.clear();
            let fill = loaded.fill(&mut block);
            frames += block.len();
            if fill == Fill::End {
                break;
            }
        }
        assert_eq!(frames, 2000);
        assert!(load(2).is_none(), "two blocks have room for 1024 frames");
        stop.store(true, Ordering::Relaxed);
        assert!(load(100).is_none(), "it is stopped");
    }
}
