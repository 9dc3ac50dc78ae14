//! rxsteer first tries generic mode on interfaces of its own, so that no frame of a user is at risk.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rxsteer_lab::{LinkOptions, Namespace, Steering, Testbed};

const TIMEOUT: Duration = Duration::from_secs(60);

fn socket(namespace: &Namespace, address: std::net::Ipv4Addr) -> UdpSocket {
    let made =
        namespace.inside(|| Ok(UdpSocket::bind((address, 0)).expect("the address is there")));
    let socket = made.unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket
}

/// Slowly sends packets from many ports until it is stopped; returns how many were sent, and how many arrived.
fn traffic(testbed: &Testbed, stop: &AtomicBool) -> (u64, u64) {
    let (near, far) = (&testbed.link().near, &testbed.link().far);
    let into = socket(testbed.receiver(), far.ipv4);
    let to = into.local_addr().unwrap();
    let from: Vec<UdpSocket> = (0..16).map(|_| socket(testbed.sender(), near.ipv4)).collect();
    std::thread::scope(|scope| {
        let counted = scope.spawn(|| {
            let (mut came, mut buffer) = (0, [0; 64]);
            // After the last packet, the receiver waits a little longer than a packet may take.
            loop {
                match into.recv_from(&mut buffer) {
                    Ok(_) => came += 1,
                    Err(_) if stop.load(Ordering::Acquire) => return came,
                    Err(_) => {}
                }
            }
        });
        let mut sent = 0;
        for socket in from.iter().cycle() {
            if stop.load(Ordering::Acquire) {
                break;
            }
            socket.send_to(b"numbered by none", to).unwrap();
            sent += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        (sent, counted.join().unwrap())
    })
}

/// `rxsteer run` if the driver refuses native mode: it steers in generic mode and loses no frame, or it refuses before
/// it attaches anything, and loses no frame either.
fn loses_nothing(arguments: &[&str]) {
    let testbed = Testbed::hosts(LinkOptions { queues: 2, ..LinkOptions::default() }).unwrap();
    let receiver = testbed.receiver();
    // The receiver has fewer RX queues than its peer has TX queues.
    receiver.run("ethtool -L in0 rx 1 tx 1").unwrap();
    let stop = AtomicBool::new(false);
    let (sent, came) = std::thread::scope(|scope| {
        let counted = scope.spawn(|| traffic(&testbed, &stop));
        let stopping = super::Stop(&stop);
        let mut steering = Steering::begin(receiver, arguments).unwrap();
        let started = Instant::now();
        let ended = loop {
            let ended = steering.ended().unwrap();
            let steers = steering.stderr().lines().any(|line| line.starts_with("steering"));
            if ended.is_some() || steers || started.elapsed() > TIMEOUT {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        // Some more packets in the final state.
        std::thread::sleep(Duration::from_secs(1));
        drop(stopping);
        let counts = counted.join().unwrap();
        let stderr = steering.stderr();
        match ended {
            Some(status) => {
                assert_eq!(status.code(), Some(2), "{stderr}");
                assert!(stderr.contains("loses frames in generic mode"), "{stderr}");
                assert!(stderr.contains("nothing is attached"), "{stderr}");
                assert!(stderr.contains("--fallback"), "what else helps is not said: {stderr}");
            }
            None => {
                let (report, _) = steering.stop().unwrap();
                let totals = rxsteer_lab::Totals::of(&report).unwrap();
                assert_eq!(totals.unaccounted(), 0, "{totals:?}");
            }
        }
        counts
    });
    assert_eq!(super::program_on(receiver, "in0"), None);
    assert!(sent > 100, "{sent} packets are no traffic");
    assert_eq!(came, sent, "{arguments:?}: packets were lost");
}

#[test]
fn generic_mode_that_loses_frames_is_refused_before_it_is_attached() {
    let test = "generic::generic_mode_that_loses_frames_is_refused_before_it_is_attached";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    loses_nothing(&["in0", "--policy", "rps", "--cpus", "0-1"]);
    loses_nothing(&["in0", "--policy", "rps", "--cpus", "0-1", "--mode", "generic"]);
}
