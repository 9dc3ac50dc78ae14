//! Interfaces of this machine, lent to the namespaces of a testbed and given back as they were.
//!
//! ```text
//!   this namespace ── lend() ─► a namespace of a testbed ── give_back(), at the end or at the next start ─► this namespace
//!                       └ a record in /run, written first, has what is restored
//! ```
//!
//! What is restored: name, whether it is up, addresses, routes, GRO, the kernel's own steering on its queues, and threaded NAPI. An
//! interface that is in use is refused, unless that is asked for.

use crate::error::{LabError, Result, Tried};
use crate::namespace::Namespace;
use crate::process::typed;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The folder of records: a file per interface.
const RECORDS: &str = "/run/rxsteer-lab.interfaces";
/// Features that methods of steering switch, as ethtool names them.
const FEATURES: [&str; 2] = ["generic-receive-offload", "rx-gro-list"];
/// How long packets are counted to see whether an interface has traffic.
const LOOK: Duration = Duration::from_secs(1);
/// So many packets in that time are traffic: an idle interface has some of neighbour discovery.
const TRAFFIC: u64 = 10;

/// Interfaces that stand for the first veth pair of each testbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cards {
    /// The one that receives, and is steered.
    pub steered: String,
    /// The one that sends, joined to the other outside of this machine.
    pub peer: String,
}

static CHOSEN: OnceLock<Cards> = OnceLock::new();

/// Lets all testbeds have these interfaces instead of their first veth pair. The first call counts.
pub fn use_cards(cards: Cards) {
    CHOSEN.get_or_init(|| cards);
}

/// The interfaces of [`use_cards`].
pub fn chosen_cards() -> Option<&'static Cards> {
    CHOSEN.get()
}

/// Why an interface can't be lent: it does not exist, or it is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InUse {
    /// There is no such interface here.
    Absent,
    /// It is used for these reasons.
    By(Vec<String>),
}

/// Looks whether an interface is in use; `None`: it is not.
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
        std::thread::sleep(LOOK);
        let more = packets(name).unwrap_or(before).saturating_sub(before);
        if more >= TRAFFIC {
            reasons.push(format!("{more} packets passed it in {} s", LOOK.as_secs()));
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

/// Configured addresses: not those that the kernel makes, and not those of routers' advertisements.
fn addresses(name: &str) -> Result<Vec<String>> {
    let text = typed(&format!("ip -o addr show dev {name}"))?;
    let address = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_set = !words.contains(&"dynamic") && !words.contains(&"link");
        (is_set && words.len() > 3).then(|| words[3].to_owned())
    };
    Ok(text.lines().filter_map(address).collect())
}

/// Configured routes, with the option of `ip` for their family.
fn routes(name: &str) -> Result<Vec<String>> {
    let mut routes = Vec::new();
    for family in ["-4", "-6"] {
        let text = typed(&format!("ip {family} route show table all dev {name}"))?;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_made = words
                .windows(2)
                .any(|pair| matches!(pair, ["proto", "kernel" | "ra"] | ["table", "local"]))
                || matches!(
                    words.first(),
                    Some(&"local" | &"broadcast" | &"multicast" | &"anycast")
                );
            if is_made || words.is_empty() {
                continue;
            }
            let said = words.into_iter().filter(|word| !["linkdown", "dead"].contains(word));
            routes.push(format!("{family} {}", said.collect::<Vec<_>>().join(" ")));
        }
    }
    Ok(routes)
}

/// An interface in a namespace of a testbed, and what it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// The process that has it.
    process: u32,
    /// The namespace in which it is.
    namespace: String,
    /// Its name there.
    pub(crate) name: String,
    /// Its name here.
    home: String,
    is_up: bool,
    addresses: Vec<String>,
    routes: Vec<String>,
    /// Features that were on or off and can be switched.
    features: Vec<(String, bool)>,
    /// Files of its folder in /sys, and what they had.
    files: Vec<(String, String)>,
}

impl Lent {
    /// Moves an interface into a namespace, down and without addresses.
    pub(crate) fn lend(home: &str, to: &Namespace, name: &str) -> Result<Lent> {
        let shown = typed(&format!("ip -o link show dev {home}"))?;
        let is_up = shown
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
            .is_some_and(|(flags, _)| flags.split(',').any(|flag| flag == "UP"));
        let lent = Lent {
            process: std::process::id(),
            namespace: to.name().to_owned(),
            name: name.to_owned(),
            home: home.to_owned(),
            is_up,
            addresses: addresses(home)?,
            routes: routes(home)?,
            features: features(&typed(&format!("ethtool -k {home}"))?),
            files: files(&Path::new("/sys/class/net").join(home)),
        };
        fs::create_dir_all(RECORDS).tried(|| format!("make the folder {RECORDS}"))?;
        let record = serde_json::to_string(&lent).map_err(std::io::Error::from);
        let record = record.tried(|| "write a record".to_owned())?;
        let path = lent.record();
        fs::write(&path, record).tried(|| format!("write {}", path.display()))?;
        if let Err(why) = typed(&format!("ip link set {home} netns {} name {name}", to.name())) {
            lent.give_back();
            return Err(why);
        }
        // Methods are set up on an interface without any.
        for (file, _) in &lent.files {
            lent.write(file, "0");
        }
        Ok(lent)
    }

