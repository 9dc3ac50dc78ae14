//! The input of a recommendation: facts about the host and the interface, and a measurement.

use crate::knobs::{Globals, InterfaceKnobs};
use crate::load::Load;
use crate::netlink::netdev;
use crate::root::Root;
use crate::spreading::Spreading;
use crate::topology::Topology;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is known about the host and the interface.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// The CPUs.
    pub topology: Topology,
    /// Settings of the network core.
    pub globals: Globals,
    /// The interface.
    pub knobs: InterfaceKnobs,
    /// How its driver spreads packets by itself.
    pub spreading: Spreading,
    /// Whether `rxsteer run` is worth recommending for it; otherwise why not.
    #[serde(serialize_with = "eligible")]
    pub run: Result<(), String>,
}

/// What was measured over a period.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measurement {
    /// The length of the period.
    #[serde(rename = "elapsed_ns", serialize_with = "nanoseconds")]
    pub time: Duration,
    /// What the CPUs did, and how many frames arrived.
    pub load: Load,
    /// The interrupts of this interface, by CPU.
    pub interrupts: BTreeMap<u32, u64>,
    /// Frames by RX queue, if the driver reports them (netdev queue statistics).
    pub queues: BTreeMap<u32, u64>,
    /// Frames that the NIC dropped or missed.
    pub nic_dropped: u64,
    /// IP packets that were delivered to this host's applications, and that were forwarded, in this network namespace.
    pub delivered: u64,
    /// See [`Measurement::delivered`].
    pub forwarded: u64,
    /// What a capture of some thousand frames showed, if there was one.
    pub traffic: Option<Traffic>,
}

fn nanoseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// `{"eligible": true}`, or `{"eligible": false, "why": "…"}`.
fn eligible<S: serde::Serializer>(run: &Result<(), String>, to: S) -> Result<S::Ok, S::Error> {
    let mut object = to.serialize_map(None)?;
    object.serialize_entry("eligible", &run.is_ok())?;
    if let Err(why) = run {
        object.serialize_entry("why", why)?;
    }
    object.end()
}

/// What a capture showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// The number of captured frames.
    pub frames: u64,
    /// The number of their flows.
    pub flows: u64,
    /// The frames of the largest flow.
    pub largest: u64,
    /// The same, by the headers inside tunnels.
    pub inner_flows: u64,
    /// See [`Traffic::inner_flows`].
    pub inner_largest: u64,
}

/// Counts up to now. Two readings make a [`Measurement`].
#[derive(Clone, Debug, Default)]
pub struct Counts {
    load: Load,
    interrupts: BTreeMap<u32, u64>,
    queues: BTreeMap<u32, u64>,
    nic_dropped: u64,
    delivered: u64,
    forwarded: u64,
}

impl Counts {
    /// Reads the counts of an interface and its host.
    pub fn read(root: &Root, knobs: &InterfaceKnobs) -> Counts {
        let statistic = |name: &str| -> u64 {
            root.number(&format!("/sys/class/net/{}/statistics/{name}", knobs.name)).unwrap_or(0)
        };
        let mut interrupts = BTreeMap::new();
        for (cpu, count) in knobs.interrupts.iter().flat_map(|interrupt| &interrupt.counts) {
            *interrupts.entry(*cpu).or_insert(0) += count;
        }
        let ip4 = root.text("/proc/net/snmp").unwrap_or_default();
        let ip6 = root.text("/proc/net/snmp6").unwrap_or_default();
        let ip = |four: &str, six: &str| ip4_count(&ip4, four) + ip6_count(&ip6, six);
        Counts {
            load: Load::read_in(root).unwrap_or_default(),
            interrupts,
            queues: if root.is_host() {
                netdev::rx_packets(knobs.index).unwrap_or_default()
            } else {
                BTreeMap::new()
            },
            nic_dropped: ["rx_dropped", "rx_missed_errors", "rx_fifo_errors"]
                .into_iter()
                .map(statistic)
                .sum(),
            delivered: ip("InDelivers", "Ip6InDelivers"),
            forwarded: ip("ForwDatagrams", "Ip6OutForwDatagrams"),
        }
    }

    /// What was counted since an earlier reading, which was `time` ago.
    #[must_use]
    pub fn since(&self, earlier: &Counts, time: Duration) -> Measurement {
        let more = |now: &BTreeMap<u32, u64>, then: &BTreeMap<u32, u64>| {
            let of = |(key, now): (&u32, &u64)| {
                let more = now.saturating_sub(then.get(key).copied().unwrap_or(0));
                (more > 0).then_some((*key, more))
            };
            now.iter().filter_map(of).collect()
        };
        Measurement {
            time,
            load: self.load.since(&earlier.load),
            interrupts: more(&self.interrupts, &earlier.interrupts),
            queues: more(&self.queues, &earlier.queues),
            nic_dropped: self.nic_dropped.saturating_sub(earlier.nic_dropped),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            forwarded: self.forwarded.saturating_sub(earlier.forwarded),
            traffic: None,
        }
    }
}

/// A value of `/proc/net/snmp`: one line of names that begins with `Ip:`, then one line of values.
fn ip4_count(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let place = names.split_whitespace().position(|other| other == name);
    let value = place.and_then(|place| values.split_whitespace().nth(place));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// A value of `/proc/net/snmp6`: a name and its value in each line.
fn ip6_count(text: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    };
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MachineSpec, NicSpec};
    use std::fs;

    #[test]
    fn counts_are_read_and_subtracted() {
        let folder = tempfile::tempdir().unwrap();
        let machine = MachineSpec::cpus(2).nic(NicSpec::named("eth0").driver("igb"));
        let root = machine.build(folder.path()).unwrap();
        let put = |path: &str, text: &str| {
            let at = root.path(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        };
        let read = || Counts::read(&root, &InterfaceKnobs::read(&root, "eth0").unwrap());
        let before = read();
        put(
            "/proc/net/snmp",
            "Ip: Forwarding InDelivers ForwDatagrams\nIp: 1 70 900\nTcp: A\nTcp: 1\n",
        );
        put("/proc/net/snmp6", "Ip6InReceives 9\nIp6InDelivers 5\nIp6OutForwDatagrams 100\n");
        put("/sys/class/net/eth0/statistics/rx_missed_errors", "11\n");
        let interrupts = fs::read_to_string(root.path("/proc/interrupts")).unwrap();
        put("/proc/interrupts", &interrupts.replace("1000", "1600"));
        let measured = read().since(&before, Duration::from_secs(1));
        assert_eq!((measured.delivered, measured.forwarded, measured.nic_dropped), (75, 1000, 11));
        assert_eq!(measured.interrupts, [(0, 600)].into());
        assert_eq!(measured.load.cpus.len(), 2);
    }
}
