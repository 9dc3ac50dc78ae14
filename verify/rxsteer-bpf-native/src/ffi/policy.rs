//! The functions of `shim_policy.c`.

mod types;

pub use types::*;

use crate::abi;
use std::ptr::NonNull;

enum State {}

unsafe extern "C" {
    fn native_policy_new(sizes: *const Sizes) -> *mut State;
    fn native_policy_free(policy: *mut State);
    fn native_policy_configure(policy: *mut State, rules: *const Rules);
    fn native_policy_miss_rings(policy: *mut State, rings: u64);
    fn native_policy_decide(
        policy: *mut State,
        of: *const Packet,
        table: u32,
        needs_metadata: u32,
        to: *mut Decision,
    );
    fn native_policy_record_desired(policy: *mut State, hash: u32, cpu: u32);
    fn native_policy_forget_desired(policy: *mut State, hash: u32);
    fn native_policy_set_pair(
        policy: *mut State,
        rx_cpu: u32,
        ring: u32,
        tail: u32,
        dequeued: u32,
        delivered: u32,
    );
    fn native_policy_tail(policy: *mut State, rx_cpu: u32, ring: u32) -> u32;
    fn native_policy_last_packet(
        policy: *mut State,
        table: u32,
        hash: u32,
        last: *mut LastPacket,
    ) -> u32;
    fn native_policy_sock_entry(policy: *mut State, index: u32) -> u32;
    fn native_policy_slot_held(
        policy: *mut State,
        table: u32,
        device: u32,
        hash: u32,
        now: u64,
    ) -> u32;
    fn native_policy_bucket(policy: *mut State, rx_cpu: u32, bucket: u32, counts: *mut [u32; 3]);
    fn native_policy_chains_are_sound(policy: *mut State) -> u32;
    fn native_policy_history(policy: *mut State, rx_cpu: u32, history: *mut LimitHistory);
    fn native_policy_limit_count(policy: *mut State, rx_cpu: u32, bucket: u32) -> u32;
    fn native_policy_mark_delivered(policy: *mut State, rx_cpu: u32, ring: u32, seq: u32);
    fn native_policy_unset(policy: *mut State, index: u32);
    fn native_order_begin(policy: *mut State, flushes_fully: u32);
    fn native_order_passes(policy: *mut State, ring: u32, rx_cpu: u32, seq: u32);
    fn native_order_iteration(policy: *mut State, ring: u32, count: u32, now: u32);
    fn native_order_sleeps(policy: *mut State, ring: u32);
    fn native_order_delivered(policy: *mut State, rx_cpu: u32, ring: u32) -> u32;
}

/// The C policy with its own tables, which are empty at first.
#[derive(Debug)]
pub struct NativePolicy {
    state: NonNull<State>,
    sizes: Sizes,
}

impl NativePolicy {
    /// The policy with tables of these sizes; the caller must call [`NativePolicy::configure`] next.
    ///
    /// # Panics
    ///
    /// If the sizes are out of range.
    #[must_use]
    pub fn new(sizes: Sizes) -> NativePolicy {
        assert!((1..=abi::STEER_MAX_CPUS).contains(&sizes.cpus));
        assert!((1..=sizes.cpus).contains(&sizes.rx_cpus));
        assert!(sizes.sock_entries.is_power_of_two());
        assert!(sizes.sock_entries >= abi::STEER_LINE_WORDS);
        assert!(
            (abi::STEER_LINE_WORDS.ilog2()..20).contains(&sizes.chains_log)
                && sizes.flow_log < 20
                && sizes.tables < 2048
        );
        // SAFETY: the sizes are in range, so the tables have elements and can be allocated.
        let state = unsafe { native_policy_new(&raw const sizes) };
        NativePolicy { state: NonNull::new(state).expect("it aborts without memory"), sizes }
    }

