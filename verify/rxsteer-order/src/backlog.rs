//! One producer's queue to one CPU, and who works on it.

use crate::flows::{List, Packet};
use std::collections::VecDeque;

/// A first-in, first-out queue whose positions are free-running and wrap.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// What is published and not completed, oldest first; what is in hand comes first.
    packets: VecDeque<Packet>,
    /// The position the next packet gets.
    tail: u32,
    /// Positions before this one are taken off the queue.
    dequeued: u32,
    /// Positions before this one are completed.
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

    /// Packets that have room and are not taken off.
    pub(crate) fn waiting(&self) -> u32 {
        self.tail.wrapping_sub(self.dequeued)
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.dequeued.wrapping_sub(self.completed) as usize
    }

    /// Published packets that can be taken.
    pub(crate) fn ready(&self) -> usize {
        self.packets.len() - self.in_hand()
    }

    /// The next packet's position, which it has from now on.
    pub(crate) fn reserve(&mut self) -> u32 {
        let position = self.tail;
        self.tail = position.wrapping_add(1);
        position
    }

    /// Writes a packet to a slot that was reserved.
    pub(crate) fn publish(&mut self, packet: Packet) {
        self.packets.push_back(packet);
    }

    /// Whether every slot that was reserved holds a packet.
    pub(crate) fn is_published(&self) -> bool {
        self.tail.wrapping_sub(self.completed) as usize == self.packets.len()
    }

    /// Takes `count` packets in hand, which are ready.
    pub(crate) fn take(&mut self, count: usize) -> impl Iterator<Item = Packet> + '_ {
        let from = self.in_hand();
        self.dequeued = self.dequeued.wrapping_add(count as u32);
        self.packets.range(from..from + count).copied()
    }

    /// Ends the first packet in hand. Says whether the count of completed packets wrapped.
    pub(crate) fn complete(&mut self) -> Option<(Packet, bool)> {
        if self.in_hand() == 0 {
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
    /// The backlog it has a list of in hand, and the list.
    pub(crate) hand: Option<(usize, List)>,
    /// In how many of 256 turns it does something.
    pub(crate) diligence: u32,
    /// Turns it still stands.
    pub(crate) stalled: u32,
}
