//! The receive path in the kernel, with time, CPUs, queues and interfaces that the test provides.

use super::steer::{SteerTestSkel, SteerTestSkelBuilder, types};
use super::types::{Decided, RxContext, TestAction, TestDevice, TestRules, TestSizes};
use crate::abi::{
    Array, CONFIG_FLUSHING, GENERATIONS, LINE_BYTES, LINE_WORDS, LastPacket, MAX_BUCKETS, MAX_CPUS,
    NO_CPU, PARSE_NUMBERS, SETS_LOG, SPARSE_ROW, WAYS, number_of, steer_bucket, steer_limiter,
    steer_line, steer_pair, steer_row, steer_slot, steer_sparse_slot,
};
use crate::rules::RuleMaps;
use crate::setup::MAX_INTERFACES;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, OpenMapMut, ProgramInput, ProgramMut};
use rxsteer_core::Policy;
use rxsteer_core::flow_limit::FLOW_LIMIT_HISTORY;
use rxsteer_core::matching::{Action, PacketRule};
use rxsteer_packet::HashWords;
use std::mem::MaybeUninit;

/// The index of interface 0.
const FIRST_IFINDEX: u32 = 7;

/// The programs of `steer_test.bpf.c`, with their tables.
#[derive(Debug)]
pub struct KernelPolicy {
    skeleton: Skeleton,
    sizes: TestSizes,
    slots: Array<steer_slot>,
    rows: Array<steer_row>,
    socks: Array<steer_line>,
    sparse: Array<steer_sparse_slot>,
    buckets: Array<steer_bucket>,
    pairs: Array<steer_pair>,
    rules: RuleMaps,
    tails: Array<steer_line>,
}

struct Skeleton(SteerTestSkel<'static>);

impl std::fmt::Debug for Skeleton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Skeleton")
    }
}

impl Skeleton {
    fn globals(&mut self) -> &mut types::bss {
        self.0.maps.bss_data.as_deref_mut().expect("it has variables")
    }
}

impl KernelPolicy {
    /// Loads the programs with tables of these sizes, all empty.
    ///
    /// # Errors
    /// When the kernel refuses, for example because of missing capabilities.
    pub fn load(
        sizes: TestSizes,
        words: &HashWords,
        devices: &[TestDevice],
    ) -> Result<KernelPolicy, libbpf_rs::Error> {
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = SteerTestSkelBuilder::default().open(storage)?;
        // A flow is counted in one of several lines, so a table with fewer slots counts no flows.
        let counts = 1 << sizes.flow_log >= WAYS;
        let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
        rodata.steer_cpus = sizes.cpus;
        rodata.steer_rx_cpus = sizes.rx_cpus;
        rodata.steer_flow_log = sizes.flow_log;
        rodata.steer_sock_mask = sizes.sock_entries - 1;
        rodata.steer_sock_cpu_mask = sizes.sock_cpu_mask;
        rodata.steer_chains_log = sizes.chains_log;
        rodata.steer_devices_max = devices.len() as u32;
        rodata.steer_limit_lines = sizes.limit_lines;
        rodata.steer_flow_stats = u8::from(counts);
        size_maps(&mut open, sizes, devices.len() as u32)?;
        let mut skeleton = Skeleton(open.load()?);
        let globals = skeleton.globals();
        globals.steer_words = types::steer_hash_words {
            nh_ipv4: words.nh_ipv4,
            nh_ipv6: words.nh_ipv6,
            finish_ipv4: words.finish_ipv4,
            finish_ipv6: words.finish_ipv6,
        };
        globals.steer_flow_idle_after = u32::MAX;
        globals.steer_flow_idle_least = u32::MAX;
        for (number, device) in (0..).zip(devices) {
            let ifindex = FIRST_IFINDEX + number;
            let entry = &mut globals.steer_devices[ifindex as usize];
            entry.ifindex = ifindex;
            entry.device = number as u16;
            entry.queues = device.queues;
            entry.first_table = device.first_table;
        }
        let maps = &skeleton.0.maps;
        Ok(KernelPolicy {
            slots: Array::new(&maps.steer_slots)?,
            rows: Array::new(&maps.steer_rows)?,
            socks: Array::new(&maps.steer_socks)?,
            sparse: Array::new(&maps.steer_sparse)?,
            buckets: Array::new(&maps.steer_buckets)?,
            pairs: Array::new(&maps.steer_pairs)?,
            rules: RuleMaps::new(
                &maps.steer_matchers,
                &maps.steer_hits,
                &maps.steer_nets,
                &maps.steer_tunnels,
            )?,
            tails: Array::new(&maps.steer_tails)?,
            sizes,
            skeleton,
        })
    }

