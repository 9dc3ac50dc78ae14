//! The targets of the cases, in a single list. A ratio is time divided by time, so smaller is faster.

use std::fmt;

use rxsteer_bench::{Case, Measured};

use Limit::{MoreNs, Ns, Ratio};

/// A case and its limit.
pub(crate) struct Target {
    group: &'static str,
    case: &'static str,
    pub(crate) limit: Limit,
}

/// The limit for a case.
pub(crate) enum Limit {
    /// At most this share of the baseline's time.
    Ratio { baseline: &'static str, at_most: f64 },
    /// At most this many nanoseconds per item more than the baseline.
    MoreNs { baseline: &'static str, at_most: f64 },
    /// At most this many nanoseconds per item, on a quiet machine.
    Ns { at_most: f64 },
}

const fn target(group: &'static str, case: &'static str, limit: Limit) -> Target {
    Target { group, case, limit }
}

const PARSE: &str = "parse+hash tcp/ipv4, packed";
const PARSE_STRIDE: &str = "parse+hash tcp/ipv4, 2 KiB stride";
const ETHERPARSE: &str = "etherparse sliced + SipHash-1-3";
const SMOLTCP: &str = "smoltcp wire + jhash";
const FLOW_HASH: &str = "rxsteer flow_hash";
const TOEPLITZ_12: &str = "toeplitz 12 bytes";
const TOEPLITZ_36: &str = "toeplitz 36 bytes";
const BITWISE: &str = "bit by bit";
const ONE_BY_ONE: &str = "rxsteer one by one";
const LISTS_OF_32: &str = "rxsteer in lists of 32";
const RING_1: &str = "ring of u64, singles";
const RING_32: &str = "ring of u64, lists of 32";
const RING_256: &str = "ring of u64, lists of 256";
const RTRB: &str = "rtrb";
const PATH: &str = "whole path, 10 000 flows, empty handler";
const CHANNEL: &str = "one crossbeam-channel send per packet";
const RXSTEER: &str = "rxsteer";

const DECIDE: &str = "decide, lists of 32, 10 000 flows";
const DECIDE_MANY: &str = "decide, lists of 32, 1 000 000 flows";
const RPS: &str = "rps";
const FLOOD: &str = "decide under a flood, rfs+sparse";
const ALONE: &str = "100 established flows alone";

const MASK_2: &str = "mask, 2 possible CPUs";
const MASK_128: &str = "mask, 128 possible CPUs";
const MASK_8192: &str = "mask, 8192 possible CPUs";
const WALK_128: &str = "walk, 128 possible CPUs";
const SIMULATED: &str = "a simulated packet";
const NO_STATISTICS: &str = "nothing but two looks at the clock per list";
const DISSECTING: &str = "each packet's flow and flags, read from its headers";
const STATISTICS: &str = "flow statistics";

/// The limit for a visit of a flow's blocks: it takes no longer for thousands of possible CPUs than for two.
const fn visit(group: &'static str) -> Target {
    target(group, MASK_8192, Ratio { baseline: MASK_2, at_most: 1.5 })
}

pub(crate) const TARGETS: &[Target] = &[
    visit("read a flow, 1 CPU used"),
    visit("read a flow, 2 CPUs used"),
    visit("clear a flow, 1 CPU used"),
    visit("clear a flow, 2 CPUs used"),
    visit("free a flow, 1 CPU used"),
    visit("free a flow, 2 CPUs used"),
    target("free a flow, 1 CPU used", MASK_128, Ratio { baseline: WALK_128, at_most: 1.0 / 10.0 }),
    target("free a flow, 2 CPUs used", MASK_128, Ratio { baseline: WALK_128, at_most: 1.0 / 10.0 }),
    target(
        "time in the handler, 10 000 flows",
        STATISTICS,
        MoreNs { baseline: NO_STATISTICS, at_most: 15.0 },
    ),
    target(
        "time in the handler, 10 000 flows",
        STATISTICS,
        MoreNs { baseline: DISSECTING, at_most: 15.0 },
    ),
    target(
        "time in the handler, 100 000 flows",
        STATISTICS,
        MoreNs { baseline: NO_STATISTICS, at_most: 35.0 },
    ),
    target(
        "time in the handler, 100 000 flows",
        STATISTICS,
        MoreNs { baseline: DISSECTING, at_most: 35.0 },
    ),
    target(DECIDE, "rps+balance", MoreNs { baseline: RPS, at_most: 3.0 }),
    target(DECIDE, "sparse", MoreNs { baseline: RPS, at_most: 12.0 }),
    target(DECIDE, "rfs", MoreNs { baseline: RPS, at_most: 12.0 }),
    target(DECIDE, "rfs+sparse", MoreNs { baseline: RPS, at_most: 12.0 }),
    target(DECIDE_MANY, "sparse", MoreNs { baseline: RPS, at_most: 30.0 }),
    target(DECIDE_MANY, "rfs", MoreNs { baseline: RPS, at_most: 30.0 }),
    target(DECIDE_MANY, "rfs+sparse", MoreNs { baseline: RPS, at_most: 30.0 }),
    target(
        FLOOD,
        "99 spoofed flows' packets to each of theirs",
        Ratio { baseline: ALONE, at_most: 2.0 },
    ),
    target(
        FLOOD,
        "99 packets of one hash to each of theirs",
        Ratio { baseline: ALONE, at_most: 2.0 },
    ),
    target(PARSE, FLOW_HASH, Ratio { baseline: ETHERPARSE, at_most: 1.0 / 5.0 }),
    target(PARSE, FLOW_HASH, Ratio { baseline: SMOLTCP, at_most: 1.5 }),
    target(PARSE_STRIDE, FLOW_HASH, Ratio { baseline: ETHERPARSE, at_most: 1.0 / 4.0 }),
    target(TOEPLITZ_12, ONE_BY_ONE, Ratio { baseline: BITWISE, at_most: 1.0 / 12.0 }),
    target(TOEPLITZ_12, LISTS_OF_32, Ratio { baseline: BITWISE, at_most: 1.0 / 12.0 }),
    target(TOEPLITZ_12, LISTS_OF_32, Ns { at_most: 2.0 }),
    target(TOEPLITZ_36, ONE_BY_ONE, Ratio { baseline: BITWISE, at_most: 1.0 / 12.0 }),
    target(TOEPLITZ_36, LISTS_OF_32, Ratio { baseline: BITWISE, at_most: 1.0 / 12.0 }),
    target(TOEPLITZ_36, LISTS_OF_32, Ns { at_most: 3.0 }),
    target(RING_1, RXSTEER, Ratio { baseline: RTRB, at_most: 0.9 }),
    target(RING_32, RXSTEER, Ratio { baseline: RTRB, at_most: 0.8 }),
    target(RING_256, RXSTEER, Ratio { baseline: RTRB, at_most: 1.1 }),
    target(PATH, RXSTEER, Ratio { baseline: CHANNEL, at_most: 1.0 / 5.0 }),
    target(
        "whole path under a flood, rfs+sparse",
        "99 spoofed packets to each of theirs",
        Ratio { baseline: "100 flows alone", at_most: 2.0 },
    ),
    target(SIMULATED, "rps, 1 connection each way", Ns { at_most: 200.0 }),
    target(SIMULATED, "sparse, 1 connection each way", Ns { at_most: 200.0 }),
    target(SIMULATED, "rps, 32 connections each way", Ns { at_most: 200.0 }),
    target(PATH, RXSTEER, Ns { at_most: 18.0 }),
    target(PATH, "rxsteer, rfs+sparse", Ns { at_most: 22.0 }),
    target(PATH, "rxsteer, rfs+sparse, flow limit, recording", Ns { at_most: 22.0 }),
];

/// Whether a limit was met.
pub(crate) enum Verdict {
    Met,
    /// By this share of the limit: 0.1 is 10 % too slow.
    MissedBy(f64),
    /// There is no figure.
    Open,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met => f.write_str("met"),
            Self::MissedBy(share) => write!(f, "missed by {:.0} %", (share * 100.0).max(1.0)),
            Self::Open => f.write_str("no figure"),
        }
    }
}

