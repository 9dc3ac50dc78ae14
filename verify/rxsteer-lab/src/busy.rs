//! Busy processes: ordinary ones that want all of a CPU, as a server's other work does.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{LabError, Result};
use crate::process::Process;

/// CPU time after which one ends by itself, unless it is ended before, in seconds.
const MOST_CPU_S: u32 = 1800;

/// Processes that use their CPU without a pause, each in a session of its own, so that autogroup scheduling gives each
/// a share of its own, as it does to what is typed at different terminals. They end when this is dropped.
#[derive(Debug)]
pub struct BusyProcesses {
    processes: Vec<Process>,
}

impl BusyProcesses {
    /// Starts `each` of them on each of the CPUs.
    pub fn start(cpus: &[usize], each: usize) -> Result<BusyProcesses> {
        let script = format!("ulimit -t {MOST_CPU_S}; while :; do :; done");
        let start = |cpu: &usize| {
            // Each of these becomes the next, so the process is the one that is busy. It ends with the thread that
            // started it, also when that is killed.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "setsid", "taskset", "-c", &cpu.to_string()]);
            command.args(["sh", "-c", &script]);
            Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()))
        };
        let cpus = cpus.iter().flat_map(|cpu| std::iter::repeat_n(cpu, each));
        Ok(BusyProcesses { processes: cpus.map(start).collect::<Result<_>>()? })
    }

    /// Stops them until [`BusyProcesses::resume`].
    pub fn pause(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(|process| process.signal(Signal::STOP))
    }

    /// Lets them go on.
    pub fn resume(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(|process| process.signal(Signal::CONT))
    }

    /// The CPU time of each.
    pub fn cpu_times(&self) -> Result<Vec<Duration>> {
        let time = |process: &Process| {
            let path = PathBuf::from(format!("/proc/{}/schedstat", process.child.id()));
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
            ns.map(Duration::from_nanos).ok_or_else(|| LabError::Unreadable {
                who: path.display().to_string(),
                why: format!("no CPU time in {text:?}; has the process ended?"),
            })
        };
        self.processes.iter().map(time).collect()
    }
}
