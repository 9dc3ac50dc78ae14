//! One guest: QEMU without hardware support, a shared folder, and a time limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::matrix::Machine;
use super::results::Left;
use crate::shell;

/// The tests for a guest.
pub(crate) struct Tests {
    /// The binary of the live tests.
    pub(crate) binary: PathBuf,
    /// Names of tests.
    pub(crate) names: Vec<String>,
    /// The environment variables that they read.
    pub(crate) environment: Vec<(String, String)>,
    /// How QEMU runs the CPUs of the guest.
    pub(crate) threads: Threads,
}

/// How to boot a guest.
pub(crate) struct Boot<'a> {
    /// The folder of the kernel.
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// The folder that becomes its root, below an overlay.
    pub(crate) root: &'a Path,
    /// Files of the shared folder, by name.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
    pub(crate) threads: Threads,
    /// Whether it reports that it is alive; if so, it is ended when the reports stop.
    pub(crate) reports: bool,
    /// The time after which it is ended.
    pub(crate) limit: Duration,
}

/// How QEMU runs the CPUs of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One after another, in one thread.
    Single,
    /// In parallel. Before QEMU 8.1 a CPU may run code that another CPU has changed meanwhile, and the kernel changes
    /// its own code where tracepoints are used (QEMU's commit deba78709a, "accel/tcg: Always lock pages before
    /// translation").
    Multi,
}

/// The folder that a guest shares with the host; it is removed when this is dropped.
struct Shared(PathBuf);

