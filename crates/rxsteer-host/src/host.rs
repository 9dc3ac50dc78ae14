//! Facts about the host: kernel, type information, capabilities, CPUs.

use crate::btf::Btf;
use crate::capabilities::Capabilities;
use crate::cpus::Cpus;
use crate::files;
use crate::kernel_version::KernelVersion;
use crate::real_time::RealTime;
use crate::trial::Trial;
use flate2::read::GzDecoder;
use serde::Serialize;
use std::fs::File;
use std::io::Read;

/// What is known about the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// The release, as `uname -r` prints it.
    pub release: String,
    /// The version in the release.
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
    /// Whether the kernel accepts the BPF programs.
    pub programs: Trial,
    /// Whether the kernel delivers every frame that enters a CPUMAP in generic mode.
    pub generic: Trial,
    /// What limits real-time threads.
    pub real_time: RealTime,
}

impl Host {
    /// Collects the facts about this host; tries nothing.
    pub fn read() -> Host {
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy().into_owned();
        // PREEMPT_RT kernels have this word in their version; the file is an older sign of them.
        let realtime = uname.version().to_string_lossy().contains("PREEMPT_RT")
            || files::text("/sys/kernel/realtime").as_deref() == Some("1");
        Host {
            version: KernelVersion::of_release(&release),
            realtime,
            hz: configuration(&release)
                .and_then(|text| files::field(&text, "CONFIG_HZ")?.parse().ok()),
            btf: Btf::read(),
            capabilities: Capabilities::read(),
            cpus: Cpus::read(),
            programs: Trial::not_tried("loading is not part of reading the facts"),
            generic: Trial::not_tried("no interface that requires it was examined"),
            real_time: RealTime::read(),
            release,
        }
    }
}

/// The host's name, as `uname -n` prints it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's build configuration, if it can be found.
fn configuration(release: &str) -> Option<String> {
    let packed = || {
        let mut text = String::new();
        let file = File::open("/proc/config.gz").ok()?;
        // A configuration takes 300 kB; a much longer file is not one.
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
    fn this_host_can_be_read() {
        let host = Host::read();
        assert!(host.version.is_some(), "{host:?}");
        assert!(host.cpus.online.is_some(), "{host:?}");
    }
}
