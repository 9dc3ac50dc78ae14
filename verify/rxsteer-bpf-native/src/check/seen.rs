//! What a comparison came by.

/// What was seen, so that a test shows that it tested something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets decided on.
    pub packets: u64,
    /// By rule: local, bound, hash, slot, rfs.
    pub by: [u64; 5],
    /// Went elsewhere than to its target.
    pub deferred: u64,
    /// Went to another CPU than the last of their slot.
    pub moved: u64,
    /// Refused by the flow limit.
    pub dropped: u64,
    /// Went through a second ring.
    pub second_generation: u64,
}

impl Seen {
    /// Counts all of `other` too.
    pub fn add(&mut self, other: &Seen) {
        self.packets += other.packets;
        for (mine, theirs) in self.by.iter_mut().zip(other.by) {
            *mine += theirs;
        }
        self.deferred += other.deferred;
        self.moved += other.moved;
        self.dropped += other.dropped;
        self.second_generation += other.second_generation;
    }
}
