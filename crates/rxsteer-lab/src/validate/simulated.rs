//! The predictions of the simulator with calibrated costs, and of the null model, for a load.
//!
//! The simulator's costs are constants, and its threads process their events in order, so its slowest requests are hardly
//! slower than the median. Therefore the predictions use what the calibration measured.
//!
//! - In an open loop, pauses of the machine delay the requests that arrive in them, and those that arrive until the CPU has
//!   caught up: the more, the higher the load. So the simulated machine has pauses. They are as long as the measured ones,
//!   but rarer: those were measured on CPUs that are busy all the time, and a host pauses CPUs the more, the more they use.
//!   Under the light load they occur by that share as often with which the simulated p99 are the calibrated ones, in the
//!   geometric mean over the methods. From there the share grows linearly with the use of the CPUs, to 1 when they are busy
//!   all the time. All latencies grow by as much as the median of the calibrated light load exceeds the simulated one: the
//!   wake-up of idle CPUs.
//! - In a closed loop, all clients wait for each other, and the order in which threads serve them decides how long. So p99
//!   is multiplied by the ratio of measured to simulated p99 of the calibrated load.
//!
//! The null model is corrected in the same way, by the figures without steering.

use super::rows::OF_REQUESTS;
use super::{Calls, Expected, Frames, LabError, Load, Method, Result, Speeds, requests_set};
use crate::calibrate::{LIGHT, RULES, paused, rules_set};
use rxsteer_sim::result::CpuResult;
use rxsteer_sim::scenario::Pause;
use rxsteer_sim::seeds::{Plan, run_seeds};
use rxsteer_sim::{RunResult, Scenario};
use serde::Deserialize;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

/// A calibrated scenario at a speed of the machine.
pub(super) struct Model<'a> {
    text: &'a str,
    name: &'a str,
    speeds: Speeds,
    quick: bool,
    stop: &'a AtomicBool,
    /// Without a cost set.
    base: Scenario,
    measured: Measured,
    /// The pauses of a busy CPU during the calibration.
    calibrated: Vec<Pause>,
    /// The pauses of a busy CPU to predict for.
    pauses: Vec<Pause>,
    /// How often the light loads meet a pause, as a share of how often a busy CPU does ([`Model::pause_share`]).
    pause_share: OnceCell<f64>,
}

/// The tables of a calibration file that the simulator does not use.
#[derive(Deserialize)]
struct Calibrated {
    measured: Measured,
}

#[derive(Deserialize)]
struct Measured {
    /// The pauses of a busy CPU. A calibration of an older version has none.
    #[serde(default)]
    pauses: Vec<MeasuredPause>,
    /// The measured tails, by the name of their cost set.
    #[serde(flatten)]
    tails: BTreeMap<String, Tails>,
}

/// A kind of pauses.
#[derive(Deserialize)]
struct MeasuredPause {
    every_ns: u64,
    lasts_ns: u64,
}

/// The pauses as a value of `pause` in a scenario.
fn value_of(pauses: &[Pause]) -> String {
    let each = |Pause { every_ns, lasts_ns }: &Pause| {
        format!("{{ every = \"{every_ns}ns\", lasts = \"{lasts_ns}ns\" }}")
    };
    format!("[{}]", pauses.iter().map(each).collect::<Vec<_>>().join(", "))
}

/// Pauses that occur `share` times as often.
fn rarer(pauses: &[Pause], share: f64) -> Vec<Pause> {
    let rarer = |of: &Pause| Pause { every_ns: (of.every_ns as f64 / share) as u64, ..*of };
    pauses.iter().map(rarer).collect()
}

/// The 99th percentiles of latencies in a calibration, in nanoseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Tails {
    /// In the closed loop.
    p99: f64,
    /// Under a light load.
    light_p99: f64,
}

