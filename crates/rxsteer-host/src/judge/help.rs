//! Whether steering can help at all: the one question to ask before all others.

use crate::host::Host;
use crate::interface::Interface;
use serde::Serialize;
use std::fmt;

/// Whether steering this interface's packets is likely to gain something, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", content = "why", rename_all = "snake_case")]
pub enum Help {
    /// There are CPUs that its queues do not reach.
    Likely(String),
    /// It is better left alone.
    Dont(String),
    /// What would have to be known is not.
    Unknown(String),
}

impl Help {
    /// The reason.
    pub fn why(&self) -> &str {
        match self {
            Self::Likely(why) | Self::Dont(why) | Self::Unknown(why) => why,
        }
    }
}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Likely(why) => write!(f, "likely, since {why}"),
            Self::Dont(why) => write!(f, "don't, because {why}"),
            Self::Unknown(why) => write!(f, "that can't be told, since {why}"),
        }
    }
}

/// Whether steering can help: by RX queues against CPUs. Load is not looked at.
pub fn help(interface: &Interface, host: &Host) -> Help {
    let Some(cpus) = host.cpus.usable(std::slice::from_ref(&interface.node_cpus)) else {
        return Help::Unknown("which CPUs are online is not known".to_owned());
    };
    let cpus = cpus.len();
    if cpus == 1 {
        return Help::Dont(
            "there is one CPU to process packets, so there is nothing to choose".to_owned(),
        );
    }
    if super::device::findings(interface).iter().any(|finding| finding.blocks) {
        return Help::Dont("it is not the interface to attach to".to_owned());
    }
    // A veth's queues are of software: packets are received on the CPU that sends them.
    if interface.link.is("veth") {
        return Help::Likely(format!(
            "a veth receives on the CPU that sends; it gains where that is fewer than the {cpus} CPUs and the work \
             behind is more than the copy of every frame that native XDP makes there"
        ));
    }
    match interface.rx_queues {
        None => Help::Unknown("how many RX queues are used is not known".to_owned()),
        Some(queues) if queues as usize >= cpus => Help::Dont(format!(
            "with {queues} RX queues for {cpus} CPUs the NIC spreads flows already (RSS): leave it alone"
        )),
        Some(1) => Help::Likely(format!(
            "there is one RX queue, so one of {cpus} CPUs does all the receiving"
        )),
        Some(queues) => {
            Help::Likely(format!("{queues} RX queues reach at most {queues} of {cpus} CPUs"))
        }
    }
}
