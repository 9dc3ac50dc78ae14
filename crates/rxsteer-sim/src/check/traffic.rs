//! Checks of traffic.

use super::{
    Checked, FRAME_BYTES, MAX_COST_NS, MAX_FLOWS, MAX_PACKET_RATE, MAX_THREADS, MAX_TIME_NS,
    MAX_TRAFFIC, MAX_WINDOW, in_seconds, refuse, some, up_to, within,
};
use crate::Scenario;
use crate::scenario::{Constant, Load, Recorded, Requests, Share, Stream, Traffic};

pub(super) fn check(scenario: &Scenario) -> Checked {
    if scenario.traffic.is_empty() {
        return refuse("traffic", "nothing is sent; add a [[traffic]]");
    }
    some("traffic", scenario.traffic.len() as u64, MAX_TRAFFIC as u64)?;
    let (mut flows, mut threads) = (0_u64, 0_u64);
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        let path = format!("traffic.{index}");
        check_one(scenario, traffic, &path)?;
        if scenario.traffic[..index].iter().any(|earlier| earlier.name == traffic.name) {
            let what = format!("two kinds of traffic are called '{}'", traffic.name);
            return refuse(format!("{path}.name"), what);
        }
        flows += u64::from(traffic.flows);
        threads += threads_of(scenario, traffic);
        up_to(format!("{path}.flows"), flows, MAX_FLOWS, "flows of all traffic together")?;
        let of = "threads of all traffic together (one for each connection, where 'threads' does not say otherwise)";
        up_to(format!("{path}.threads"), threads, MAX_THREADS, of)?;
    }
    Ok(())
}

/// The number of threads that read or serve the traffic.
fn threads_of(scenario: &Scenario, traffic: &Traffic) -> u64 {
    let (flows, cpus) = (u64::from(traffic.flows), scenario.scheduler.cpus.len() as u64);
    let local = traffic.out.is_none();
    match &traffic.load {
        Load::Requests(requests) => requests.threads.map_or(flows, u64::from),
        Load::Stream(stream) if local && stream.application > 0.0 => flows,
        Load::Constant(_) | Load::Recorded(_) if local => cpus.min(flows),
        _ => 0,
    }
}

fn check_one(scenario: &Scenario, traffic: &Traffic, path: &str) -> Checked {
    let at = |key: &str| format!("{path}.{key}");
    if traffic.name.is_empty() {
        return refuse(at("name"), "the name of a traffic can't be empty");
    }
    let nics = scenario.nics.len();
    for (key, nic) in [("nic", Some(traffic.nic)), ("out", traffic.out)] {
        if let Some(nic) = nic.filter(|nic| *nic >= nics) {
            return refuse(at(key), format!("there is no card {nic}: there are {nics}, from 0"));
        }
    }
    if traffic.translated && traffic.out.is_none() {
        return refuse(
            at("translated"),
            "addresses are translated where traffic is forwarded; name the card it goes 'out' of",
        );
    }
    some(at("flows"), traffic.flows.into(), MAX_FLOWS)?;
    if traffic.start_ns >= scenario.duration_ns {
        let (start, end) = (in_seconds(traffic.start_ns), in_seconds(scenario.duration_ns));
        return refuse(at("start"), format!("it begins at {start}, but the run ends at {end}"));
    }
    up_to(at("ramp"), traffic.ramp_ns, MAX_TIME_NS, "nanoseconds (a day)")?;
    match &traffic.load {
        Load::Stream(stream) => check_stream(stream, traffic, &at),
        Load::Constant(constant) => check_constant(constant, traffic, &at),
        Load::Requests(requests) => check_requests(requests, traffic, &at),
        Load::Recorded(recorded) => check_recorded(recorded, traffic, &at),
    }
}

