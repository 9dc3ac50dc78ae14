//! `rxsteer top` in a real terminal: tmux runs it, sends keys, and shows what is on the screen.

use crate::program::pcap::{pcap, written};
use nix::sys::signal::Signal;
use rxsteer_status::testing::{Instance, Traffic};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for an expected event.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An instance in this process, whose traffic advances with each request.
fn instance(path: &Path) -> Instance {
    let mut traffic = Traffic::new(4, 300);
    Instance::at(path, move |flows| traffic.advance(100_000_000, flows)).expect("it listens")
}

fn rxsteer(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    command.arg("top").args(arguments).env("LANG", "C.UTF-8").env_remove("LC_ALL");
    command.stdin(Stdio::null()).output().expect("it can be started")
}

/// A terminal that runs a shell; dropping this ends it.
struct Screen {
    socket: PathBuf,
}

impl Screen {
    /// Starts a shell in a terminal of this size; returns `None` without tmux.
    fn open(folder: &Path, width: u16, height: u16) -> Option<Screen> {
        let screen = Screen { socket: folder.join("tmux") };
        let (width, height) = (width.to_string(), height.to_string());
        let shell = "env -i LANG=C.UTF-8 PATH=\"$PATH\" PS1='shell> ' sh";
        let options = ["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, shell];
        let output = screen.command().args(options).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        screen.waits_for("shell>");
        Some(screen)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).env_remove("TMUX");
        command
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("tmux runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn types(&self, line: &str) {
        self.keys(&["-l", line]);
        self.keys(&["Enter"]);
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen meets a condition, and returns its text.
    fn until(&self, what: &str, mut is: impl FnMut(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let text = self.text();
            if is(&text) {
                return text;
            }
            assert!(started.elapsed() < TIMEOUT, "{what} did not come:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn waits_for(&self, part: &str) -> String {
        self.until(part, |text| text.contains(part))
    }

    /// Waits until the screen no longer changes, for longer than a second, since the time since the start changes every
    /// second.
    fn stands_still(&self) {
        let mut before = String::new();
        self.until("a screen that stands still", |text| {
            let is_still = text == before;
            before = text.to_owned();
            std::thread::sleep(Duration::from_millis(1200));
            is_still
        });
    }

    /// The settings of the terminal, as the shell sees them.
    fn settings(&self) -> String {
        let tty = self.tmux(&["display-message", "-p", "#{pane_tty}"]);
        let output =
            Command::new("stty").args(["-a", "-F", tty.trim()]).output().expect("stty runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn is_in_alternate_screen(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}#{cursor_flag}"]).trim() != "01"
    }

    /// Puts a mark on the screen of the shell, and starts the view.
    fn starts_top(&self, arguments: &str) {
        self.types("echo before");
        self.waits_for("\nbefore");
        self.types(&format!("{} top {arguments}; echo ended $?", env!("CARGO_BIN_EXE_rxsteer")));
        self.waits_for("flows by rate");
    }

    /// Checks that the view has ended with this status, and that the terminal has its former state.
    fn is_restored(&self, status: i32, settings: &str) {
        let text = self.waits_for(&format!("\nended {status}"));
        assert!(text.contains("\nbefore"), "the shell's screen is back:\n{text}");
        assert!(!self.is_in_alternate_screen(), "the cursor is shown, on the shell's screen");
        assert_eq!(self.settings(), settings);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The shell and its programs get SIGHUP.
        let _ = self.command().arg("kill-server").output();
    }
}

/// A folder, a terminal in it, and the terminal's settings; prints SKIPPED if the terminal is not available.
fn screen(test: &str, folder: &Path) -> Option<(Screen, String)> {
    let Some(screen) = Screen::open(folder, 80, 24) else {
        writeln!(std::io::stderr(), "SKIPPED top::{test}: there is no tmux")
            .expect("standard error");
        return None;
    };
    let settings = screen.settings();
    Some((screen, settings))
}

#[test]
fn view_is_driven_by_keys_and_gives_the_terminal_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some((screen, settings)) = screen("view_is_driven_by_keys", dir.path()) else { return };
    let path = dir.path().join("s");
    let first = instance(&path);
    screen.starts_top(&format!("--interval 100ms --socket {}", path.display()));
    let text = screen.waits_for("rfs 25.0 %");
    assert!(text.contains("█") || text.contains("▒") || text.contains("·"), "bars:\n{text}");
    // Sorting, filter, pause, help.
    screen.keys(&["b"]);
    screen.waits_for("flows by bytes");
    screen.types("/0.0.17:");
    screen.until("the filter", |text| {
        text.contains("with \"0.0.17:\"") && !text.contains("10.0.0.18:")
    });
    screen.keys(&["Escape"]);
    screen.waits_for("10.0.0.1:");
    screen.keys(&["Space"]);
    screen.waits_for("PAUSED");
    // Output that was drawn before the key may still arrive.
    screen.stands_still();
    screen.keys(&["Space", "?"]);
    screen.waits_for("rxsteer top: keys");
    screen.keys(&["x", "-"]);
    screen.waits_for("+- 200 ms");
    // Tests other sizes.
    screen.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    screen.waits_for("decisions by rule");
    screen.tmux(&["resize-window", "-x", "60", "-y", "20"]);
    screen.waits_for("needs more room");
    screen.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    screen.waits_for("flows by bytes");
    // The instance ends, and starts again.
    drop(first);
    std::fs::remove_file(&path).expect("its socket");
    screen.waits_for("NO ANSWER, trying again");
    let _second = instance(&path);
    screen.until("the instance", |text| !text.contains("NO ANSWER"));
    screen.keys(&["q"]);
    screen.is_restored(0, &settings);
    // Without colours and in ASCII; then Ctrl-C ends the view.
    screen.types("clear; NO_COLOR=1 LANG=C; export NO_COLOR LANG");
    screen.starts_top(&format!("--socket {}", path.display()));
    let colored = screen.tmux(&["capture-pane", "-p", "-e"]);
    assert!(colored.is_ascii(), "{colored}");
    // These two colours are the terminal's own.
    let colored = colored.replace("\x1b[39m", "").replace("\x1b[49m", "");
    let colours = ["\x1b[3", "\x1b[4", "\x1b[9", "\x1b[10", ";3", ";4"];
    assert!(colours.iter().all(|colour| !colored.contains(colour)), "no colours:\n{colored}");
    screen.keys(&["C-c"]);
    screen.is_restored(0, &settings);
}

#[test]
fn signal_ends_it_and_gives_the_terminal_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some((screen, settings)) = screen("signal_ends_it", dir.path()) else { return };
    let path = dir.path().join("s");
    let _instance = instance(&path);
    screen.starts_top(&format!("--socket {}", path.display()));
    let shell = screen.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let children = Command::new("pgrep").args(["-P", shell.trim()]).output().expect("pgrep runs");
    let child = String::from_utf8_lossy(&children.stdout).trim().to_owned();
    let killed = Command::new("kill").args(["-TERM", &child]).status().expect("kill runs");
    assert!(killed.success(), "{child}");
    screen.is_restored(0, &settings);
}

#[test]
fn one_frame_is_printed_without_a_terminal() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    let _instance = instance(&path);
    let path = path.to_string_lossy();
    let output = rxsteer(&["--once", "--interval", "100ms", "--socket", &path]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        text.contains("process 4711") && text.contains("rfs") && text.contains("10.0.0.1:1025-"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(text.lines().count(), 40);
    let output = rxsteer(&["--socket", &path]);
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), why.contains("are not a terminal; rxsteer top --once")),
        (Some(2), true),
        "{why}"
    );
}

