//! Busy processes: ordinary processes that use a whole CPU, like the other work of a server.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{LabError, Result};
use crate::process::Process;

/// The CPU time in seconds after which a process ends by itself, unless it is ended before.
const MAX_CPU_S: u32 = 1800;

/// Processes that use their CPU without a pause. Each has its own session, so that autogroup scheduling gives each a
/// separate share, as it does for commands in different terminals. They end when this is dropped.
#[derive(Debug)]
pub struct BusyProcesses {
    processes: Vec<Process>,
}

impl BusyProcesses {
    /// Starts `each` of them on each of the CPUs.
    pub fn start(cpus: &[usize], each: usize) -> Result<BusyProcesses> {
        let script = format!("ulimit -t {MAX_CPU_S}; while :; do :; done");
        let start = |cpu: &usize| {
            // Each of these commands replaces itself by the next, so the process is the busy one. It ends with the
            // thread that started it, even if that thread is killed.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "setsid", "taskset", "-c", &cpu.to_string()]);
            command.args(["sh", "-c", &script]);
            Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()))
        };
        let cpus = cpus.iter().flat_map(|cpu| std::iter::repeat_n(cpu, each));
        Ok(BusyProcesses { processes: cpus.map(start).collect::<Result<_>>()? })
    }

    /// Stops the processes until [`BusyProcesses::resume`].
    pub fn pause(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(|process| process.signal(Signal::STOP))
    }

    /// Continues the processes.
    pub fn resume(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(|process| process.signal(Signal::CONT))
    }

    /// The CPU time of each process.
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