    /// Makes `rules` decide from now on.
    pub fn configure(&mut self, rules: &TestRules<'_>) {
        let config = &mut self.skeleton.globals().steer_configs[0];
        config.policy = rules.policy;
        config.loops = rules.loops;
        config.after = rules.after as u8;
        config.ring_size = rules.ring_size;
        config.flow_limit = rules.flow_limit;
        config.inactive_after = rules.inactive_after;
        config.local_by_ring = u8::from(rules.local_by_ring);
        config.simple = u8::from(rules.flow_limit == 0);
        config.unguarded = u8::from(rules.unguarded);
        config.no_hysteresis = u8::from(rules.no_hysteresis);
        config.boundary_slots = u8::from(rules.boundary_slots);
        config.else_local = u8::from(rules.else_local);
        config.by_queue = u8::from(!rules.rows.is_empty());
        config.map_len = rules.map_len;
        config.buckets = rules.buckets;
        config.first_bucket = rules.first_bucket;
        config.map[..rules.map.len()].copy_from_slice(rules.map);
        config.cpu = *rules.cpu;
        config.members.fill(0);
        let general = [0, rules.map_len as u16, 0, 0];
        for [first, len, number, _] in rules.rows.iter().copied().chain([general]) {
            for cpu in &rules.map[usize::from(first)..][..usize::from(len)] {
                if *cpu != NO_CPU {
                    let words = usize::from(MAX_CPUS) / 64;
                    let word = usize::from(number) * words + usize::from(*cpu) / 64;
                    config.members[word] |= 1 << (cpu % 64);
                }
            }
        }
        for (table, [first, len, number, bound]) in (0..).zip(rules.rows.iter().copied()) {
            self.rows.set(table, steer_row { first, len, number, bound });
        }
    }

    /// Puts rules before the policy of the last configuration. Interface `n` is named `ethn`. The CPUs that the rules name
    /// follow the entries of `rules.map`.
    ///
    /// # Panics
    /// When the kernel has no memory for their tables.
    pub fn set_rules(&mut self, rules: &TestRules<'_>, packet_rules: &[PacketRule]) {
        self.match_rules(packet_rules);
        let config = &mut self.skeleton.globals().steer_configs[0];
        let mut used = rules.map.len();
        for (action, rule) in config.action.iter_mut().zip(packet_rules) {
            action.first = used as u16;
            action.passes = u8::from(rule.action == Action::Pass);
            let own =
                rule.action.policy().map(|own| number_of(&own.with_settings_of(&Policy::None)));
            action.policy = own.map_or(0, |number| number as u8 + 1);
            for cpu in rule.action.cpus() {
                config.map[used] = cpu.get();
                used += 1;
            }
            action.len = used as u16 - action.first;
        }
    }

    /// Puts rules with these terms before the policy of the last configuration, with `actions` instead of their own.
    ///
    /// # Panics
    /// When the kernel has no memory for their tables.
    pub fn set_actions(&mut self, packet_rules: &[PacketRule], actions: &[TestAction]) {
        self.match_rules(packet_rules);
        let config = &mut self.skeleton.globals().steer_configs[0];
        for (action, test) in config.action.iter_mut().zip(actions) {
            let TestAction { first, len, policy } = *test;
            (action.first, action.len, action.passes, action.policy) = (first, len, 0, policy);
        }
    }

    /// Has frames matched by rules with the terms of `packet_rules`.
    fn match_rules(&mut self, packet_rules: &[PacketRule]) {
        // Their tables are large.
        if !self.rules.rules(0).iter().map(|(rule, _)| rule).eq(packet_rules) {
            let names = (0..MAX_INTERFACES).map(|number| format!("eth{number}")).collect();
            self.rules.write(0, packet_rules, names).expect("there is room");
        }
        let reads_tunnels = self.rules.read_tunnels(0);
        let globals = self.skeleton.globals();
        globals.steer_rule_options = if reads_tunnels { PARSE_NUMBERS } else { 0 };
        globals.steer_configs[0].rules = packet_rules.len() as u16;
    }