#[test]
fn what_cannot_be_shown_is_refused() {
    for (arguments, why) in [
        (&["--once", "--socket", "/nowhere/s"][..], "no instance can be reached at /nowhere/s"),
        (&["--once", "--interval", "1ms"], "the interval must be 50ms to 1h"),
        (&["eth0", "--socket", "/s"], "cannot be used with"),
    ] {
        let output = rxsteer(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    }
    let mut small = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let small = small.args(["top", "--once"]).env("COLUMNS", "60").env("LINES", "10");
    let output = small.output().expect("it can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("a frame needs 80 columns and 24 lines"), "{stderr}");
}

/// A capture of a minute, with 50 packets of one flow per second.
fn capture() -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 9, 9, 9, 0x80, 1, 0, 53, 0, 30, 0, 0]);
    frame.resize(64, 0);
    let mut file = pcap(1, &[]);
    for number in 0..3000u32 {
        for word in [number / 50, number % 50 * 20_000, 64, 64] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend(&frame);
    }
    file
}

#[test]
fn replay_is_shown_while_it_runs() {
    let mut help = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let help = help.args(["replay", "--help"]).output().expect("it can be started");
    if !String::from_utf8_lossy(&help.stdout).contains("--socket") {
        writeln!(std::io::stderr(), "SKIPPED top::replay: rxsteer replay answers no status yet")
            .expect("standard error");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = written(dir.path(), "minute.pcap", &capture());
    let output = rxsteer(&["--once", "--interval", "500ms", "-r", &file.to_string_lossy()]);
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let process = text.split_once("rxsteer top  replay, process ").map(|(_, rest)| rest);
    let process =
        process.and_then(|rest| rest.split(',').next()).unwrap_or_else(|| panic!("{text}"));
    assert!(!Path::new("/proc").join(process).exists(), "the replay ends with the view");
    let output = rxsteer(&["--once", "-r", "/nowhere/capture.pcap"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("/nowhere/capture.pcap"), "{errors}");
}

#[test]
fn replay_ends_with_a_frame_that_a_signal_interrupts() {
    let (status, sockets) = frame_of_a_replay_that_ends_by(Signal::SIGTERM);
    assert_eq!((status.code(), sockets), (Some(130), 0));
}

#[test]
fn replay_ends_with_a_frame_that_is_killed() {
    let (status, _) = frame_of_a_replay_that_ends_by(Signal::SIGKILL);
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
}

/// Ends a process that waits for the second reading of its replay, and waits until the replay has ended, too. Returns
/// the exit status of the process, and how many sockets are left.
fn frame_of_a_replay_that_ends_by(signal: Signal) -> (ExitStatus, usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = written(dir.path(), "minute.pcap", &capture());
    let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    command.args(["top", "--once", "--interval", "50s", "-r"]).arg(&file);
    command.env("TMPDIR", dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut top = command.spawn().expect("it can be started");
    // The folder of the replay exists from its start on, and its socket exists before the first reading.
    let sockets = || {
        let folders = std::fs::read_dir(dir.path()).expect("a folder").flatten();
        folders.filter(|folder| folder.path().join("socket").exists()).count()
    };
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait_until("the replay does not begin", &|| sockets() > 0);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", top.id()));
    let replay = children.expect("its children").trim().to_owned();
    // If a process has ended, but its parent has not waited for it, it has no arguments.
    let is_there = || {
        std::fs::read(format!("/proc/{replay}/cmdline"))
            .is_ok_and(|arguments| !arguments.is_empty())
    };
    assert!(!replay.is_empty() && is_there());
    std::thread::sleep(Duration::from_millis(300));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(top.id().cast_signed()), signal)
        .expect("it runs");
    let status = top.wait().expect("it ends");
    wait_until("the replay goes on", &|| !is_there());
    (status, sockets())
}

#[test]
fn replay_that_is_over_before_the_second_reading_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let whole = capture();
    // 24 bytes of the file's header; 50 packets, a second.
    let file = written(dir.path(), "second.pcap", &whole[..24 + 50 * (16 + 64)]);
    let output = rxsteer(&["--once", "--interval", "4s", "-r", &file.to_string_lossy()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("THE REPLAY IS OVER") && errors.contains("--interval"), "{errors}");
}
