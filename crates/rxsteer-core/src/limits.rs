//! Limits and default sizes.

pub use crate::admission::{DEFAULT_LOOPS, MAX_LOOPS};
pub use crate::balance::{BUCKETS, INTERVAL_MS, THRESHOLD_PERCENT};
pub use crate::flow_limit::{DEFAULT_FLOW_LIMIT_BUCKETS, MAX_FLOW_LIMIT_BUCKETS};
pub use crate::rfs::{DEFAULT_SOCK_FLOW_ENTRIES, MAX_SOCK_FLOW_ENTRIES};

/// The largest number of RX queues.
pub const MAX_RX_QUEUES: u16 = 1024;

/// The default number of packets that may wait for one CPU: the kernel's `net.core.netdev_max_backlog`.
pub const DEFAULT_BACKLOG: u32 = 1000;

/// The largest number of packets that may wait for one CPU. In the userspace path these are 16 MiB of descriptors
/// per RX thread and CPU, beside the frames.
pub const MAX_BACKLOG: u32 = 1 << 20;

/// The smallest ring of the in-kernel path, in frames. The kernel hands off eight frames at a time, so a shorter
/// ring would take none of some lists.
pub const MIN_QUEUE_SIZE: u32 = 8;

/// The largest ring of the in-kernel path, in frames (kernel/bpf/cpumap.c).
pub const MAX_QUEUE_SIZE: u32 = 16_384;

/// The largest number of flow limit buckets in the kernel: the BPF programs have memory for this many per RX CPU.
pub const MAX_KERNEL_FLOW_LIMIT_BUCKETS: u32 = DEFAULT_FLOW_LIMIT_BUCKETS;

/// The largest number of entries of one RX queue's flow table: 128 MiB.
pub const MAX_FLOW_CNT: u32 = 1 << 24;

/// The largest number of entries of all RX queues' flow tables together: 512 MiB.
pub const MAX_FLOW_CNT_OF_ALL: u64 = 1 << 26;
