//! `rxsteer run` or `rxsteer live` in a namespace, and its reports.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{LabError, Result};
use crate::namespace::Namespace;
use crate::process::{Process, output, typed};

/// The timeout for attaching. Loading BPF programs takes about a second on an idle machine, and half a minute in a
/// virtual machine without hardware support.
const TO_ATTACH: Duration = Duration::from_secs(60);

/// The program that [`use_program`] chose.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Measures this program, unless `RXSTEER_BIN` names another one. Only the first call has an effect.
pub fn use_program(path: PathBuf) {
    PROGRAM.get_or_init(|| path);
}

/// The binary under test: `RXSTEER_BIN`, that of [`use_program`], or the one that cargo built next to this program. The
/// error explains why the binary is missing, or that it has no `run`.
pub fn rxsteer() -> std::result::Result<PathBuf, String> {
    let default = || {
        let own = std::env::current_exe().ok()?;
        // Programs are in a folder of the build, and tests in a subfolder of it.
        let mut folders = own.ancestors().skip(1).take(2).map(|folder| folder.join("rxsteer"));
        folders.find(|path| path.is_file())
    };
    let chosen = std::env::var_os("RXSTEER_BIN").map(PathBuf::from);
    let path = chosen.or_else(|| PROGRAM.get().cloned()).or_else(default).unwrap_or_default();
    if !path.is_file() {
        return Err(format!(
            "no rxsteer at {}; build it (cargo build -p rxsteer) or set RXSTEER_BIN",
            path.display()
        ));
    }
    match output(Command::new(&path).args(["run", "--help"])) {
        Ok(_) => Ok(path),
        Err(_) => Err(format!("{} was built without `run`", path.display())),
    }
}

/// The totals in the reports of `rxsteer run` and `rxsteer status`.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
pub struct Totals {
    /// Frames the XDP program saw.
    pub received: u64,
    /// Frames that passed to the stack on the CPU that received them.
    pub passed: u64,
    /// Frames handed to the stack on the CPU to which they were sent.
    pub delivered: u64,
    /// Frames that were sent to a CPU.
    pub redirected: u64,
    /// How often flows changed their CPU.
    pub moves: u64,
    /// Moves that the order guard deferred.
    pub deferred: u64,
    /// Frames dropped, by reason.
    pub drops: serde_json::Map<String, Value>,
    /// All other counters, for the message of a failed test.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

impl Totals {
    /// The sum of all drops.
    pub fn dropped(&self) -> u64 {
        self.drops.values().filter_map(Value::as_u64).sum()
    }

    /// Received frames that are in no other count; 0 once traffic has stopped.
    pub fn unaccounted(&self) -> i128 {
        let known = [self.passed, self.delivered, self.dropped()];
        i128::from(self.received) - known.map(i128::from).iter().sum::<i128>()
    }

    /// Parses the totals of a report: under `totals`, or at the top level.
    pub fn of(report: &Value) -> Result<Self> {
        let totals = report.get("totals").unwrap_or(report);
        serde_json::from_value(totals.clone()).map_err(|why| LabError::Unreadable {
            who: "rxsteer".to_owned(),
            why: format!("{why} in {report}"),
        })
    }
}

/// A running `rxsteer run`; it is killed when this is dropped, unless it was stopped.
#[derive(Debug)]
pub struct Steering {
    process: Process,
    /// Its output on standard error.
    stderr: Arc<Mutex<String>>,
    /// Collects standard output.
    printed: Option<JoinHandle<String>>,
}

impl Steering {
    /// Starts `rxsteer run` with these arguments and `--json`, and waits until it steers.
    pub fn start(namespace: &Namespace, arguments: &[&str]) -> Result<Self> {
        Self::start_by(namespace, &[], arguments)
    }

    /// Does the same through another program that executes it, such as `setpriv`.
    pub fn start_by(namespace: &Namespace, by: &[&str], arguments: &[&str]) -> Result<Self> {
        Self::begin_by(namespace, by, "run", arguments)?.ready("steering", arguments)
    }

    /// Starts `rxsteer live` with these arguments and `--json`, and waits until it receives.
    pub fn live(namespace: &Namespace, arguments: &[&str]) -> Result<Self> {
        Self::begin_by(namespace, &[], "live", arguments)?.ready("receiving from", arguments)
    }