    /// Writes a file of the interface's folder. Not every driver takes every value, and its state before was one that it took.
    fn write(&self, file: &str, text: &str) {
        let script = format!("printf %s \"$1\" >/sys/class/net/{}/{file}", self.name);
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "sh", "-c", &script, "sh", text]);
        let _ = crate::process::output(&mut command);
    }

    fn record(&self) -> PathBuf {
        Path::new(RECORDS).join(&self.home)
    }

    /// Moves it back, and restores what it was. What the system refuses is left out: the interface may be gone.
    pub(crate) fn give_back(&self) {
        let Lent { namespace, name, home, .. } = self;
        let own = std::process::id();
        let inside = |line: &str| typed(&format!("ip -netns {namespace} {line}"));
        if inside(&format!("link show {name}")).is_ok() {
            for (file, text) in &self.files {
                self.write(file, text);
            }
            for line in ["link set {} down", "addr flush dev {}"] {
                let _ = inside(&line.replace("{}", name));
            }
            let _ = inside(&format!("link set {name} netns {own} name {home}"));
        }
        for (feature, is_on) in &self.features {
            let state = if *is_on { "on" } else { "off" };
            let _ = typed(&format!("ethtool -K {home} {feature} {state}"));
        }
        for address in &self.addresses {
            let _ = typed(&format!("ip addr replace {address} dev {home}"));
        }
        if self.is_up {
            let _ = typed(&format!("ip link set {home} up"));
        }
        for route in &self.routes {
            let (family, rest) = route.split_once(' ').unwrap_or(("-4", route));
            let _ = typed(&format!("ip {family} route replace {rest} dev {home}"));
        }
        let _ = fs::remove_file(self.record());
    }
}

/// Gives back the interfaces of processes that no longer exist.
pub(crate) fn restore() {
    let Ok(records) = fs::read_dir(RECORDS) else { return };
    for record in records.flatten() {
        let text = fs::read_to_string(record.path()).unwrap_or_default();
        let Ok(lent) = serde_json::from_str::<Lent>(&text) else { continue };
        if !Path::new("/proc").join(lent.process.to_string()).exists() {
            lent.give_back();
        }
    }
}

/// The state of [`FEATURES`] in what `ethtool -k` prints, without those that can't be switched.
fn features(text: &str) -> Vec<(String, bool)> {
    let state = |feature: &&str| {
        let line =
            text.lines().find_map(|line| line.trim().strip_prefix(&format!("{feature}: ")))?;
        (!line.contains("[fixed]")).then(|| ((*feature).to_owned(), line.starts_with("on")))
    };
    FEATURES.iter().filter_map(state).collect()
}

/// The kernel's own steering on the queues of an interface, and whether NAPI is threaded.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut paths = vec!["threaded".to_owned()];
    let queues = fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
    for queue in queues.filter_map(|entry| entry.file_name().into_string().ok()) {
        if queue.starts_with("rx-") {
            paths.extend(["rps_cpus", "rps_flow_cnt"].map(|file| format!("queues/{queue}/{file}")));
        }
    }
    paths.sort();
    let read = |path: String| {
        let text = fs::read_to_string(folder.join(&path)).ok()?;
        Some((path, text.trim().to_owned()))
    };
    paths.into_iter().filter_map(read).collect()
}

/// Fails if nothing that is sent from `near` arrives at `far`.
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
            "nothing that {} sends arrives at {}; join the two by a cable, without a switch that filters",
            cards.peer, cards.steered
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_fixed_are_left_out() {
        let text = "Features for eth0:\nrx-checksumming: on\ngeneric-receive-offload: on\n\trx-gro-list: off [fixed]\n";
        assert_eq!(features(text), [("generic-receive-offload".to_owned(), true)]);
        assert_eq!(features("rx-gro-list: off\n"), [("rx-gro-list".to_owned(), false)]);
    }

    #[test]
    fn kernel_steering_of_each_queue_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for queue in ["rx-0", "tx-0"] {
            fs::create_dir_all(folder.path().join("queues").join(queue)).unwrap();
        }
        for (file, text) in
            [("threaded", "0\n"), ("queues/rx-0/rps_cpus", "3\n"), ("queues/tx-0/xps_cpus", "1\n")]
        {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let kept = [("queues/rx-0/rps_cpus", "3"), ("threaded", "0")];
        assert_eq!(
            files(folder.path()),
            kept.map(|(file, text)| (file.to_owned(), text.to_owned()))
        );
    }

    #[test]
    fn interface_that_does_not_exist_is_absent() {
        for name in ["no-such-iface", "", "..", "lo up"] {
            assert_eq!(in_use(name), Some(InUse::Absent), "{name}");
        }
    }
}
