//! Derives findings from facts. This module reads nothing but its arguments.

mod attachment;
mod device;
mod help;
mod host;
mod load;
mod offloads;
mod queues;
#[cfg(test)]
mod tests;
mod threads;

pub(crate) use device::LOOPBACK_IS;
pub use device::is_down;
pub(crate) use help::{BUSY, QUIET, in_softirqs};
pub use help::{Help, help, relief, too_few};
pub use load::load;
pub use offloads::PEER_CHECKSUMS;
pub use threads::real_time_refused;

use crate::finding::Finding;
use crate::host::Host;
use crate::interface::Interface;

/// The findings for this host, whatever the interface.
pub fn host(host: &Host) -> Vec<Finding> {
    host::findings(host)
}

/// The default policy of `rxsteer run`: with rfs if the kernel reports where applications run.
pub fn default_policy(host: &Host) -> rxsteer_core::Policy {
    host::default_policy(host)
}

/// Whether `rxsteer run` may steer this interface in generic mode, so that it matters whether that mode works.
pub fn may_be_generic(interface: &Interface) -> bool {
    interface.xdp.is_none_or(|xdp| !xdp.redirects())
}

/// The findings for one interface of this host. If it is the wrong interface to attach to, there is only that finding:
/// the others matter for the right one.
pub fn interface(interface: &Interface, host: &Host) -> Vec<Finding> {
    let mut findings = device::findings(interface);
    if !crate::can_run(&findings) {
        return findings;
    }
    findings.extend(attachment::findings(interface, host));
    findings.extend(offloads::findings(interface, host));
    findings.extend(queues::findings(interface, host));
    findings
}

/// "a, b and c".
fn listed<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
