//! What the kernel's verifier had to look at, by its own account.

use crate::load::{LoadError, Sizes, open};
use crate::setup::Setup;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{PrintLevel, set_print};
use rxsteer_packet::SymmetricHash;
use std::sync::{Mutex, PoisonError};

/// One program, as the verifier saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its name in `src/bpf`.
    pub program: String,
    /// Instructions looked at, on all paths together.
    pub instructions: u32,
    /// Bytes of stack of the program, then of each of its functions; not all of them lie on it at a time.
    pub stack: Vec<u32>,
}

/// The kernel's `BPF_LOG_STATS`: only the account, not the way.
const LOG_STATS: u32 = 4;

/// What libbpf said; it tells a function without a place to put it.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has the programs loaded for `setup` verified, and lets them go again.
///
/// # Errors
/// [`LoadError`].
pub fn verify(setup: &Setup) -> Result<Vec<Verified>, LoadError> {
    let mut open = open(setup, &Sizes::of(setup)?, &SymmetricHash::new(setup.secret))?;
    for mut program in open.open_object_mut().progs_mut() {
        program.set_log_level(LOG_STATS);
    }
    let before = set_print(Some((PrintLevel::Debug, note)));
    let loaded = open.load();
    set_print(before);
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    loaded?;
    Ok(said.iter().filter_map(|text| account(text)).collect())
}

fn note(_: PrintLevel, text: String) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

/// What the log of one program says.
fn account(text: &str) -> Option<Verified> {
    let after = |text: &'static str, log: &str| Some(log.split_once(text)?.1.to_owned());
    let (head, log) = text.split_once("-- BEGIN PROG LOAD LOG --")?;
    let program = head.split('\'').nth(1)?.to_owned();
    let instructions = after("processed ", log)?.split(' ').next()?.parse().ok()?;
    let stack = after("stack depth ", log)?;
    let stack = stack.lines().next()?.split('+').map(|bytes| bytes.trim().parse().ok());
    Some(Verified { program, instructions, stack: stack.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_understood() {
        let log = "libbpf: prog 'steer_entry': -- BEGIN PROG LOAD LOG --\nverification time 92 usec\n\
                   stack depth 112+0+16\nprocessed 2345 insns (limit 1000000) max_states_per_insn 4\n\
                   -- END PROG LOAD LOG --\n";
        let stack = vec![112, 0, 16];
        let program = "steer_entry".to_owned();
        assert_eq!(account(log), Some(Verified { program, instructions: 2345, stack }));
        assert_eq!(account("libbpf: map 'steer_slots': created"), None);
    }
}
