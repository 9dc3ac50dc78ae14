//! Files that apply settings again: at boot, and when the interface or one of its queues appears later.
//!
//! A `systemd.link` file can express a CPU map (`ReceivePacketSteeringCPUMask=`, systemd 256 and later), but no other
//! setting of this module. If the CPU map is the only setting, this writes a `.link` file. systemd applies only one
//! such file to each interface, so ours also contains the settings of the file that it replaces. Otherwise this writes
//! a unit that runs `rxsteer host apply`, and a udev rule that starts it.

use super::MARK;
use super::plan::{Plan, Wanted};
use crate::files;
use crate::knobs::InterfaceKnobs;
use crate::root::Root;
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The first systemd with `ReceivePacketSteeringCPUMask=` (systemd.link(5)).
const LINK_SINCE: u32 = 256;
const CPU_MASK: &str = "ReceivePacketSteeringCPUMask";

/// The folders of our files, and how the files' names begin there.
const PLACES: [(&str, &str); 3] = [
    ("/etc/systemd/network", "10-rxsteer-host-"),
    ("/etc/systemd/system", "rxsteer-host-"),
    ("/etc/udev/rules.d", "81-rxsteer-host-"),
];

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PersistFile {
    /// The path.
    pub path: String,
    /// The content.
    pub text: String,
}

/// The files to write, and the reason for this kind of file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Persisted {
    /// The files.
    pub files: Vec<PersistFile>,
    /// Files of a former `--persist` for this interface, which are removed.
    pub replaced: Vec<String>,
    /// The reason for this kind of file.
    pub why: String,
}

/// Why no file can be written.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// The name is not valid in a udev rule or as the name of a unit.
    #[error(
        "--persist can't be used for '{name}': udev rules and names of units take only letters, digits and _ . : - in names; \
         rename the interface (ip link set … name …)"
    )]
    Name {
        /// The interface's name, escaped for printing.
        name: String,
    },
    /// A system call failed.
    #[error(
        "can't write {path}: {error}; this requires root, and a root file system that can be written to"
    )]
    System {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
}

/// The files for these settings. `program` is the path of rxsteer.
pub fn persist_files(
    root: &Root,
    interface: &InterfaceKnobs,
    plan: &Plan,
    wanted: &Wanted,
    program: &Path,
) -> Result<Persisted, PersistError> {
    let name = &interface.name;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    if !name.chars().all(is_plain) || name.starts_with(['-', '.']) {
        return Err(PersistError::Name { name: name.escape_debug().to_string() });
    }
    let (files, why) = match link(root, interface, plan, wanted) {
        Ok(file) => (vec![file], "systemd.link can express it".to_owned()),
        Err(why) => {
            let why = format!("a unit and a udev rule, because {why}");
            (vec![unit(name, wanted, program), rule(name)], why)
        }
    };
    let is_replaced = |path: &String| {
        let of_this = PLACES.iter().any(|(folder, begin)| {
            ["link", "service", "rules"]
                .iter()
                .any(|end| *path == format!("{folder}/{begin}{name}.{end}"))
        });
        of_this && !files.iter().any(|file| file.path == *path)
    };
    let replaced = persisted(root).into_iter().filter(is_replaced).collect();
    Ok(Persisted { files, replaced, why })
}

/// The `.link` file, or why it is not possible.
fn link(
    root: &Root,
    interface: &InterfaceKnobs,
    plan: &Plan,
    wanted: &Wanted,
) -> Result<PersistFile, String> {
    if wanted.rfs || wanted.xps || wanted.flow_limit {
        return Err("systemd.link has no setting for RFS, XPS or the flow limit".to_owned());
    }
    match version(root) {
        None => return Err("it is unknown which systemd this is".to_owned()),
        Some(version) if version < LINK_SINCE => {
            return Err(format!(
                "systemd {version} has no {CPU_MASK}= ({LINK_SINCE} is the first)"
            ));
        }
        Some(_) => {}
    }
    let name = &interface.name;
    // NET_ADDR_PERM: a permanent address, which identifies the interface before it is renamed.
    let is_permanent =
        root.text(&format!("/sys/class/net/{name}/addr_assign_type")).as_deref() == Some("0");
    if interface.driver.is_none()
        || interface.hardware_type != Some(crate::ETHERNET)
        || !is_permanent
    {
        return Err(format!("{name} has no permanent address to identify it"));
    }
    let now = root.text(&format!("/run/udev/data/n{}", interface.index)).unwrap_or_default();
    let of_udev = |field: &str| files::field(&now, field).map(str::to_owned);
    if of_udev("E:ID_NET_LINK_FILE_DROPINS").is_some() {
        return Err(
            "drop-in files add to its .link file, which a file of ours would replace".to_owned()
        );
    }
    let before = of_udev("E:ID_NET_LINK_FILE")
        .ok_or_else(|| "udev does not report which .link file applies to it".to_owned())?;
    let text = root
        .text(&before)
        .ok_or_else(|| format!("its .link file {before} can't be read, and would be replaced"))?;
    let kept: String = section(&text, "Link")
        .filter(|line| !line.starts_with(CPU_MASK))
        .map(|line| format!("{line}\n"))
        .collect();
    Ok(PersistFile {
        path: format!("{}/{}{name}.link", PLACES[0].0, PLACES[0].1),
        text: format!(
            "{MARK}; rxsteer host restore removes it.\n\
             # systemd applies one .link file to each interface: this one, which includes all of {before}.\n\
             [Match]\nMACAddress={}\nType=ether\n\n[Link]\n{kept}{CPU_MASK}={}\n",
            interface.address, plan.cpus
        ),
    })
}

