//! The machine on which a report was made.

use serde::Serialize;

/// Kernel, CPUs and versions.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The CPU's model, as the kernel names it.
    pub cpu: String,
    /// CPUs that are online.
    #[serde(rename = "cpu_count")]
    pub cpus: usize,
    /// The version of rxsteer.
    pub rxsteer: &'static str,
    /// Whether the kernel reports that it runs under a hypervisor.
    pub virtual_machine: bool,
}

impl Machine {
    /// This machine. Values that cannot be read are empty.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let flags = field("flags").unwrap_or_default();
        Machine {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field("model name").unwrap_or_default(),
            cpus: crate::online_cpus(),
            rxsteer: env!("CARGO_PKG_VERSION"),
            virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor"),
        }
    }
}