impl Drop for Shared {
    fn drop(&mut self) {
        // If it cannot be removed now, it is removed before the next guest starts.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running guest; it is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; both calls then do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots a machine with the host's root, for tests; returns the files that it left, and how it ended.
pub(crate) fn run(
    machine: &Machine,
    kernel: &Path,
    initramfs: &Path,
    tests: &Tests,
    limit: Duration,
) -> Result<(Left, String)> {
    let files = vec![("machine", plan(machine, tests).into_bytes())];
    let root = Path::new("/");
    boot(
        machine,
        &Boot { kernel, initramfs, root, files, threads: tests.threads, reports: true, limit },
    )
}

/// Boots a machine; returns the files that it left, and how it ended.
pub(crate) fn boot(machine: &Machine, with: &Boot<'_>) -> Result<(Left, String)> {
    let shared = Shared(new_folder(&machine.name)?);
    let folder = &shared.0;
    for (name, content) in &with.files {
        fs::write(folder.join(name), content).context("cannot write the guest's folder")?;
    }
    let errors =
        fs::File::create(folder.join("errors")).context("cannot write the guest's folder")?;
    let limit = with.limit;
    let mut qemu = command(machine, with, folder);
    let (monitor, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
    qemu.stdin(OwnedFd::from(theirs.try_clone()?)).stdout(OwnedFd::from(theirs)).stderr(errors);
    let mut guest = Running(qemu.spawn().context("cannot start qemu-system-x86_64")?);
    drop(qemu);
    let started = Instant::now();
    let mut stuck_at = String::new();
    let ended = loop {
        if guest.0.try_wait()?.is_some() {
            break format!(
                "the machine ended after {} s, before its tests",
                started.elapsed().as_secs()
            );
        }
        let seconds = match silence(folder, started) {
            _ if started.elapsed() > limit => limit.as_secs(),
            Some(silence) if with.reports => silence.as_secs(),
            _ => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        stuck_at = functions(folder, &monitor).unwrap_or_else(|why| format!("unknown: {why:#}"));
        let why = if started.elapsed() > limit { "its limit" } else { "without a sign of life" };
        break format!(
            "the machine was stopped after {seconds} s, {why}; its CPUs were in {stuck_at}"
        );
    };
    drop(guest);
    Ok((Left { stuck_at, ..Left::read(folder) }, ended))
}

/// A machine that runs programs reports so every five seconds. If it has not done so for this time, it hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// If it has not reported at all for this time, it hung while it booted.
const BOOT: Duration = Duration::from_secs(300);

/// How long the machine has not reported that it runs programs, if that is too long.
fn silence(folder: &Path, started: Instant) -> Option<Duration> {
    let written = fs::metadata(folder.join("alive")).and_then(|file| file.modified());
    let (silence, most) = match written.ok() {
        Some(at) => (at.elapsed().unwrap_or_default(), SILENCE),
        None => (started.elapsed(), BOOT),
    };
    (silence > most).then_some(silence)
}

/// The kernel functions that the CPUs run, by repeated queries of QEMU's monitor.
fn functions(folder: &Path, mut monitor: &UnixStream) -> Result<String> {
    const MAX_POLLS: u32 = 50;
    monitor.set_read_timeout(Some(Duration::from_secs(5)))?;
    let symbols = fs::read_to_string(folder.join("symbols")).context("no symbols")?;
    let symbols = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((u64::from_str_radix(words.next()?, 16).ok()?, words.nth(1)?))
    });
    let symbols: BTreeMap<u64, &str> = symbols.collect();
    let mut seen: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let mut text = String::new();
    for _ in 0..MAX_POLLS {
        monitor.write_all(b"info registers -a\n").context("no monitor")?;
        // When the prompt is there, the registers of the last CPU are complete.
        let end = text.len();
        while !text[end..].contains("RIP=") || !text.trim_end().ends_with("(qemu)") {
            let mut bytes = [0; 4096];
            let count = monitor.read(&mut bytes).context("the monitor does not answer")?;
            anyhow::ensure!(count > 0, "the monitor is closed");
            text += &String::from_utf8_lossy(&bytes[..count]);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    for (cpu, address) in program_counters(&text) {
        let (start, name) =
            symbols.range(..=address).next_back().unwrap_or((&address, &"no function"));
        seen.entry(cpu).or_default().insert(format!("{name}+{:#x}", address - start));
    }
    let lines = seen.iter().map(|(cpu, names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("CPU {cpu}: {}", names.join(", "))
    });
    Ok(lines.collect::<Vec<_>>().join("; "))
}

/// CPU and program counter, for each time that the monitor showed the registers of a CPU.
fn program_counters(text: &str) -> impl Iterator<Item = (u32, u64)> {
    text.split("CPU#").skip(1).filter_map(|registers| {
        let cpu = registers.split_whitespace().next()?.parse().ok()?;
        let address = registers.split_once("RIP=")?.1.split_whitespace().next()?;
        Some((cpu, u64::from_str_radix(address, 16).ok()?))
    })
}

/// A new folder for a guest; removes the folders of processes that no longer exist.
fn new_folder(name: &str) -> Result<PathBuf> {
    let all = shell::target_dir("vm/guests");
    fs::create_dir_all(&all).with_context(|| format!("cannot make {}", all.display()))?;
    for entry in fs::read_dir(&all)?.flatten() {
        let owner = entry.file_name().to_string_lossy().split('-').next().map(str::to_owned);
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let folder = all.join(format!("{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// The commands for guest.sh, as shell assignments.
fn plan(machine: &Machine, tests: &Tests) -> String {
    let offline: Vec<String> = machine.offline.iter().map(u32::to_string).collect();
    let mut text = format!("driver={}\noffline=({})\n", quoted(&machine.driver), offline.join(" "));
    for (name, value) in &tests.environment {
        text += &format!("export {name}={}\n", quoted(value));
    }
    let mut words = vec![tests.binary.to_string_lossy().into_owned()];
    words.extend(tests.names.iter().cloned());
    words.extend(["--exact".to_owned(), "--test-threads=1".to_owned()]);
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    text += &format!("command=({})\n", words.join(" "));
    text
}

/// A quoted shell word.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The command line of QEMU. QEMU ends with this process, however that ends. Its NICs are joined in a separate network
/// namespace, which is removed with it.
fn command(machine: &Machine, with: &Boot<'_>, shared: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    // With the flag vnet_hdr, a frame may be merged segments.
    let taps = format!(
        "ip link add name hub type bridge && ip link set hub up || exit\n\
         for tap in tap0 tap1; do\n\
         ip tuntap add dev $tap mode tap vnet_hdr{} && ip link set $tap master hub up || exit\n\
         done",
        if machine.queues > 1 { " multi_queue" } else { "" }
    );
    let taps = if machine.has_bridge() { &*taps } else { "" };
    let script = format!("ip link set lo up\n{taps}\nexec \"$@\"");
    command.args(["unshare", "--net", "bash", "-c", &script, "bash"]);
    let accel = match with.threads {
        Threads::Single => "tcg,thread=single",
        Threads::Multi => "tcg,thread=multi",
    };
    command.args(["qemu-system-x86_64", "-accel", accel, "-cpu", "max"]);
    command.args(["-machine", "q35", "-m", "3G", "-nographic", "-nodefaults", "-no-reboot"]);
    command.args(["-smp", machine.smp.as_ref().unwrap_or(&machine.cpus.to_string())]);
    command.args(["-monitor", "stdio", "-serial"]);
    command.arg(format!("file:{}", shared.join("console").display()));
    command.arg("-kernel").arg(with.kernel.join("vmlinuz")).arg("-initrd").arg(with.initramfs);
    command.args(["-append", &format!("console=ttyS0 panic=-1 quiet {}", machine.append)]);
    let share = |path: &Path, tag: &str, more: &str| {
        // A comma would end the value.
        let path = path.to_string_lossy().replace(',', ",,");
        format!("local,path={path},mount_tag={tag},security_model=none{more}")
    };
    command.args(["-virtfs", &share(with.root, "host", ",readonly=on,multidevs=remap")]);
    command.args(["-virtfs", &share(&with.kernel.join("lib/modules"), "modules", ",readonly=on")]);
    command.args(["-virtfs", &share(shared, "shared", "")]);
    // The IOMMU must come before the NICs.
    command.args(&machine.qemu);
    command.args(cards(machine));
    command
}

/// Ports that join the NICs, in the network namespace of QEMU.
const PORT: u16 = 10_000;

/// Two NICs that are joined outside of the machine.
fn cards(machine: &Machine) -> Vec<String> {
    let Some(device) = machine.card() else { return vec![] };
    let mut options = Vec::new();
    for number in 0..2 {
        let tap =
            format!("tap,id=net{number},ifname=tap{number},script=no,downscript=no,vnet_hdr=on");
        let (net, mut queues) = match machine.queues {
            1 if machine.has_bridge() => (tap, String::new()),
            // A hub of QEMU is not used, since it reorders frames.
            1 => (
                format!(
                    "socket,id=net{number},udp=127.0.0.1:{},localaddr=127.0.0.1:{}",
                    PORT + 1 - number,
                    PORT + number
                ),
                String::new(),
            ),
            queues => {
                (format!("{tap},queues={queues}"), format!(",mq=on,vectors={}", 2 * queues + 2))
            }
        };
        if device == "igb" {
            // Its virtual functions take the numbers of the slots after it, so each NIC needs its own bus.
            let port = format!("pcie-root-port,id=port{number},chassis={number},slot={number}");
            options.extend(["-device".to_owned(), port]);
            queues += &format!(",bus=port{number}");
        }
        if !machine.device.is_empty() {
            queues += &format!(",{}", machine.device);
        }
        let device =
            format!("{device},netdev=net{number},mac=52:58:00:00:00:0{number},romfile={queues}");
        options.extend(["-netdev".to_owned(), net, "-device".to_owned(), device]);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::matrix::{Matrix, Selection};

    fn started(name: &str) -> Vec<String> {
        let matrix = Matrix::parse(include_str!("../../vm/vm.toml")).unwrap();
        let machines = vec![name.to_owned()];
        let machine = matrix.select(&Selection { machines, ..Selection::default() }).unwrap();
        let with = Boot {
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            root: Path::new("/"),
            files: vec![],
            threads: Threads::Single,
            reports: true,
            limit: Duration::ZERO,
        };
        let command = command(&machine[0], &with, Path::new("/a,b"));
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn program_counters_are_those_of_the_monitor() {
        let text = "(qemu) info registers -a\r\n\r\nCPU#0\r\nRAX=01 RBX=02\r\nRIP=ffffffff81000010 RFL=0 [---]\r\n\
                    CPU#11\r\nRIP=00007f72b8cd614f RFL=0\r\n(qemu) ";
        let counters: Vec<_> = program_counters(text).collect();
        assert_eq!(counters, [(0, 0xffff_ffff_8100_0010), (11, 0x7f72_b8cd_614f)]);
    }

    #[test]
    fn machine_has_what_its_row_says() {
        let words = started("6.12-numa-smt");
        assert!(words.contains(&"8,sockets=2,cores=2,threads=2".to_owned()), "{words:?}");
        assert!(words.iter().any(|word| word.contains("nodeid=1")), "{words:?}");
        assert_eq!(words.iter().filter(|word| word.contains("mq=on,vectors=18")).count(), 2);
        assert!(words.iter().any(|word| word.contains("tap0")), "{words:?}");
        assert!(words.iter().any(|word| word.contains("path=/a,,b,")), "{words:?}");
        let words = started("6.12-nohz_full");
        assert!(words.iter().any(|word| word.ends_with(" nohz_full=1-3")), "{words:?}");
        assert!(
            words.iter().any(|word| word.contains("udp=127.0.0.1:10001,localaddr=127.0.0.1:10000"))
        );
        assert!(!words.iter().any(|word| word.contains("tap0")), "{words:?}");
        let words = started("newest-virtio_net-merged");
        assert!(
            words.iter().any(|word| word.contains("ifname=tap1") && word.ends_with("vnet_hdr=on"))
        );
        assert!(words.iter().any(|word| word.contains("mode tap vnet_hdr && ")), "{words:?}");
        assert!(!started("6.12-veth-2").contains(&"-netdev".to_owned()));
    }

    #[test]
    fn words_survive_the_shell() {
        let output = Command::new("bash")
            .args(["-c", &format!("printf %s {}", quoted("it's $HOME `x` \"y\""))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it's $HOME `x` \"y\"");
    }
}
