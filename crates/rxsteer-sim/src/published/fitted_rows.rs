//! Published rows that fits may use: measurements without the mechanism that is predicted.
//!
//! The rows with that mechanism are in a separate file. No code that fits or builds a machine may name it; a test
//! checks this (`tests/published.rs`).

use super::figures::{LatencyUs, Served};

/// rfs-commit, "No RFS or RPS": 500 × netperf TCP_RR, e1000e, 8 cores.
pub const RFS_NETPERF: Served = Served { tps: 104_000.0, cpu_percent: 30.0 };
/// rfs-commit, RPC test, "No RFS/RPS".
pub const RFS_RPC: Served = Served { tps: 103_000.0, cpu_percent: 48.0 };
/// … and its latency.
pub const RFS_RPC_LATENCY: LatencyUs =
    LatencyUs { p50: 757.0, p90: 900.0, p99: 3185.0, std_dev: 4472.35 };

/// hand-off-patch: inline forwarding reaches this share of the packets sent.
pub const HAND_OFF_INLINE_SHARE: f64 = 0.60;

/// rps-slides, "Without RPS", by NIC: tg3, e1000, forcedeth, bnx2x with a single queue.
pub const RPS_CARDS: [Served; 4] = [
    Served { tps: 90_000.0, cpu_percent: 34.0 },
    Served { tps: 90_000.0, cpu_percent: 34.0 },
    Served { tps: 117_000.0, cpu_percent: 10.0 },
    Served { tps: 139_000.0, cpu_percent: 17.0 },
];

/// A row of sparse-patch: the number of connections, and the mean of ten runs each way, in Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseRow {
    /// "1x" to "32x".
    pub connections: u32,
    /// "SUM 1->2".
    pub there: f64,
    /// "SUM 2->1".
    pub back: f64,
}

const fn row(connections: u32, there: f64, back: f64) -> SparseRow {
    SparseRow { connections, there, back }
}

/// sparse-patch, "Original Kernel".
pub const SPARSE_ORIGINAL: [SparseRow; 12] = [
    row(1, 39.320, 26.420),
    row(2, 36.270, 31.162),
    row(3, 41.243, 36.246),
    row(4, 37.502, 36.332),
    row(6, 35.990, 34.668),
    row(8, 32.696, 35.080),
    row(12, 31.275, 33.673),
    row(16, 28.695, 34.705),
    row(20, 28.919, 35.208),
    row(24, 28.264, 33.459),
    row(28, 28.634, 32.688),
    row(32, 26.979, 32.043),
];

/// … the standard deviation of its ten sums of both directions, with one connection.
pub const SPARSE_ORIGINAL_SPREAD_X1: f64 = 8.76;
