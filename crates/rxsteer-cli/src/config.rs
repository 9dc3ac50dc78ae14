//! `rxsteer config check`: whether a file of `rxsteer run --config` is right.

use crate::Outcome;
use crate::output;
use crate::run::args::RunSettings;
use crate::settings_file;
use clap::{Args, Subcommand, ValueHint};
use rxsteer_settings::Options;
use rxsteer_user::shown;
use serde_json::json;
use std::path::PathBuf;

/// Check a file of settings before rxsteer run reads it
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  rxsteer config check /etc/rxsteer/rxsteer.toml")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Check(CheckFileArgs),
}

/// Check that rxsteer run accepts the settings of a file
///
/// It changes nothing and needs no privilege. Settings that rxsteer run would refuse on this host are mistakes: CPUs, RX queues
/// and tracepoints that are not there, threads that would starve others. An interface that is not there is noted.
/// rxsteer check says whether the host and an interface can be steered at all.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer config check /etc/rxsteer/rxsteer.toml\n  \
    rxsteer config check /etc/rxsteer/rxsteer.toml && systemctl reload rxsteer\n  \
    rxsteer config check other-host.toml --any-host\n\n\
    Exit status: 0 the file is right; 1 it is not, and the message says what; 2 it can't be read.")]
struct CheckFileArgs {
    /// The TOML file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Check only what does not depend on the host, for a file of another one
    #[arg(long)]
    any_host: bool,

    /// Print one JSON object: version, file, ok, error and notes
    #[arg(long)]
    json: bool,
}

/// The command.
pub(crate) fn command(args: &ConfigArgs) -> anyhow::Result<Outcome> {
    let ConfigCommand::Check(args) = &args.command;
    let file = shown(&args.file);
    let text = match settings_file::text(&args.file) {
        Ok(text) => text,
        Err(error) => {
            if args.json {
                print(&file, &Err(output::error_text(&error)))?;
            }
            return Err(error);
        }
    };
    let settings = settings_file::parsed(&Options::<RunSettings>::default(), &text, &args.file);
    let checked = settings.map_err(|error| output::error_text(&error)).and_then(|settings| {
        let of_file = |why: String| format!("{file}: {why}");
        settings.fixed.check_records().map_err(|why| of_file(output::error_text(&why)))?;
        let look = if args.any_host { on_any_host } else { on_this_host };
        look(&settings).map_err(of_file)
    });
    if args.json {
        print(&file, &checked)?;
    } else {
        match &checked {
            Err(error) => output::note(&format!("rxsteer: {error}")),
            Ok(notes) => {
                notes.iter().for_each(|note| output::note(&format!("rxsteer: {file}: {note}")));
                output::print(&format!("{file} is right\n"))?;
            }
        }
    }
    Ok(if checked.is_ok() { Outcome::Success } else { Outcome::Findings })
}

/// What to know of these settings on this host, or why `rxsteer run` would refuse them.
#[cfg(feature = "xdp")]
fn on_this_host(settings: &RunSettings) -> Result<Vec<String>, String> {
    let checked = crate::run::file_check::on_this_host(settings);
    checked.map_err(|why| format!("{why} (a file for another host: --any-host)"))
}

/// As [`on_this_host`], of what does not depend on the host.
#[cfg(feature = "xdp")]
fn on_any_host(settings: &RunSettings) -> Result<Vec<String>, String> {
    crate::run::file_check::on_any_host(settings).map(|()| Vec::new())
}

#[cfg(not(feature = "xdp"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build refuses")]
fn on_any_host(_: &RunSettings) -> Result<Vec<String>, String> {
    Ok(Vec::new())
}

/// A build without the in-kernel path has no `rxsteer run` that could refuse them.
#[cfg(not(feature = "xdp"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build refuses")]
fn on_this_host(_: &RunSettings) -> Result<Vec<String>, String> {
    Ok(vec![
        "this build has no in-kernel path, so what depends on the host is not checked".to_owned(),
    ])
}

/// The JSON object.
fn print(file: &str, checked: &Result<Vec<String>, String>) -> anyhow::Result<()> {
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "file": file,
        "ok": checked.is_ok(),
        "error": checked.as_ref().err(),
        "notes": checked.as_ref().map_or(&[][..], Vec::as_slice),
    });
    output::print(&format!("{report:#}\n"))
}
