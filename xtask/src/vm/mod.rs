//! Live tests in virtual machines: other kernels, drivers and CPUs than this host has.
//!
//! The tests are defined by data (xtask/vm/vm.toml). QEMU boots a packaged kernel without hardware support, with the
//! host's root file system under an overlay, and the live tests run there as they do on the host. This is slow, so
//! nothing here measures speed.

mod guest;
mod host;
mod matrix;
mod results;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use crate::{Outcome, shell};
use guest::{Boot, Tests, Threads};
use host::Kit;
pub(crate) use host::script;
use matrix::{Machine, Matrix, Selection};
use results::{Left, Results, Verdict};

/// Runs live tests in virtual machines with other kernels, drivers and CPUs; requires root, QEMU and clang.
///
/// It fetches Debian's kernel packages from the mirror of this host's apt, and unpacks them below target/vm/kernels,
/// where it keeps them (remove a folder to fetch its kernel again). After that it needs neither KVM nor a network.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask vm --list\n  \
    cargo xtask vm --kernel 6.1 --driver virtio_net\n  \
    cargo xtask vm --machine 6.12-veth-8 order:: guard::\n  \
    cargo xtask vm --kernel 6.12 --driver vmxnet3 --cpus 4 --append nohz_full=1-3\n  \
    cargo xtask vm --results docs/results/machines.md\n  \
    cargo xtask vm --missing --results docs/results/machines.md\n\n\
    Exit status: 0 all passed or were skipped, 1 something failed, 2 it could not be run.")]
pub(crate) struct Options {
    /// Only machines with these kernels; separate several by commas, or repeat the option.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    kernel: Vec<String>,
    /// Only machines with these drivers.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    driver: Vec<String>,
    /// Only machines with this many CPUs.
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// Only these machines.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    machine: Vec<String>,
    /// More boot parameters for each machine.
    #[arg(long, value_name = "PARAMETERS", allow_hyphen_values = true)]
    append: Option<String>,
    /// Only the machines that ./test boots, with fewer frames.
    #[arg(long)]
    quick: bool,
    /// Only machines that have no result for this commit here: continues an interrupted run.
    #[arg(long, conflicts_with = "tests")]
    missing: bool,
    /// Ends a boot of a machine after this many seconds, instead of after ten minutes plus one minute for each test.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Writes the last results of this host to this file; machines that were not run here keep their section in it.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Runs nothing: with --results, makes the table from earlier results.
    #[arg(long, requires = "results")]
    no_run: bool,
    /// Shows the machines, and runs nothing.
    #[arg(long)]
    list: bool,
    /// Prints one JSON object instead of lines.
    #[arg(long)]
    json: bool,
    /// Only live tests whose name contains one of these, instead of those of the machine.
    #[arg(value_name = "TESTS")]
    tests: Vec<String>,
}

/// How often a machine is booted if it dies of a fault of the emulator, or before its first test.
const ATTEMPTS: u32 = 4;

/// Numbered frames of each test of `machine::`, except in the short run of ./test.
const FRAMES: &str = "100000";

/// The overall result.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let file = shell::root().join("xtask/vm/vm.toml");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let matrix = Matrix::parse(&text).with_context(|| format!("{} is wrong", file.display()))?;
    let mut machines = matrix.select(&Selection {
        machines: options.machine.clone(),
        kernels: options.kernel.clone(),
        drivers: options.driver.clone(),
        cpus: options.cpus,
        append: options.append.clone(),
        quick: options.quick,
    })?;
    if options.missing {
        let day = host::day();
        machines.retain(|machine| kept(&machine.name).is_none_or(|kept| !kept.is_of(&day)));
    }
    if options.list {
        list(&machines, options.json);
        return Ok(Outcome::Passed);
    }
    let mut counts = Counts::default();
    let mut all = Vec::new();
    if !options.no_run {
        let kit = Kit::new()?;
        let try_one = |machine: &Machine| match &kit {
            Ok(kit) => one(kit, &matrix, machine, options),
            Err(why) => Ok(Err(why.clone())),
        };
        // A short run needs one of the host's CPUs for a machine (`Threads::Single`), a long one all of them.
        let at_once = if options.quick { machines.len().max(1) } else { 1 };
        for machines in machines.chunks(at_once) {
            let results: Vec<_> = std::thread::scope(|scope| {
                let boot = |machine| scope.spawn(move || try_one(machine));
                let running: Vec<_> = machines.iter().map(boot).collect();
                let joined = running.into_iter().map(|thread| thread.join());
                joined
                    .map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect()
            });
            for (machine, results) in machines.iter().zip(results) {
                let results = results?;
                show(machine, &results, &mut counts, options.json);
                all.push(json!({ "machine": machine, "results": results.as_ref().ok(), "skipped": results.as_ref().err() }));
            }
            // Written after each machine, so that a run that is ended leaves its measurements.
            write(&matrix, options)?;
        }
    }
    write(&matrix, options)?;
    let Counts { passed, failed, skipped } = counts;
    if options.json {
        println!(
            "{}",
            json!({ "passed": passed, "failed": failed, "skipped": skipped, "machines": all })
        );
    } else if !options.no_run {
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }
    Ok(if failed == 0 { Outcome::Passed } else { Outcome::Failed })
}

