//! Facts about the host: kernel, type information, capabilities, CPUs.

use crate::btf::Btf;
use crate::capabilities::Capabilities;
use crate::cpus::Cpus;
use crate::files;
use crate::real_time::RealTime;
use crate::trial::Trial;
use flate2::read::GzDecoder;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::Read;

/// A kernel's version, as far as features go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct KernelVersion {
    /// The 6 of 6.18.
    pub major: u32,
    /// The 18 of 6.18.
    pub minor: u32,
}

impl KernelVersion {
    /// `major.minor`.
    pub const fn new(major: u32, minor: u32) -> KernelVersion {
        KernelVersion { major, minor }
    }

    /// Reads what `uname -r` says: `6.18.44-something`.
    pub fn of_release(release: &str) -> Option<KernelVersion> {
        let mut parts = release.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
        Some(KernelVersion { major, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What is known of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// What `uname -r` says.
    pub release: String,
    /// The version in it.
    pub version: Option<KernelVersion>,
    /// Whether it is a PREEMPT_RT kernel.
    pub realtime: bool,
    /// Timer ticks a second.
    pub hz: Option<u32>,
    /// Type information, and the tracepoints in it.
    pub btf: Btf,
    /// What this process may do.
    pub capabilities: Option<Capabilities>,
    /// The CPUs.
    #[serde(rename = "cpu_sets")]
    pub cpus: Cpus,
    /// Whether the kernel takes the BPF programs.
    pub programs: Trial,
    /// Whether it delivers every frame that a CPUMAP takes in generic mode.
    pub generic: Trial,
    /// What limits real-time threads.
    pub real_time: RealTime,
}

impl Host {
    /// Looks at this host; tries nothing.
    pub fn look() -> Host {
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy().into_owned();
        // Every PREEMPT_RT kernel says so in its version; the file is older than that.
        let realtime = uname.version().to_string_lossy().contains("PREEMPT_RT")
            || files::text("/sys/kernel/realtime").as_deref() == Some("1");
        Host {
            version: KernelVersion::of_release(&release),
            realtime,
            hz: configuration(&release)
                .and_then(|text| files::field(&text, "CONFIG_HZ")?.parse().ok()),
            btf: Btf::look(),
            capabilities: Capabilities::look(),
            cpus: Cpus::look(),
            programs: Trial::not_tried("loading is not part of looking"),
            generic: Trial::not_tried("no interface was looked at that takes it"),
            real_time: RealTime::look(),
            release,
        }
    }
}

/// The kernel's build configuration, where it is found.
/// The host's name, as `uname -n` says it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn configuration(release: &str) -> Option<String> {
    let packed = || {
        let mut text = String::new();
        let file = File::open("/proc/config.gz").ok()?;
        // A configuration takes 300 kB; whatever is longer is none.
        GzDecoder::new(file).take(16 << 20).read_to_string(&mut text).ok()?;
        Some(text)
    };
    packed()
        .or_else(|| files::text(format!("/boot/config-{release}")))
        .or_else(|| files::text(format!("/lib/modules/{release}/config")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        let version = |text| KernelVersion::of_release(text).map(|version| version.to_string());
        assert_eq!(version("6.18.44-amd64").as_deref(), Some("6.18"));
        assert_eq!(version("5.18-rc3").as_deref(), Some("5.18"));
        assert_eq!(version("6.9").as_deref(), Some("6.9"));
        assert_eq!(version("plan9"), None);
        assert!(KernelVersion::new(6, 2) < KernelVersion::new(6, 15));
    }

    #[test]
    fn this_host_can_be_looked_at() {
        let host = Host::look();
        assert!(host.version.is_some(), "{host:?}");
        assert!(host.cpus.online.is_some(), "{host:?}");
    }
}
