//! Published rows that are predicted. Only reports may use them; see [`super::fitted_rows`].

use super::figures::{LatencyUs, Served};

/// rfs-commit, "No RFS (best RPS config)": 500 × netperf TCP_RR.
pub const RFS_NETPERF_WITH_RPS: Served = Served { tps: 290_000.0, cpu_percent: 63.0 };
/// rfs-commit, "RFS": 500 × netperf TCP_RR.
pub const RFS_NETPERF_WITH_RFS: Served = Served { tps: 303_000.0, cpu_percent: 61.0 };
/// rfs-commit, RPC test, "RPS only".
pub const RFS_RPC_WITH_RPS: Served = Served { tps: 174_000.0, cpu_percent: 73.0 };
/// The latency in the RPC test with "RPS only".
pub const RFS_RPC_LATENCY_WITH_RPS: LatencyUs =
    LatencyUs { p50: 415.0, p90: 993.0, p99: 2468.0, std_dev: 491.66 };
/// rfs-commit, RPC test, "RFS".
pub const RFS_RPC_WITH_RFS: Served = Served { tps: 223_000.0, cpu_percent: 73.0 };
/// The latency in the RPC test with "RFS".
pub const RFS_RPC_LATENCY_WITH_RFS: LatencyUs =
    LatencyUs { p50: 379.0, p90: 651.0, p99: 1382.0, std_dev: 315.61 };

/// hand-off-patch: the gain in forwarded packets with hand-off, in per cent.
pub const HAND_OFF_GAIN_PERCENT: f64 = 43.0;
/// hand-off-patch: the idle share of the receiving CPUs at full rate, in per cent.
pub const HAND_OFF_RECEIVERS_IDLE_PERCENT: f64 = 50.0;
/// hand-off-patch: packets per second that 8 processing CPUs forward.
pub const HAND_OFF_PPS: f64 = 4.8e6;
/// hand-off-patch: the upper bound of the gain on the older machine, in per cent.
pub const HAND_OFF_OLDER_GAIN_BELOW_PERCENT: f64 = 30.0;
/// hand-off-patch: the gain of binding queues with regard to caches, in per cent, from and to.
pub const HAND_OFF_BINDING_GAIN_PERCENT: (f64, f64) = (30.0, 40.0);

/// rps-slides, "With RPS", by NIC: tg3, e1000, forcedeth, bnx2x with a single queue.
pub const RPS_CARDS_WITH_RPS: [Served; 4] = [
    Served { tps: 285_000.0, cpu_percent: 70.0 },
    Served { tps: 292_000.0, cpu_percent: 66.0 },
    Served { tps: 327_000.0, cpu_percent: 29.0 },
    Served { tps: 352_000.0, cpu_percent: 30.0 },
];
/// rps-slides, bnx2x, "Multi queue (1 queues per CPU)".
pub const RPS_MULTI_QUEUE: Served = Served { tps: 204_000.0, cpu_percent: 12.0 };

/// sparse-patch, "Patched Kernel": sums of both directions, means of ten runs, in Mbit/s.
pub const SPARSE_PATCHED: [f64; 12] = [
    92.880, 90.280, 89.550, 84.524, 77.202, 73.960, 68.110, 64.342, 61.718, 61.879, 59.280, 58.415,
];

/// sparse-patch, "Delta" of "Patched Kernel", in per cent.
pub const SPARSE_DELTA_PERCENT: [f64; 12] =
    [41.28, 33.88, 15.56, 14.48, 9.26, 9.12, 4.87, 1.49, -3.76, 0.26, -3.33, -1.03];

/// sparse-patch, "Patched Kernel": the standard deviation of its ten sums of both directions, with one connection.
pub const SPARSE_PATCHED_SPREAD_X1: f64 = 0.19;
