//! Senders that leave checksums to a device, as every new veth does: their connections keep working, and users are
//! warned.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rxsteer_lab::{Link, LinkOptions, Namespace, Steering, Testbed};

use super::{ask, set};

const TIMEOUT: Duration = Duration::from_secs(20);
/// The bytes of a transfer, in each direction.
const BYTES: usize = 300_000;

/// Sends bytes by TCP from the near end of a link to the far end and back; returns how many came back.
fn transfer(link: &Link, from: &Namespace, to: &Namespace, v6: bool) -> std::io::Result<usize> {
    let address: IpAddr = if v6 { link.far.ipv6.into() } else { link.far.ipv4.into() };
    let listener = to.inside(|| Ok(TcpListener::bind(SocketAddr::new(address, 0)))).unwrap()?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut bytes = vec![0; BYTES];
            stream.read_exact(&mut bytes)?;
            stream.write_all(&bytes)
        });
        let connect = || Ok(TcpStream::connect_timeout(&address, Duration::from_secs(5)));
        let back = from.inside(connect).unwrap().and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.set_write_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(&vec![7; BYTES])?;
            let mut bytes = vec![0; BYTES];
            stream.read_exact(&mut bytes)?;
            Ok(bytes.iter().filter(|byte| **byte == 7).count())
        });
        if back.is_err() {
            // Ends the wait for a client.
            let _ = to.inside(|| Ok(TcpStream::connect(address)));
        }
        let echoed = echo.join().unwrap();
        back.and_then(|back| echoed.map(|()| back))
    })
}

/// Whether transfers over link `number` work.
pub(super) fn works(testbed: &Testbed, number: usize) -> Result<(), String> {
    for v6 in [false, true] {
        let link = &testbed.links[number];
        match transfer(link, testbed.sender(), testbed.receiver(), v6) {
            Ok(BYTES) => {}
            other => return Err(format!("link {number}, IPv6 {v6}: {other:?}")),
        }
    }
    Ok(())
}

/// Frames that passed because their checksum was incomplete, and frames that were sent to a CPU.
pub(super) fn counted(socket: &str) -> (u64, u64) {
    let status: serde_json::Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", socket])).unwrap();
    (status["partial_checksums"].as_u64().unwrap(), status["redirected"].as_u64().unwrap())
}

#[test]
fn connections_of_containers_with_checksum_offload_live_under_every_policy() {
    let test =
        "containers::connections_of_containers_with_checksum_offload_live_under_every_policy";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.sender().run("ethtool -K out0 tx on").unwrap();
    let arguments = ["in0", "--policy", "none", "--cpus", "0-1", "--shadow", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    assert_eq!(works(&testbed, 0), Ok(()), "in shadow");
    for settings in [
        "shadow=off",
        "policy=rps",
        "policy=sparse",
        "policy=rfs",
        "policy=rfs+sparse",
        "policy=bound:0=1",
    ] {
        set(&socket, settings);
        assert_eq!(works(&testbed, 0), Ok(()), "{settings}: {}", steering.stderr());
    }
    steering.wait_for_stderr("ethtool -K PEER tx off", TIMEOUT).unwrap();
    let stderr = steering.stderr();
    assert_eq!(stderr.matches("without a complete").count(), 1, "it is said once: {stderr}");
    let (partial, redirected) = counted(&socket);
    assert!(partial > 1000, "{partial} passed");
    // Once the sender computes the checksums, the same interface is steered.
    testbed.sender().run("ethtool -K out0 tx off").unwrap();
    assert_eq!(works(&testbed, 0), Ok(()));
    let (after, steered) = counted(&socket);
    assert!(after < partial + 50 && steered > redirected + 100, "{after} {steered}");
    assert_eq!(steering.totals().unwrap().unaccounted(), 0);
}

#[test]
fn container_that_appears_under_a_pattern_keeps_its_connections() {
    let test = "containers::container_that_appears_under_a_pattern_keeps_its_connections";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.sender().run("ethtool -K out0 tx on").unwrap();
    let arguments = ["in*", "--policy", "rps", "--cpus", "0-1"];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    assert_eq!(works(&testbed, 0), Ok(()), "{}", steering.stderr());
    testbed.another_link(LinkOptions::default()).unwrap();
    testbed.sender().run("ethtool -K out1 tx on").unwrap();
    steering.wait_for_stderr("steering in1", TIMEOUT).unwrap();
    assert_eq!(works(&testbed, 1), Ok(()), "{}", steering.stderr());
    steering.wait_for_stderr("in1: ", TIMEOUT).unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!((totals.dropped(), totals.unaccounted()), (0, 0), "{totals:?}");
}
