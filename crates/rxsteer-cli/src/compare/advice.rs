//! What to do, based only on the figures, and the rule that leads to it.

use crate::words::plural;
use rxsteer_host::Help;
use rxsteer_user::core::Policy;
use serde::Serialize;
use std::fmt::Write;

/// How much of the traffic fits before a CPU is full, in multiples of what fills one CPU: minimum, median and maximum
/// over hash secrets.
pub(super) type Fits = [f64; 3];

/// Steering is worth its cost if at least this many times as much traffic fits. Below, a warm cache and no wake-ups of
/// other CPUs are worth more.
const WORTH: f64 = 1.2;
/// A policy whose median is at least this share of the best one's is as good; then the simpler one is preferred.
const AS_GOOD: f64 = 0.9;
/// Except if its minimum is less than this share of the best one's: a host has one secret, which can be the worst.
const AT_WORST: f64 = 0.75;
/// rfs is meant to process packets where their application runs. Below this share it does not, for example with flows
/// of one packet.
const AT_HOME: f64 = 0.5;

/// The measured figures.
pub(super) struct Measured {
    pub(super) cpus: usize,
    pub(super) packets: u64,
    pub(super) flows: u64,
    /// The packets of the largest flow.
    pub(super) largest_flow: u64,
    /// By policy; the first is `none`.
    pub(super) fits: Vec<(Policy, Fits)>,
    /// Whether the user specified where applications run.
    pub(super) apps_named: bool,
    /// The share of packets that rfs processed where their application runs: the median over hash secrets.
    pub(super) at_home: Option<f64>,
    /// The result of rps with the headers inside tunnels, if that was tried.
    pub(super) inside: Option<Fits>,
    /// Whether a CPU is short of time, if that was measured.
    pub(super) relief: Option<Help>,
    /// Why there is too little traffic for a conclusion, if so.
    pub(super) too_few: Option<String>,
    /// Records of captures that could not be read.
    pub(super) left_out: u64,
}

impl Measured {
    fn of(&self, wanted: &Policy) -> Option<Fits> {
        self.fits.iter().find(|(policy, _)| policy == wanted).map(|(_, fits)| *fits)
    }

    /// The median without steering.
    fn without(&self) -> f64 {
        self.of(&Policy::None).map_or(1.0, |fits| fits[1])
    }

    /// The most that any steering can achieve: a flow stays on one CPU at a time.
    fn bound(&self) -> f64 {
        let by_flow = self.packets as f64 / self.largest_flow.max(1) as f64;
        by_flow.min(self.cpus as f64)
    }

    /// Whether the largest flow alone prevents any gain.
    pub(super) fn is_one_flow(&self) -> bool {
        self.cpus > 1
            && self.flows > 0
            && self.bound() < WORTH * self.without().max(1.0)
            && (self.cpus as f64) >= WORTH * self.without()
    }

    /// Policies that the advice may name, the preferred ones first. If the user did not specify where applications run,
    /// rfs was measured with invented applications.
    fn candidates(&self) -> Vec<(&Policy, Fits)> {
        let reaches_apps = self.apps_named && self.at_home.is_some_and(|share| share >= AT_HOME);
        let may_be = |(policy, _): &&(Policy, Fits)| {
            *policy != Policy::None && (reaches_apps || !policy.is_rfs())
        };
        let mut all: Vec<(&Policy, Fits)> =
            self.fits.iter().filter(may_be).map(|(policy, fits)| (policy, *fits)).collect();
        all.sort_by_key(|(policy, _)| !policy.is_rfs());
        all
    }
}

/// The rule that led to the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rule {
    /// There is only one CPU.
    OneCpu,
    /// Nothing was received.
    NoTraffic,
    /// Too little was received for a conclusion.
    TooFew,
    /// No frame has a flow.
    NoFlows,
    /// A measurement showed that no CPU is short of time.
    NothingToRelieve,
    /// The largest flow alone fills a CPU nearly as soon as all traffic does.
    OneFlow,
    /// The same, but that flow is a tunnel with flows inside.
    InnerHeaders,
    /// The receiving CPUs already share the work.
    Even,
    /// No policy improves enough.
    NoGain,
    /// This policy does.
    Steer,
}

/// The advice.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Advice {
    pub(super) rule: Rule,
    pub(super) text: String,
    /// The policy to use; `None`: leave it alone.
    pub(super) policy: Option<Policy>,
    /// Whether to steer by the headers inside tunnels.
    pub(super) inner: bool,
}

