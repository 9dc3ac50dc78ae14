//! `--filter`: compiles expressions of tcpdump to classic BPF.
//!
//! A separate tcpdump process compiles them. libpcap has the only maintained compiler; to link it would make it a
//! requirement of every build, and no crate has its own compiler. tcpdump queries the interface for its link type, and
//! handles the kernel's treatment of VLAN tags.

use anyhow::{Context, bail, ensure};
use rxsteer_user::printable;
use rxsteer_user::source::packet::FilterInstruction;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// The most instructions that the kernel accepts (`BPF_MAXINSNS`).
const MOST: usize = 4096;

/// The instructions for packets of `interface` that match `expression`.
pub(crate) fn compile(expression: &str, interface: &str) -> anyhow::Result<Vec<FilterInstruction>> {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-p", "-ddd", "-i", interface, "--", expression]).stdin(Stdio::null());
    let output = match tcpdump.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "--filter is compiled by tcpdump, which is not installed; install it (apt install tcpdump), or leave out \
             --filter"
        ),
        output => output.context("can't start tcpdump, which compiles --filter")?,
    };
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = words.lines().last().unwrap_or("it gave no reason");
        bail!("tcpdump refuses --filter '{}': {}", printable(expression), printable(why));
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the output of `tcpdump -ddd`: the number of instructions, and a line for each.
fn parse(text: &str) -> anyhow::Result<Vec<FilterInstruction>> {
    let mut lines = text.lines();
    let count: Option<usize> = lines.next().and_then(|line| line.trim().parse().ok());
    let instructions: Option<Vec<FilterInstruction>> = lines.map(instruction).collect();
    match (count, instructions) {
        (Some(count), Some(instructions)) if instructions.len() == count => {
            ensure!(count <= MOST, "--filter has {count} instructions; the kernel accepts {MOST}");
            Ok(instructions)
        }
        _ => bail!("tcpdump -ddd printed something else than a filter; is it the usual tcpdump?"),
    }
}

fn instruction(line: &str) -> Option<FilterInstruction> {
    let mut numbers = line.split_whitespace();
    let mut next = || numbers.next()?.parse::<u32>().ok();
    let (code, jump_true, jump_false, k) = (next()?, next()?, next()?, next()?);
    Some(FilterInstruction {
        code: code.try_into().ok()?,
        jump_true: jump_true.try_into().ok()?,
        jump_false: jump_false.try_into().ok()?,
        k,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_whole_or_not_at_all() {
        let text = "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n";
        let filter = parse(text).unwrap();
        let second = FilterInstruction { code: 21, jump_true: 0, jump_false: 1, k: 2048 };
        assert_eq!((filter.len(), filter[1]), (4, second));
        for damaged in ["", "4\n40 0 0 12\n", "1\n40 0 0\n", "1\n70000 0 0 1\n", "x\n6 0 0 0\n"] {
            assert!(parse(damaged).is_err(), "{damaged:?}");
        }
        let long = format!("5000\n{}", "6 0 0 0\n".repeat(5000));
        assert!(parse(&long).unwrap_err().to_string().contains("5000"));
    }
}