fn check_stream(stream: &Stream, traffic: &Traffic, at: &impl Fn(&str) -> String) -> Checked {
    frame(at("frame_bytes"), stream.frame_bytes)?;
    frame(at("ack_bytes"), stream.ack_bytes)?;
    some(at("window"), stream.window.into(), MAX_WINDOW.into())?;
    some(at("packets_per_ack"), stream.packets_per_ack.into(), MAX_WINDOW.into())?;
    if stream.packets_per_ack > stream.window {
        return refuse(
            at("packets_per_ack"),
            format!(
                "an acknowledgement for {} packets never comes with a window of {}; lower it",
                stream.packets_per_ack, stream.window
            ),
        );
    }
    if stream.min_rto_ns < 100_000 {
        return refuse(at("min_rto"), "it is too short for any answer; give at least 100us");
    }
    up_to(at("min_rto"), stream.min_rto_ns, MAX_TIME_NS, "nanoseconds (a day)")?;
    application(stream.application, traffic, at)
}

fn check_constant(constant: &Constant, traffic: &Traffic, at: &impl Fn(&str) -> String) -> Checked {
    if constant.rate == 0.0 {
        return refuse(at("rate"), "a rate of 0 sends nothing; write e.g. rate = \"100kpps\"");
    }
    within(at("rate"), constant.rate, 1e-3..=MAX_PACKET_RATE, "packets per second")?;
    frame(at("frame_bytes"), constant.frame_bytes)?;
    if let Share::Zipf(exponent) = constant.share {
        within(at("share"), exponent, 0.0..=10.0, "as Zipf's exponent")?;
    }
    application(constant.application, traffic, at)
}

fn check_requests(requests: &Requests, traffic: &Traffic, at: &impl Fn(&str) -> String) -> Checked {
    if traffic.out.is_some() {
        return refuse(
            at("out"),
            "requests are served by this machine's threads, so nothing is forwarded; leave 'out' out",
        );
    }
    frame(at("request_bytes"), requests.request_bytes)?;
    frame(at("response_bytes"), requests.response_bytes)?;
    within(at("think"), requests.think_ns, 0.0..=MAX_TIME_NS as f64, "nanoseconds")?;
    if let Some(threads) = requests.threads {
        some(at("threads"), threads.into(), MAX_THREADS)?;
        if threads > traffic.flows {
            let what = format!(
                "{threads} threads share {} connections, so some serve none; lower it",
                traffic.flows
            );
            return refuse(at("threads"), what);
        }
    }
    within(at("service"), requests.service, 0.0..=MAX_COST_NS, "nanoseconds")
}

fn check_recorded(recorded: &Recorded, traffic: &Traffic, at: &impl Fn(&str) -> String) -> Checked {
    let flows = recorded.hashes.len();
    if flows != traffic.flows as usize {
        let what = format!("{} flows with {flows} hashes: each needs one", traffic.flows);
        return refuse(at("flows"), what);
    }
    let mut before = 0;
    for (index, packet) in recorded.packets.iter().enumerate() {
        if packet.flow as usize >= flows {
            let what = format!("packet {index} is of flow {}, of {flows} from 0", packet.flow);
            return refuse(at("flows"), what);
        }
        if packet.at_ns < before || packet.at_ns > MAX_TIME_NS {
            let what = format!("packet {index} is out of the order of time, or a day late");
            return refuse(at("kind"), what);
        }
        before = packet.at_ns;
    }
    application(recorded.application, traffic, at)
}

/// Checks the application's cost per packet, which must be 0 for forwarded packets.
fn application(cost: f64, traffic: &Traffic, at: &impl Fn(&str) -> String) -> Checked {
    if traffic.out.is_some() && cost != 0.0 {
        return refuse(
            at("application"),
            "forwarded packets reach no application; leave out this key, or 'out'",
        );
    }
    within(at("application"), cost, 0.0..=MAX_COST_NS, "nanoseconds")
}

fn frame(path: String, bytes: u32) -> Checked {
    let (low, high) = FRAME_BYTES.into_inner();
    if (low..=high).contains(&bytes) {
        Ok(())
    } else {
        refuse(
            path,
            format!(
                "a frame can't have {bytes} bytes; it must have {low} to {high}, checksum excluded"
            ),
        )
    }
}