    /// Makes `rules` decide from now on.
    ///
    /// # Panics
    ///
    /// If the rules name a CPU for which there is no room.
    pub fn configure(&mut self, rules: &Rules) {
        let known = |cpu: &u16| u32::from(*cpu) < self.sizes.cpus || *cpu == NO_CPU;
        assert!(rules.map.iter().all(known) && rules.map_len <= abi::STEER_MAX_CPUS);
        assert!(rules.buckets <= abi::STEER_MAX_BUCKETS);
        assert!(rules.first_bucket + rules.buckets <= abi::STEER_MAP_ENTRIES);
        assert!(self.sizes.tables <= abi::MAX_ROWS && rules.loops <= abi::STEER_MAX_LOOPS);
        assert!(rules.after <= u32::from(u8::MAX));
        for row in &rules.rows {
            let end = u32::from(row.first) + u32::from(row.len);
            assert!(known(&row.bound) && end <= abi::STEER_MAP_ENTRIES);
            assert!(u32::from(row.number) < abi::STEER_MAX_MAPS);
        }
        let buckets = if rules.flow_limit == 0 { 0 } else { 1 << (rules.flow_limit - 1) };
        assert!(buckets <= self.sizes.limit_lines * abi::STEER_LINE_BYTES);
        // SAFETY: the state is there until it is dropped, and the rules fit its tables.
        unsafe { native_policy_configure(self.state.as_ptr(), rules) }
    }

    /// Sets which of the first 64 rings are missing.
    pub fn miss_rings(&mut self, rings: u64) {
        // SAFETY: the state is there.
        unsafe { native_policy_miss_rings(self.state.as_ptr(), rings) }
    }

    /// Decides for one packet that belongs to flow table `table`.
    pub fn decide(&mut self, packet: &Packet, table: u32) -> Decision {
        self.receive(packet, table, false)
    }

    /// Decides for one packet; with `needs_metadata`, the packet cannot be sent without its number.
    pub fn receive(&mut self, packet: &Packet, table: u32, needs_metadata: bool) -> Decision {
        self.assert_table(table);
        assert!(packet.rx_cpu < self.sizes.rx_cpus && packet.hash != 0);
        let mut decision = Decision::default();
        let needs_metadata = needs_metadata.into();
        // SAFETY: the state is there, the table and the source are in range, and the CPUs that
        // can come out are those of the rules.
        unsafe {
            native_policy_decide(
                self.state.as_ptr(),
                packet,
                table,
                needs_metadata,
                &raw mut decision,
            );
        }
        decision
    }

    /// User space detected that all frames from `rx_cpu` to `ring` up to number `seq` are delivered or lost.
    pub fn mark_delivered(&mut self, (rx_cpu, ring): (u32, u32), seq: u32) {
        self.assert_pair(rx_cpu, ring);
        // SAFETY: the state is there, and the pair is in range.
        unsafe { native_policy_mark_delivered(self.state.as_ptr(), rx_cpu, ring, seq) }
    }

    /// Unsets the slot of a flow.
    pub fn unset(&mut self, table: u32, slot: u32) {
        self.assert_table(table);
        assert!(slot < 1 << self.sizes.flow_log);
        // SAFETY: the state is there, and the slot too.
        unsafe {
            native_policy_unset(self.state.as_ptr(), (table << self.sizes.flow_log) + slot);
        }
    }

    /// The CPUMAP program of `ring` sees a frame of `rx_cpu`, which may carry its number (not 0).
    pub fn passes(&mut self, ring: u32, rx_cpu: u32, number: Option<u32>) {
        self.assert_pair(rx_cpu, ring);
        // SAFETY: the state is there, and so is the pair.
        unsafe { native_order_passes(self.state.as_ptr(), ring, rx_cpu, number.unwrap_or(0)) }
    }

    /// The tracepoint `xdp_cpumap_kthread` of `ring` fires in an iteration with `count` frames, at `jiffies`.
    pub fn run_iteration(&mut self, ring: u32, count: u32, jiffies: u32) {
        self.assert_pair(0, ring);
        // SAFETY: the state is there, and so is the ring.
        unsafe { native_order_iteration(self.state.as_ptr(), ring, count, jiffies) }
    }

