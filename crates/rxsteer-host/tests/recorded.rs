//! Facts about recorded hosts.

mod recorded_host;

use recorded_host::recorded;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_host::testing::{MachineSpec, NicSpec};
use rxsteer_host::{CpuMask, Globals, InterfaceKnobs, Load, Root, Topology, Tree};

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn near(topology: &Topology, cpus: &str) -> String {
    topology.near(&set(cpus)).unwrap().to_string()
}

#[test]
fn small_host_with_one_queue() {
    let host = recorded(&MachineSpec::cpus(2).nic(NicSpec::named("eth0").rps("1")));
    let topology = Topology::read(&host.root);
    assert_eq!((topology.cpus.len(), topology.ids(), topology.offline()), (2, 2, None));
    let eth0 = InterfaceKnobs::read(&host.root, "eth0").unwrap();
    assert_eq!(eth0.driver.as_deref(), Some("e1000e"));
    assert_eq!((eth0.rx.len(), eth0.tx.len(), eth0.up, eth0.threaded), (1, 1, true, Some(false)));
    assert_eq!(eth0.rx[0].rps_cpus.as_ref().unwrap().to_string(), "cpu 1");
    assert_eq!(eth0.tx[0].xps_cpus, None, "there is no XPS with one queue");
    assert_eq!(eth0.interrupt_cpus(), Some(set("0")));
    assert_eq!(eth0.numa_node, None, "-1 is none");
    assert_eq!(Globals::read(&host.root).rps_sock_flow_entries, Some(0));
    assert_eq!(Load::read_in(&host.root).unwrap().cpus.len(), 2);
    let error = InterfaceKnobs::read(&host.root, "eth1").unwrap_err().to_string();
    assert!(error.contains("'eth1'"), "{error}");
    assert!(InterfaceKnobs::read(&host.root, "../net/eth0").is_err(), "a name is no path");
}

#[test]
fn many_queues_with_an_interrupt_each() {
    let nic = NicSpec::named("eth0").queues(64, 64).interrupts(0..64).driver("mlx5_core");
    let host = recorded(&MachineSpec::cpus(72).smt().nic(nic));
    let eth0 = InterfaceKnobs::read(&host.root, "eth0").unwrap();
    assert_eq!((eth0.rx.len(), eth0.interrupts.len()), (64, 64));
    assert_eq!(eth0.rx[63].queue, 63);
    assert_eq!(eth0.interrupt_cpus(), Some(set("0-63")));
    assert_eq!(eth0.interrupt_cpus_of(10), Some(set("10")));
    let topology = Topology::read(&host.root);
    let siblings = topology.place(CpuId::new(3).unwrap()).unwrap().siblings.clone();
    assert_eq!(siblings, Some(set("3,39")));
    assert_eq!(topology.one_per_core(&set("0-71")), set("0-35"));
    assert_eq!(topology.one_per_core(&set("39-40")), set("39-40"));
}

#[test]
fn sparse_ids_and_caches_of_their_own() {
    let ids = (0..256).map(|place| place * 16);
    let machine = MachineSpec { cores_per_cache: 8, ..MachineSpec::ids(ids) };
    let host = recorded(&machine.nic(NicSpec::named("eth0").queues(16, 16).interrupts([4080])));
    let topology = Topology::read(&host.root);
    assert_eq!((topology.cpus.len(), topology.ids()), (256, 4081));
    assert_eq!(near(&topology, "16"), "0,16,32,48,64,80,96,112");
    let eth0 = InterfaceKnobs::read(&host.root, "eth0").unwrap();
    assert_eq!(eth0.interrupt_cpus_of(7), Some(set("4080")));
    assert!(eth0.tx[15].xps_cpus.as_ref().unwrap().is_empty());
    let file = "/proc/sys/net/core/flow_limit_cpu_bitmap";
    let whole = host.root.read(file).unwrap();
    assert_eq!(Globals::read(&host.root).flow_limit_cpu_bitmap, Some(CpuMask::default()));
    host.root.write(file, &whole[..127]).unwrap();
    assert_eq!(Globals::read(&host.root).flow_limit_cpu_bitmap, None, "it was cut off");
}

#[test]
fn two_nodes_with_cpus_that_are_not_to_be_used() {
    let machine = MachineSpec {
        offline: "7",
        isolated: "5-6",
        nohz_full: "6",
        ..MachineSpec::cpus(8).nodes(2)
    };
    let host = recorded(&machine.nic(NicSpec::named("eth0").on_node(1).interrupts([4])));
    let topology = Topology::read(&host.root);
    assert_eq!(topology.offline(), Some(set("7")));
    let place = topology.place(CpuId::new(6).unwrap()).unwrap();
    assert!(place.isolated && place.nohz_full && place.online && place.node == Some(1));
    assert_eq!(near(&topology, "0"), "0-3");
    assert_eq!(InterfaceKnobs::read(&host.root, "eth0").unwrap().numa_node, Some(1));
}

#[test]
fn virtual_interfaces_have_queues_alone() {
    let wg = NicSpec::made_by("wg0", "wireguard", 65534);
    let host = recorded(&MachineSpec::cpus(16).nic(wg));
    let wg = InterfaceKnobs::read(&host.root, "wg0").unwrap();
    assert_eq!((wg.kind.as_deref(), wg.driver.as_deref()), (Some("wireguard"), None));
    assert!(wg.interrupts.is_empty() && wg.interrupt_cpus_of(0).is_none() && wg.rx.len() == 1);
}

#[test]
fn host_that_says_nothing_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::at(folder.path());
    assert_eq!(Globals::read(&root), Globals::default());
    assert_eq!(Topology::read(&root).cpus, []);
    assert_eq!(Load::read_in(&root), None);
    assert_eq!(InterfaceKnobs::read_all(&root).unwrap(), []);
}

#[test]
fn this_host_can_be_read() {
    let root = Root::host();
    let topology = Topology::read(&root);
    assert!(topology.cpus.iter().any(|place| place.online), "{topology:?}");
    // Without a sysfs of this namespace this returns an error, which is fine here; it must not panic.
    let _ = InterfaceKnobs::read_all(&root);
}
