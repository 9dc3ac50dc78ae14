//! Captures the messages of libbpf during a call, and finds the kernel's message in them.

use libbpf_rs::{PrintLevel, set_print};
use std::sync::{Mutex, PoisonError};

/// libbpf has a single callback for all threads, so only one thread at a time uses it.
static TURN: Mutex<()> = Mutex::new(());
/// The captured lines. They are global since the callback has no state.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(_: PrintLevel, text: String) {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

/// Runs `action`, and returns its result with the messages that libbpf printed meanwhile, at this level and above.
pub(crate) fn during<T>(level: PrintLevel, action: impl FnOnce() -> T) -> (T, Vec<String>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = set_print(Some((level, note)));
    let result = action();
    set_print(before);
    (result, std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// A BPF program that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its name in `src/bpf`.
    pub program: String,
    /// The verifier's last message: the reason, and the instruction at which the verifier stopped, if it names one.
    pub answer: String,
    /// All messages of libbpf and the kernel.
    pub log: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.program, self.answer)
    }
}

const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";

impl Refusal {
    /// Finds the refusal in the messages of a failed load; `None` when no program caused the failure.
    pub(crate) fn of(log: &[String]) -> Option<Refusal> {
        let with_log = log.iter().find(|text| text.contains(BEGIN));
        let named = with_log.or_else(|| log.iter().find(|text| text.contains("prog '")))?;
        let program = named.split('\'').nth(1)?.to_owned();
        let answer = match with_log.and_then(|text| text.split_once(BEGIN)) {
            Some((_, log)) => last_lines(log),
            None => named.split_once("': ")?.1.trim().to_owned(),
        };
        Some(Refusal { program, answer, log: log.concat() })
    }

    /// Whether the verifier examined the program at all.
    pub(crate) fn has_log(&self) -> bool {
        self.log.contains(BEGIN)
    }
}

/// The last line before the statistics at the end, and the instruction before it, if there is one.
fn last_lines(log: &str) -> String {
    let account =
        ["verification time ", "stack depth ", "insns processed ", "processed ", "-- END"];
    let is_account = |line: &&str| account.iter().any(|start| line.starts_with(start));
    let lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut lines = lines.filter(|line| !is_account(line)).rev();
    let why = lines.next().unwrap_or("it gave no reason");
    let is_instruction = |line: &&str| {
        line.split_once(": (").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
    };
    match lines.find(is_instruction) {
        Some(instruction) => {
            // The verifier's knowledge of the registers follows a semicolon.
            format!("{why} (instruction {})", instruction.split(';').next().unwrap_or("").trim())
        }
        None => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_has_the_verifiers_last_lines() {
        // Messages of Linux 6.1, shortened.
        let log = [
            "libbpf: prog 'steer_cpumap': BPF program load failed: -EINVAL\n".to_owned(),
            "libbpf: prog 'steer_cpumap': -- BEGIN PROG LOAD LOG --\n\
             43: (67) r3 <<= 3                     ; R3_w=scalar(smax=9223372036854775800)\n\
             46: (0f) r4 += r3\n\
             last_idx 46 first_idx 36\n\
             regs=8 stack=0 before 44: (18) r4 = 0xff500e78804e0c90\n\
             math between map_value pointer and register with unbounded min value is not allowed\n\
             verification time 6164 usec\nstack depth 0\n\
             processed 41 insns (limit 1000000) max_states_per_insn 0\n\
             -- END PROG LOAD LOG --\n"
                .to_owned(),
            "libbpf: prog 'steer_cpumap': failed to load: -EINVAL\n".to_owned(),
        ];
        let refusal = Refusal::of(&log).unwrap();
        assert_eq!(
            refusal.to_string(),
            "steer_cpumap: math between map_value pointer and register with unbounded min value is not allowed \
             (instruction 46: (0f) r4 += r3)"
        );
        assert_eq!(refusal.log, log.concat());
        let log = [
            "libbpf: prog 'steer_kthread': failed to find kernel BTF type ID of 'xdp_cpumap_kthread': -3\n",
        ];
        let refusal = Refusal::of(&log.map(str::to_owned)).unwrap();
        assert_eq!(
            refusal.to_string(),
            "steer_kthread: failed to find kernel BTF type ID of 'xdp_cpumap_kthread': -3"
        );
        assert_eq!(
            Refusal::of(&["libbpf: Error in bpf_create_map_xattr(x): -EPERM".to_owned()]),
            None
        );
        let empty = ["libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n-- END PROG LOAD LOG --\n"];
        assert_eq!(Refusal::of(&empty.map(str::to_owned)).unwrap().answer, "it gave no reason");
    }
}
