//! Interrupts of an interface, and the CPUs that serve them.

use crate::files;
use crate::root::Root;
use rxsteer_core::CpuSet;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// An interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The name of its handler, in `/proc/interrupts`.
    pub name: String,
    /// The RX queue in this name, if there is one.
    pub rx_queue: Option<u32>,
    /// The CPUs that may serve it.
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub affinity: Option<CpuSet>,
    /// The CPUs that do serve it.
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub effective: Option<CpuSet>,
    /// How often it was raised, by CPU; only CPUs where it ever was.
    pub counts: BTreeMap<u32, u64>,
}

impl Interrupt {
    /// The CPUs that serve it, if the kernel reports them.
    pub fn served_on(&self) -> Option<&CpuSet> {
        self.effective.as_ref().or(self.affinity.as_ref())
    }
}

/// A line of `/proc/interrupts`.
struct Line {
    number: u32,
    name: String,
    counts: BTreeMap<u32, u64>,
}

/// The interrupts of the interface `name`: those of its device, or of the parent device (virtio on PCI), and those that
/// are named after the interface.
pub(super) fn read(root: &Root, name: &str, device: &Path) -> Vec<Interrupt> {
    let device = device.canonicalize().ok();
    let of_device: BTreeSet<u32> = device.as_deref().map(numbers).unwrap_or_default();
    let device_name =
        device.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    let lines = lines(&root.text("/proc/interrupts").unwrap_or_default());
    let is_ours = |line: &&Line| {
        of_device.contains(&line.number)
            || is_named_after(&line.name, name)
            || device_name.as_deref().is_some_and(|device| is_named_after(&line.name, device))
    };
    lines.iter().filter(is_ours).map(|line| interrupt(root, line)).collect()
}

fn interrupt(root: &Root, line: &Line) -> Interrupt {
    let list = |file: &str| root.text(&format!("/proc/irq/{}/{file}", line.number))?.parse().ok();
    Interrupt {
        number: line.number,
        rx_queue: rx_queue(&line.name),
        name: line.name.clone(),
        affinity: list("smp_affinity_list"),
        effective: list("effective_affinity_list"),
        counts: line.counts.clone(),
    }
}

/// The interrupts in sysfs of a device, or of the next ancestor that has some: `msi_irqs/N`, or the file `irq`.
fn numbers(device: &Path) -> BTreeSet<u32> {
    let at = |device: &Path| -> BTreeSet<u32> {
        let msi = files::names(device.join("msi_irqs"));
        let msi: BTreeSet<u32> = msi.iter().filter_map(|name| name.parse().ok()).collect();
        if !msi.is_empty() {
            return msi;
        }
        // 0 means none.
        files::number(device.join("irq")).into_iter().filter(|number| *number > 0).collect()
    };
    // A bridge further up has interrupts for other purposes.
    device.ancestors().take(2).map(at).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Whether `text` begins with the whole name: `eth0-rx-1` and `eth0` belong to eth0, `eth01` does not.
fn is_named_after(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
        is_end(text[..at].chars().next_back()) && is_end(text[at + name.len()..].chars().next())
    })
}

/// The queue number at the end of a handler's name: `eth0-TxRx-3`, `virtio2-input.0`, `mlx5_comp7@pci:0000:81:00.0`.
fn rx_queue(name: &str) -> Option<u32> {
    let name = name.split_once('@').map_or(name, |(name, _)| name).to_ascii_lowercase();
    let sends_only = name.contains("output") || (name.contains("tx") && !name.contains("rx"));
    let is_other = ["config", "control", "async", "mgmt", "misc", "link", "event"]
        .into_iter()
        .any(|word| name.contains(word));
    let receives = ["rx", "input", "comp", "queue"].into_iter().any(|word| name.contains(word))
        // ena and similar drivers: `eth0-Tx-Rx-0`; like nvme: `eth0-3`.
        || name.contains('-');
    if sends_only || is_other || !receives {
        return None;
    }
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[name.len() - digits..].parse().ok()
}

/// `/proc/interrupts`: a heading with the CPUs, then a line for each interrupt: its number, a count for each CPU, the
/// chip, and last the names of its handlers.
fn lines(text: &str) -> Vec<Line> {
    let mut lines = text.lines();
    let cpu = |word: &str| word.strip_prefix("CPU")?.parse().ok();
    let cpus: Option<Vec<u32>> =
        lines.next().map(|line| line.split_whitespace().filter_map(cpu).collect());
    let cpus = cpus.unwrap_or_default();
    let line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let counts: Vec<u64> =
            words.by_ref().take(cpus.len()).map_while(|word| word.parse().ok()).collect();
        let raised = cpus.iter().copied().zip(counts).filter(|(_, count)| *count > 0);
        Some(Line {
            number: number.trim().parse().ok()?,
            name: words.last().unwrap_or_default().to_owned(),
            counts: raised.collect(),
        })
    };
    lines.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_from_names() {
        let of = |name: &str| rx_queue(name);
        assert_eq!(of("eth0-TxRx-3"), Some(3));
        assert_eq!(of("eth0-rx-12"), Some(12));
        assert_eq!(of("virtio2-input.0"), Some(0));
        assert_eq!(of("mlx5_comp7@pci:0000:81:00.0"), Some(7));
        assert_eq!(of("i40e-eth0-TxRx-1"), Some(1));
        assert_eq!(of("ens5-Tx-Rx-0"), Some(0));
        for none in ["virtio2-output.0", "eth0-tx-1", "virtio2-config", "eth0", "mlx5_async0@pci:1"]
        {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn names_are_whole_words() {
        assert!(is_named_after("eth0", "eth0") && is_named_after("i40e-eth0-TxRx-1", "eth0"));
        assert!(!is_named_after("eth01-rx-0", "eth0") && !is_named_after("veth0-rx-0", "eth0"));
    }

    #[test]
    fn table_is_read_with_sparse_cpus() {
        let text = "           CPU0       CPU8\n 24:   7  0  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\nNMI:  0  0  x\n 25: 0 9 IO-APIC eth0\n";
        let read = lines(text);
        let shown: Vec<_> =
            read.iter().map(|line| (line.number, line.name.as_str(), &line.counts)).collect();
        let (seven, nine) = ([(0, 7)].into(), [(8, 9)].into());
        assert_eq!(shown, [(24, "virtio2-input.0", &seven), (25, "eth0", &nine)]);
        assert!(lines("").is_empty());
    }
}
