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
/// It changes nothing and needs no privilege. What depends on the host (which CPUs and RX queues there are) rxsteer run
/// checks when it starts.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer config check /etc/rxsteer/rxsteer.toml\n  \
    rxsteer config check /etc/rxsteer/rxsteer.toml && systemctl reload rxsteer\n\n\
    Exit status: 0 the file is right; 1 it is not, and the message has line, column and the nearest name; 2 it can't be \
    read.")]
struct CheckFileArgs {
    /// The TOML file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Print one JSON object: file, ok and error
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
                print(&file, Some(output::error_text(&error)))?;
            }
            return Err(error);
        }
    };
    let checked = settings_file::parsed(&Options::<RunSettings>::default(), &text, &args.file);
    let error = checked.as_ref().err().map(output::error_text);
    if args.json {
        print(&file, error.clone())?;
    } else if let Some(error) = &error {
        output::note(&format!("rxsteer: {error}"));
    } else {
        output::print(&format!("{file} is right\n"))?;
    }
    Ok(if error.is_none() { Outcome::Success } else { Outcome::Findings })
}

/// The JSON object.
fn print(file: &str, error: Option<String>) -> anyhow::Result<()> {
    let report = json!({ "file": file, "ok": error.is_none(), "error": error });
    output::print(&format!("{report:#}\n"))
}
