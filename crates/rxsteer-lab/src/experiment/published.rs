//! Compares published figures with measured ones.
//!
//! The machines of the publications had other CPUs, NICs and kernels, so the figures may differ by any factor.
//! Comparable is the ratio to the first row of the same table. Source: `rxsteer_sim::published`, whose tables are the
//! only copy of the figures.

use super::{Method, Row};
use rxsteer_sim::published::figures::{LatencyUs, Served};
use rxsteer_sim::published::{fitted_rows as fitted, predicted_rows as predicted};
use serde::Serialize;

/// A published figure, and the corresponding measured one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// The row of the publication.
    pub what: String,
    /// The metric.
    pub metric: &'static str,
    /// The published figure; `None` if only a ratio was published.
    pub published: Option<f64>,
    /// Its ratio to the first row of the same table; `None` for that row.
    pub published_ratio: Option<f64>,
    /// The method that was measured.
    pub method: Method,
    /// The load that was measured.
    pub load: &'static str,
    /// The median, if it was measured.
    pub measured: Option<f64>,
    /// The ratio of the median to that of the first row's method and load.
    pub measured_ratio: Option<f64>,
}

/// A row of a published table, and what corresponds to it here.
struct Line {
    what: String,
    published: Option<f64>,
    /// For rows of which only a ratio was published.
    ratio: Option<f64>,
    method: Method,
    load: &'static str,
}

/// A table: its lines are compared with the first one.
struct Table {
    metric: &'static str,
    lines: Vec<Line>,
}

/// The published figures of an experiment, with the medians of the corresponding rows.
pub(super) fn published_rows(experiment: &str, rows: &[Row]) -> Vec<Published> {
    let mut all = Vec::new();
    for Table { metric, lines } in tables(experiment) {
        let measured = |line: &Line| {
            let row = rows.iter().find(|row| row.method == line.method && row.load == line.load)?;
            Some(row.metrics.get(metric)?.median)
        };
        let first = lines.first().map(|line| (line.published, measured(line)));
        for (index, line) in lines.into_iter().enumerate() {
            let of_first = |value: Option<f64>, first: Option<f64>| {
                Some(value? / first.filter(|first| *first != 0.0)?).filter(|_| index > 0)
            };
            let (published, here) = first.unwrap_or_default();
            let measured = measured(&line);
            all.push(Published {
                metric,
                published: line.published,
                published_ratio: line.ratio.or_else(|| of_first(line.published, published)),
                method: line.method,
                load: line.load,
                measured,
                measured_ratio: of_first(measured, here),
                what: line.what,
            });
        }
    }
    all
}

fn tables(experiment: &str) -> Vec<Table> {
    match experiment {
        "rr" => served(
            "500 × netperf TCP_RR",
            "500 connections",
            [fitted::RFS_NETPERF, predicted::RFS_NETPERF_WITH_RPS, predicted::RFS_NETPERF_WITH_RFS],
        ),
        "rpc" => rpc(),
        "rps" => cards(),
        "sparse" => sparse(),
        "forward" => forward(),
        _ => vec![],
    }
}

/// The settings of the RFS message.
const RFS: [(&str, Method); 3] =
    [("none", Method::None), ("RPS", Method::KernelRps), ("RFS", Method::KernelRfs)];

fn rfs(name: &str, metric: &'static str, load: &'static str, values: [f64; 3]) -> Table {
    let line = |((setting, method), value): ((&str, Method), f64)| Line {
        what: format!("{name}, {setting}"),
        published: Some(value),
        ratio: None,
        method,
        load,
    };
    Table { metric, lines: RFS.into_iter().zip(values).map(line).collect() }
}

fn served(name: &str, load: &'static str, rows: [Served; 3]) -> Vec<Table> {
    vec![
        rfs(name, "transactions", load, rows.map(|row| row.tps)),
        rfs(name, "CPUs busy", load, rows.map(|row| row.cpu_percent)),
    ]
}

fn rpc() -> Vec<Table> {
    const NAME: &str = "RPC test";
    const LOAD: &str = "100 connections";
    let rates = [fitted::RFS_RPC, predicted::RFS_RPC_WITH_RPS, predicted::RFS_RPC_WITH_RFS];
    let latencies = [
        fitted::RFS_RPC_LATENCY,
        predicted::RFS_RPC_LATENCY_WITH_RPS,
        predicted::RFS_RPC_LATENCY_WITH_RFS,
    ];
    let latency = |metric, of: fn(LatencyUs) -> f64| rfs(NAME, metric, LOAD, latencies.map(of));
    let mut all = served(NAME, LOAD, rates);
    all.extend([
        latency("p50", |row| row.p50),
        latency("p90", |row| row.p90),
        latency("p99", |row| row.p99),
        latency("standard deviation", |row| row.std_dev),
    ]);
    all
}

