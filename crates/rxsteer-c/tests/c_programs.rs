//! C programs with librxsteer as it is installed: shared and static, compiled by gcc and clang, under the address
//! sanitizer and valgrind. The test reports what this machine lacks.
#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The compilers to test with, and the arguments for each.
const COMPILERS: [&str; 2] = ["gcc", "clang"];
const FLAGS: [&str; 6] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"];
const SANITIZERS: &str = "-fsanitize=address,undefined";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Not eprintln!: the test runner hides its output.
fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED c_programs::{test}: {reason}");
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    let [out, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{errors}")
}

fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    text(&output)
}

/// The libraries that install.sh installed: both of them, and below `static` only the static one.
struct Installed {
    folder: TempDir,
}

impl Installed {
    fn get() -> &'static Installed {
        static INSTALLED: OnceLock<Installed> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder");
            // The test programs are in the same folder as the libraries that were built for them.
            let test = std::env::current_exe().expect("a path");
            let built = test.parent().expect("a folder");
            let install = |built: &Path, prefix: &Path| {
                succeed(Command::new("sh").arg(here().join("install.sh")).args([built, prefix]));
            };
            install(built, &folder.path().join("shared"));
            let only = folder.path().join("only");
            fs::create_dir(&only).expect("a folder");
            fs::hard_link(built.join("librxsteer_c.a"), only.join("librxsteer_c.a"))
                .or_else(|_| {
                    fs::copy(built.join("librxsteer_c.a"), only.join("librxsteer_c.a")).map(drop)
                })
                .expect("the static library");
            install(&only, &folder.path().join("static"));
            Installed { folder }
        })
    }

    fn prefix(&self, kind: &str) -> PathBuf {
        self.folder.path().join(kind)
    }

    /// The flags that pkg-config prints for this kind of library.
    fn flags(&self, kind: &str) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.prefix(kind).join("lib/pkgconfig"));
        command.args(["--cflags", "--libs"]).args((kind == "static").then_some("--static"));
        succeed(command.arg("rxsteer")).split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a C file; returns the path of the program.
    fn compile(&self, compiler: &str, kind: &str, source: &str, more: &[&str]) -> PathBuf {
        let name = source.replace(['/', '.'], "-");
        let program = self.folder.path().join(format!("{compiler}-{kind}-{name}{}", more.concat()));
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(more).arg(here().join(source)).arg("-o").arg(&program);
        succeed(command.args(self.flags(kind)));
        program
    }

    /// A command for a program, with which the program finds the shared library.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.prefix("shared").join("lib"));
        command
    }
}

/// Whether `test` can run; reports it if not.
fn ready(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !has(program)).collect();
    if !missing.is_empty() {
        skipped(test, &format!("not installed: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// The available compilers; reports which are missing.
fn compilers(test: &str) -> Vec<&'static str> {
    if !ready(test, &["pkg-config"]) {
        return Vec::new();
    }
    COMPILERS.into_iter().filter(|compiler| ready(test, &[compiler])).collect()
}

/// A capture of two senders over Ethernet, one with a VLAN tag: 3 and 1 packets.
fn capture(folder: &Path, name: &str) -> PathBuf {
    let frame = |sender: u8, tagged: bool| {
        let mut frame = vec![2; 12];
        frame.extend(tagged.then_some([0x81, 0, 0, 5]).into_iter().flatten());
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, sender, 10, 0, 0, 9, 0, 1, 0, 2, 0, 8, 0, 0]);
        frame
    };
    let frames = [frame(1, false), frame(2, true), frame(1, false), frame(1, true)];
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]);
    for frame in frames {
        let len = frame.len() as u32;
        file.extend(words(&[1, 0, len, len]));
        file.extend(frame);
    }
    let path = folder.join(name);
    fs::write(&path, file).expect("it can be written");
    path
}

