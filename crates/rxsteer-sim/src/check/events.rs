//! Checks of events.

use super::machine::{check_steering, there};
use super::{
    Checked, MAX_BURST, MAX_EVENTS, MAX_TIME_NS, SPEEDS, in_seconds, refuse, some, up_to, within,
};
use crate::Scenario;
use crate::scenario::EventKind;
use rxsteer_core::CpuId;
use std::collections::BTreeSet;

pub(super) fn check(scenario: &Scenario) -> Checked {
    up_to("event", scenario.events.len() as u64, MAX_EVENTS as u64, "events")?;
    let mut offline = BTreeSet::new();
    let mut before = 0;
    for (index, event) in scenario.events.iter().enumerate() {
        let path = format!("event.{index}");
        if event.at_ns >= scenario.duration_ns {
            let (at, end) = (in_seconds(event.at_ns), in_seconds(scenario.duration_ns));
            let what = format!("the event is at {at}, but the run ends at {end}");
            return refuse(format!("{path}.at"), what);
        }
        if event.at_ns < before {
            let (at, before) = (in_seconds(event.at_ns), in_seconds(before));
            let what = format!("events must be in the order of time, but {at} is before {before}");
            return refuse(format!("{path}.at"), what);
        }
        before = event.at_ns;
        check_one(scenario, &event.what, &path, &mut offline)?;
    }
    Ok(())
}

fn check_one(
    scenario: &Scenario,
    what: &EventKind,
    path: &str,
    offline: &mut BTreeSet<CpuId>,
) -> Checked {
    let at = |key: &str| format!("{path}.{key}");
    match what {
        EventKind::Offline(cpu) => {
            there(scenario, [*cpu].into_iter(), &at("offline"), "goes offline")?;
            if !offline.insert(*cpu) {
                return refuse(at("offline"), format!("CPU {cpu} is offline already"));
            }
            if offline.len() == scenario.cpus.len() {
                return refuse(at("offline"), "no CPU would be left; leave one online");
            }
            Ok(())
        }
        EventKind::Online(cpu) => {
            there(scenario, [*cpu].into_iter(), &at("online"), "comes back online")?;
            if offline.remove(cpu) {
                Ok(())
            } else {
                refuse(at("online"), format!("CPU {cpu} is online already"))
            }
        }
        EventKind::Speed(cpu, speed) => {
            there(scenario, [*cpu].into_iter(), &at("cpu"), "changes its speed")?;
            within(at("speed"), *speed, SPEEDS, "(1 is the CPU that costs are given for)")
        }
        EventKind::Steering(steering) => check_steering(scenario, steering, &at("steering")),
        EventKind::ClockStep(ns) => {
            up_to(at("clock_step"), ns.unsigned_abs(), MAX_TIME_NS, "nanoseconds (a day)")
        }
        EventKind::Burst(traffic, packets) => {
            if *traffic >= scenario.traffic.len() {
                return refuse(at("traffic"), format!("there is no traffic {traffic}"));
            }
            some(at("burst"), (*packets).into(), MAX_BURST.into())
        }
    }
}