/// The NICs of the slides on RPS; the last one also with a queue per CPU.
fn cards() -> Vec<Table> {
    const CARDS: [&str; 4] = ["tg3", "e1000", "forcedeth", "bnx2x"];
    const ONE: &str = "50 connections, 1 RX queue";
    let line = |what: String, served: Served, method, load| Line {
        what,
        published: Some(served.tps),
        ratio: None,
        method,
        load,
    };
    let card = |(index, name): (usize, &&str)| {
        let (without, with) = (fitted::RPS_CARDS[index], predicted::RPS_CARDS_WITH_RPS[index]);
        let mut lines = vec![
            line(format!("{name}, 1 queue"), without, Method::None, ONE),
            line(format!("{name}, 1 queue, RPS"), with, Method::KernelRps, ONE),
        ];
        if *name == "bnx2x" {
            let what = format!("{name}, 1 queue per CPU");
            let load = "50 connections, 1 RX queue per CPU";
            lines.push(line(what, predicted::RPS_MULTI_QUEUE, Method::None, load));
        }
        Table { metric: "transactions", lines }
    };
    CARDS.iter().enumerate().map(card).collect()
}

/// The published baseline is the hash of RPS, not a kernel without steering.
fn sparse() -> Vec<Table> {
    const LOADS: [(u32, &str); 6] =
        [(1, "x1"), (2, "x2"), (4, "x4"), (8, "x8"), (16, "x16"), (32, "x32")];
    let table = |(row, patched): (&fitted::SparseRow, f64)| {
        let (_, load) =
            LOADS.into_iter().find(|(connections, _)| *connections == row.connections)?;
        let line = |setting, value, method| Line {
            what: format!("{load}, {setting}"),
            published: Some(value),
            ratio: None,
            method,
            load,
        };
        let lines = vec![
            line("RPS by hash", row.mean(), Method::KernelRps),
            line("sparse flows in slots", patched, Method::Kernel("sparse")),
        ];
        Some(Table { metric: "throughput", lines })
    };
    fitted::SPARSE_ORIGINAL.iter().zip(predicted::SPARSE_PATCHED).filter_map(table).collect()
}

/// The patch binds each RX queue to a CPU, as the policy `bound` does.
fn forward() -> Vec<Table> {
    const BOUND: Method = Method::Kernel("bound:0=1");
    const LOAD: &str = "64 flows";
    let line = |what: &str, published, ratio, method| Line {
        what: what.to_owned(),
        published,
        ratio,
        method,
        load: LOAD,
    };
    let gain = 1.0 + predicted::HAND_OFF_GAIN_PERCENT / 100.0;
    let idle = predicted::HAND_OFF_RECEIVERS_IDLE_PERCENT;
    vec![
        Table {
            metric: "forwarded",
            lines: vec![
                line("forwarding inline", None, None, Method::None),
                line("hand-off", None, Some(gain), BOUND),
            ],
        },
        Table {
            metric: "receiving CPU idle",
            lines: vec![line("hand-off, idle share of receiving CPUs", Some(idle), None, BOUND)],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Scale, list};
    use super::*;

    #[test]
    fn each_published_row_has_a_cell_of_the_full_run() {
        let mut seen = 0;
        for experiment in list() {
            let description = experiment.description();
            let loads = experiment.loads(Scale::FULL);
            let methods = experiment.methods(Scale::FULL);
            for Table { metric, lines } in tables(description.name) {
                assert!(description.metrics.iter().any(|of| of.name == metric), "{metric}");
                for line in lines {
                    seen += 1;
                    assert!(
                        methods.contains(&line.method),
                        "{}: {:?}",
                        description.name,
                        line.method
                    );
                    assert!(loads.iter().any(|load| load.name == line.load), "{}", line.load);
                }
            }
        }
        // 2 × 3 of netperf, 6 × 3 of the RPC test, 9 of the cards, 12 of sparse flows, 3 of the hand-off.
        assert_eq!(seen, 48);
    }

    #[test]
    fn ratios_are_to_the_first_row_of_a_table() {
        let all = published_rows("rr", &[]);
        assert_eq!(all[0].published_ratio, None);
        assert_eq!(all[1].published_ratio, Some(290.0 / 104.0));
        assert_eq!((all[1].measured, all[1].measured_ratio), (None, None));
        assert_eq!(published_rows("forward", &[])[1].published_ratio, Some(1.43));
    }
}
