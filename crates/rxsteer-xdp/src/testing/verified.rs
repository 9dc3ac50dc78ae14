//! Reads from the kernel verifier's statistics how much it had to examine.

use crate::libbpf_log;
use crate::load::{LoadError, Sizes, open, tracepoints};
use crate::setup::Setup;
use libbpf_rs::PrintLevel;
use libbpf_rs::libbpf_sys::{BPF_CALL, BPF_DW, BPF_IMM, BPF_JMP, BPF_LD};
use libbpf_rs::libbpf_sys::{BPF_PSEUDO_CALL, BPF_PSEUDO_FUNC, bpf_insn};
use libbpf_rs::skel::{OpenSkel, Skel};
use rxsteer_packet::SymmetricHash;
use std::collections::BTreeSet;

/// The verifier's statistics of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its name in `src/bpf`.
    pub program: String,
    /// Instructions that were examined, on all paths together.
    pub instructions: u32,
    /// Stack in bytes of the program, then of each of its functions; they are not all on the stack at the same time.
    pub stack: Vec<u32>,
    /// The same for the chain of calls that uses the most stack, from the program on. Empty if the kernel removed functions
    /// that are never called, since it does not report which.
    pub deepest: Vec<u32>,
}

impl Verified {
    /// The stack in bytes that Linux 6.1 counts for `deepest`; it refuses a program with more than 512.
    pub fn deepest_bytes(&self) -> u32 {
        bytes_of(&self.deepest)
    }
}

/// Linux 6.1 rounds each function's stack up to a multiple of 32; newer ones to 16 where the program is compiled.
fn bytes_of(chain: &[u32]) -> u32 {
    chain.iter().map(|bytes| (*bytes).max(1).next_multiple_of(32)).sum()
}

/// At which instruction each function begins, and which functions it calls, directly or as a callback of the kernel.
struct Calls {
    begins: Vec<usize>,
    /// The instruction of each call, and the first of the function called.
    calls: Vec<(usize, usize)>,
}

impl Calls {
    fn of(instructions: &[bpf_insn]) -> Calls {
        let mut calls = Vec::new();
        for (at, instruction) in instructions.iter().enumerate() {
            let (code, source) = (u32::from(instruction.code), u32::from(instruction.src_reg()));
            let calls_function = code == BPF_JMP | BPF_CALL && source == BPF_PSEUDO_CALL;
            let names_function = code == BPF_LD | BPF_IMM | BPF_DW && source == BPF_PSEUDO_FUNC;
            if calls_function || names_function {
                // The distance counts from the next instruction.
                let to = (at + 1).checked_add_signed(instruction.imm as isize);
                calls.push((at, to.expect("a function is in its program")));
            }
        }
        let begins: BTreeSet<usize> =
            [0].into_iter().chain(calls.iter().map(|call| call.1)).collect();
        Calls { begins: begins.into_iter().collect(), calls }
    }

    /// The number of the function that an instruction belongs to.
    fn function_at(&self, instruction: usize) -> usize {
        self.begins.partition_point(|begin| *begin <= instruction) - 1
    }

    /// The chain of calls from `function` on that takes the most of `stack`, which has the stack of each function.
    fn deepest(&self, stack: &[u32], function: usize) -> Vec<u32> {
        let called = self.calls.iter().filter(|call| self.function_at(call.0) == function);
        let called: BTreeSet<usize> = called.map(|call| self.function_at(call.1)).collect();
        let deepest = called.into_iter().map(|called| self.deepest(stack, called));
        let mut chain = vec![stack[function]];
        chain.extend(deepest.max_by_key(|chain| bytes_of(chain)).unwrap_or_default());
        chain
    }
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
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            // Loads once more, with the full log. A process that may not load programs gets the same error again.
            crate::load::load(setup)?;
            return Err(error.into());
        }
    };
    let mut programs: Vec<Verified> = log.iter().filter_map(|text| account(text)).collect();
    for program in loaded.object().progs() {
        let verified = programs.iter_mut().find(|verified| program.name() == &*verified.program);
        let Some(verified) = verified else { continue };
        let calls = Calls::of(program.insns());
        if calls.begins.len() == verified.stack.len() {
            verified.deepest = calls.deepest(&verified.stack, 0);
        }
    }
    Ok(programs)
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
    let stack = stack.collect::<Option<_>>()?;
    Some(Verified { program, instructions, stack, deepest: Vec::new() })
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
        let verified = Some(Verified { program, instructions: 2345, stack, deepest: Vec::new() });
        assert_eq!(account(log), verified);
        let of_7_2 = log.replace("+16\n", "+16 max 128\ninsns processed 2000+345\n");
        assert_eq!(account(&of_7_2), verified);
        assert_eq!(account("libbpf: map 'steer_slots': created"), None);
    }

    #[test]
    fn deepest_chain_is_found() {
        // 0 to 3 call the functions at 4 and 6; 4 has the one at 8 called back, 6 calls nothing.
        let mut instructions = vec![bpf_insn::default(); 10];
        let mut set = |at: usize, code, source, to: i32| {
            let instruction: &mut bpf_insn = &mut instructions[at];
            instruction.code = code as u8;
            instruction.set_src_reg(source as u8);
            instruction.imm = to - at as i32 - 1;
        };
        set(1, BPF_JMP | BPF_CALL, BPF_PSEUDO_CALL, 6);
        set(2, BPF_JMP | BPF_CALL, BPF_PSEUDO_CALL, 4);
        set(3, BPF_JMP | BPF_CALL, 0, 8);
        set(5, BPF_LD | BPF_IMM | BPF_DW, BPF_PSEUDO_FUNC, 8);
        let calls = Calls::of(&instructions);
        assert_eq!(calls.begins, [0, 4, 6, 8]);
        assert_eq!(calls.deepest(&[100, 33, 96, 0], 0), [100, 96]);
        assert_eq!(calls.deepest(&[100, 33, 90, 40], 0), [100, 33, 40]);
        assert_eq!(bytes_of(&[100, 33, 40]), 128 + 64 + 64);
        assert_eq!(bytes_of(&[0]), 32);
    }
}
