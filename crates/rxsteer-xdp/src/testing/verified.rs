//! How much the kernel's verifier had to examine, according to its own statistics.

use crate::libbpf_log;
use crate::load::{LoadError, Sizes, open, tracepoints};
use crate::setup::Setup;
use libbpf_rs::PrintLevel;
use libbpf_rs::skel::OpenSkel;
use rxsteer_packet::SymmetricHash;

/// The verifier's statistics of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its name in `src/bpf`.
    pub program: String,
    /// Instructions that were examined, on all paths together.
    pub instructions: u32,
    /// Stack in bytes of the program, then of each of its functions; they are not all on the stack at the same time.
    pub stack: Vec<u32>,
}

/// The kernel's `BPF_LOG_STATS`: statistics without the trace.
const LOG_STATS: u32 = 4;

/// Loads the programs for `setup`, so that the kernel verifies them, and unloads them.
///
/// # Errors
/// [`LoadError`].
pub fn verify(setup: &Setup) -> Result<Vec<Verified>, LoadError> {
    let (sizes, hash) = (Sizes::of(setup)?, SymmetricHash::new(setup.secret));
    let mut open = open(setup, &sizes, &hash, tracepoints())?;
    for mut program in open.open_object_mut().progs_mut() {
        program.set_log_level(LOG_STATS);
    }
    let (loaded, log) = libbpf_log::during(PrintLevel::Debug, || open.load());
    if let Err(error) = loaded {
        // Loads once more with the full log. A process that may load nothing gets the same error again.
        crate::load::load(setup)?;
        return Err(error.into());
    }
    Ok(log.iter().filter_map(|text| account(text)).collect())
}

/// The statistics in one program's log.
fn account(text: &str) -> Option<Verified> {
    let (head, log) = text.split_once("-- BEGIN PROG LOAD LOG --")?;
    let after = |text| log.lines().find_map(|line| line.strip_prefix(text));
    let program = head.split('\'').nth(1)?.to_owned();
    let instructions = after("processed ")?.split(' ').next()?.parse().ok()?;
    // Linux 7.2 adds the largest stack use at one time: "112+0+16 max 128".
    let stack = after("stack depth ")?.split(" max ").next()?;
    let stack = stack.split('+').map(|bytes| bytes.trim().parse().ok());
    Some(Verified { program, instructions, stack: stack.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_understood() {
        let log = "libbpf: prog 'steer_entry': -- BEGIN PROG LOAD LOG --\nverification time 92 usec\n\
                   stack depth 112+0+16\nprocessed 2345 insns (limit 1000000) max_states_per_insn 4\n\
                   -- END PROG LOAD LOG --\n";
        let stack = vec![112, 0, 16];
        let program = "steer_entry".to_owned();
        let verified = Some(Verified { program, instructions: 2345, stack });
        assert_eq!(account(log), verified);
        let of_7_2 = log.replace("+16\n", "+16 max 128\ninsns processed 2000+345\n");
        assert_eq!(account(&of_7_2), verified);
        assert_eq!(account("libbpf: map 'steer_slots': created"), None);
    }
}