/// The targets of a case.
pub(crate) fn of(measured: &Measured) -> impl Iterator<Item = &'static Target> {
    let (group, case) = (measured.group, measured.name);
    TARGETS.iter().filter(move |target| target.group == group && target.case == case)
}

/// Whether a target uses this case as its baseline.
pub(crate) fn divide_by(case: &Case) -> bool {
    TARGETS
        .iter()
        .any(|target| target.group == case.group && target.limit.baseline() == Some(case.name))
}

/// The targets that belong to no case, since a name was changed in only one place.
pub(crate) fn unmatched(cases: &[Case]) -> Vec<&'static Target> {
    let there = |group, name| cases.iter().any(|case| case.group == group && case.name == name);
    let reached = |target: &&Target| {
        there(target.group, target.case)
            && target.limit.baseline().is_none_or(|baseline| there(target.group, baseline))
    };
    TARGETS.iter().filter(|target| !reached(target)).collect()
}

impl Limit {
    /// The baseline, if the limit has one.
    pub(crate) fn baseline(&self) -> Option<&'static str> {
        match *self {
            Ratio { baseline, .. } | MoreNs { baseline, .. } => Some(baseline),
            Ns { .. } => None,
        }
    }

    /// Compares the median with the limit.
    pub(crate) fn verdict(&self, measured: &Measured) -> Verdict {
        let against = |baseline| measured.against.iter().find(|other| other.baseline == baseline);
        let (figure, at_most) = match *self {
            Ns { at_most } => (measured.ns, at_most),
            Ratio { baseline, at_most } => {
                (against(baseline).and_then(|other| other.ratio), at_most)
            }
            MoreNs { baseline, at_most } => {
                (against(baseline).and_then(|other| other.more_ns), at_most)
            }
        };
        match figure {
            None => Verdict::Open,
            Some(figure) if figure.median <= at_most => Verdict::Met,
            Some(figure) => Verdict::MissedBy(figure.median / at_most - 1.0),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ratio { at_most, .. } if *at_most < 0.1 => write!(f, "≤ {at_most:.3}"),
            Ratio { at_most, .. } => write!(f, "≤ {at_most:.2}"),
            MoreNs { at_most, .. } => write!(f, "≤ {at_most} ns more"),
            Ns { at_most } => write!(f, "≤ {at_most} ns"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}, {}", self.group, self.case, self.limit)?;
        if let Some(baseline) = self.limit.baseline() {
            write!(f, " against {baseline:?}")?;
        }
        Ok(())
    }
}