impl<'a> Model<'a> {
    pub(super) fn new(
        text: &'a str,
        name: &'a str,
        speeds: Speeds,
        quick: bool,
        stop: &'a AtomicBool,
    ) -> Result<Model<'a>> {
        let base = read(text, name, &[])?;
        let Calibrated { measured } = toml::from_str(text).map_err(|why| LabError::Scenario {
            why: format!("{name}: {why}; rxsteer lab calibrate makes a file that has all"),
        })?;
        let pause =
            |of: &MeasuredPause| Pause { every_ns: of.every_ns.max(1), lasts_ns: of.lasts_ns };
        let calibrated: Vec<Pause> = measured.pauses.iter().map(pause).collect();
        let (pauses, pause_share) = (calibrated.clone(), OnceCell::new());
        Ok(Model {
            text,
            name,
            speeds,
            quick,
            stop,
            base,
            measured,
            calibrated,
            pauses,
            pause_share,
        })
    }

    /// The same for a machine whose busy CPUs have these pauses.
    pub(super) fn with_pauses(self, pauses: Vec<Pause>) -> Model<'a> {
        Model { pauses, ..self }
    }

    /// The share of the time in which a busy CPU was paused during the calibration.
    pub(super) fn paused(&self) -> f64 {
        paused(&self.calibrated)
    }

    fn tails(&self, method: Method) -> Result<Tails> {
        let set = requests_set(method);
        self.measured.tails.get(&set).copied().ok_or_else(|| LabError::Scenario {
            why: format!("{}: there is no [measured.{set}]", self.name),
        })
    }

    fn read(&self, sets: &[(&str, String)]) -> Result<Scenario> {
        read(self.text, self.name, sets)
    }

    /// The costs of a cost set.
    fn costs(&self, set: &str) -> Result<rxsteer_sim::scenario::Costs> {
        Ok(self.read(&[("costs.set", set.to_owned())])?.costs)
    }

    /// Nanoseconds that the rules of a firewall take.
    fn rules_ns(&self, rules: u32) -> Result<f64> {
        if rules == 0 {
            return Ok(0.0);
        }
        let more = self.costs(&rules_set())?.protocol - self.base.costs.protocol;
        Ok(more / f64::from(RULES) * f64::from(rules))
    }

    /// Packets per second that one CPU forwards without steering.
    pub(super) fn capacity(&self) -> Result<f64> {
        self.alone(&Frames::CALIBRATED)
    }

    fn alone(&self, load: &Frames) -> Result<f64> {
        let costs = &self.base.costs;
        let ns = costs.receive
            + costs.protocol
            + costs.transmit
            + costs.protocol_byte * f64::from(load.length)
            + self.rules_ns(load.rules)?;
        Ok(self.speeds.forwarding * 1e9 / ns)
    }

    /// Requests per second of the calibrated light load.
    fn light_rate(&self) -> u32 {
        LIGHT * self.base.cpus.len() as u32
    }

    /// The share of the CPUs' time that this many requests per second take.
    fn used(&self, method: Method, rate: u32) -> Result<f64> {
        Ok((f64::from(rate) / self.calls(method)?).min(0.99))
    }

    /// The calibrated light load, simulated with `share` of the calibrated pauses: the result, and what the measured median
    /// exceeds the simulated one by.
    fn light(&self, method: Method, share: f64) -> Result<Option<(Simulated, f64)>> {
        let load = Calls { rate: self.light_rate(), ..Calls::CALIBRATED };
        let pauses = rarer(&self.calibrated, share);
        let light = self.requests(method, &load, Speeds::CALIBRATED, &pauses)?;
        let costs = self.costs(&requests_set(method))?;
        let measured = costs.protocol + costs.wake_delay;
        Ok(light.map(|light| (light, (measured - light.p50).max(0.0))))
    }

    /// The share of the calibrated pauses with which the simulated p99 of the light loads are the calibrated ones, in the
    /// geometric mean over the methods. `None` if it was interrupted.
    fn pause_share(&self) -> Result<Option<f64>> {
        if let Some(share) = self.pause_share.get() {
            return Ok(Some(*share));
        }
        let excess = |share: f64| -> Result<Option<f64>> {
            let mut excess = 0.0;
            for method in OF_REQUESTS {
                let Some((light, wake)) = self.light(method, share)? else { return Ok(None) };
                excess += ((light.p99 + wake) / self.tails(method)?.light_p99).ln();
            }
            Ok(Some(excess))
        };
        // Even fewer pauses have no effect on a 99th percentile.
        let (mut low, mut high) = (0.01, 1.0);
        let Some(of_all) = excess(high)? else { return Ok(None) };
        if of_all > 0.0 {
            while high / low > 1.05 {
                let middle = f64::sqrt(low * high);
                let Some(excess) = excess(middle)? else { return Ok(None) };
                if excess > 0.0 { high = middle } else { low = middle }
            }
        }
        Ok(Some(*self.pause_share.get_or_init(|| high)))
    }

    /// The time of all CPUs for a request while all are busy.
    fn request_ns(&self, method: Method) -> Result<f64> {
        Ok(self.costs(&requests_set(method))?.protocol / self.base.smt_speed)
    }

    /// Requests per second that all CPUs answer.
    pub(super) fn calls(&self, method: Method) -> Result<f64> {
        let cpus = self.base.cpus.len() as f64;
        Ok(self.speeds.requests * cpus * 1e9 / self.request_ns(method)?)
    }

    /// The same for the method that answers the fewest.
    pub(super) fn slowest_calls(&self) -> Result<f64> {
        let slower = |slowest: f64, calls: f64| slowest.min(calls);
        let all = OF_REQUESTS.iter().map(|method| self.calls(*method));
        all.collect::<Result<Vec<f64>>>().map(|all| all.into_iter().fold(f64::INFINITY, slower))
    }

    /// The null model. Packets: the offered rate, at most what one CPU forwards without steering. Requests: what all
    /// CPUs answer without steering; each waits for all others, or for none in an open loop.
    pub(super) fn null(&self, load: &Load) -> Result<Expected> {
        match load {
            Load::Forward(load) => {
                let alone = self.alone(load)?;
                let rate = if load.rate > 0.0 { load.rate.min(alone) } else { alone };
                Ok(Expected { rate, p50: None, p99: None })
            }
            Load::Requests(load) => {
                let work = load.work().as_nanos() as f64;
                let tails = self.tails(Method::None)?;
                if load.rate > 0 {
                    let light = self.costs(&requests_set(Method::None))?;
                    let us = (light.protocol + light.wake_delay + work) / 1e3;
                    let rate = f64::from(load.rate);
                    let p99 = (tails.light_p99 + work) / 1e3;
                    return Ok(Expected { rate, p50: Some(us), p99: Some(p99) });
                }
                let cpus = self.base.cpus.len() as f64;
                let rate =
                    cpus * 1e9 / (self.request_ns(Method::None)? / self.speeds.requests + work);
                let us = f64::from(load.connections) / rate * 1e6;
                let calibrated = f64::from(Calls::CALIBRATED.connections)
                    * self.request_ns(Method::None)?
                    / cpus;
                let p99 = us * tails.p99 / calibrated;
                Ok(Expected { rate, p50: Some(us), p99: Some(p99) })
            }
        }
    }

    /// The simulator's prediction. `None` if it was interrupted.
    pub(super) fn expect(&self, method: Method, load: &Load) -> Result<Option<Expected>> {
        match load {
            Load::Forward(load) => self.forward(method, load),
            Load::Requests(load) => {
                let corrected = if load.rate > 0 {
                    self.open_requests(method, load)?
                } else {
                    self.closed_requests(method, load)?
                };
                Ok(corrected.map(|Simulated { forwarded: rate, p50, p99, .. }| Expected {
                    rate,
                    p50: Some(p50 / 1e3),
                    p99: Some(p99.max(p50) / 1e3),
                }))
            }
        }
    }

    /// Requests in an open loop, with the pauses that this load meets, and the wake-up of idle CPUs.
    fn open_requests(&self, method: Method, load: &Calls) -> Result<Option<Simulated>> {
        let Some(share) = self.pause_share()? else { return Ok(None) };
        let Some((_, wake)) = self.light(method, share)? else { return Ok(None) };
        let used = self.used(method, load.rate)?;
        let light = self.used(method, self.light_rate())?;
        let more = ((used - light) / (1.0 - light)).clamp(0.0, 1.0);
        let pauses = rarer(&self.pauses, share + (1.0 - share) * more);
        let open = self.requests(method, load, self.speeds, &pauses)?;
        Ok(open.map(|of| Simulated { p50: of.p50 + wake, p99: of.p99 + wake, ..of }))
    }

    /// Requests in a closed loop, with the tail of the calibrated load.
    fn closed_requests(&self, method: Method, load: &Calls) -> Result<Option<Simulated>> {
        let requests = |load, speeds| self.requests(method, load, speeds, &[]);
        let Some(closed) = requests(load, self.speeds)? else { return Ok(None) };
        let reference = requests(&Calls::CALIBRATED, Speeds::CALIBRATED)?;
        let tail = self.tails(method)?.p99;
        Ok(reference
            .map(|reference| Simulated { p99: closed.p99 * (tail / reference.p99), ..closed }))
    }

    fn forward(&self, method: Method, load: &Frames) -> Result<Option<Expected>> {
        let (set, policy) = method.simulated();
        let rules = self.rules_ns(load.rules)?;
        let simulate = |rate: f64| -> Result<Option<Simulated>> {
            let mut sets = vec![
                ("machine.speed", self.speeds.forwarding.to_string()),
                ("steering.policy", policy.to_owned()),
                ("steering.cpus", format!("\"{}-1\"", load.first_cpu)),
                ("traffic.transit.flows", load.flows.to_string()),
                ("traffic.transit.frame_bytes", load.length.to_string()),
                ("traffic.transit.rate", format!("{rate:.0}")),
                ("duration", if self.quick { "40ms" } else { "120ms" }.to_owned()),
                ("warm_up", if self.quick { "10ms" } else { "20ms" }.to_owned()),
            ];
            let key = format!("cost_set.{set}.protocol");
            let mut all: Vec<(&str, String)> = Vec::new();
            if policy == "none" {
                all.push(("costs.protocol", (self.base.costs.protocol + rules).to_string()));
            } else {
                sets.push(("costs.set", set.to_owned()));
                let protocol = self.costs(set)?.protocol + rules;
                all.push((&key, protocol.to_string()));
            }
            all.extend(sets);
            self.run(&all)
        };
        // If frames are made as fast as they are accepted: more than any method forwards.
        let rate = if load.rate > 0.0 { load.rate } else { 4.0 * self.capacity()? };
        let rate = closed_loop(rate, simulate)?;
        Ok(rate.map(|rate| Expected { rate, p50: None, p99: None }))
    }

    /// The simulator's result for requests: threads work for each of them. The extra time of a method compared with no
    /// steering is protocol work on the CPU to which it steers. On a veth the CPU that sends also receives, so each CPU
    /// has a queue.
    fn requests(
        &self,
        method: Method,
        load: &Calls,
        speeds: Speeds,
        pauses: &[Pause],
    ) -> Result<Option<Simulated>> {
        let (_, policy) = method.simulated();
        let plain = self.costs(&requests_set(Method::None))?.protocol;
        let set = requests_set(method);
        let of_method = self.costs(&set)?;
        // Work in user space has no memory traffic, so it is not slower while the other CPU is busy.
        let work = load.work().as_nanos() as f64 * self.base.smt_speed * speeds.requests;
        let is_open = load.rate > 0;
        // The costs contain the pauses of a busy CPU.
        let works = if is_open { 1.0 - self.paused() } else { 1.0 };
        let service = plain * works + work;
        let flows = load.connections;
        let cpus = self.base.cpus.len();
        let traffic = if is_open {
            format!(
                "kind = \"constant\", poisson = false, rate = {}, application = {service:.1}",
                load.rate
            )
        } else {
            format!("kind = \"requests\", threads = {flows}, service = {service:.1}")
        };
        let duration = match (self.quick, is_open) {
            (true, _) => "60ms",
            // Long enough for rare pauses.
            (false, true) => "4020ms",
            (false, false) => "220ms",
        };
        let protocol = format!("cost_set.{set}.protocol");
        let delay = format!("cost_set.{set}.wake_delay");
        let sets: Vec<(&str, String)> = vec![
            ("pause", value_of(pauses)),
            (&protocol, (works * (of_method.protocol - plain).max(0.0)).to_string()),
            (&delay, "0".to_owned()),
            ("costs.set", set.clone()),
            ("machine.speed", speeds.requests.to_string()),
            ("steering.policy", policy.to_owned()),
            ("scheduler.placement", "pinned".to_owned()),
            ("wire.delay", "0".to_owned()),
            ("wire.switch", "0".to_owned()),
            (
                "nic",
                format!(
                    "[{{ name = \"in\", rate = \"100Gbit\", queues = {cpus}, irq_cpus = \"0-{}\", moderation = \"0\" }}]",
                    cpus - 1
                ),
            ),
            ("traffic", format!("[{{ name = \"requests\", flows = {flows}, {traffic} }}]")),
            ("duration", duration.to_owned()),
            ("warm_up", "20ms".to_owned()),
        ];
        self.run(&sets)
    }

    fn run(&self, sets: &[(&str, String)]) -> Result<Option<Simulated>> {
        let scenario = self.read(sets)?;
        // The hash of a flow depends on the seed; with few flows, their spread over the CPUs is random.
        let seeds = if self.quick { 1 } else { 3 };
        let plan = Plan { first_seed: 1, seeds, threads: NonZeroUsize::MIN };
        let runs = run_seeds(&scenario, plan, &|| {}, self.stop).map_err(|why| {
            LabError::Scenario { why: format!("the simulator refuses it: {why}") }
        })?;
        Ok((!runs.stopped).then(|| Simulated::of(&runs.cells[0])))
    }
}

