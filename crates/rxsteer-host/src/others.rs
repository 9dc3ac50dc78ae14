//! Other software that sets steering: running services, `.link` files of systemd, and scripts.

use crate::root::Root;
use serde::Serialize;
use std::fs;
use std::io::Read;
use std::path::Path;

/// What such software changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// `smp_affinity` of interrupts. It determines which CPU receives, and therefore which cache is near.
    Interrupts,
    /// `rps_cpus` and other files of queues.
    Queues,
    /// Any of these, by its own rules.
    Anything,
}

/// Something else that sets steering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// What it is: a process, or a file.
    pub what: String,
    /// What it changes.
    pub reach: Reach,
    /// The consequence for the settings that rxsteer makes.
    pub effect: &'static str,
}

const SERVICES: [(&str, Reach, &str); 4] = [
    (
        "irqbalance",
        Reach::Interrupts,
        "it moves interrupts to other CPUs every 10 s, so CPU maps chosen near an interrupt may end up far from it; it does \
         not write rps_cpus. Stop it, or ban the interrupts (irqbalance --banirq=NUMBER)",
    ),
    (
        "tuned",
        Reach::Anything,
        "a profile (network-latency, cpu-partitioning, and own ones) sets net.core values and interrupts again when it is \
         applied: at boot, and by tuned-adm profile. Put the values into the profile, or switch it off (tuned-adm off)",
    ),
    (
        "bpftune",
        Reach::Anything,
        "it changes net.core values while it runs (netdev_max_backlog, flow_limit_cpu_bitmap and others, by its tuners). \
         Stop it, or leave its net_buffer tuner out",
    ),
    (
        "tuned-ppd",
        Reach::Anything,
        "it applies a TuneD profile whenever the power profile changes. Put the values into the profile",
    ),
];

/// Folders with systemd's files that describe interfaces.
const LINK_FOLDERS: [&str; 4] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
];

/// Folders and files with scripts that run at boot or when an interface comes up.
const SCRIPTS: [&str; 12] = [
    "/etc/udev/rules.d",
    "/etc/network/if-up.d",
    "/etc/network/if-pre-up.d",
    "/etc/networkd-dispatcher/routable.d",
    "/etc/NetworkManager/dispatcher.d",
    "/etc/ppp/ip-up.d",
    "/etc/hotplug.d/net",
    "/config/scripts",
    // VyOS and OpenWrt.
    "/config/config.boot",
    "/etc/config/network",
    "/etc/rc.local",
    "/etc/sysctl.d",
];

/// Words by which such a file sets steering.
const WORDS: [&str; 6] = [
    "rps_cpus",
    "rps_flow_cnt",
    "rps_sock_flow_entries",
    "xps_cpus",
    "flow_limit_cpu_bitmap",
    "packet_steering",
];
/// The word that VyOS has on a separate line, below `offload`.
const VYOS: &str = "rps";

/// A longer file is not a script.
const LONGEST: u64 = 1 << 20;

/// Other software that sets steering, below `root`.
pub fn others(root: &Root) -> Vec<Other> {
    let mut found = services(root);
    found.extend(link_files(root));
    found.extend(scripts(root));
    found
}

fn services(root: &Root) -> Vec<Other> {
    let mut pids: Vec<u32> =
        root.names("/proc").iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    let named = pids.into_iter().filter_map(|pid| {
        let name = root.text(&format!("/proc/{pid}/comm"))?;
        let (name, reach, effect) = SERVICES.into_iter().find(|(service, ..)| *service == name)?;
        Some(Other { what: format!("{name} (process {pid})"), reach, effect })
    });
    named.collect()
}

fn link_files(root: &Root) -> Vec<Other> {
    files_with(root, &LINK_FOLDERS, &["ReceivePacketSteeringCPUMask"])
        .map(|what| Other {
            what,
            reach: Reach::Queues,
            effect: "systemd-udevd uses it to write rps_cpus when the interface appears, so at every boot",
        })
        .collect()
}

fn scripts(root: &Root) -> Vec<Other> {
    files_with(root, &SCRIPTS, &WORDS)
        .map(|what| Other {
            what,
            reach: Reach::Queues,
            effect: "it writes these files at boot, or when an interface comes up",
        })
        .collect()
}

/// The files in these folders (or these files) that contain one of the words outside of comments. Files written by
/// rxsteer are excluded: their first line identifies them.
fn files_with<'a>(
    root: &'a Root,
    places: &'a [&'a str],
    words: &'a [&'a str],
) -> impl Iterator<Item = String> + 'a {
    let files = places.iter().flat_map(|place| {
        let in_folder = root.names(place).into_iter().map(move |name| format!("{place}/{name}"));
        in_folder.chain([(*place).to_owned()])
    });
    files.filter(move |path| {
        text_of(&root.path(path)).is_some_and(|text| {
            !text.starts_with(crate::change::MARK)
                && text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with(['#', ';']))
                    .any(|line| line.trim() == VYOS || words.iter().any(|word| line.contains(word)))
        })
    })
}

fn text_of(path: &Path) -> Option<String> {
    // A folder is not a script, nor is a device, whose content never ends.
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let mut bytes = Vec::new();
    fs::File::open(path).ok().filter(|_| is_file)?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
