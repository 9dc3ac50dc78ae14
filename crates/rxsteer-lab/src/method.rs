//! Methods of steering: how each is set up in a testbed, and undone.

use crate::error::Result;
use crate::namespace::Namespace;
use crate::sock_flow_entries::{self, SockFlowEntries};
use crate::steering::Steering;
use crate::testbed::Testbed;
use crate::{cpus::online_cpus, error::LabError};
use serde::Serialize;
use serde_json::Value;

/// Entries of the kernel's tables for RFS, as the RFS message proposes for a busy server.
const RFS_ENTRIES: u32 = 32_768;

/// The number of rules before the policy of [`Method::KernelRuled`].
pub(crate) const METHOD_RULES: u32 = 64;

/// A method of steering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "String")]
pub enum Method {
    /// No steering.
    None,
    /// No steering, a second time: its difference from the first is noise.
    Again,
    /// The kernel's RPS over all CPUs.
    KernelRps,
    /// The kernel's RFS, with RPS over all CPUs.
    KernelRfs,
    /// A thread for each queue's NAPI, which the scheduler places.
    ThreadedNapi,
    /// `rxsteer run` with this policy over all CPUs.
    Kernel(&'static str),
    /// The same without flow statistics.
    KernelUncounted(&'static str),
    /// `rxsteer run` with this policy and rules before it that match nothing.
    KernelRuled(&'static str),
    /// `rxsteer live --bridge` with this policy over all CPUs. With four or more CPUs, the second one only receives,
    /// and the first one, which makes the frames, has no worker. This method does not route.
    Userspace(&'static str),
    /// A method that an experiment sets up itself.
    Own(&'static str),
    /// The same a second time, if it is the baseline: its difference from the first is noise.
    OwnAgain(&'static str),
}

impl From<Method> for String {
    fn from(method: Method) -> String {
        match method {
            Method::None => "none".to_owned(),
            Method::Again => "none again".to_owned(),
            Method::KernelRps => "kernel RPS".to_owned(),
            Method::KernelRfs => "kernel RFS".to_owned(),
            Method::ThreadedNapi => "threaded NAPI".to_owned(),
            Method::Kernel(policy) => format!("rxsteer run {policy}"),
            Method::KernelUncounted(policy) => format!("rxsteer run {policy} --no-flow-stats"),
            Method::KernelRuled(policy) => format!("rxsteer run {policy}, {METHOD_RULES} rules"),
            Method::Userspace(policy) => format!("rxsteer live --bridge {policy}"),
            Method::Own(name) => name.to_owned(),
            Method::OwnAgain(name) => format!("{name}, again"),
        }
    }
}

/// An active method; it ends when this is dropped.
#[derive(Debug)]
pub struct Applied {
    steering: Option<Steering>,
    _entries: Option<SockFlowEntries>,
}

impl Method {
    /// Whether it is the second series of the baseline.
    pub fn is_again(&self) -> bool {
        matches!(self, Method::Again | Method::OwnAgain(_))
    }

    /// Whether it is a method of rxsteer.
    pub fn is_rxsteer(&self) -> bool {
        self.has_program() || matches!(self, Method::Own(name) if name.starts_with("rxsteer"))
    }

    /// Whether it attaches an XDP program to the interface.
    pub fn has_program(&self) -> bool {
        use Method::{Kernel, KernelRuled, KernelUncounted, Userspace};
        matches!(self, Kernel(_) | KernelUncounted(_) | KernelRuled(_) | Userspace(_))
    }

    /// On how many of a router's interfaces it must be set up if packets go one way: two for a bridge.
    pub(crate) fn interfaces(&self) -> usize {
        if matches!(self, Method::Userspace(_)) { 2 } else { 1 }
    }

    /// Sets the method up on interfaces of a namespace of `testbed`.
    ///
    /// An interface without an XDP program keeps GRO: only then does a veth have its own queue, as a NIC does, which
    /// NAPI polls. With a program it always has one, and GRO is off, so that only the kernel's own method merges
    /// packets.
    ///
    /// # Errors
    ///
    /// A system error, or what `rxsteer` printed when it could not start.
    pub fn apply(&self, testbed: &Testbed, interfaces: &[&str]) -> Result<Applied> {
        self.apply_over(testbed, interfaces, &(0..online_cpus()).collect::<Vec<_>>())
    }

    /// The same over some CPUs only. Threaded NAPI runs where the scheduler places it.
    ///
    /// # Errors
    ///
    /// As [`Method::apply`].
    pub(crate) fn apply_over(
        &self,
        testbed: &Testbed,
        interfaces: &[&str],
        cpus: &[usize],
    ) -> Result<Applied> {
        let namespace = testbed.receiver();
        sock_flow_entries::restore();
        for name in interfaces {
            let gro = if self.has_program() { "off" } else { "on" };
            namespace.run(&format!("ethtool -K {name} gro {gro} rx-gro-list off"))?;
        }
        let list = listed(cpus);
        let mut applied = Applied { steering: None, _entries: None };
        match self {
            Method::None | Method::Again | Method::Own(_) | Method::OwnAgain(_) => {}
            Method::KernelRps => rps(namespace, interfaces, cpus, 0)?,
            Method::KernelRfs => {
                applied._entries = Some(SockFlowEntries::set(RFS_ENTRIES)?);
                rps(namespace, interfaces, cpus, RFS_ENTRIES)?;
            }
            Method::ThreadedNapi => {
                for name in interfaces {
                    namespace.write_sys(&format!("/sys/class/net/{name}/threaded"), "1")?;
                }
            }
            Method::Kernel(policy)
            | Method::KernelUncounted(policy)
            | Method::KernelRuled(policy) => {
                let rules: Vec<String> = match self {
                    // 192.0.2.0/24 is reserved for documentation: no packet has an address of it.
                    Method::KernelRuled(_) => (0..METHOD_RULES)
                        .map(|rule| format!("--rule=udp src 192.0.2.{rule} dst-port 9 -> local"))
                        .collect(),
                    _ => vec![],
                };
                let mut words = [interfaces, &["--policy", policy, "--cpus", &list]].concat();
                words.extend(rules.iter().map(String::as_str));
                if let Method::KernelUncounted(_) = self {
                    words.push("--no-flow-stats");
                }
                applied.steering = Some(Steering::start(namespace, &words)?);
            }
            Method::Userspace(policy) => {
                let [first, second] = interfaces else {
                    return Err(LabError::Load { why: "a bridge has two interfaces".to_owned() });
                };
                let mut words = vec![*first, "--bridge", *second, "--policy", *policy];
                // The first CPU makes the frames. With enough CPUs, the second one receives them, and the others have
                // workers.
                let apart = match cpus {
                    [_, receiving, others @ ..] if others.len() > 1 => {
                        Some((listed(&[*receiving]), listed(others)))
                    }
                    _ => None,
                };
                match &apart {
                    Some((receiving, others)) => {
                        words.extend(["--rx-cpus", receiving, "--cpus", others]);
                    }
                    None => words.extend(["--cpus", &list]),
                }
                applied.steering = Some(Steering::live(namespace, &words)?);
            }
        }
        Ok(applied)
    }
}

/// CPUs as an option's value. A single number would mean a count.
fn listed(cpus: &[usize]) -> String {
    cpus.iter().map(|cpu| format!("{cpu}-{cpu}")).collect::<Vec<_>>().join(",")
}

/// Sets the kernel's RPS on all queues of some interfaces.
fn rps(namespace: &Namespace, interfaces: &[&str], cpus: &[usize], flows: u32) -> Result<()> {
    for name in interfaces {
        set_rps_cpus(namespace, name, cpus)?;
        on_rx_queues(namespace, name, "rps_flow_cnt", &flows.to_string())?;
    }
    Ok(())
}

/// Sets the CPUs of the kernel's RPS on all RX queues of an interface.
pub(crate) fn set_rps_cpus(namespace: &Namespace, name: &str, cpus: &[usize]) -> Result<()> {
    let width = cpus.iter().max().map_or(1, |cpu| cpu + 1);
    let mask = rxsteer_host::mask::hex(cpus.iter().copied(), width);
    on_rx_queues(namespace, name, "rps_cpus", &mask)
}

fn on_rx_queues(namespace: &Namespace, name: &str, file: &str, text: &str) -> Result<()> {
    let queues = namespace.run(&format!("ls /sys/class/net/{name}/queues"))?;
    for queue in queues.split_whitespace().filter(|queue| queue.starts_with("rx-")) {
        namespace.write_sys(&format!("/sys/class/net/{name}/queues/{queue}/{file}"), text)?;
    }
    Ok(())
}

impl Applied {
    /// The instance of rxsteer, if the method is one of its policies.
    pub fn steering(&self) -> Option<&Steering> {
        self.steering.as_ref()
    }

    /// Ends the method; returns the report of rxsteer, if the method is one of its policies.
    ///
    /// # Errors
    ///
    /// If rxsteer did not end well, or its report can't be read.
    pub fn end(self) -> Result<Option<Value>> {
        let Some(steering) = self.steering else { return Ok(None) };
        Ok(Some(steering.stop()?.0))
    }
}