    /// The packets that each rule matched.
    #[must_use]
    pub fn hits(&self) -> Vec<u64> {
        self.rules.rules(0).iter().map(|(_, counter)| self.rules.hits(*counter)).collect()
    }

    /// Receives a frame.
    pub fn receive(&mut self, context: &RxContext, frame: &[u8]) -> Decided {
        let test = &mut self.skeleton.globals().steer_test;
        test.now = context.now;
        test.rx_cpu = context.rx_cpu;
        test.queue = context.queue;
        test.ifindex = FIRST_IFINDEX + context.device;
        test.no_metadata = (!context.has_metadata).into();
        test.seq = 0;
        // The output also contains the metadata, so it needs room for that.
        let mut after = vec![0; frame.len() + 64];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut after),
            ..ProgramInput::default()
        };
        let verdict = run(&self.skeleton.0.progs.steer_entry, input);
        let test = &self.skeleton.globals().steer_test;
        Decided {
            hash: test.hash,
            target: test.target,
            by: test.by,
            cpu: test.cpu,
            generation: test.generation,
            passes: test.passes != 0,
            seq: test.seq,
            verdict,
            is_changed: !after.starts_with(frame),
        }
    }

    /// Whether the frame's sender left its checksum to a device.
    #[must_use]
    pub fn is_partial(&self, frame: &[u8]) -> bool {
        let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
        run(&self.skeleton.0.progs.steer_test_partial, input) != 0
    }

    /// Records that the application of a flow runs on `cpu`.
    pub fn record_desired(&mut self, hash: u32, cpu: u32) {
        let test = &mut self.skeleton.globals().steer_test;
        (test.hash, test.cpu) = (hash, cpu);
        run(&self.skeleton.0.progs.steer_test_record, ProgramInput::default());
    }

    /// Records that the flow has ended.
    pub fn forget_desired(&mut self, hash: u32) {
        self.skeleton.globals().steer_test.hash = hash;
        run(&self.skeleton.0.progs.steer_test_forget, ProgramInput::default());
    }

    fn tail_index(&self, rx_cpu: u32, ring: u32) -> u32 {
        rx_cpu * (self.sizes.cpus * GENERATIONS).div_ceil(LINE_WORDS) + ring / LINE_WORDS
    }

    /// Sets tail, dequeued and delivered for the frames from an RX CPU to a ring.
    pub fn set_pair(&mut self, (rx_cpu, ring): (u32, u32), [tail, dequeued, delivered]: [u32; 3]) {
        let index = self.tail_index(rx_cpu, ring);
        let mut line = self.tails.get(index);
        line.word[(ring % LINE_WORDS) as usize] = tail;
        self.tails.set(index, line);
        let index = ring * self.sizes.cpus + rx_cpu;
        let pair = steer_pair { dequeued, delivered, ..self.pairs.get(index) };
        self.pairs.set(index, pair);
    }

    /// The sequence number of the last frame from an RX CPU to a ring.
    #[must_use]
    pub fn tail(&self, (rx_cpu, ring): (u32, u32)) -> u32 {
        self.tails.get(self.tail_index(rx_cpu, ring)).word[(ring % LINE_WORDS) as usize]
    }

    /// The last packet that a slot records; `None` when the slot is unset.
    #[must_use]
    pub fn last_packet(&self, index: u32) -> Option<LastPacket> {
        LastPacket::of(&self.slots.get(index))
    }

    /// An entry of the sock flow table.
    #[must_use]
    pub fn sock_entry(&self, index: u32) -> u32 {
        self.socks.get(index / LINE_WORDS).word[(index % LINE_WORDS) as usize]
    }

    /// Flow and time of a sparse slot. Both are stored plus one.
    #[must_use]
    pub fn sparse_slot(&self, cpu: u32, loop_: u32) -> (u64, u64) {
        let slot = self.sparse.get(cpu * SPARSE_ROW + loop_);
        (slot.flow, slot.last_seen)
    }

    /// What `rx_cpu` counted in a bucket, or, after the buckets, for a CPU: packets, flow and votes.
    #[must_use]
    pub fn bucket(&self, rx_cpu: u32, bucket: u32) -> [u32; 3] {
        let counts = self.buckets.get(rx_cpu * (MAX_BUCKETS + self.sizes.cpus) + bucket);
        [counts.packets, counts.flow, counts.votes]
    }

    /// Whether no thread holds the lock for assigning sparse slots.
    pub fn no_thread_gives(&mut self) -> bool {
        self.skeleton.globals().steer_giving_lock == 0
    }

    /// The flow limit's history of an RX CPU, oldest first.
    #[must_use]
    pub fn limit_history(&self, rx_cpu: u32) -> [u32; FLOW_LIMIT_HISTORY] {
        let bytes = self.lookup(&self.skeleton.0.maps.steer_limiters, rx_cpu);
        let mut limiter: steer_limiter = bytemuck::pod_read_unaligned(&bytes);
        limiter.history.rotate_left(limiter.head as usize);
        limiter.history
    }

    /// The flow limit's count of a bucket.
    #[must_use]
    pub fn limit_count(&self, rx_cpu: u32, bucket: u32) -> u32 {
        let index = rx_cpu * self.sizes.limit_lines + bucket / LINE_BYTES;
        let bytes = self.lookup(&self.skeleton.0.maps.steer_limit_bytes, index);
        u32::from(bytes[(bucket % LINE_BYTES) as usize])
    }

    fn lookup(&self, map: &impl MapCore, index: u32) -> Vec<u8> {
        let value = map.lookup(&index.to_ne_bytes(), libbpf_rs::MapFlags::ANY);
        value.ok().flatten().expect("an array has all its elements")
    }
}

