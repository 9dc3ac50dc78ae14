//! `rxsteer`: receive packet steering, from the command line.
//!
//! Exit status: 0 success, 1 ran and found something wrong, 2 could not run, 130 interrupted.
//!
//! # Files
//!
//! - `main.rs`, `cli.rs`: all commands. The options of each are next to it, shared ones in `input_args.rs`,
//!   `steer_args.rs`, `record_args.rs`
//! - `help.rs`: `-h`, `--help`, completions
//! - `replay.rs`, `replay/seeds.rs`; `finished.rs`: what `replay` and `live` report
//! - `compare/`: `compare` and `advise`, replays under all policies; `advice.rs` the rule, `sample.rs` captures
//!   frames of an interface
//! - `explain/`, `flows/`, `sim/`, `lab/`, `host/`, `live/`, `peers/`, `auto.rs`: a command each
//! - `settable.rs`: what `set` can change in each
//! - `fallback/`: `run`'s settings as settings of the kernel's steering
//! - `events_out.rs`: writes events
//! - `output/`: JSON, tables
//! - `interface_state.rs`: tracks an interface while a command runs
//! - `userspace/`: answers of `live` and `replay` to clients, and changes of `live`
//! - `run/`: the in-kernel path; see `run/mod.rs`
//! - `trial/`: tries what `run` will do
#![forbid(unsafe_code)]

mod advice;
mod auto;
mod change_spec;
mod check;
mod cli;
mod compare;
mod config;
mod demo;
#[cfg_attr(
    not(feature = "xdp"),
    allow(dead_code, reason = "the option is read, and `run` is refused")
)]
mod events_out;
mod explain;
mod fallback;
mod finished;
mod flows;
mod hash_key;
mod help;
mod host;
mod input;
mod input_args;
mod interface_state;
#[cfg(feature = "lab")]
mod lab;
#[cfg(not(feature = "lab"))]
#[path = "lab/not_built.rs"]
mod lab;
mod listen;
mod live;
mod out;
mod output;
mod peers;
mod progress;
mod record_args;
mod replay;
mod run;
mod serve;
mod set;
mod settable;
mod settings_file;
#[cfg(all(test, feature = "sim", feature = "xdp"))]
mod settings_tests;
mod signals;
#[cfg(feature = "sim")]
mod sim;
#[cfg(not(feature = "sim"))]
#[path = "sim/not_built.rs"]
mod sim;
mod status;
mod steer_args;
#[cfg_attr(
    not(feature = "xdp"),
    allow(dead_code, reason = "some counts are of the in-kernel path alone")
)]
mod summaries;
mod top;
#[cfg(feature = "xdp")]
mod trial;
mod userspace;
mod words;
mod work;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use cli::Command;
use nix::sys::signal::{SigSet, Signal};
use rxsteer_user::shown;
use rxsteer_user::sink::SinkError;
use std::ffi::OsString;
use std::process::ExitCode;

/// How a command ended, if it could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No problem was found.
    Success,
    /// It ran, and there was a problem with the input or the run.
    Findings,
    /// It was interrupted; the results so far are shown.
    Interrupted,
}

fn main() -> ExitCode {
    let too_large = SigSet::from(Signal::SIGXFSZ);
    // A file that grows beyond the limit (ulimit -f) must cause a failed write, as on a full disk, not the end of the
    // process. Threads inherit the blocked signals, so this comes before all of them. It only fails for an invalid
    // signal.
    let _ = too_large.thread_block();
    let cli = help::parse().unwrap_or_else(|error| refuse(error));
    output::lines::fit_to_terminal();
    let result = match cli.command {
        Command::Replay(args) => replay::command(&args),
        Command::Flows(args) => flows::command(&args),
        Command::Live(args) => live::command(&args),
        Command::Demo(args) => demo::command(&args),
        Command::Explain(args) => explain::command(&args),
        Command::Auto(args) => auto::command(&args),
        Command::Compare(args) => compare::command(&args),
        Command::Advise(args) => compare::advise(&args),
        Command::Check(args) => check::command(&args),
        Command::Host(args) => host::command(&args),
        Command::Run(args) => run::command(*args),
        Command::Status(args) => status::command(&args),
        Command::Top(args) => top::command(&args),
        Command::Serve(args) => serve::command(&args),
        Command::Set(args) => set::command(&args),
        Command::Peers(args) => peers::command(&args),
        Command::Config(args) => config::command(&args),
        Command::Sim(args) => sim::command(&args),
        Command::Lab(args) => lab::command(&args),
        Command::Man { dir } => write_man_pages(&dir),
        Command::Completions { shell } => {
            output::print(&help::completions(shell)).map(|()| Outcome::Success)
        }
    };
    match result {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Err(error) => {
            output::note(&format!("rxsteer: {}", output::error_text(&error)));
            let interrupted = matches!(error.downcast_ref(), Some(SinkError::NoReader(_)));
            ExitCode::from(if interrupted { 130 } else { 2 })
        }
    }
}

