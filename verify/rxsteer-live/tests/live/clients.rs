//! Real clients through a steered interface finish without errors.

use std::net::IpAddr;

use rxsteer_lab::{End, LinkOptions, OrderCheck, Steering, Testbed, clients, slice};

/// Two hosts; the second is steered with the default policy.
fn steered(gro: bool) -> (Testbed, Steering) {
    let testbed = Testbed::hosts(LinkOptions { gro, ..LinkOptions::default() }).unwrap();
    let steering = Steering::start(testbed.receiver(), &["in0", "--cpus", "0-1"]).unwrap();
    (testbed, steering)
}

fn addresses(end: &End) -> [IpAddr; 2] {
    [end.ipv4.into(), end.ipv6.into()]
}

/// Stops rxsteer, and asserts that every frame is accounted for.
fn accounted(steering: Steering) {
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    assert!(totals.received > 0, "{totals:?}");
}

#[test]
fn iperf3_over_tcp() {
    let Some(_alone) = super::ready("clients::iperf3_over_tcp", &["iperf3", "ss"], 2) else {
        return;
    };
    let time = slice("1", "5");
    for gro in [false, true] {
        let (testbed, steering) = steered(gro);
        let _server = clients::iperf3_server(testbed.receiver(), None).unwrap();
        for address in addresses(&testbed.link().far) {
            let runs = [("16", &[][..]), ("4", &["-R"]), ("1", &[]), ("1", &["-R"])];
            for (streams, more) in runs.into_iter().take(slice(2, 4)) {
                let options = [&["-t", time, "-P", streams], more].concat();
                let report = clients::iperf3(testbed.sender(), address, &options).unwrap();
                assert!(report.received > 1_000_000, "{address} {options:?}: {report:?}");
            }
        }
        accounted(steering);
    }
}

#[test]
fn iperf3_over_udp_in_order() {
    let Some(_alone) = super::ready("clients::iperf3_over_udp_in_order", &["iperf3", "ss"], 2)
    else {
        return;
    };
    let time = slice("1", "5");
    let (testbed, steering) = steered(false);
    let _server = clients::iperf3_server(testbed.receiver(), None).unwrap();
    for address in addresses(&testbed.link().far) {
        for more in [&["-P", "1"][..], &["-P", "4"], &["-R"]] {
            let options = [&["-u", "-b", "100M", "-l", "1200", "-t", time], more].concat();
            let report = clients::iperf3(testbed.sender(), address, &options).unwrap();
            assert!(report.packets > 1000, "{address} {options:?}: {report:?}");
            assert_eq!(report.out_of_order, 0, "{address} {options:?}: {report:?}");
        }
    }
    accounted(steering);
}

#[test]
fn web_server_under_load() {
    let Some(_alone) = super::ready("clients::web_server_under_load", &["nginx", "wrk", "ss"], 2)
    else {
        return;
    };
    let (testbed, steering) = steered(true);
    let _server = clients::nginx(testbed.receiver()).unwrap();
    for address in addresses(&testbed.link().far) {
        let report = clients::wrk(testbed.sender(), address, slice(1, 10), 16).unwrap();
        assert_eq!(report.errors, 0, "{address}: {report:?}");
        assert!(report.requests > 100, "{address}: {report:?}");
    }
    accounted(steering);
}

#[test]
fn every_ping_comes_back() {
    let Some(_alone) = super::ready("clients::every_ping_comes_back", &["ping"], 2) else { return };
    let (testbed, steering) = steered(false);
    for address in addresses(&testbed.link().far) {
        let count = slice(100, 2000);
        assert_eq!(clients::ping(testbed.sender(), address, count).unwrap(), count, "{address}");
    }
    accounted(steering);
}

#[test]
fn rfs_brings_packets_to_a_pinned_server() {
    let Some(_alone) =
        super::ready("clients::rfs_brings_packets_to_a_pinned_server", &["iperf3", "ss"], 2)
    else {
        return;
    };
    for home in [0, 1] {
        let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
        let receiver = testbed.receiver();
        let arguments = ["in0", "--policy", "rfs", "--cpus", "0-1"];
        let steering = Steering::start(receiver, &arguments).unwrap();
        let _server = clients::iperf3_server(receiver, Some(home)).unwrap();
        let check = OrderCheck::new(receiver, &testbed.link().far, 1).unwrap();
        let address = testbed.link().far.ipv4.into();
        let options = ["-t", slice("2", "10"), "-P", "4"];
        clients::iperf3(testbed.sender(), address, &options).unwrap();
        let by_cpu = check.all_by_cpu().unwrap();
        let share = by_cpu[home] as f64 / by_cpu.iter().sum::<u64>() as f64;
        assert!(share >= 0.95, "{share:.3} of the packets on CPU {home}: {by_cpu:?}");
        accounted(steering);
    }
}

/// The second client of the experiment `rr`.
#[test]
fn sockperf_over_tcp() {
    let Some(_alone) = super::ready("clients::sockperf_over_tcp", &["sockperf", "ss"], 2) else {
        return;
    };
    let (testbed, steering) = steered(false);
    let server = (testbed.receiver(), testbed.link().far.ipv4);
    let report = clients::sockperf(testbed.sender(), server, 1, None).unwrap();
    assert!(report.replies > 0 && report.seconds > 0.0, "{report:?}");
    accounted(steering);
}
