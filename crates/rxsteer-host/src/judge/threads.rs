//! Whether the kernel threads of the rings can have priority over ordinary processes, and how much time is left to
//! these.

use crate::finding::Finding;
use crate::host::Host;

/// What a real-time class must leave to ordinary processes, in thousandths of a CPU.
const MIN_PERMILLE: u32 = 50;

/// Why the threads of the rings should not be put into a real-time class here, and what to do; `None` if they can be.
pub fn real_time_refused(host: &Host) -> Option<(String, String)> {
    let left = host.real_time.left_permille(host.version);
    (left < MIN_PERMILLE).then(|| {
        let limits = match host.real_time.server_permille {
            Some(server) => format!("the deadline server grants {:.1} %", f64::from(server) / 10.0),
            None => "kernel.sched_rt_runtime_us sets no limit".to_owned(),
        };
        let what = format!(
            "a real-time thread that never sleeps would leave ordinary processes {:.1} % of its CPU ({limits}; at \
             least 5 % are needed, so that ssh stays usable)",
            f64::from(left) / 10.0
        );
        let fix = match host.real_time.server_permille {
            Some(_) => "echo 50000000 | tee /sys/kernel/debug/sched/fair_server/cpu*/runtime",
            None => "sysctl kernel.sched_rt_runtime_us=950000",
        };
        (what, fix.to_owned())
    })
}

pub(super) fn finding(host: &Host) -> Finding {
    let topic = "threads";
    let why = "while other processes use a CPU, the thread that empties its ring waits, and a full ring loses packets; \
               softirqs never wait for processes";
    if host.real_time.may_schedule == Some(false) {
        return Finding::no(
            topic,
            "this process lacks CAP_SYS_NICE: the threads of the rings stay in the class of ordinary processes",
            why,
            "run it as root, or add cap_sys_nice to the other capabilities (systemd: CapabilityBoundingSet=; container: \
             --cap-add SYS_NICE)",
        );
    }
    if let Some((what, fix)) = real_time_refused(host) {
        let what = format!("{what}: nice:-13 is used instead of fifo:1");
        return Finding::no(topic, what, why, fix);
    }
    let left = f64::from(host.real_time.left_permille(host.version)) / 10.0;
    Finding::fine(
        topic,
        format!(
            "fifo:1, before ordinary processes, which keep {left:.0} % of a CPU whose ring never empties"
        ),
    )
}
