//! The output of `check` for invented hosts and interfaces.

use super::*;
use insta::assert_snapshot;
use rxsteer_host::testing::facts::{good_host, good_nic};
use rxsteer_host::{
    Attached, AttachedMode, Btf, Capabilities, CpuLoad, Holder, KernelVersion, LOOPBACK, Offloads,
    Peer, RealTime, SteeredQueue, Ticks, Trial, XdpFeatures, cpus::Cpus,
};

/// A host that lacks most things.
fn poor_host() -> Host {
    Host {
        release: "5.15.0".to_owned(),
        version: Some(KernelVersion::new(5, 15)),
        realtime: true,
        hz: None,
        btf: Btf::Readable { tracepoints: vec!["sched_switch"] },
        capabilities: Some(Capabilities { bpf: true, ..Capabilities::default() }),
        cpus: Cpus::default(),
        programs: Trial::Fails {
            what: "the kernel refused steer_cpumap: R1 unbounded memory access".to_owned(),
            log: "0: R1=ctx() R10=fp0\nprocessed 1 insns\n".to_owned(),
        },
        generic: Trial::not_tried("the programs could not be loaded"),
        real_time: RealTime::default(),
    }
}

/// A NIC with one queue.
fn nic(name: &str) -> Interface {
    let mut nic = good_nic();
    name.clone_into(&mut nic.link.name);
    nic
}

fn of(name: &str, change: impl FnOnce(&mut Interface)) -> Interface {
    let mut interface = nic(name);
    change(&mut interface);
    interface
}

fn judged(
    host: Host,
    facts: Vec<Interface>,
    asked_for: bool,
    sample: Option<&(Load, Duration)>,
) -> Checked {
    Checked::judged("example".to_owned(), host, facts, asked_for, sample)
}

fn text(host: Host, interfaces: Vec<Interface>, asked_for: bool) -> String {
    show::text(&judged(host, interfaces, asked_for, None), true)
}

#[test]
fn snapshots_of_hosts() {
    assert_snapshot!("host", text(good_host(), vec![nic("eth0"), nic("eth1")], false));
    assert_snapshot!("host-without-a-nic", text(good_host(), Vec::new(), false));
    assert_snapshot!("poor-host", text(poor_host(), vec![nic("eth0")], false));
    let not_tried = Host {
        capabilities: None,
        programs: Trial::not_tried("this process lacks CAP_BPF"),
        real_time: RealTime { may_schedule: Some(false), ..good_host().real_time },
        ..good_host()
    };
    assert_snapshot!("host-without-privileges", text(not_tried, vec![nic("eth0")], true));
}

#[test]
fn snapshots_of_interfaces() {
    let veth = |name: &str, peer| {
        of(name, |veth| {
            (veth.link.driver, veth.link.kind) = (None, Some("veth".to_owned()));
            veth.peer = Some(peer);
        })
    };
    let offloads = Offloads { tx_checksum: true, tx_vlan: true, ..Offloads::default() };
    let holder = Holder { pid: 99, name: "cilium-agent".to_owned() };
    let mut poor = of("eth3", |nic| {
        nic.link.up = false;
        nic.link.mtu = Some(9000);
        nic.xdp = Some(XdpFeatures::default());
        nic.offloads = Some(Offloads { lro: true, rx_vlan: true, ..Offloads::default() });
        nic.rx_queues = None;
        nic.node_cpus = None;
    });
    poor.steered_queues =
        Some(vec![SteeredQueue { queue: 0, rps_cpus: "3".to_owned(), rps_flow_cnt: 0 }]);
    let interfaces = vec![
        nic("eth0"),
        of("eth1", |nic| nic.rx_queues = Some(8)),
        of("eth2", |nic| {
            let attached =
                Attached { mode: AttachedMode::Native, id: Some(12), holder: Some(holder) };
            nic.attached = Some(attached);
        }),
        poor,
        veth("veth0", Peer::Here { name: "veth1".to_owned(), offloads: Some(offloads) }),
        veth("veth2", Peer::Elsewhere),
        of("lo", |lo| lo.link.hardware_type = LOOPBACK),
        of("wg0", |tunnel| {
            tunnel.link.hardware_type = 0xfffe;
            tunnel.link.kind = Some("wireguard".to_owned());
        }),
        of("br0", |bridge| {
            bridge.link.kind = Some("bridge".to_owned());
            bridge.ports = vec!["eth0".to_owned(), "eth1".to_owned()];
        }),
        of("eth0.5", |vlan| {
            vlan.link.kind = Some("vlan".to_owned());
            vlan.lower = Some("eth0".to_owned());
        }),
    ];
    assert_snapshot!("interfaces", text(good_host(), interfaces.clone(), true));
    assert_snapshot!("interfaces-in-lines", text(good_host(), interfaces, false));
}