#[test]
fn example_counts_what_is_in_a_capture() {
    for compiler in compilers("example_counts_what_is_in_a_capture") {
        let installed = Installed::get();
        let capture = capture(installed.folder.path(), "example.pcap");
        for kind in ["shared", "static"] {
            let program = installed.compile(compiler, kind, "examples/talkers.c", &["-O2"]);
            let said = succeed(installed.command(&program).arg(&capture).arg("0-1"));
            assert_eq!(
                said,
                "4 packets, 2 addresses, 2 workers\n         130 bytes  10.0.0.1\n          46 bytes  10.0.0.2\n",
                "{compiler}, {kind}"
            );
            let missing = output(installed.command(&program).arg("/no/such/file"));
            assert_eq!(missing.status.code(), Some(2));
            assert!(
                text(&missing).contains("/no/such/file: there is no such file"),
                "{}",
                text(&missing)
            );
        }
    }
}

/// With live interfaces it is tested by rxsteer-live.
#[test]
fn filter_is_built_and_says_what_is_wrong() {
    for compiler in compilers("filter_is_built_and_says_what_is_wrong") {
        let installed = Installed::get();
        let program = installed.compile(compiler, "shared", "examples/filter.c", &["-O2"]);
        let run = |arguments: &[&str]| {
            let output = output(installed.command(&program).args(arguments));
            assert_eq!(output.status.code(), Some(2), "{compiler}, {arguments:?}");
            text(&output)
        };
        assert_eq!(run(&[]), "Usage: filter live:IFACE,IFACE PORT [CPUS]\n");
        let missing = run(&["packet:no-such-interface,lo", "53"]);
        assert!(missing.contains("there is no interface 'no-such-interface'"), "{missing}");
        let capture = run(&["traffic.pcap", "53"]);
        assert!(capture.contains("RXSTEER_FORWARD requires live interfaces"), "{capture}");
    }
}

#[test]
fn boundary_holds_under_the_address_sanitizer() {
    for compiler in compilers("boundary_holds_under_the_address_sanitizer") {
        let installed = Installed::get();
        let empty = installed.folder.path().join("empty.c");
        fs::write(&empty, "int main(void) { return 0; }\n").expect("it can be written");
        let mut probe = Command::new(compiler);
        probe.arg(SANITIZERS).arg(&empty).arg("-o").arg(empty.with_extension(compiler));
        if !output(&mut probe).status.success() {
            skipped(
                "boundary_holds_under_the_address_sanitizer",
                &format!(
                    "{compiler} has no address sanitizer here; install its runtime (libclang-rt-dev)"
                ),
            );
            continue;
        }
        for (kind, sanitizers) in [("shared", None), ("static", Some(SANITIZERS))] {
            let more: Vec<&str> = sanitizers.into_iter().collect();
            let program = installed.compile(compiler, kind, "tests/boundary.c", &more);
            let said = succeed(&mut installed.command(&program));
            let left_out = said.strip_prefix("all holds\n").unwrap_or_else(|| panic!("{said}"));
            if !left_out.is_empty() {
                skipped("boundary_holds_under_the_address_sanitizer", left_out.trim_end());
            }
            let program = installed.compile(compiler, kind, "examples/talkers.c", &more);
            let capture = capture(installed.folder.path(), "sanitizer.pcap");
            assert!(succeed(installed.command(&program).arg(capture)).starts_with("4 packets"));
        }
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !ready("valgrind_finds_nothing", &["valgrind", "gcc", "pkg-config"]) {
        return;
    }
    let installed = Installed::get();
    let program = installed.compile("gcc", "shared", "examples/talkers.c", &["-O1"]);
    let mut valgrind = Command::new("valgrind");
    valgrind.env("LD_LIBRARY_PATH", installed.prefix("shared").join("lib"));
    valgrind.args([
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]);
    let said = succeed(
        valgrind.arg(&program).arg(capture(installed.folder.path(), "valgrind.pcap")).arg("0-1"),
    );
    assert!(said.starts_with("4 packets"), "{said}");
}

/// The header is also valid C++.
#[test]
fn header_compiles_as_cpp() {
    let compilers = ["g++", "clang++"]
        .into_iter()
        .filter(|compiler| ready("header_compiles_as_cpp", &[compiler]));
    for compiler in compilers {
        let mut command = Command::new(compiler);
        command.args(["-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
        succeed(
            command.arg(here().join("tests/boundary.hpp")).arg("-I").arg(here().join("include")),
        );
    }
}