/// The settings in one section of a systemd file.
fn section<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let mut inside = false;
    text.lines().map(str::trim).filter(move |line| {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = section == name;
            return false;
        }
        inside && !line.is_empty() && !line.starts_with(['#', ';'])
    })
}

/// The version of systemd, which is part of its library's file name.
fn version(root: &Root) -> Option<u32> {
    let folders = ["/usr/lib/systemd", "/lib/systemd"].map(str::to_owned);
    let by_architecture =
        root.names("/usr/lib").into_iter().map(|name| format!("/usr/lib/{name}/systemd"));
    folders.into_iter().chain(by_architecture).find_map(|folder| {
        root.names(&folder).iter().find_map(|name| {
            let rest = name.strip_prefix("libsystemd-shared-")?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
    })
}

fn unit(name: &str, wanted: &Wanted, program: &Path) -> PersistFile {
    let mut options = String::new();
    if let Some(cpus) = &wanted.cpus {
        options += &format!(" --cpus {}", cpus.as_option());
    }
    for (is_wanted, option) in
        [(wanted.rfs, " --rfs"), (wanted.xps, " --xps"), (wanted.flow_limit, " --flow-limit")]
    {
        options += if is_wanted { option } else { "" };
    }
    PersistFile {
        path: format!("{}/{}{name}.service", PLACES[1].0, PLACES[1].1),
        text: format!(
            "{MARK}; rxsteer host restore removes it.\n\
             [Unit]\n\
             Description=Set the kernel's packet steering of {name}\n\
             Documentation=man:rxsteer-host-apply(1)\n\
             # Another unit may be setting another interface, so systemd tries again, up to 20 times a minute.\n\
             StartLimitIntervalSec=60\nStartLimitBurst=20\n\n\
             [Service]\nType=oneshot\n\
             ExecStart={} host apply {name}{options} --yes\n\
             Restart=on-failure\nRestartSec=2\n",
            quoted(program)
        ),
    }
}

/// A path, quoted for a systemd command line.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('%', "%%").replace('$', "$$");
    if text.contains(|c: char| c.is_whitespace() || "\"'\\;".contains(c)) {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        text
    }
}

fn rule(name: &str) -> PersistFile {
    let start = format!("RUN+=\"/bin/systemctl --no-block start {}{name}.service\"", PLACES[1].1);
    PersistFile {
        path: format!("{}/{}{name}.rules", PLACES[2].0, PLACES[2].1),
        text: format!(
            "{MARK}; rxsteer host restore removes it.\n\
             # When the interface appears or gets this name, and when a queue of it appears (ethtool -L).\n\
             ACTION==\"add|move\", SUBSYSTEM==\"net\", ENV{{INTERFACE}}==\"{name}\", {start}\n\
             ACTION==\"add\", SUBSYSTEM==\"queues\", DEVPATH==\"*/net/{name}/queues/rx-*\", {start}\n"
        ),
    }
}

/// The files that `--persist` wrote: they have our names and our mark.
pub fn persisted(root: &Root) -> Vec<String> {
    let in_place = |(folder, begin): (&str, &str)| -> Vec<String> {
        let names = root.names(folder);
        let ours = names.iter().filter(|name| name.starts_with(begin));
        ours.map(|name| format!("{folder}/{name}"))
            .filter(|path| root.text(path).is_some_and(|text| text.starts_with(MARK)))
            .collect()
    };
    PLACES.into_iter().flat_map(in_place).collect()
}

impl Persisted {
    /// Writes the files, each whole or not at all, and removes what they replace.
    pub fn write(&self, root: &Root) -> Result<(), PersistError> {
        for file in &self.files {
            let failed = |error| PersistError::System { path: file.path.clone(), error };
            put(&root.path(&file.path), &file.text).map_err(failed)?;
        }
        remove(root, &self.replaced)
    }
}

fn put(path: &PathBuf, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // systemd and udev ignore files with other suffixes.
    let part = path.with_extension("rxsteer-part");
    let mut file = fs::File::create(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(part, path)
}

/// Removes files that `--persist` wrote.
pub fn remove(root: &Root, paths: &[String]) -> Result<(), PersistError> {
    for path in paths {
        let gone = fs::remove_file(root.path(path));
        gone.map_err(|error| PersistError::System { path: path.clone(), error })?;
    }
    Ok(())
}