    /// The tracepoint `sched_switch` fires: the thread of `ring` goes to sleep.
    pub fn sleeps(&mut self, ring: u32) {
        self.assert_pair(0, ring);
        // SAFETY: the state is there, and so is the ring.
        unsafe { native_order_sleeps(self.state.as_ptr(), ring) }
    }

    /// The last number of `rx_cpu` to `ring` that counts as delivered.
    #[must_use]
    pub fn delivered(&self, (rx_cpu, ring): (u32, u32)) -> u32 {
        self.assert_pair(rx_cpu, ring);
        // SAFETY: the state is there, and so is the pair.
        unsafe { native_order_delivered(self.state.as_ptr(), rx_cpu, ring) }
    }

    /// Sets whether GRO is from time to time flushed fully, or only of packets that are older than the present tick.
    pub fn flushes_fully(&mut self, fully: bool) {
        // SAFETY: the state is there.
        unsafe { native_order_begin(self.state.as_ptr(), fully.into()) }
    }

    /// Records that the application of the flow runs on `cpu`.
    pub fn record_desired(&mut self, hash: u32, cpu: u32) {
        // SAFETY: the state is there; any numbers will do.
        unsafe { native_policy_record_desired(self.state.as_ptr(), hash, cpu) }
    }

    /// Records that the flow has ended.
    pub fn forget_desired(&mut self, hash: u32) {
        // SAFETY: as above.
        unsafe { native_policy_forget_desired(self.state.as_ptr(), hash) }
    }

    /// Sets the numbers of the frames from `rx_cpu` to `ring` (CPU and generation).
    pub fn set_pair(&mut self, (rx_cpu, ring): (u32, u32), [tail, dequeued, delivered]: [u32; 3]) {
        self.assert_pair(rx_cpu, ring);
        // SAFETY: the state is there, and the pair is in range.
        unsafe {
            native_policy_set_pair(self.state.as_ptr(), rx_cpu, ring, tail, dequeued, delivered);
        }
    }

    /// The number of the last frame from `rx_cpu` to `ring`.
    #[must_use]
    pub fn tail(&self, rx_cpu: u32, ring: u32) -> u32 {
        self.assert_pair(rx_cpu, ring);
        // SAFETY: as above.
        unsafe { native_policy_tail(self.state.as_ptr(), rx_cpu, ring) }
    }

    /// The last packet that the flow's slot records; `None` when the slot is unset.
    #[must_use]
    pub fn last_packet(&self, table: u32, hash: u32) -> Option<LastPacket> {
        self.assert_table(table);
        let mut last = LastPacket::default();
        // SAFETY: the state is there, and the table is in range.
        let is_set =
            unsafe { native_policy_last_packet(self.state.as_ptr(), table, hash, &raw mut last) };
        (is_set != 0).then_some(last)
    }

    /// An entry of the sock flow table.
    #[must_use]
    pub fn sock_entry(&self, index: u32) -> u32 {
        assert!(index < self.sizes.sock_entries);
        // SAFETY: the state is there, and the entry too.
        unsafe { native_policy_sock_entry(self.state.as_ptr(), index) }
    }

    /// The sparse slot that a flow would use at time `now`, if the flow belongs to the queue with flow table `table`:
    /// CPU and loop.
    #[must_use]
    pub fn slot_held(&self, table: u32, device: u32, hash: u32, now: u64) -> Option<(u32, u32)> {
        // SAFETY: the state is there; any numbers will do.
        let slot =
            unsafe { native_policy_slot_held(self.state.as_ptr(), table, device, hash, now) };
        slot.checked_sub(1).map(|slot| (slot / abi::STEER_SPARSE_ROW, slot % abi::STEER_SPARSE_ROW))
    }

