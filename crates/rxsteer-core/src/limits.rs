//! Sizes: the largest that can be configured, and the defaults.

pub use crate::flow_limit::{DEFAULT_FLOW_LIMIT_BUCKETS, MAX_FLOW_LIMIT_BUCKETS};
pub use crate::rfs::{DEFAULT_SOCK_FLOW_ENTRIES, MAX_SOCK_FLOW_ENTRIES};
pub use crate::sparse::{DEFAULT_LOOPS, MAX_LOOPS};

/// Most RX queues there can be.
pub const MAX_RX_QUEUES: u16 = 1024;

/// Packets that may wait for one CPU by default: the kernel's `net.core.netdev_max_backlog`.
pub const DEFAULT_BACKLOG: u32 = 1000;

/// Most packets that may wait for one CPU: in the userspace path 16 MiB of descriptors per RX thread and CPU,
/// beside the frames.
pub const MAX_BACKLOG: u32 = 1 << 20;

/// Fewest frames that a ring of the in-kernel path holds: the kernel hands frames over eight at a time, so a
/// shorter ring would take none of some lists.
pub const MIN_QUEUE_SIZE: u32 = 8;

/// Most frames that a ring of the in-kernel path holds (kernel/bpf/cpumap.c).
pub const MAX_QUEUE_SIZE: u32 = 16_384;

/// Most buckets of the flow limit in the kernel: the BPF programs have memory for so many of each RX CPU.
pub const MAX_KERNEL_FLOW_LIMIT_BUCKETS: u32 = DEFAULT_FLOW_LIMIT_BUCKETS;

/// Most entries of one RX queue's flow table: 128 MiB of them.
pub const MAX_FLOW_CNT: u32 = 1 << 24;

/// Most entries of all RX queues' flow tables: 512 MiB of them.
pub const MAX_FLOW_CNT_OF_ALL: u64 = 1 << 26;