/// Runs a program once, and returns its return value.
fn run(program: &ProgramMut<'_>, input: ProgramInput<'_>) -> u32 {
    program.test_run(input).expect("the kernel runs programs it has loaded").return_value
}

fn size_maps(
    open: &mut super::steer::OpenSteerTestSkel<'_>,
    sizes: TestSizes,
    devices: u32,
) -> Result<(), libbpf_rs::Error> {
    let (ring_states, slots) = (sizes.cpus * GENERATIONS, sizes.tables << sizes.flow_log);
    let maps = &mut open.maps;
    let size = |map: &mut OpenMapMut<'_>, entries: u32| map.set_max_entries(entries);
    size(&mut maps.steer_slots, slots)?;
    size(&mut maps.steer_flows, slots)?;
    size(&mut maps.steer_rows, CONFIG_FLUSHING * sizes.tables)?;
    size(&mut maps.steer_socks, sizes.sock_entries / LINE_WORDS)?;
    size(&mut maps.steer_sparse, sizes.cpus * SPARSE_ROW)?;
    size(&mut maps.steer_buckets, sizes.rx_cpus * (MAX_BUCKETS + sizes.cpus))?;
    size(&mut maps.steer_shadows, sizes.rx_cpus * sizes.cpus)?;
    size(&mut maps.steer_chains, (1 << sizes.chains_log) / LINE_WORDS)?;
    size(&mut maps.steer_hash_actives, sizes.rx_cpus)?;
    size(&mut maps.steer_candidate_sets, sizes.rx_cpus << SETS_LOG)?;
    size(&mut maps.steer_pairs, ring_states * sizes.cpus)?;
    size(&mut maps.steer_tails, sizes.rx_cpus * ring_states.div_ceil(LINE_WORDS))?;
    size(&mut maps.steer_rings, ring_states)?;
    size(&mut maps.steer_sents, sizes.rx_cpus * ring_states)?;
    size(&mut maps.steer_delay_counts, ring_states)?;
    size(&mut maps.steer_counts, sizes.cpus * devices)?;
    size(&mut maps.steer_limiters, sizes.rx_cpus)?;
    size(&mut maps.steer_limit_bytes, sizes.rx_cpus * sizes.limit_lines)?;
    size(&mut maps.steer_matchers, CONFIG_FLUSHING)?;
    size(&mut maps.steer_hits, sizes.rx_cpus)?;
    Ok(())
}