fn read(text: &str, name: &str, sets: &[(&str, String)]) -> Result<Scenario> {
    let sets: Vec<_> =
        sets.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect();
    rxsteer_sim::file::read(text, name, &sets)
        .map_err(|why| LabError::Scenario { why: why.to_string() })
}

/// The simulator's results, as means over seeds.
#[derive(Debug, Clone, Copy)]
struct Simulated {
    /// Packets or requests per second.
    forwarded: f64,
    /// The share of the time in which CPU 0 is busy.
    busy: f64,
    /// Latencies in nanoseconds.
    p50: f64,
    p99: f64,
}

impl Simulated {
    fn of(runs: &[RunResult]) -> Simulated {
        let mean =
            |of: fn(&RunResult) -> f64| runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64;
        Simulated {
            forwarded: mean(|run| {
                let packets = run.traffic.first().map_or(0, |traffic| traffic.packets);
                packets as f64 * 1e9 / run.measured_ns as f64
            }),
            busy: mean(|run| run.cpus.first().map_or(1.0, CpuResult::busy)),
            p50: mean(|run| run.traffic.first().map_or(0.0, |traffic| traffic.latency.p50 as f64)),
            p99: mean(|run| run.traffic.first().map_or(0.0, |traffic| traffic.latency.p99 as f64)),
        }
    }
}

