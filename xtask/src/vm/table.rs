//! docs/results/machines.md: the measurements of each machine, by policy.

use std::fmt::Write;

use super::matrix::{Machine, Matrix};
use super::results::{Measured, NOT_RUN, Results, Verdict};

const HEAD: &str = "# Machines

`cargo xtask vm --results docs/results/machines.md` makes this file from the matrix in [xtask/vm/vm.toml](../../xtask/vm/vm.toml). The virtual
machines run without hardware support, so no figure here is a statement about speed. A cell that was not measured is marked as such.

| column | content |
|---|---|
| run | the mode in which `rxsteer run` steers, or its reason to refuse; *after*: the command that `rxsteer check` asked for, and that the test then gave |
| verified | instructions that the kernel's verifier processed: for the program with the most of them, and for the program at the interface |
| frames, late | numbered frames that were delivered while the application changed its CPU, settings changed, and the programs were attached and detached; how many of them arrived after a later frame of their flow |
| counts | whether received = passed + delivered + drops once traffic had stopped |
| traffic | whether frames kept arriving while the programs were attached and after they were detached |
| kill -9 | whether programs, rings and the control socket were gone after it |
| attaching | the longest time without a frame while the program was attached, and the interface's features that attaching switched off |
| TCP | megabytes of one stream in a second before the program was attached, through it, and after it was detached, with the bytes per frame (merged segments are one frame) |

Each result has its day and the tested commit. The command replaces the sections of the machines that it ran, and keeps the others.
";

/// The whole file; `kept` returns the last results of a machine. Machines without results keep their section of `before`, the
/// present file.
pub(crate) fn make(
    matrix: &Matrix,
    kept: &dyn Fn(&str) -> Option<Results>,
    before: &str,
) -> String {
    let mut text = HEAD.to_owned();
    let mut not_run = String::new();
    for machine in &matrix.machines {
        match (kept(&machine.name), section_of(before, &machine.name)) {
            (Some(results), _) => section(&mut text, machine, &results),
            (None, Some(present)) => text += &present,
            (None, None) => head(&mut not_run, "- **", "**: ", machine, &machine.kernel),
        }
    }
    if !not_run.is_empty() {
        text += "\n## Not run\n\n";
        text += &not_run;
    }
    text
}

/// The section of a machine in a file that [`make`] made.
fn section_of(file: &str, machine: &str) -> Option<String> {
    let mut sections = file.split("\n## ").skip(1);
    let is_meant = |section: &&str| section.lines().next() == Some(machine);
    sections.find(is_meant).map(|section| format!("\n## {}\n", section.trim_end()))
}

/// The properties of a machine besides its kernel, driver, queues and CPUs.
pub(crate) fn more(machine: &Machine) -> String {
    let mut more = Vec::new();
    more.extend(machine.smp.clone());
    more.extend(Some(machine.append.clone()).filter(|append| !append.is_empty()));
    more.extend(machine.offline.iter().map(|cpu| format!("CPU {cpu} offline")));
    more.extend(Some(machine.device.clone()).filter(|device| !device.is_empty()));
    more.join("; ")
}

/// The machine, its expected result, and the command that runs it.
fn head(text: &mut String, before: &str, after: &str, machine: &Machine, kernel: &str) {
    let Machine { name, driver, queues, cpus, .. } = machine;
    let plural =
        |count: u32, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let more = Some(more(machine)).filter(|more| !more.is_empty());
    let more = more.map(|more| format!("; {more}")).unwrap_or_default();
    let cards = machine.card().map(|_| format!(", {}", plural(*queues, "queue")));
    let expected = machine.refused.as_ref().map(|words| format!("refused (\"{words}\")"));
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{before}{name}{after}Linux {kernel}, {driver}{}, {}{more}. Expected: {}. `cargo xtask vm --machine {name}`",
        cards.unwrap_or_default(),
        plural(*cpus, "CPU"),
        expected.as_deref().unwrap_or("works")
    );
}