/// Prints the command line's error, or its help, and exits. Adds hints where this program knows more about the
/// intention than clap.
fn refuse(mut error: clap::Error) -> ! {
    let word = std::env::args_os().nth(1).unwrap_or_default().to_string_lossy().into_owned();
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let meant = match error.kind() {
        // The most common mistake.
        ErrorKind::InvalidSubcommand if std::path::Path::new(&word).exists() => {
            Some(format!("'{word}' is a file, not a command; did you mean: rxsteer replay {word}"))
        }
        ErrorKind::UnknownArgument => of_another_command(&argument, std::env::args_os().skip(1)),
        _ => None,
    };
    if let Some(meant) = meant {
        output::note(&format!("rxsteer: {meant}"));
        std::process::exit(2);
    }
    if error.kind() == ErrorKind::MissingRequiredArgument && argument.contains("<CAPTURE>") {
        let tip = format!("- is standard input: tcpdump -w - | rxsteer {word} -");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    let is_flow = match error.kind() {
        ErrorKind::MissingRequiredArgument => argument.contains("<FLOW|CAPTURE>"),
        // An extra word, not an option.
        ErrorKind::UnknownArgument => word == "explain" && !argument.starts_with('-'),
        _ => false,
    };
    if is_flow {
        let tip = "a flow is one word, SOURCE:PORT-DESTINATION:PORT/PROTOCOL: rxsteer explain \
                   10.0.0.1:40000-192.0.2.7:443/tcp; a frame of a capture: rxsteer explain --frame 1 capture.pcap";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    // The message repeats the input. Control characters in it are escaped below, together with clap's own colours, since
    // both are escape sequences.
    let is_odd = |word: OsString| word.to_string_lossy().contains(char::is_control);
    if error.use_stderr() && std::env::args_os().any(is_odd) {
        output::note(error.render().to_string().trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Prints which commands have an option that this command lacks, if there are any.
fn of_another_command(option: &str, words: impl Iterator<Item = OsString>) -> Option<String> {
    let name = option.strip_prefix("--")?;
    let cli = help::command();
    let commands = commands_with(&cli, "rxsteer", name);
    let (last, others) = commands.split_last()?;
    let commands = match others {
        [] => last.clone(),
        _ => format!("{} and {last}", others.join(", ")),
    };
    let (mut meant, mut path) = (&cli, "rxsteer".to_owned());
    for word in words {
        let Some(below) = meant.find_subcommand(&word) else { break };
        (meant, path) = (below, format!("{path} {}", below.get_name()));
    }
    let not = if path == "rxsteer" { String::new() } else { format!(", not of {path}") };
    Some(format!("{option} is an option of {commands}{not}"))
}

/// The commands at and below `of` that have the option `name`.
fn commands_with(of: &clap::Command, path: &str, name: &str) -> Vec<String> {
    let has = of.get_arguments().any(|arg| arg.get_long() == Some(name));
    let below = of
        .get_subcommands()
        .flat_map(|below| commands_with(below, &format!("{path} {}", below.get_name()), name));
    has.then(|| path.to_owned()).into_iter().chain(below).collect()
}

fn write_man_pages(dir: &std::path::Path) -> anyhow::Result<Outcome> {
    use anyhow::Context;
    std::fs::create_dir_all(dir).with_context(|| format!("can't make {}", shown(dir)))?;
    clap_mangen::generate_to(help::man_pages(), dir)
        .with_context(|| format!("can't write man pages into {}", shown(dir)))?;
    output::print(&format!("man pages are in {}\n", shown(dir)))?;
    Ok(Outcome::Success)
}