/// Ten seconds in which the CPUs spent these percentages in softirqs and idle, and eth0 received this many frames.
fn sampled(cpus: &[(u64, u64)], dropped: u32, frames: u64) -> Load {
    let cpu = |(cpu, (softirq, idle)): (u32, &(u64, u64))| CpuLoad {
        cpu,
        processed: 1,
        dropped: if cpu == 0 { dropped } else { 0 },
        ticks: Ticks { softirq: *softirq, idle: *idle, all: 100 },
        ..CpuLoad::default()
    };
    let received = [("eth0".to_owned(), frames)].into();
    Load { cpus: (0..).zip(cpus).map(cpu).collect(), received }
}

#[test]
fn snapshots_of_samples() {
    let mut all = String::new();
    for load in [
        sampled(&[(92, 5), (1, 97), (2, 95), (0, 99)], 7, 5_000_000),
        sampled(&[(20, 70), (1, 97), (2, 95), (0, 99)], 0, 5_000_000),
        sampled(&[(90, 5), (80, 10), (85, 10), (88, 9)], 9, 5_000_000),
        sampled(&[(90, 5), (2, 10), (2, 10), (2, 10)], 9, 5_000_000),
        sampled(&[(90, 5), (1, 97), (2, 95), (0, 99)], 0, 500),
        Load::default(),
    ] {
        let sample = (load, Duration::from_secs(10));
        let checked = judged(good_host(), vec![nic("eth0")], true, Some(&sample));
        let text = show::text(&checked, false);
        // The rest is the same as without a sample.
        let lines = text.lines().skip_while(|line| !line.contains(" load "));
        let load: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        let verdict: Vec<&str> =
            text.lines().skip_while(|line| !line.contains("can run:")).collect();
        all += &format!("{}\n{}\n\n", load.join("\n"), verdict.join("\n"));
    }
    assert_snapshot!("samples", all);
}

#[test]
fn snapshots_of_json() {
    let checked = judged(good_host(), vec![nic("eth0")], true, None);
    let json = format!("{:#}", show::json(&checked));
    assert_snapshot!("json", json.replace(env!("CARGO_PKG_VERSION"), "[version]"));
}

/// Hosts that were measured under load, one line each, as `rxsteer check --duration 10s --json` prints them.
fn fleet() -> String {
    let busy = sampled(&[(92, 5), (1, 97), (2, 95), (0, 99)], 7, 5_000_000);
    let idle = sampled(&[(20, 70), (1, 97), (2, 95), (0, 99)], 0, 5_000_000);
    let shared = sampled(&[(90, 5), (80, 10), (85, 10), (88, 9)], 9, 5_000_000);
    let lro = of("eth0", |nic| {
        nic.offloads = Some(Offloads { gro: true, lro: true, ..Offloads::default() });
    });
    let hosts = [
        ("paris", good_host(), nic("eth0"), &busy),
        ("oslo", good_host(), nic("eth0"), &idle),
        ("rome", poor_host(), nic("eth0"), &busy),
        ("bern", good_host(), lro, &busy),
        ("wien", good_host(), nic("eth0"), &shared),
    ];
    let line = |(name, host, nic, load): (&str, Host, Interface, &Load)| {
        let sample = (load.clone(), Duration::from_secs(10));
        let checked = Checked::judged(name.to_owned(), host, vec![nic], false, Some(&sample));
        format!("{}\n", show::json(&checked))
    };
    hosts.into_iter().map(line).collect()
}

/// docs/fleet.md filters the lines of many hosts for those that steering would help, and how.
#[test]
fn query_of_the_documentation_finds_the_hosts_that_would_gain() {
    let lines = fleet();
    assert_eq!(lines.lines().count(), 5, "a line for each host");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let (_, query) = docs.split_once("$ jq -r '").expect("the query");
    let (query, _) = query.split_once("' fleet.jsonl").expect("its end");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.jsonl");
    std::fs::write(&file, lines).unwrap();
    let mut jq = std::process::Command::new("jq");
    let Ok(output) = jq.args(["-r", &query.replace("\n> ", "\n")]).arg(&file).output() else {
        use std::io::Write;
        let test = "check::query_of_the_documentation_finds_the_hosts_that_would_gain";
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: jq is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = String::from_utf8(output.stdout).unwrap();
    assert_snapshot!("fleet", answer);
    let shown = answer.lines().next().unwrap().split('\t').take(3).collect::<Vec<_>>().join("\t");
    assert!(docs.contains(&shown), "the documentation shows another answer than {shown}");
}
