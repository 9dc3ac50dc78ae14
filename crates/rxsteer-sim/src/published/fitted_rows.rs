//! Published rows that fits may see: what was measured without the mechanism that is predicted.
//!
//! The rows with it are in a file of their own, which nothing that fits or builds a machine may name; a
//! test looks (`tests/published_split.rs`).

use super::figures::{LatencyUs, Served};

/// rfs.txt, "No RFS or RPS": 500 × netperf TCP_RR, e1000e, 8 cores.
pub const RFS_NETPERF: Served = Served { tps: 104_000.0, cpu_percent: 30.0 };
/// rfs.txt, RPC test, "No RFS/RPS".
pub const RFS_RPC: Served = Served { tps: 103_000.0, cpu_percent: 48.0 };
/// … and its latency.
pub const RFS_RPC_LATENCY: LatencyUs =
    LatencyUs { p50: 757.0, p90: 900.0, p99: 3185.0, std_dev: 4472.35 };

/// backlog-hand-off.txt: forwarding at once takes this share of what is sent.
pub const HAND_OFF_INLINE_SHARE: f64 = 0.60;

/// rps-slides-zh.txt, "Without RPS", by card: tg3, e1000, forcedeth, bnx2x with a single queue.
pub const RPS_CARDS: [Served; 4] = [
    Served { tps: 90_000.0, cpu_percent: 34.0 },
    Served { tps: 90_000.0, cpu_percent: 34.0 },
    Served { tps: 117_000.0, cpu_percent: 10.0 },
    Served { tps: 139_000.0, cpu_percent: 17.0 },
];