    /// What `rx_cpu` counted in a bucket: packets, flow and votes. The indexes after those of the buckets are for CPUs.
    #[must_use]
    pub fn bucket(&self, rx_cpu: u32, bucket: u32) -> [u32; 3] {
        assert!(rx_cpu < self.sizes.rx_cpus && bucket < abi::STEER_MAX_BUCKETS + self.sizes.cpus);
        let mut counts = [0; 3];
        // SAFETY: the state is there, and the bucket too.
        unsafe {
            native_policy_bucket(self.state.as_ptr(), rx_cpu, bucket, &raw mut counts);
        }
        counts
    }

    /// Whether every assigned sparse slot is in its flow's chain, and no other slot is.
    #[must_use]
    pub fn chains_are_sound(&self) -> bool {
        // SAFETY: the state is there.
        unsafe { native_policy_chains_are_sound(self.state.as_ptr()) != 0 }
    }

    /// The buckets of the flow limit's last packets plus one, oldest first; 0: no packet yet.
    #[must_use]
    pub fn limit_history(&self, rx_cpu: u32) -> LimitHistory {
        assert!(rx_cpu < self.sizes.rx_cpus);
        let mut history = [0; abi::STEER_FLOW_LIMIT_HISTORY as usize];
        // SAFETY: the state is there, and the source too.
        unsafe { native_policy_history(self.state.as_ptr(), rx_cpu, &raw mut history) }
        history
    }

    /// How many packets of the history the flow limit counts in a bucket.
    #[must_use]
    pub fn limit_count(&self, rx_cpu: u32, bucket: u32) -> u32 {
        assert!(rx_cpu < self.sizes.rx_cpus);
        assert!(bucket < self.sizes.limit_lines * abi::STEER_LINE_BYTES);
        // SAFETY: the state is there, and so are the source and the bucket.
        unsafe { native_policy_limit_count(self.state.as_ptr(), rx_cpu, bucket) }
    }

    fn assert_table(&self, table: u32) {
        assert!(table < self.sizes.tables, "a flow table");
    }

    fn assert_pair(&self, rx_cpu: u32, ring: u32) {
        let rings = self.sizes.cpus * abi::STEER_GENERATIONS;
        assert!(rx_cpu < self.sizes.rx_cpus && ring < rings, "a pair of CPUs");
    }
}

impl Drop for NativePolicy {
    fn drop(&mut self) {
        // SAFETY: it was made by `native_policy_new`, and nothing else has it.
        unsafe { native_policy_free(self.state.as_ptr()) }
    }
}

/// The state of one ring's kernel thread in `steer_order.h`.
#[derive(Debug)]
pub struct RingThread(NativePolicy);

impl RingThread {
    /// A thread of a kernel whose GRO is from time to time flushed fully, or only of packets that are older than the
    /// present tick.
    #[must_use]
    pub fn new(rx_cpus: u32, flushes_fully: bool) -> RingThread {
        let mut policy = NativePolicy::new(Sizes {
            cpus: rx_cpus,
            rx_cpus,
            tables: 1,
            flow_log: 2,
            sock_entries: abi::STEER_LINE_WORDS,
            sock_cpu_mask: abi::STEER_LINE_WORDS - 1,
            chains_log: abi::STEER_LINE_WORDS.ilog2(),
            limit_lines: 1,
        });
        policy.flushes_fully(flushes_fully);
        RingThread(policy)
    }

    /// The CPUMAP program sees a frame of `rx_cpu`, which may carry its number (not 0).
    pub fn passes(&mut self, rx_cpu: u32, number: Option<u32>) {
        self.0.passes(0, rx_cpu, number);
    }

    /// The tracepoint `xdp_cpumap_kthread` fires in an iteration with `count` frames, at `jiffies`.
    pub fn run_iteration(&mut self, count: u32, jiffies: u32) {
        self.0.run_iteration(0, count, jiffies);
    }

    /// The tracepoint `sched_switch` fires: the thread goes to sleep.
    pub fn sleeps(&mut self) {
        self.0.sleeps(0);
    }

    /// The last number of `rx_cpu` that counts as delivered.
    #[must_use]
    pub fn delivered(&self, rx_cpu: u32) -> u32 {
        self.0.delivered((rx_cpu, 0))
    }
}
