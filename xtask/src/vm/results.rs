//! The results of a machine: the verdicts of its tests, and their measurements.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The lines of the console that are shown if a machine did not finish.
const LAST_LINES: usize = 25;

/// The start of the message for a test that a machine did not reach.
pub(crate) const NOT_RUN: &str = "it was not run";

/// The result of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Passed,
    /// With its error message.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

/// A test and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
}

/// The measurements of a test of `machine::` for one policy; a value is `None` if the test did not reach it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    /// The name of the test.
    pub(crate) test: Option<String>,
    pub(crate) policy: String,
    /// The policy that `run` chose, if none was given.
    pub(crate) took: Option<String>,
    /// `native` or `generic`.
    pub(crate) mode: Option<String>,
    /// The commands that `check` suggested beforehand.
    pub(crate) after: Vec<String>,
    /// The reason for which `run` refused.
    pub(crate) refused: Option<String>,
    /// Instructions that the verifier examined, for each program.
    pub(crate) verified: BTreeMap<String, u64>,
    pub(crate) frames: Option<u64>,
    pub(crate) late: Option<u64>,
    pub(crate) moves: Option<u64>,
    /// Changes of settings meanwhile.
    pub(crate) changes: Option<u64>,
    pub(crate) received: Option<u64>,
    pub(crate) dropped: Option<u64>,
    pub(crate) unaccounted: Option<i64>,
    /// Whether frames arrived before rxsteer was attached, while it was attached, and afterwards.
    pub(crate) attached_under_traffic: Option<bool>,
    /// Whether a killed instance left nothing.
    pub(crate) clean_after_kill: Option<bool>,
    /// Bytes that a TCP stream transferred with rxsteer, before it was attached, and after it was detached.
    pub(crate) tcp_bytes: Option<u64>,
    pub(crate) tcp_bytes_before: Option<u64>,
    pub(crate) tcp_bytes_after: Option<u64>,
    /// The frames in which they arrived. Merged segments are one frame.
    pub(crate) tcp_frames: Option<u64>,
    pub(crate) tcp_frames_before: Option<u64>,
    pub(crate) tcp_frames_after: Option<u64>,
    /// The longest time without a frame while rxsteer was being attached, in milliseconds.
    pub(crate) attach_pause_ms: Option<f64>,
    /// Features of the interface that were on before rxsteer was attached, and off while it was.
    pub(crate) features_off: Vec<String>,
}

/// The results of one machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The output of `uname -r`.
    pub(crate) kernel: String,
    /// The date of the run.
    #[serde(default)]
    pub(crate) day: String,
    pub(crate) seconds: u64,
    pub(crate) tests: Vec<Test>,
    pub(crate) measured: Vec<Measured>,
}

impl Results {
    /// Whether the last run was of the commit in `day`, whatever its date.
    pub(crate) fn is_of(&self, day: &str) -> bool {
        let commit = |day: &str| day.rsplit_once('(').map(|(_, commit)| commit.to_owned());
        commit(day).is_some_and(|wanted| commit(&self.day) == Some(wanted))
    }

    /// Takes over the results of a newer run of the same machine: they replace those of tests with the same names.
    pub(crate) fn take(&mut self, newer: &Self) {
        self.tests.retain(|test| !newer.tests.iter().any(|new| new.name == test.name));
        self.tests.extend(newer.tests.iter().cloned());
        self.measured.retain(|old| !newer.measured.iter().any(|new| new.policy == old.policy));
        self.measured.extend(newer.measured.iter().cloned());
        self.kernel.clone_from(&newer.kernel);
        self.seconds += newer.seconds;
        if !self.day.split(", ").any(|day| day == newer.day) {
            self.day = format!("{}, {}", self.day, newer.day);
        }
    }
}

/// The files that a machine left in its folder.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The output of the tests.
    pub(crate) out: String,
    /// Their error output.
    pub(crate) err: String,
    /// Their measurements, as one JSON object per line.
    pub(crate) measured: String,
    /// The kernel's log at the end.
    pub(crate) log: String,
    /// The output of `uname -r`.
    pub(crate) kernel: String,
    /// The exit status of the tests; `None` if the machine did not finish.
    pub(crate) status: Option<String>,
    /// The output of the console and of QEMU.
    pub(crate) console: String,
    /// The functions that its CPUs ran when it hung.
    pub(crate) stuck_at: String,
}

