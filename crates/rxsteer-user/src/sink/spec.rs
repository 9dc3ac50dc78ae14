//! The text form of outputs: `pcap:DIR/%d.pcap`.

use super::SinkError;
use rxsteer_core::CpuId;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Longest name of an interface: `IFNAMSIZ` without the NUL.
const LONGEST_INTERFACE: usize = 15;

/// What kind of output each CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// A pcap file.
    Pcap {
        /// Whether zstd compresses it.
        zstd: bool,
    },
    /// A named pipe that carries a pcap stream.
    Pipe,
    /// A tap interface that exists during the run.
    Tap,
    /// An existing interface, written through AF_PACKET.
    Veth,
}

impl SinkKind {
    /// The words before the colon.
    pub const WORDS: [&str; 4] = ["pcap", "pipe", "tap", "veth"];

    /// Whether its names are interfaces instead of files.
    pub(super) fn is_interface(self) -> bool {
        matches!(self, SinkKind::Tap | SinkKind::Veth)
    }
}

/// One output for each CPU: a kind, and a name in which `%d` stands for the CPU.
///
/// ```
/// use rxsteer_user::sink::SinkSpec;
///
/// let spec: SinkSpec = "pcap:out/%d.pcap.zst".parse()?;
/// assert_eq!(spec.name("3".parse::<u16>().ok().and_then(rxsteer_user::core::CpuId::new).unwrap()), "out/3.pcap.zst");
/// assert!("pcap:out/%d.pcapng".parse::<SinkSpec>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    kind: SinkKind,
    template: String,
}

/// Why a text does not describe an output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkSpecError {
    /// The word before the colon is unknown.
    #[error("'{0}' is not a kind of output")]
    Kind(String),
    /// There is no name after the colon.
    #[error("'{0}:' lacks a name, e.g. {0}:{example}", example = example(.0))]
    NoName(String),
    /// A `%` that is not `%d`.
    #[error("in '{0}' only %d, which stands for the CPU, can follow a %")]
    Percent(String),
    /// A capture file of another format.
    #[error("'{0}' ends in neither .pcap nor .pcap.zst, the formats that rxsteer writes")]
    Ending(String),
    /// No interface can have this name.
    #[error(
        "'{0}' can't name an interface: such names have at most 15 characters, no / and no blank"
    )]
    Interface(String),
}

/// A name to show for a kind.
fn example(kind: &str) -> &'static str {
    match kind {
        "pcap" => "out/%d.pcap",
        "pipe" => "/run/probe%d",
        "tap" => "worker%d",
        _ => "probe%d",
    }
}

impl SinkSpec {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> SinkKind {
        self.kind
    }

    /// The name for `cpu`: a path or an interface.
    #[must_use]
    pub fn name(&self, cpu: CpuId) -> String {
        self.template.replace("%d", &cpu.to_string())
    }

    /// The files for these CPUs; none if the outputs are interfaces.
    pub fn files(&self, cpus: impl IntoIterator<Item = CpuId>) -> Vec<PathBuf> {
        if self.kind.is_interface() {
            return Vec::new();
        }
        cpus.into_iter().map(|cpu| PathBuf::from(self.name(cpu))).collect()
    }

    /// The folder of the files, if they are all in one.
    pub(super) fn folder(&self) -> Option<&Path> {
        let folder = Path::new(&self.template).parent()?;
        (!folder.as_os_str().is_empty() && !folder.to_string_lossy().contains("%d"))
            .then_some(folder)
    }

    /// Checks that each of these CPUs gets a different, valid name.
    pub(super) fn check(&self, cpus: &[CpuId]) -> Result<(), SinkError> {
        if cpus.len() > 1 && !self.template.contains("%d") {
            return Err(SinkError::OneName(self.to_string(), cpus.len()));
        }
        let longest = cpus.last().map(|cpu| self.name(*cpu)).unwrap_or_default();
        if self.kind.is_interface() && longest.len() > LONGEST_INTERFACE {
            return Err(SinkError::Spec(SinkSpecError::Interface(longest)));
        }
        Ok(())
    }
}

impl FromStr for SinkSpec {
    type Err = SinkSpecError;

    fn from_str(text: &str) -> Result<SinkSpec, SinkSpecError> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        let template = name.to_owned();
        let kind = match kind {
            "pcap" => SinkKind::Pcap { zstd: name.ends_with(".zst") },
            "pipe" => SinkKind::Pipe,
            "tap" => SinkKind::Tap,
            "veth" => SinkKind::Veth,
            other => return Err(SinkSpecError::Kind(other.to_owned())),
        };
        if template.is_empty() {
            return Err(SinkSpecError::NoName(text.trim_end_matches(':').to_owned()));
        }
        if template.split('%').skip(1).any(|rest| !rest.starts_with('d')) {
            return Err(SinkSpecError::Percent(template));
        }
        let is_pcap = name.ends_with(".pcap") || name.ends_with(".pcap.zst");
        if matches!(kind, SinkKind::Pcap { .. }) && !is_pcap {
            return Err(SinkSpecError::Ending(template));
        }
        // The shortest possible name.
        let shortest = template.replace("%d", "0");
        let is_odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        if kind.is_interface() && (shortest.len() > LONGEST_INTERFACE || shortest.contains(is_odd))
        {
            return Err(SinkSpecError::Interface(template));
        }
        Ok(SinkSpec { kind, template })
    }
}

impl fmt::Display for SinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SinkKind::Pcap { .. } => "pcap",
            SinkKind::Pipe => "pipe",
            SinkKind::Tap => "tap",
            SinkKind::Veth => "veth",
        };
        write!(f, "{kind}:{}", self.template)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_and_written_alike() {
        for text in
            ["pcap:out/%d.pcap", "pcap:%d.pcap.zst", "pipe:/run/p%d", "tap:worker%d", "veth:v"]
        {
            let spec: SinkSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
        let spec: SinkSpec = "pcap:out/%d.pcap.zst".parse().unwrap();
        assert_eq!(spec.kind(), SinkKind::Pcap { zstd: true });
    }

    #[test]
    fn wrong_specs_are_refused_by_what_is_wrong() {
        let refused = |text: &str| text.parse::<SinkSpec>().unwrap_err().to_string();
        assert!(refused("pcaps:x.pcap").contains("'pcaps' is not a kind"));
        assert!(refused("tap").contains("lacks a name, e.g. tap:worker%d"));
        assert!(refused("pcap:%s.pcap").contains("only %d"));
        assert!(refused("pcap:%d.pcapng").contains("neither .pcap nor"));
        assert!(refused("tap:a/b").contains("can't name an interface"));
        assert!(refused("veth:much-too-long-a-name%d").contains("can't name an interface"));
    }

    #[test]
    fn names_must_differ_and_fit_for_every_cpu() {
        let cpus = |ids: &[u16]| ids.iter().filter_map(|id| CpuId::new(*id)).collect::<Vec<_>>();
        let one: SinkSpec = "tap:worker".parse().unwrap();
        assert!(one.check(&cpus(&[3])).is_ok());
        assert!(one.check(&cpus(&[3, 4])).unwrap_err().to_string().contains("%d"));
        let long: SinkSpec = "tap:exactly-14char%d".parse().unwrap();
        assert!(long.check(&cpus(&[0, 9])).is_ok());
        assert!(long.check(&cpus(&[9, 10])).is_err());
    }
}
