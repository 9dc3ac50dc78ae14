//! Receiving from a source until its end, at once or paced, and publishing the progress.

use super::Receiver;
use crate::backlogs::Stop;
use crate::block::Block;
use crate::memory;
use crate::pace::Pace;
use crate::source::{Fill, Source};
use crate::sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

impl Receiver {
    /// Receives frames from `source` until its end, at `pace`, or until `stop` is set.
    ///
    /// If memory runs out, this ends, sets `stop` and reports it ([`crate::Report::out_of_memory`]).
    ///
    /// When `stop` is set, frames that were received are still handed off. If a backlog stays full for 100 ms, the rest
    /// of the present batch is dropped and counted (`backlog_full`), and the frames after it count as not received.
    pub fn run(&mut self, source: &mut dyn Source, pace: &Pace, stop: &AtomicBool) {
        // Pinned only for this run, since the caller owns the thread.
        let _pin = if self.pin { sys::Pinned::to(self.queue_cpu) } else { None };
        let request = Stop::on(stop);
        self.drains = pace.drains();
        self.flush_until(&request);
        let dropped_before = source.kernel_drops();
        if pace.is_paced() {
            self.run_paced(source, pace, stop);
        } else {
            self.run_at_once(source, &request, stop);
        }
        self.kernel_drops += source.kernel_drops() - dropped_before;
        self.publish_progress(source);
    }

    fn run_at_once(&mut self, source: &mut dyn Source, request: &Stop<'_>, stop: &AtomicBool) {
        let mut idle = Idle::default();
        let lets_catch_up = self.pin && source.drops_early() && !self.backlogs.must_wait();
        while !request.is_set() {
            if lets_catch_up {
                self.backlogs.let_own_worker_catch_up();
            }
            let received = self.progress.packets.get();
            // Numbering writes into blocks, so it needs separate ones.
            let shared = if self.order_tracker.is_none() { source.shared_block() } else { None };
            let fill = if let Some((block, fill)) = shared {
                self.blocks_sealed += 1;
                self.block_number += 1;
                self.steer(&block, request);
                fill
            } else {
                self.receive_block(source, request)
            };
            self.publish_progress(source);
            if fill == Fill::End || self.is_short_of_memory(stop) {
                break;
            }
            let had_frames = self.progress.packets.get() != received;
            if !had_frames {
                self.change_while_idle();
            }
            idle.after(had_frames);
        }
    }

    /// Frames that the source has read ahead wait in a separate block until they are due, and only then are received. So
    /// an interrupted run has received exactly the frames that were due.
    fn run_paced(&mut self, source: &mut dyn Source, pace: &Pace, stop: &AtomicBool) {
        let mut ahead = Block::new();
        let mut idle = Idle::default();
        let request = Stop::on(stop);
        loop {
            ahead.clear();
            let before = source.progress();
            let fill = source.fill(&mut ahead);
            let read = source.progress();
            let mut next = 0;
            if let Some(time_ns) = source.start_time_ns() {
                pace.begin(time_ns);
            }
            while next < ahead.len() {
                let due = pace.due(&ahead.frames()[next..], self.batch, stop);
                if due == 0 {
                    return;
                }
                for frame in &ahead.frames()[next..next + due] {
                    self.netif_rx(ahead.bytes_of(frame), frame.info());
                }
                self.flush_until(&request);
                next += due;
                self.publish_figures(
                    part_of(before, read, next, ahead.len()),
                    source.kernel_drops(),
                );
            }
            if fill == Fill::End || request.is_set() || self.is_short_of_memory(stop) {
                return;
            }
            if ahead.is_empty() {
                self.change_while_idle();
            }
            idle.after(!ahead.is_empty());
        }
    }

    fn receive_block(&mut self, source: &mut dyn Source, stop: &Stop<'_>) -> Fill {
        let fill = source.fill(self.open_block(stop));
        self.flush_until(stop);
        fill
    }

    /// Whether memory has run out; then all RX threads must stop. Checks only from time to time.
    fn is_short_of_memory(&mut self, stop: &AtomicBool) -> bool {
        let is_time = self.blocks_sealed - self.blocks_at_check >= memory::BLOCKS_BETWEEN_CHECKS;
        if is_time {
            self.blocks_at_check = self.blocks_sealed;
        }
        let is_short =
            self.order_tracker.as_ref().is_some_and(|order_tracker| order_tracker.is_short)
                || is_time && !memory::is_available(memory::RESERVE);
        if is_short {
            self.out_of_memory = true;
            // ORDER: Relaxed; a stop is a request, and the flag carries no data.
            stop.store(true, Ordering::Relaxed);
        }
        is_short
    }

    fn publish_progress(&self, source: &dyn Source) {
        self.publish_figures(source.progress(), source.kernel_drops());
    }

    fn publish_figures(&self, progress: Option<(u64, u64)>, kernel_drops: u64) {
        self.progress.kernel_drops.set(kernel_drops);
        if let Some((done, total)) = progress {
            self.progress.done.set(done);
            self.progress.total.set(total);
        }
    }
}

/// The progress of a source that went from `before` to `read` when it read `ahead` frames, of which `taken` were
/// received.
fn part_of(
    before: Option<(u64, u64)>,
    read: Option<(u64, u64)>,
    taken: usize,
    ahead: usize,
) -> Option<(u64, u64)> {
    let ((before, _), (read, all)) = (before?, read?);
    let part = taken as f64 / ahead.max(1) as f64;
    Some((before + (read.saturating_sub(before) as f64 * part) as u64, all))
}

/// What an RX thread does while its source has no frames: it sleeps longer the longer this lasts.
#[derive(Default)]
struct Idle {
    fills: u32,
}

impl Idle {
    /// After this many fills without a frame the thread sleeps between them.
    const SPINS: u32 = 64;
    const LONGEST_SLEEP: Duration = Duration::from_millis(1);

    /// Waits, unless the source had frames.
    fn after(&mut self, had_frames: bool) {
        if had_frames {
            self.fills = 0;
            return;
        }
        self.fills = self.fills.saturating_add(1);
        if self.fills < Self::SPINS {
            std::thread::yield_now();
        } else {
            let micros = u64::from(self.fills - Self::SPINS + 1) * 10;
            std::thread::sleep(Duration::from_micros(micros).min(Self::LONGEST_SLEEP));
        }
    }
}
