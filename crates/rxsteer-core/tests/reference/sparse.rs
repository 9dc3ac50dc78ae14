//! `find_cpu` of sparse-patch, in its original form: every packet walks all slots, once to find its own and once
//! to find a free one. What `find_cpu` takes from its surroundings is replaced: jiffies are nanoseconds here,
//! `hash_active` starts as "never", and an offline CPU has no slots.

/// One second, in place of HZ in sparse-patch.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// `struct cpu_flow`; `None` around it means "no device".
#[derive(Clone, Copy)]
struct CpuFlow {
    dev: u16,
    rxhash: u32,
    ts: u64,
}

/// `cpu_flows` of all CPUs, and `hash_active`.
pub(crate) struct Sparse {
    cpu_flows: Vec<[Option<CpuFlow>; 5]>,
    hash_active: Option<u64>,
    /// Whether the hash placed the last packet.
    pub(crate) by_hash: bool,
}

/// `FLOW_INACTIVE`.
fn is_inactive(now: u64, base: u64) -> bool {
    now > base + SECOND || now < base
}

/// `map->cpus[((u64) skb->rxhash * map->len) >> 32]`
pub(crate) fn by_hash(map: &[u16], rxhash: u32) -> u16 {
    map[((u64::from(rxhash) * map.len() as u64) >> 32) as usize]
}

impl Sparse {
    /// Slots for CPUs 0 to `cpus` − 1.
    pub(crate) fn new(cpus: u16) -> Sparse {
        Sparse { cpu_flows: vec![[None; 5]; usize::from(cpus)], hash_active: None, by_hash: false }
    }

    /// The CPU for a packet, before the check whether that CPU is online.
    pub(crate) fn find_cpu(
        &mut self,
        map: &[u16],
        loops: u8,
        offline: &[u16],
        (dev, rxhash): (u16, u32),
        now: u64,
    ) -> u16 {
        self.by_hash = false;
        for l in 0..usize::from(loops) {
            for &cpu in map.iter().rev().filter(|cpu| !offline.contains(cpu)) {
                if let Some(flow) = &mut self.cpu_flows[usize::from(cpu)][l]
                    && flow.rxhash == rxhash
                    && flow.dev == dev
                    && !is_inactive(now, flow.ts)
                {
                    flow.ts = now;
                    return cpu;
                }
            }
        }
        if self.hash_active.is_none_or(|then| is_inactive(now, then)) {
            for l in 0..usize::from(loops) {
                for &cpu in map.iter().rev().filter(|cpu| !offline.contains(cpu)) {
                    let flow = &mut self.cpu_flows[usize::from(cpu)][l];
                    if flow.is_none_or(|flow| is_inactive(now, flow.ts)) {
                        *flow = Some(CpuFlow { dev, rxhash, ts: now });
                        return cpu;
                    }
                }
            }
        }
        self.hash_active = Some(now);
        self.by_hash = true;
        by_hash(map, rxhash)
    }
}
