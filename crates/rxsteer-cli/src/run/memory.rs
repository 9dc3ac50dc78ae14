//! Kernel memory: the size of this process's BPF maps, and what is left in its memory cgroup.

use rxsteer_user::shown;
use std::fs;
use std::path::{Path, PathBuf};

/// Memory for the verifier, the programs, rings and this process, in addition to maps. About this much has proved to be
/// too little.
const BESIDE_MAPS: u64 = 24 << 20;

/// The memory of this process's BPF maps in bytes, as the kernel accounts it; `None` if the kernel does not.
pub(crate) fn of_maps() -> Option<u64> {
    sum_of_maps(Path::new("/proc/self/fdinfo"))
}

fn sum_of_maps(folder: &Path) -> Option<u64> {
    let mut maps = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let number = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        // One map may be open twice.
        if let (Some(id), Some(bytes)) = (number("map_id:"), number("memlock:")) {
            maps.push((id, bytes));
        }
    }
    maps.sort_unstable();
    maps.dedup();
    (!maps.is_empty()).then(|| maps.iter().map(|(_, bytes)| bytes).sum())
}

/// Why maps of `bytes` do not fit into the rest of the process's memory cgroup, if they do not. The kernel would kill
/// the process without a message.
pub(crate) fn is_short(bytes: u64) -> Option<String> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    short_in(Path::new("/sys/fs/cgroup"), &PathBuf::from(own), bytes)
}

fn short_in(root: &Path, own: &Path, bytes: u64) -> Option<String> {
    own.ancestors().find_map(|group| {
        let read = |name: &str| -> Option<u64> {
            fs::read_to_string(root.join(group).join(name)).ok()?.trim().parse().ok()
        };
        // The word "max" means that there is no limit; it does not parse as a number.
        let left = read("memory.max")?.saturating_sub(read("memory.current").unwrap_or(0));
        let needed = bytes + BESIDE_MAPS;
        (left < needed).then(|| {
            format!(
                "the memory limit of this process's cgroup (/{}) leaves {} MiB, and loading takes about {} MiB ({} MiB \
                 of them for BPF maps): raise the limit (MemoryMax= of the systemd unit), or make the flow tables \
                 smaller with --flow-cnt",
                shown(group),
                left >> 20,
                needed.div_ceil(1 << 20),
                bytes.div_ceil(1 << 20)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("0", "pos:\t0\n");
        assert_eq!(sum_of_maps(folder.path()), None);
        write("5", "pos:\t0\nmap_type:\t2\nmemlock:\t4096\nmap_id:\t7\n");
        write("6", "map_type:\t2\nmemlock:\t4096\nmap_id:\t7\n");
        write("7", "map_type:\t16\nmemlock:\t100\nmap_id:\t8\n");
        assert_eq!(sum_of_maps(folder.path()), Some(4196));
    }

    #[test]
    fn limit_anywhere_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let own = Path::new("system.slice/rxsteer.service");
        fs::create_dir_all(root.path().join(own)).unwrap();
        let short = |bytes| short_in(root.path(), own, bytes);
        assert_eq!(short(1 << 30), None, "there is no limit");
        fs::write(root.path().join(own).join("memory.max"), "max\n").unwrap();
        assert_eq!(short(1 << 30), None);
        fs::write(root.path().join("system.slice/memory.max"), format!("{}\n", 64 << 20)).unwrap();
        assert_eq!(short(40 << 20), None);
        fs::write(root.path().join("system.slice/memory.current"), format!("{}\n", 30 << 20))
            .unwrap();
        let why = short(40 << 20).expect("34 MiB are left");
        assert!(why.contains("/system.slice)") && why.contains("leaves 34 MiB"), "{why}");
        assert!(why.contains("about 64 MiB (40 MiB"), "{why}");
    }
}