fn section(text: &mut String, machine: &Machine, results: &Results) {
    head(text, "\n## ", "\n\n", machine, &results.kernel);
    let of =
        |kind: fn(&Verdict) -> bool| results.tests.iter().filter(move |test| kind(&test.verdict));
    let failed = of(|verdict| matches!(verdict, Verdict::Failed(_)) && !was_not_run(verdict));
    let _ = write!(
        text,
        "\nLive tests of {}: {} passed, {} failed, {} skipped",
        results.day,
        of(|verdict| matches!(verdict, Verdict::Passed)).count(),
        failed.clone().count(),
        of(|verdict| matches!(verdict, Verdict::Skipped(_))).count(),
    );
    let not_run = of(was_not_run).count();
    text.push_str(&match not_run {
        0 => ".\n".to_owned(),
        _ => format!(", {not_run} not run after the machine had ended.\n"),
    });
    for test in failed {
        if let Verdict::Failed(stderr) = &test.verdict {
            let _ = writeln!(text, "- failed: `{}`: {}", test.name, cell(reason(stderr)));
        }
    }
    if results.measured.is_empty() {
        return;
    }
    text.push_str(
        "\n| policy | run | verified | frames | late | moves | counts | traffic | kill -9 | attaching | TCP |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for measured in &results.measured {
        row(text, measured);
    }
}

/// Whether the machine did not reach this test.
fn was_not_run(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Failed(why) if why.starts_with(NOT_RUN))
}

/// The message of a failed test, without its location.
fn reason(stderr: &str) -> &str {
    let lines = stderr.lines().filter(|line| !line.is_empty() && !line.starts_with("thread '"));
    lines.into_iter().next().unwrap_or(stderr)
}