/// Forwarded packets per second if a source on CPU 0 offers `rate`, but has only the time in which CPU 0 is not busy
/// with packets: it makes no more frames than CPU 0 can receive. `None` if it was interrupted.
fn closed_loop(
    rate: f64,
    simulate: impl Fn(f64) -> Result<Option<Simulated>>,
) -> Result<Option<f64>> {
    /// If CPU 0 is busier than this, it has no time to make more frames.
    const FULL: f64 = 0.99;
    let Some(offered) = simulate(rate)? else { return Ok(None) };
    if offered.busy < FULL {
        return Ok(Some(offered.forwarded));
    }
    // The highest rate at which CPU 0 is not full, to a hundredth.
    let (mut low, mut high, mut forwarded) = (0.0, rate, 0.0);
    while high - low > 0.01 * high {
        let middle = f64::midpoint(low, high);
        let Some(tried) = simulate(middle)? else { return Ok(None) };
        if tried.busy < FULL {
            (low, forwarded) = (middle, tried.forwarded);
        } else {
            high = middle;
        }
    }
    Ok(Some(forwarded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_makes_no_more_than_its_cpu_has_time_for() {
        // A CPU that is full at 1000 packets per second, and loses half of them afterwards.
        let simulate = |rate: f64| {
            let busy = (rate / 1000.0).min(1.0);
            Ok(Some(Simulated { forwarded: rate / 2.0, busy, p50: 0.0, p99: 0.0 }))
        };
        assert_eq!(closed_loop(800.0, simulate).unwrap(), Some(400.0));
        let full = closed_loop(4000.0, simulate).unwrap().unwrap();
        assert!((480.0..=495.0).contains(&full), "{full}");
        assert_eq!(closed_loop(800.0, |_| Ok(None)).unwrap(), None);
    }
}