/// Replaces the message of a failed test that printed none.
const NOTHING: &str = "it said nothing";

impl Test {
    /// Whether it failed and printed no reason: messages are written once all tests have ended.
    pub(crate) fn is_unexplained(&self) -> bool {
        matches!(&self.verdict, Verdict::Failed(why) if why == NOTHING)
    }
}

impl Left {
    /// Reads the folder; missing files count as empty.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = |name: &str| {
            let bytes = fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let status = text("status");
        Self {
            out: text("out"),
            err: text("err"),
            measured: text("measured"),
            log: text("log"),
            kernel: text("kernel").trim().to_owned(),
            status: (!status.is_empty()).then(|| status.trim().to_owned()),
            console: text("console") + &text("errors"),
            stuck_at: String::new(),
        }
    }

    /// Whether the machine died of a fault of the emulator. If QEMU runs CPUs in parallel, it may execute a breakpoint
    /// that the kernel has already removed while it changed its own code. The kernel then gives up, or, with kprobes,
    /// tries the same instruction again for ever.
    pub(crate) fn is_fault_of_the_emulator(&self) -> bool {
        self.status.is_none()
            && (self.console.contains("int3: 0000") || self.stuck_at.contains("exc_int3"))
    }

    /// Whether the machine died before its first test, in which case the result does not concern rxsteer.
    pub(crate) fn ended_before_its_tests(&self) -> bool {
        self.status.is_none() && !self.out.lines().any(|line| line.starts_with("test "))
    }

    /// The verdicts of the tests with these names, and any other failures. `ended` describes how the machine ended if
    /// it did not finish: then the running test has failed, and so have the tests after it.
    pub(crate) fn tests(&self, names: &[String], ended: &str) -> Vec<Test> {
        let mut tests = self.finished();
        if self.status.is_none() {
            let running = names.iter().find(|name| !tests.iter().any(|test| test.name == **name));
            let stderr = format!("{ended}. The console's last lines:\n{}", last(&self.console));
            tests.push(failed(running.map_or("machine", |name| name), stderr));
        }
        for name in names {
            if !tests.iter().any(|test| test.name == *name) {
                tests.push(failed(name, format!("{NOT_RUN}\n{}", self.err)));
            }
        }
        if let Some(stderr) = complaint(&self.log) {
            tests.push(failed("kernel_log", stderr));
        }
        tests
    }

    /// The tests that have finished.
    pub(crate) fn finished(&self) -> Vec<Test> {
        self.out.lines().filter_map(|line| self.test(line)).collect()
    }

    /// The result of a test in this line, if there is one.
    fn test(&self, line: &str) -> Option<Test> {
        let (name, verdict) = line
            .strip_prefix("test ")?
            .split_once(" ... ")
            .or_else(|| line.strip_prefix("test ")?.strip_suffix(" ...").map(|name| (name, "")))?;
        let verdict = match verdict.trim() {
            "ok" => match self.skipped(name) {
                Some(reason) => Verdict::Skipped(reason),
                None => Verdict::Passed,
            },
            "FAILED" => Verdict::Failed(self.stderr(name)),
            ignored if ignored.starts_with("ignored") => {
                let reason =
                    ignored.strip_prefix("ignored, ").unwrap_or("it is marked to be left out");
                Verdict::Skipped(reason.to_owned())
            }
            _ => return None,
        };
        Some(Test { name: name.to_owned(), verdict })
    }

    /// Why a test was skipped. The message has the test's file in front of its name.
    fn skipped(&self, name: &str) -> Option<String> {
        self.err.lines().find_map(|line| {
            let (stderr, reason) = line.split_once("SKIPPED ")?.1.split_once(": ")?;
            stderr.ends_with(name).then(|| reason.to_owned())
        })
    }

    /// The message of a failed test.
    fn stderr(&self, name: &str) -> String {
        let head = format!("---- {name} stdout ----\n");
        let stderr = self.out.split_once(&head).map_or(NOTHING, |(_, rest)| rest);
        let end =
            stderr.find("\n---- ").or_else(|| stderr.find("\n\nfailures:")).unwrap_or(stderr.len());
        stderr[..end].trim().to_owned()
    }

    /// The measurements.
    pub(crate) fn measured(&self) -> Vec<Measured> {
        self.measured.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn failed(name: &str, stderr: String) -> Test {
    Test { name: name.to_owned(), verdict: Verdict::Failed(stderr) }
}

/// The last lines of a text.
fn last(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// The problem in a kernel's log, if there is one. A machine without hardware support is slow, so a late CPU is not a
/// problem.
fn complaint(log: &str) -> Option<String> {
    let is_bad = |line: &&str| {
        ["BUG: ", "WARNING: ", "Oops", "Call Trace"].iter().any(|word| line.contains(word))
            && !line.contains("soft lockup")
    };
    let first = log.lines().position(|line| is_bad(&line))?;
    Some(log.lines().skip(first).take(LAST_LINES).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: &str = "\nrunning 4 tests\ntest machine::none ... ok\ntest machine::rps ... FAILED\n\
        test machine::slow ... ignored, it takes an hour\ntest cpus::away ... ok\n\nfailures:\n\n\
        ---- machine::rps stdout ----\n\nthread 'machine::rps' panicked at x.rs:1:1:\n3 late\n\n\n\
        failures:\n    machine::rps\n\ntest result: FAILED. 2 passed; 1 failed; 1 ignored\n";

    fn left(out: &str, status: Option<&str>) -> Left {
        Left { out: out.to_owned(), status: status.map(str::to_owned), ..Left::default() }
    }

    fn verdicts(left: &Left, names: &[&str]) -> Vec<(String, Verdict)> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        left.tests(&names, "it hung").into_iter().map(|test| (test.name, test.verdict)).collect()
    }

    #[test]
    fn run_of_some_tests_stands_for_those_alone() {
        let run = |day: &str, tests: &[(&str, Verdict)], frames: u64| Results {
            day: day.to_owned(),
            tests: tests
                .iter()
                .map(|(name, verdict)| Test { name: (*name).to_owned(), verdict: verdict.clone() })
                .collect(),
            measured: vec![Measured {
                policy: "rps".to_owned(),
                frames: Some(frames),
                ..Measured::default()
            }],
            ..Results::default()
        };
        let failed = Verdict::Failed("late".to_owned());
        let mut all = run("a", &[("none", Verdict::Passed), ("rps", failed)], 1);
        all.take(&run("b", &[("rps", Verdict::Passed)], 2));
        all.take(&run("b", &[("rps", Verdict::Passed)], 3));
        assert_eq!(all.day, "a, b");
        let names: Vec<&str> = all.tests.iter().map(|test| &*test.name).collect();
        assert_eq!(names, ["none", "rps"]);
        assert!(all.tests.iter().all(|test| test.verdict == Verdict::Passed));
        assert_eq!(all.measured.iter().map(|row| row.frames).collect::<Vec<_>>(), [Some(3)]);
    }

    #[test]
    fn each_test_has_its_verdict() {
        let mut left = left(OUT, Some("101"));
        left.err = "SKIPPED live::cpus::away: CPU 1 cannot be taken offline: no\n".to_owned();
        let stderr = "thread 'machine::rps' panicked at x.rs:1:1:\n3 late".to_owned();
        let expected = [
            ("machine::none", Verdict::Passed),
            ("machine::rps", Verdict::Failed(stderr)),
            ("machine::slow", Verdict::Skipped("it takes an hour".to_owned())),
            ("cpus::away", Verdict::Skipped("CPU 1 cannot be taken offline: no".to_owned())),
        ];
        let names = expected.each_ref().map(|(name, _)| *name);
        let verdicts = verdicts(&left, &names);
        assert_eq!(verdicts, expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn test_in_which_the_machine_hung_has_failed_and_those_after_it() {
        let names = ["machine::none", "machine::rps", "machine::sparse"];
        for unfinished in ["test machine::rps ... ", "test machine::rps ...", ""] {
            let mut left = left(&format!("test machine::none ... ok\n{unfinished}"), None);
            left.console = format!("{}\n\nKernel panic - not syncing\n", "line\n".repeat(100));
            let verdicts = verdicts(&left, &names);
            assert_eq!(verdicts.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), names);
            assert_eq!(verdicts[0].1, Verdict::Passed);
            let Verdict::Failed(stderr) = &verdicts[1].1 else { panic!("{verdicts:?}") };
            assert!(stderr.starts_with("it hung") && stderr.ends_with("not syncing"), "{stderr}");
            assert!(stderr.lines().count() <= LAST_LINES + 1, "{stderr}");
            assert!(matches!(&verdicts[2].1, Verdict::Failed(why) if why.contains("not run")));
        }
    }

    #[test]
    fn faults_of_the_emulator_and_of_the_kernel_are_distinguished() {
        let mut left = left("", None);
        left.console = "[ 9.1] Oops: int3: 0000 [#1] SMP\n".to_owned();
        assert!(left.is_fault_of_the_emulator());
        left.console = "[ 9.1] Oops: general protection fault: 0000\n".to_owned();
        assert!(!left.is_fault_of_the_emulator());
        left.console = "[ 9.1] int3: 0000 [#1] SMP\n".to_owned();
        left.stuck_at =
            "CPU 0: native_halt+0x1; CPU 1: __schedule+0x1bc, asm_exc_int3+0x3".to_owned();
        assert!(left.is_fault_of_the_emulator());
        left.status = Some("0".to_owned());
        assert!(!left.is_fault_of_the_emulator(), "the tests ended");
    }

    #[test]
    fn machine_that_died_before_its_first_test_is_known() {
        assert!(left("", None).ended_before_its_tests());
        assert!(left("\nrunning 2 tests\n", None).ended_before_its_tests());
        assert!(!left("running 2 tests\ntest machine::rps ... ", None).ended_before_its_tests());
        assert!(!left("", Some("127")).ended_before_its_tests(), "it said why");
    }

    #[test]
    fn results_are_of_the_commit_of_their_last_run() {
        let of = |day: &str| Results { day: day.to_owned(), ..Results::default() };
        let today = "2026-11-25 (aabbccdd)";
        assert!(of("2026-11-24 (aabbccdd)").is_of(today));
        assert!(of("2026-11-23 (11223344), 2026-11-24 (aabbccdd)").is_of(today));
        assert!(!of("2026-11-24 (aabbccdd), 2026-11-25 (11223344)").is_of(today));
        assert!(!of("2026-11-23").is_of(today) && !of("2026-11-23").is_of("2026-11-23"));
    }

    #[test]
    fn machine_in_which_no_test_ran_has_failed() {
        let of = |left: Left| verdicts(&left, &["machine::rps"]);
        assert!(
            matches!(&of(left("", None))[..], [(name, Verdict::Failed(why))] if why.contains("it hung") && name == "machine::rps")
        );
        let mut nothing = left("running 0 tests\n", Some("127"));
        nothing.err = "no such file".to_owned();
        assert!(
            matches!(&of(nothing)[..], [(_, Verdict::Failed(why))] if why.contains("no such file"))
        );
    }

    #[test]
    fn complaint_of_the_kernel_is_a_failure() {
        let mut left = left("test a ... ok\n", Some("0"));
        left.log = "[ 1.0] fine\n[ 2.0] watchdog: BUG: soft lockup - CPU#1\n".to_owned();
        assert_eq!(verdicts(&left, &["a"]).len(), 1);
        left.log += "[ 3.0] BUG: kernel NULL pointer dereference\n";
        let Verdict::Failed(stderr) = &verdicts(&left, &["a"])[1].1 else { panic!() };
        assert_eq!(stderr, "[ 3.0] BUG: kernel NULL pointer dereference");
    }

    #[test]
    fn what_was_measured_is_read_line_by_line() {
        let measured = "{\"policy\":\"rps\",\"frames\":100,\"late\":0,\"verified\":{\"steer_entry\":7}}\n{\"policy\":";
        let left = Left { measured: measured.to_owned(), ..Left::default() };
        let measured = left.measured();
        assert_eq!(measured.len(), 1, "a line that was cut off counts for nothing");
        assert_eq!((measured[0].frames, measured[0].late), (Some(100), Some(0)));
        assert_eq!(measured[0].verified["steer_entry"], 7);
        assert_eq!(measured[0].unaccounted, None);
    }
}