    /// Waits until a line on standard error begins with `words`.
    fn ready(mut self, words: &str, arguments: &[&str]) -> Result<Self> {
        let started = Instant::now();
        loop {
            if self.stderr().lines().any(|line| line.starts_with(words)) {
                return Ok(self);
            }
            let ended = self.process.ended()?;
            if ended.is_some() || started.elapsed() > TO_ATTACH {
                return Err(LabError::Late {
                    what: format!("`rxsteer … {}` did not attach", arguments.join(" ")),
                    seconds: started.elapsed().as_secs(),
                    stderr: format!("its status is {ended:?}, it said: {}", self.stderr()),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts it, and does not wait.
    pub fn begin(namespace: &Namespace, arguments: &[&str]) -> Result<Self> {
        Self::begin_by(namespace, &[], "run", arguments)
    }

    /// Starts it through another program that executes it, and does not wait.
    pub fn begin_run_by(namespace: &Namespace, by: &[&str], arguments: &[&str]) -> Result<Self> {
        Self::begin_by(namespace, by, "run", arguments)
    }

    /// The same with `rxsteer live`.
    pub fn begin_live_by(namespace: &Namespace, by: &[&str], arguments: &[&str]) -> Result<Self> {
        Self::begin_by(namespace, by, "live", arguments)
    }

    fn begin_by(
        namespace: &Namespace,
        by: &[&str],
        subcommand: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let binary =
            rxsteer().map_err(|why| LabError::Unreadable { who: "cargo".to_owned(), why })?;
        let mut command = match by.split_first() {
            None => namespace.command(binary),
            Some((program, words)) => {
                let mut command = namespace.command(program);
                command.args(words).arg(binary);
                command
            }
        };
        command.arg(subcommand).args(arguments).arg("--json");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let stderr = Arc::new(Mutex::new(String::new()));
        if let Some(pipe) = process.child.stderr.take() {
            let stderr = Arc::clone(&stderr);
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(std::result::Result::ok) {
                    let mut stderr = stderr.lock().unwrap_or_else(PoisonError::into_inner);
                    stderr.push_str(&line);
                    stderr.push('\n');
                }
            });
        }
        let printed = process.child.stdout.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut text = String::new();
                // This keeps everything that could be read before an error.
                let _ = pipe.read_to_string(&mut text);
                text
            })
        });
        Ok(Self { process, stderr, printed })
    }

    /// Its output on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until its output on standard error contains `words`.
    pub fn wait_for_stderr(&self, words: &str, timeout: Duration) -> Result<()> {
        let started = Instant::now();
        while !self.stderr().contains(words) {
            if started.elapsed() > timeout {
                return Err(LabError::Late {
                    what: format!("rxsteer did not say {words:?}"),
                    seconds: timeout.as_secs(),
                    stderr: format!("it said: {}", self.stderr()),
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Kills it by SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait(Duration::from_secs(10)).map(drop)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// The processes in a namespace.
    pub fn processes(namespace: &Namespace) -> Result<Vec<u32>> {
        let text = typed(&format!("ip netns pids {}", namespace.name()))?;
        Ok(text.split_whitespace().filter_map(|number| number.parse().ok()).collect())
    }

    /// Whether it has ended, and its status.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.process.ended()
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.process.wait(timeout)
    }

    /// Stops it; returns its report, and how long it took to end.
    pub fn stop(self) -> Result<(Value, Duration)> {
        let asked = Instant::now();
        let (status, report) = self.terminated()?;
        if !status.success() {
            let why = format!("it ended with {status} and reports {report}");
            return Err(LabError::Unreadable { who: "rxsteer".to_owned(), why });
        }
        Ok((report, asked.elapsed()))
    }

    /// Ends it by SIGTERM, and returns its exit status and its report.
    pub fn terminated(mut self) -> Result<(ExitStatus, Value)> {
        self.process.signal(Signal::TERM)?;
        self.report()
    }

    /// Waits until it ends by itself, and returns its exit status and its report.
    pub fn report(mut self) -> Result<(ExitStatus, Value)> {
        let status = self.process.wait(Duration::from_secs(15))?;
        let text = self.printed.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let unreadable = |why: String| LabError::Unreadable { who: "rxsteer".to_owned(), why };
        let last = text.trim().lines().last().unwrap_or_default();
        let report = serde_json::from_str(text.trim())
            .or_else(|_| serde_json::from_str(last))
            .map_err(|why| {
                let stderr = self.stderr();
                unreadable(format!("{why} in {text:?}; it ended with {status} and said: {stderr}"))
            })?;
        Ok((status, report))
    }

    /// Stops it; returns its totals.
    pub fn totals(self) -> Result<Totals> {
        Totals::of(&self.stop()?.0)
    }
}
