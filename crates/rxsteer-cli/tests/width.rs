//! Reports on a terminal of 80 columns: no line is wider than that.

use std::io::Write;
use std::process::{Command, Stdio};

/// The output of a command on a terminal of 80 columns, which script(1) creates; `None` without script.
fn on_terminal(line: &str) -> Option<String> {
    let command =
        format!("stty cols 80 rows 40; exec {} {line} 2>/dev/null", env!("CARGO_BIN_EXE_rxsteer"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env_remove("COLUMNS").env("TERM", "xterm");
    let output = script.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn reports_fit_a_terminal_of_80_columns() {
    const TRAFFIC: &str = "--synthetic packets=20000,flows=200,share=zipf:1.1,ip=mixed";
    for line in [
        &format!("replay {TRAFFIC} --cpus 2"),
        &format!("replay {TRAFFIC} --cpus 2 --policy rfs+sparse+balance --app-cpus 0-1"),
        &format!("replay {TRAFFIC} --cpus 2 --seeds 3"),
        &format!("compare {TRAFFIC} --cpus 8 --seeds 2"),
        &format!("flows {TRAFFIC} --cpus 2"),
        "explain 10.0.0.1:40000-192.0.2.7:443/tcp --cpus 2 --policy rfs+sparse",
        "check lo",
        "host show lo",
        "demo",
        #[cfg(feature = "sim")]
        "sim --list",
        #[cfg(feature = "sim")]
        "sim router-one-queue --seconds 0.005 --compare none,rps,sparse --seeds 2",
        #[cfg(feature = "sim")]
        "sim router-one-queue --seconds 0.005 --sensitivity --seeds 2",
        #[cfg(feature = "lab")]
        "lab list",
    ] {
        let Some(text) = on_terminal(line) else {
            let test = "width::reports_fit_a_terminal_of_80_columns";
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: script(1) is not installed");
            return;
        };
        assert!(text.lines().count() > 3, "{line}: {text}");
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{line}: {wide:#?}\n{text}");
    }
}
