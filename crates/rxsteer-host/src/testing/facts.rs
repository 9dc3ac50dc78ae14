//! Facts about a host and an interface without any problem; tests change what they are about.

use crate::btf::{Btf, TRACEPOINTS};
use crate::capabilities::Capabilities;
use crate::cpus::Cpus;
use crate::host::Host;
use crate::interface::{Interface, Offloads, XdpFeatures};
use crate::kernel_version::KernelVersion;
use crate::link::{ETHERNET, Link};
use crate::real_time::RealTime;
use crate::trial::Trial;

/// A host without any problem: 8 CPUs, two of them isolated.
#[must_use]
pub fn good_host() -> Host {
    Host {
        release: "6.18.1".to_owned(),
        version: Some(KernelVersion::new(6, 18)),
        realtime: false,
        hz: Some(250),
        btf: Btf::Readable { tracepoints: TRACEPOINTS.map(|tracepoint| tracepoint.name).to_vec() },
        capabilities: Some(Capabilities {
            bpf: true,
            perfmon: true,
            net_admin: true,
            in_user_namespace: Some(false),
        }),
        cpus: Cpus {
            online: "0-7".parse().ok(),
            possible: "0-7".parse().ok(),
            isolated: "6-7".parse().ok(),
            nohz_full: None,
        },
        programs: Trial::Works,
        generic: Trial::Works,
        real_time: RealTime {
            runtime_us: Some(950_000),
            period_us: Some(1_000_000),
            server_permille: None,
            may_schedule: Some(true),
        },
    }
}

/// A NIC with one queue, on a node with CPUs 0 to 3.
#[must_use]
pub fn good_nic() -> Interface {
    Interface {
        link: Link {
            index: 2,
            name: "eth0".to_owned(),
            driver: Some("e1000e".to_owned()),
            up: true,
            hardware_type: ETHERNET,
            mtu: Some(1500),
            ..Link::default()
        },
        xdp: Some(XdpFeatures { native: true, redirect: true, frags: true, rx_hash: false }),
        offloads: Some(Offloads { gro: true, ..Offloads::default() }),
        rx_queues: Some(1),
        steered_queues: Some(Vec::new()),
        numa_node: Some(0),
        node_cpus: "0-3".parse().ok(),
        ..Interface::default()
    }
}
