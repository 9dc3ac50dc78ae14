//! Interfaces of this machine that replace the first veth pair of each testbed: which ones, whether they are in use,
//! and whether they are joined. An interface in use is refused, unless the user insists. `lent.rs` moves and restores
//! them.

use crate::error::{LabError, Result, Tried};
use crate::lent::{addresses, routes};
use crate::namespace::Namespace;
use crate::process::typed;
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// How long to count packets to detect traffic on an interface.
const SAMPLE_TIME: Duration = Duration::from_secs(1);
/// This many packets in that time are traffic: an idle interface has some for neighbour discovery.
const TRAFFIC: u64 = 10;

/// Interfaces that replace the first veth pair of each testbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cards {
    /// The receiving interface, which is steered.
    pub steered: String,
    /// The sending interface, joined to the other one outside of this machine.
    pub peer: String,
}

static CHOSEN: OnceLock<Cards> = OnceLock::new();

/// Makes all testbeds use these interfaces instead of their first veth pair. Only the first call has an effect.
pub fn use_cards(cards: Cards) {
    CHOSEN.get_or_init(|| cards);
}

/// The interfaces of [`use_cards`].
pub fn chosen_cards() -> Option<&'static Cards> {
    CHOSEN.get()
}

/// Why an interface cannot be borrowed: it does not exist, or it is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InUse {
    /// There is no such interface here.
    Absent,
    /// It is used for these reasons.
    By(Vec<String>),
}

/// Whether an interface is in use; `None`: it is not.
pub fn in_use(name: &str) -> Option<InUse> {
    // A name with blanks would be several words of a command.
    let mut here = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    if !here.any(|entry| entry.file_name().to_str() == Some(name)) {
        return Some(InUse::Absent);
    }
    let shown = typed(&format!("ip -o -d link show dev {name}")).unwrap_or_default();
    let mut reasons = Vec::new();
    let addresses = addresses(name).unwrap_or_default();
    if !addresses.is_empty() {
        reasons.push(format!("it has the address {}", addresses.join(", ")));
    }
    let routes = routes(name).unwrap_or_default();
    if let Some(route) = routes.first() {
        reasons.push(format!(
            "it has a route ({})",
            route.trim_start_matches("-4 ").trim_start_matches("-6 ")
        ));
    }
    if let Some((_, master)) = shown.split_once(" master ") {
        let master = master.split(' ').next().unwrap_or_default();
        reasons.push(format!("it is a port of {master}"));
    }
    if shown.contains(" prog/xdp ") || shown.contains(" xdp ") {
        reasons.push("it has an XDP program".to_owned());
    }
    if let Some(before) = packets(name) {
        std::thread::sleep(SAMPLE_TIME);
        let more = packets(name).unwrap_or(before).saturating_sub(before);
        if more >= TRAFFIC {
            reasons.push(format!("{more} packets passed it in {} s", SAMPLE_TIME.as_secs()));
        }
    }
    (!reasons.is_empty()).then_some(InUse::By(reasons))
}

/// Packets that an interface received and sent.
fn packets(name: &str) -> Option<u64> {
    let of = |file: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/sys/class/net/{name}/statistics/{file}")).ok()?;
        text.trim().parse().ok()
    };
    Some(of("rx_packets")? + of("tx_packets")?)
}

/// Fails if frames sent from `near` do not arrive at `far`.
pub(crate) fn joined(
    near: (&Namespace, std::net::Ipv4Addr),
    far: (&Namespace, std::net::Ipv4Addr),
    cards: &Cards,
) -> Result<()> {
    use std::net::UdpSocket;
    let open = |(namespace, address): (&Namespace, std::net::Ipv4Addr)| {
        namespace.inside(|| {
            UdpSocket::bind((address, 0)).tried(|| format!("open a socket at {address}"))
        })
    };
    let (sending, receiving) = (open(near)?, open(far)?);
    let what = || "prepare a socket".to_owned();
    receiving.set_read_timeout(Some(Duration::from_millis(300))).tried(what)?;
    let to = receiving.local_addr().tried(what)?;
    let mut byte = [0; 1];
    for _ in 0..10 {
        sending.send_to(b"?", to).tried(|| format!("send from {}", cards.peer))?;
        if receiving.recv(&mut byte).is_ok() {
            return Ok(());
        }
    }
    Err(LabError::Load {
        why: format!(
            "frames that {} sends do not arrive at {}; join the two by a cable, without a switch that filters",
            cards.peer, cards.steered
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_that_does_not_exist_is_absent() {
        for name in ["no-such-iface", "", "..", "lo up"] {
            assert_eq!(in_use(name), Some(InUse::Absent), "{name}");
        }
    }
}