/// Writes the table, if requested.
fn write(matrix: &Matrix, options: &Options) -> Result<()> {
    let Some(path) = &options.results else { return Ok(()) };
    // If the file does not exist, there are no sections to keep.
    let before = std::fs::read_to_string(path).unwrap_or_default();
    std::fs::write(path, table::make(matrix, &kept, &before))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Boots one machine; the inner error is a reason to skip it.
fn one(
    kit: &Kit,
    matrix: &Matrix,
    machine: &Machine,
    options: &Options,
) -> Result<Result<Results, String>> {
    let kernel = &matrix.kernels[&machine.kernel];
    let folder = match host::kernel(&machine.kernel, kernel)? {
        Ok(folder) => folder,
        Err(why) => return Ok(Err(why)),
    };
    let command = format!("chroot /new /bin/bash {}", script("guest.sh").display());
    let initramfs = host::initramfs(&machine.kernel, &folder, &command)?;
    let names = match (options.tests.is_empty(), options.quick) {
        (false, _) => &options.tests,
        (true, true) => &machine.quick,
        (true, false) => &machine.tests,
    };
    let mut environment = vec![
        ("RXSTEER_BIN".to_owned(), kit.rxsteer.to_string_lossy().into_owned()),
        ("RXSTEER_MEASURED".to_owned(), "/run/shared/measured".to_owned()),
    ];
    if machine.card().is_some() {
        environment.push(("RXSTEER_CARDS".to_owned(), "eth1 eth0".to_owned()));
    }
    if let Some(words) = &machine.refused {
        environment.push(("RXSTEER_REFUSED".to_owned(), words.clone()));
    }
    if !options.quick {
        environment.push(("RXSTEER_FRAMES".to_owned(), FRAMES.to_owned()));
    }
    let mut results = Results { day: host::day(), ..Results::default() };
    // ./test must be reliable; longer runs look for errors between CPUs.
    let threads = if options.quick { Threads::Single } else { Threads::Multi };
    let mut tests =
        Tests { binary: kit.live.clone(), names: kit.tests(names)?, environment, threads };
    let started = Instant::now();
    for attempt in 1.. {
        let limit = options.limit.unwrap_or(600 + 60 * tests.names.len() as u64);
        let limit = Duration::from_secs(limit);
        let (left, ended) = guest::run(machine, &folder, &initramfs, &tests, limit)?;
        if !left.kernel.is_empty() {
            results.kernel.clone_from(&left.kernel);
        }
        results.measured.extend(left.measured());
        let is_fault = left.is_fault_of_the_emulator();
        if attempt == ATTEMPTS || !(is_fault || left.ended_before_its_tests()) {
            results.tests.extend(left.tests(&tests.names, &ended));
            break;
        }
        // The machine died before it could report why these failed.
        let finished: Vec<_> =
            left.finished().into_iter().filter(|test| !test.is_unexplained()).collect();
        tests.names.retain(|name| !finished.iter().any(|test| test.name == *name));
        results.tests.extend(finished);
        // If a test did not end, its measurements are discarded, since it will measure again.
        let tests_ended = &results.tests;
        results.measured.retain(|measured| {
            tests_ended.iter().any(|test| Some(&test.name) == measured.test.as_ref())
        });
        let why = if is_fault {
            "QEMU ran code that the kernel had changed meanwhile (int3), a fault of QEMU before 8.1 (Debian 12 has a \
             newer one in bookworm-backports)"
        } else {
            &ended
        };
        eprintln!("{}: {why}; booted again for {} tests", machine.name, tests.names.len());
    }
    results.seconds = started.elapsed().as_secs();
    // The results of a machine that is not in the matrix do not apply to the rows of the matrix.
    let is_of_the_matrix = matrix.machines.iter().any(|row| row.name == machine.name);
    if is_of_the_matrix && !options.quick {
        let all = kept(&machine.name).filter(|_| !options.tests.is_empty()).map(|mut before| {
            before.take(&results);
            before
        });
        keep(machine, all.as_ref().unwrap_or(&results))?;
    }
    Ok(Ok(results))
}

/// Boots a machine of the matrix with another root, whose systemd is started, and with these files in its shared
/// folder. Returns the files that it left there, and how it ended. The inner error is the reason why it cannot be
/// booted here.
pub(crate) fn boot_root(
    name: &str,
    root: &Path,
    files: Vec<(&'static str, Vec<u8>)>,
    limit: Duration,
) -> Result<Result<(Left, String), String>> {
    if let Some(why) = host::missing()? {
        return Ok(Err(why));
    }
    let matrix = Matrix::parse(include_str!("../../vm/vm.toml"))?;
    let machine = matrix.machines.iter().find(|machine| machine.name == name);
    let machine = machine.with_context(|| format!("xtask/vm/vm.toml has no machine {name}"))?;
    let kernel = match host::kernel(&machine.kernel, &matrix.kernels[&machine.kernel])? {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Err(why)),
    };
    let initramfs = host::initramfs("systemd", &kernel, "switch_root /new /sbin/init")?;
    let threads = Threads::Multi;
    let with = Boot {
        kernel: &kernel,
        initramfs: &initramfs,
        root,
        files,
        threads,
        reports: false,
        limit,
    };
    guest::boot(machine, &with).map(Ok)
}

/// The file with the last results of a machine.
fn place(machine: &str) -> PathBuf {
    shell::target_dir("vm/results").join(format!("{machine}.json"))
}

fn keep(machine: &Machine, results: &Results) -> Result<()> {
    let path = place(&machine.name);
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    std::fs::write(&path, serde_json::to_vec_pretty(results)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The last results of a machine.
fn kept(machine: &str) -> Option<Results> {
    serde_json::from_slice(&std::fs::read(place(machine)).ok()?).ok()
}

/// Shows the machines.
fn list(machines: &[Machine], json: bool) {
    if json {
        println!("{}", json!(machines));
        return;
    }
    println!(
        "{:22} {:8} {:11} {:>6} {:>5}  run    more",
        "machine", "kernel", "driver", "queues", "CPUs"
    );
    for machine in machines {
        let Machine { name, kernel, driver, queues, cpus, .. } = machine;
        let expected = if machine.refused.is_some() { "refuses" } else { "works" };
        println!(
            "{name:22} {kernel:8} {driver:11} {queues:>6} {cpus:>5}  {expected:7} {}",
            table::more(machine)
        );
    }
}

/// Prints the result of a machine, and counts it.
fn show(machine: &Machine, results: &Result<Results, String>, counts: &mut Counts, json: bool) {
    let say = |line: &str| {
        if !json {
            println!("{line}");
        }
    };
    let name = &machine.name;
    let results = match results {
        Ok(results) => results,
        Err(why) => {
            counts.skipped += 1;
            return say(&format!("SKIPPED {name}: {why}"));
        }
    };
    let mut passed = 0;
    for test in &results.tests {
        match &test.verdict {
            Verdict::Passed => passed += 1,
            Verdict::Skipped(why) => {
                counts.skipped += 1;
                say(&format!("SKIPPED {name}/{}: {why}", test.name));
            }
            Verdict::Failed(stderr) => {
                counts.failed += 1;
                say(&format!("FAILED  {name}/{}\n{stderr}\n", test.name));
            }
        }
    }
    counts.passed += passed;
    if passed > 0 {
        say(&format!(
            "ok      {name} ({passed} passed, Linux {}, {} s)",
            results.kernel, results.seconds
        ));
    }
}
