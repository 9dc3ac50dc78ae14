//! One producer's queue to one CPU, and the worker that processes it.

use crate::flows::{List, Packet};
use std::collections::VecDeque;

/// A first-in, first-out queue whose positions are free-running and wrap.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Published packets that are not completed, oldest first; the packets in hand come first.
    packets: VecDeque<Packet>,
    /// The position the next packet gets.
    tail: u32,
    /// Packets at positions before this one were taken off the queue.
    dequeued: u32,
    /// Packets at positions before this one are completed.
    completed: u32,
    /// The CPU whose worker processes it.
    pub(crate) worker: usize,
}

impl Backlog {
    pub(crate) fn new(first: u32, worker: usize) -> Backlog {
        Backlog { packets: VecDeque::new(), tail: first, dequeued: first, completed: first, worker }
    }

    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    pub(crate) fn dequeued(&self) -> u32 {
        self.dequeued
    }

    pub(crate) fn completed(&self) -> u32 {
        self.completed
    }

    /// Packets that have room and were not taken off yet.
    pub(crate) fn waiting(&self) -> u32 {
        self.tail.wrapping_sub(self.dequeued)
    }

    pub(crate) fn in_progress(&self) -> usize {
        self.dequeued.wrapping_sub(self.completed) as usize
    }

    /// Published packets that a worker can take.
    pub(crate) fn ready(&self) -> usize {
        self.packets.len() - self.in_progress()
    }

    /// Reserves the next packet's position, and returns it.
    pub(crate) fn reserve(&mut self) -> u32 {
        let position = self.tail;
        self.tail = position.wrapping_add(1);
        position
    }

    /// Writes a packet to a reserved slot.
    pub(crate) fn publish(&mut self, packet: Packet) {
        self.packets.push_back(packet);
    }

    /// Whether every reserved slot holds a packet.
    pub(crate) fn is_published(&self) -> bool {
        self.tail.wrapping_sub(self.completed) as usize == self.packets.len()
    }

    /// Takes `count` ready packets in hand.
    pub(crate) fn take(&mut self, count: usize) -> impl Iterator<Item = Packet> + '_ {
        let from = self.in_progress();
        self.dequeued = self.dequeued.wrapping_add(count as u32);
        self.packets.range(from..from + count).copied()
    }

    /// Completes the first packet in hand. Returns whether the count of completed packets wrapped.
    pub(crate) fn complete(&mut self) -> Option<(Packet, bool)> {
        if self.in_progress() == 0 {
            return None;
        }
        let packet = self.packets.pop_front()?;
        self.completed = self.completed.wrapping_add(1);
        Some((packet, self.completed == 0))
    }
}

/// The worker of one CPU.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) alive: bool,
    /// The list that it has in hand, and the backlog of that list.
    pub(crate) hand: Option<(usize, List)>,
    /// In how many of 256 turns it works.
    pub(crate) diligence: u32,
    /// Turns for which it is still stalled.
    pub(crate) stalled: u32,
}
