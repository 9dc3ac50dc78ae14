//! Interfaces of this machine that a testbed borrows for its namespaces, and restores afterwards.
//!
//! ```text
//!   this namespace ── lend() ─► a namespace of a testbed ── give_back(), at the end or at the next start ─► this namespace
//!                       └ a record in /run, written first, has what is restored
//! ```
//!
//! A record of another network namespace is kept: its interface does not belong to this one.
//!
//! Restored are: the name, whether it is up, addresses, routes, GRO, the kernel's own steering on its queues, and
//! threaded NAPI.

use crate::error::{Result, Tried};
use crate::process::typed;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder of records: one file per interface.
const RECORDS: &str = "/run/rxsteer-lab.interfaces";
/// Features that methods of steering switch, as ethtool names them.
const FEATURES: [&str; 2] = ["generic-receive-offload", "rx-gro-list"];

/// Configured addresses, without those that the kernel or routers' advertisements create.
pub(crate) fn addresses(name: &str) -> Result<Vec<String>> {
    let text = typed(&format!("ip -o addr show dev {name}"))?;
    let address = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_set = !words.contains(&"dynamic") && !words.contains(&"link");
        (is_set && words.len() > 3).then(|| words[3].to_owned())
    };
    Ok(text.lines().filter_map(address).collect())
}

/// Configured routes, with the option of `ip` for their family.
pub(crate) fn routes(name: &str) -> Result<Vec<String>> {
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
            let kept = words.into_iter().filter(|word| !["linkdown", "dead"].contains(word));
            routes.push(format!("{family} {}", kept.collect::<Vec<_>>().join(" ")));
        }
    }
    Ok(routes)
}

/// An interface in a namespace of a testbed, and its former state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// The process that borrowed it.
    process: u32,
    /// The namespace that it is in.
    pub(crate) namespace: String,
    /// Its name there.
    pub(crate) name: String,
    /// Its name here.
    home: String,
    /// The inode of the network namespace that is "here".
    home_namespace: u64,
    is_up: bool,
    addresses: Vec<String>,
    routes: Vec<String>,
    /// Features that can be switched, and whether they were on.
    features: Vec<(String, bool)>,
    /// Files of its folder in /sys, and their former contents.
    files: Vec<(String, String)>,
}

impl Lent {
    /// Moves an interface into the namespace of that name; it is down and has no addresses there.
    pub(crate) fn lend(home: &str, namespace: &str, name: &str) -> Result<Lent> {
        let shown = typed(&format!("ip -o link show dev {home}"))?;
        let is_up = shown
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
            .is_some_and(|(flags, _)| flags.split(',').any(|flag| flag == "UP"));
        let lent = Lent {
            process: std::process::id(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            home: home.to_owned(),
            home_namespace: here()?,
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
        if let Err(why) = typed(&format!("ip link set {home} netns {namespace} name {name}")) {
            lent.give_back();
            return Err(why);
        }
        // Methods start from an interface without any steering.
        for (file, _) in &lent.files {
            lent.write(file, "0");
        }
        Ok(lent)
    }

    /// Writes a file of the interface's folder. An error is ignored: not every driver accepts every value, and it had
    /// accepted the former state.
    fn write(&self, file: &str, text: &str) {
        let script = format!("printf %s \"$1\" >/sys/class/net/{}/{file}", self.name);
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "sh", "-c", &script, "sh", text]);
        let _ = crate::process::output(&mut command);
    }

    fn record(&self) -> PathBuf {
        Path::new(RECORDS).join(format!("{}.{}", self.home_namespace, self.home))
    }

    /// A message that it cannot be restored here, and what to do.
    pub(crate) fn left(&self) -> String {
        let Lent { home, home_namespace, namespace, .. } = self;
        format!(
            "a killed lab left the interface {home} in the namespace {namespace}. It can't be given back here, \
             because it belongs to another network namespace, number {home_namespace}. Run sudo rxsteer lab list \
             there; lsns -t net shows the namespaces. If that namespace no longer exists, remove {}: the next lab \
             then deletes {namespace} with the interface",
            self.record().display()
        )
    }

    /// Moves it back, and restores its former state. Errors are ignored: the interface may be gone.
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

/// The inode number of this process's network namespace.
fn here() -> Result<u64> {
    const OWN: &str = "/proc/self/ns/net";
    fs::metadata(OWN).map(|metadata| metadata.ino()).tried(|| format!("stat {OWN}"))
}

/// Restores the interfaces of processes that no longer exist. Returns those of other network namespaces.
pub(crate) fn restore() -> Vec<Lent> {
    let Ok(records) = fs::read_dir(RECORDS) else { return vec![] };
    let lent = records.flatten().filter_map(|record| {
        let text = fs::read_to_string(record.path()).ok()?;
        serde_json::from_str::<Lent>(&text).ok()
    });
    let is_left = |lent: &Lent| !Path::new("/proc").join(lent.process.to_string()).exists();
    let here = here().ok();
    let (ours, others): (Vec<Lent>, Vec<Lent>) =
        lent.filter(is_left).partition(|lent| here == Some(lent.home_namespace));
    ours.iter().for_each(Lent::give_back);
    others
}

/// The state of [`FEATURES`] in the output of `ethtool -k`, without those that cannot be switched.
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
}