/// Text that fits into one line of a table.
fn cell(text: &str) -> String {
    const MAX: usize = 300;
    let text = text.replace('|', "\\|").replace('\n', " ");
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn row(text: &mut String, measured: &Measured) {
    const NOT: &str = "not run";
    let number = |number: Option<u64>| number.map_or(NOT.to_owned(), |number| number.to_string());
    let yes = |answer: Option<bool>, yes: &str, no: &str| {
        answer.map_or(NOT.to_owned(), |is| if is { yes.to_owned() } else { format!("**{no}**") })
    };
    let policy = match &measured.took {
        Some(took) if measured.policy == "default" => format!("none given: `{took}`"),
        None if measured.policy == "default" => "none given".to_owned(),
        _ => format!("`{}`", measured.policy),
    };
    let run = match (&measured.refused, &measured.mode) {
        (Some(why), _) => format!("refused: {}", cell(why)),
        (None, Some(mode)) => mode.clone(),
        (None, None) => NOT.to_owned(),
    };
    let after: String =
        measured.after.iter().map(|command| format!(", *after* `{command}`")).collect();
    let most = measured.verified.iter().max_by_key(|(_, instructions)| **instructions);
    let verified = match (most, measured.verified.get("steer_entry")) {
        (Some((program, most)), Some(entry)) => {
            format!("{most} ({program}), {entry} (steer_entry)")
        }
        (Some((program, most)), None) => format!("{most} ({program})"),
        (None, _) => NOT.to_owned(),
    };
    let counts = match (measured.unaccounted, measured.received, measured.dropped) {
        (Some(0), Some(received), Some(dropped)) => {
            format!("add up: {received}, {dropped} dropped")
        }
        (Some(unaccounted), ..) => format!("**{unaccounted} unaccounted for**"),
        (None, ..) => NOT.to_owned(),
    };
    let attaching = measured.attach_pause_ms.map_or(NOT.to_owned(), |pause| {
        let off = match measured.features_off.as_slice() {
            [] => "nothing off".to_owned(),
            features => format!("off: {}", features.join(", ")),
        };
        format!("{pause:.0} ms, {off}")
    });
    let tcp = |bytes: Option<u64>, frames: Option<u64>| match (bytes, frames) {
        (None, _) => NOT.to_owned(),
        (Some(bytes), None) => format!("{:.1} MB", bytes as f64 / 1e6),
        (Some(bytes), Some(frames)) => {
            format!("{:.1} MB ({} a frame)", bytes as f64 / 1e6, bytes / frames.max(1))
        }
    };
    let _ = writeln!(
        text,
        "| {policy} | {run}{after} | {verified} | {} | {} | {} | {counts} | {} | {} | {attaching} | {}, {}, {} |",
        number(measured.frames),
        number(measured.late),
        number(measured.moves),
        yes(measured.attached_under_traffic, "went on", "stopped"),
        yes(measured.clean_after_kill, "nothing left", "something left"),
        tcp(measured.tcp_bytes_before, measured.tcp_frames_before),
        tcp(measured.tcp_bytes, measured.tcp_frames),
        tcp(measured.tcp_bytes_after, measured.tcp_frames_after),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::results::Test;

    const FILE: &str = "[kernel.a]\nsuite = 'x'\npackage = 'y'\n\
        [[machine]]\nname = 'one'\nkernel = 'a'\ndriver = 'virtio_net'\ncpus = 1\n\
        [[machine]]\nname = 'two'\nkernel = 'a'\ndriver = 'veth'\ncpus = 8\nappend = 'nohz_full=1'\nrefused = 'why'\n";

    fn table(results: Results) -> String {
        let matrix = Matrix::parse(FILE).unwrap();
        make(&matrix, &|name| (name == "one").then(|| results.clone()), "")
    }

    #[test]
    fn machine_that_was_not_run_keeps_its_section() {
        let matrix = Matrix::parse(FILE).unwrap();
        let of = |name: &'static str, day: &str| {
            let results = Results { day: day.to_owned(), ..Results::default() };
            move |asked: &str| (asked == name).then(|| results.clone())
        };
        let first = make(&matrix, &of("two", "day 1"), "");
        assert_eq!(make(&matrix, &|_| None, &first), first);
        let second = make(&matrix, &of("one", "day 2"), &first);
        let third = make(&matrix, &of("two", "day 3"), &second);
        assert!(second.contains("day 1") && second.contains("day 2"), "{second}");
        assert!(!third.contains("day 1") && third.contains("day 2"), "{third}");
        assert!(first.contains("## Not run") && !second.contains("## Not run"), "{second}");
    }

    #[test]
    fn what_was_not_run_says_so() {
        let text = table(Results::default());
        let not_run = text.split_once("## Not run").unwrap().1;
        let two = "- **two**: Linux a, veth, 8 CPUs; nohz_full=1. Expected: refused (\"why\"). \
                   `cargo xtask vm --machine two`";
        assert_eq!(not_run.trim(), two);
        let measured = vec![Measured { policy: "rps".to_owned(), ..Measured::default() }];
        let text = table(Results { measured, ..Results::default() });
        assert_eq!(text.matches("not run |").count(), 10, "{text}");
    }

    #[test]
    fn what_was_measured_stands_in_its_row() {
        let measured = Measured {
            policy: "rfs+sparse".to_owned(),
            mode: Some("native".to_owned()),
            after: vec!["ethtool -K in0 lro off".to_owned()],
            verified: [("steer_entry".to_owned(), 5000), ("steer_cpumap".to_owned(), 9000)].into(),
            frames: Some(100_000),
            late: Some(3),
            moves: Some(12),
            unaccounted: Some(-2),
            attached_under_traffic: Some(true),
            clean_after_kill: Some(false),
            tcp_bytes: Some(5_600_000),
            tcp_frames: Some(4_000),
            tcp_bytes_before: Some(9_000_000),
            attach_pause_ms: Some(7.4),
            features_off: vec!["rx-gro-hw".to_owned()],
            ..Measured::default()
        };
        let tests = vec![Test {
            name: "machine::rps".to_owned(),
            verdict: Verdict::Failed("thread 'x' panicked at a:1:\nlate | 3".to_owned()),
        }];
        let results = Results {
            kernel: "6.1.0".to_owned(),
            tests,
            measured: vec![measured],
            ..Results::default()
        };
        let text = table(results);
        let row = "| `rfs+sparse` | native, *after* `ethtool -K in0 lro off` | 9000 (steer_cpumap), 5000 (steer_entry) | \
                   100000 | 3 | 12 | **-2 unaccounted for** | went on | **something left** | \
                   7 ms, off: rx-gro-hw | 9.0 MB, 5.6 MB (1400 a frame), not run |";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("## one\n\nLinux 6.1.0, virtio_net, 1 queue, 1 CPU. Expected: works."),
            "{text}"
        );
        assert!(text.contains("failed: `machine::rps`: late \\| 3"), "{text}");
        assert!(text.contains("0 passed, 1 failed, 0 skipped"), "{text}");
    }
}
