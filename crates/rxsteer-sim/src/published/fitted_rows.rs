//! Published rows that fits may use: measurements without the mechanism that is predicted.
//!
//! The rows with that mechanism are in a separate file. No code that fits or builds a machine may name it; a test
//! checks this (`tests/published.rs`).

use super::figures::{LatencyUs, Served};

/// rfs-commit, "No RFS or RPS": 500 × netperf TCP_RR, e1000e, 8 cores.
pub const RFS_NETPERF: Served = Served { tps: 104_000.0, cpu_percent: 30.0 };
/// rfs-commit, RPC test, "No RFS/RPS".
pub const RFS_RPC: Served = Served { tps: 103_000.0, cpu_percent: 48.0 };
/// The latency in the RPC test with "No RFS/RPS".
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

/// The number of runs of each row of sparse-patch.
pub const SPARSE_RUNS: usize = 10;

/// A row of sparse-patch: the number of connections, and ten runs each way, in Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseRow {
    /// "1x" to "32x".
    pub connections: u32,
    /// "SUM 1->2".
    pub there: [f64; SPARSE_RUNS],
    /// "SUM 2->1".
    pub back: [f64; SPARSE_RUNS],
}

impl SparseRow {
    /// The mean of the sums of both directions.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sums().sum::<f64>() / SPARSE_RUNS as f64
    }

    /// The standard deviation of these sums, of a population, as sparse-patch has it.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let mean = self.mean();
        (self.sums().map(|sum| (sum - mean).powi(2)).sum::<f64>() / SPARSE_RUNS as f64).sqrt()
    }

    fn sums(&self) -> impl Iterator<Item = f64> + '_ {
        self.there.iter().zip(&self.back).map(|(there, back)| there + back)
    }
}

/// sparse-patch, "Original Kernel".
pub const SPARSE_ORIGINAL: [SparseRow; 12] = [
    SparseRow {
        connections: 1,
        there: [33.70, 46.20, 25.50, 38.00, 46.10, 36.80, 46.10, 46.10, 36.70, 38.00],
        back: [29.10, 29.30, 17.60, 29.10, 17.30, 29.00, 28.10, 27.90, 27.80, 29.00],
    },
    SparseRow {
        connections: 2,
        there: [30.90, 36.80, 41.10, 41.10, 41.20, 36.70, 29.40, 34.50, 34.00, 37.00],
        back: [35.60, 17.81, 17.35, 35.50, 35.70, 40.20, 18.06, 40.10, 35.80, 35.50],
    },
    SparseRow {
        connections: 3,
        there: [45.40, 44.00, 36.90, 39.20, 43.30, 42.70, 41.20, 44.60, 35.43, 39.70],
        back: [36.90, 19.12, 38.20, 37.30, 39.43, 39.55, 39.56, 38.00, 37.30, 37.10],
    },
    SparseRow {
        connections: 4,
        there: [41.07, 38.40, 33.18, 41.18, 34.52, 41.72, 38.81, 40.86, 34.80, 30.48],
        back: [35.09, 34.92, 34.76, 34.81, 34.46, 34.15, 39.43, 38.08, 38.82, 38.80],
    },
    SparseRow {
        connections: 6,
        there: [35.59, 35.53, 40.74, 37.64, 36.87, 37.65, 37.05, 35.56, 29.18, 34.09],
        back: [34.10, 39.02, 31.54, 35.66, 31.35, 34.99, 38.70, 34.15, 31.16, 36.01],
    },
    SparseRow {
        connections: 8,
        there: [31.38, 35.77, 32.53, 29.67, 33.99, 32.31, 33.37, 30.83, 34.37, 32.74],
        back: [36.37, 34.04, 32.83, 36.76, 34.77, 34.05, 38.29, 36.18, 33.14, 34.37],
    },
    SparseRow {
        connections: 12,
        there: [31.22, 29.63, 32.47, 32.22, 29.49, 32.07, 31.13, 32.96, 28.85, 32.71],
        back: [32.81, 34.46, 28.61, 31.01, 35.92, 34.29, 35.65, 37.00, 32.59, 34.39],
    },
    SparseRow {
        connections: 16,
        there: [29.55, 29.13, 29.87, 28.16, 30.04, 27.45, 28.34, 27.11, 28.53, 28.77],
        back: [35.64, 32.61, 34.52, 30.54, 34.35, 36.73, 38.18, 38.22, 32.93, 33.33],
    },
    SparseRow {
        connections: 20,
        there: [30.57, 26.23, 28.84, 30.59, 27.91, 28.77, 29.60, 29.84, 28.68, 28.16],
        back: [36.96, 36.64, 36.58, 31.27, 32.32, 33.32, 38.10, 36.38, 35.84, 34.67],
    },
    SparseRow {
        connections: 24,
        there: [30.89, 30.53, 28.13, 29.21, 24.72, 28.52, 25.12, 27.46, 27.62, 30.44],
        back: [34.15, 34.38, 35.20, 30.46, 35.46, 27.00, 35.46, 35.93, 32.56, 33.99],
    },
    SparseRow {
        connections: 28,
        there: [28.30, 30.78, 26.76, 27.18, 30.44, 27.70, 28.60, 29.40, 27.11, 30.07],
        back: [30.15, 31.02, 34.01, 32.31, 35.69, 30.55, 34.18, 31.41, 34.13, 33.43],
    },
    SparseRow {
        connections: 32,
        there: [27.41, 26.54, 26.68, 27.31, 28.82, 25.49, 25.80, 24.39, 29.33, 28.02],
        back: [29.16, 27.85, 34.18, 34.72, 32.89, 28.59, 34.75, 32.44, 35.19, 30.66],
    },
];