/// The advice for these figures.
pub(super) fn of(measured: &Measured) -> Advice {
    let alone = |rule, text: String| Advice {
        rule,
        text: format!("Leave it alone: {text}"),
        policy: None,
        inner: false,
    };
    let (without, bound) = (measured.without(), measured.bound());
    if measured.cpus < 2 {
        return alone(Rule::OneCpu, "there is one CPU, so there is nothing to choose.".to_owned());
    }
    if measured.packets == 0 && measured.left_out > 0 {
        let records = plural(usize::try_from(measured.left_out).unwrap_or(usize::MAX), "record");
        let why = format!("nothing is known of this traffic, since {records} could not be read.");
        return alone(Rule::NoTraffic, why);
    }
    if measured.packets == 0 {
        let why = "no traffic seen; ask again under the usual load.";
        return alone(Rule::NoTraffic, why.to_owned());
    }
    if let Some(why) = &measured.too_few {
        return alone(Rule::TooFew, format!("{why}."));
    }
    if measured.flows == 0 {
        let why =
            "no frame is IP, so there is no flow to steer; all stay on the CPU that received them.";
        return alone(Rule::NoFlows, why.to_owned());
    }
    if let Some(Help::Dont(why)) = &measured.relief {
        let why = format!("{why}. Without steering {} fits.", times(without));
        return alone(Rule::NothingToRelieve, why);
    }
    if measured.is_one_flow() {
        let share = 100.0 * measured.largest_flow as f64 / measured.packets.max(1) as f64;
        let flow = format!(
            "one flow has {share:.0} % of the packets, and a flow in order is on one CPU at a time: at most {} fits at any moment, \
             whatever the policy; {} without steering.",
            times(bound),
            times(without)
        );
        return match measured.inside.filter(|fits| fits[1] >= WORTH * without) {
            Some(fits) => Advice {
                rule: Rule::InnerHeaders,
                text: format!(
                    "Steer by inner headers: the outer headers show one flow with {share:.0} % of the packets, a tunnel; \
                     by the flows inside it {} fits with rps ({}), {} without steering.",
                    times(fits[1]),
                    range(fits),
                    times(without)
                ),
                policy: Some(Policy::Rps),
                inner: true,
            },
            None => alone(Rule::OneFlow, flow),
        };
    }
    let candidates = measured.candidates();
    let best = candidates.iter().map(|(_, fits)| fits[1]).fold(0.0, f64::max);
    if best < WORTH * without {
        return if without * WORTH > bound {
            alone(
                Rule::Even,
                format!(
                    "the CPUs that receive share it already: {} fits without steering, {} with the best policy.",
                    times(without),
                    times(best)
                ),
            )
        } else {
            alone(
                Rule::NoGain,
                format!(
                    "no policy gains enough on {} flow{}: {} fits with the best one, {} without steering.",
                    measured.flows,
                    if measured.flows == 1 { "" } else { "s" },
                    times(best),
                    times(without)
                ),
            )
        };
    }
    let worst = candidates.iter().map(|(_, fits)| fits[0]).fold(0.0, f64::max);
    let is_as_good = |fits: &Fits| fits[1] >= AS_GOOD * best && fits[0] >= AT_WORST * worst;
    let by_median = || candidates.iter().find(|(_, fits)| fits[1] >= AS_GOOD * best);
    let chosen = candidates.iter().find(|(_, fits)| is_as_good(fits)).or_else(by_median);
    let Some((policy, fits)) = chosen else {
        return alone(Rule::NoGain, "no policy was measured.".to_owned());
    };
    let mut text = format!(
        "Use {policy}: {} fits before a CPU is full ({} over the hash secrets), {} without steering.",
        times(fits[1]),
        range(*fits),
        times(without)
    );
    if let (Policy::Sparse(_), Some(rps)) = (policy, measured.of(&Policy::Rps)) {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            " rps gives {} ({}): with few flows the hash puts several onto one CPU.",
            times(rps[1]),
            range(rps)
        );
    }
    text += match &measured.relief {
        Some(Help::Likely(why)) => {
            return Advice { text: format!("{text} It is needed: {why}."), ..steer(policy) };
        }
        Some(Help::Unknown(_)) | None => {
            " It pays only where the CPU that receives is short of time: rxsteer host recommend IFACE measures that."
        }
        Some(Help::Dont(_)) => "",
    };
    Advice { text, ..steer(policy) }
}

fn steer(policy: &Policy) -> Advice {
    Advice { rule: Rule::Steer, text: String::new(), policy: Some(policy.clone()), inner: false }
}

/// `3.1 x`, of what fills one CPU.
pub(super) fn times(fits: f64) -> String {
    format!("{fits:.1} x")
}

fn range([least, _, most]: Fits) -> String {
    let [least, most] = [least, most].map(|fits| format!("{fits:.1}"));
    if least == most { least } else { format!("{least} to {most}") }
}
