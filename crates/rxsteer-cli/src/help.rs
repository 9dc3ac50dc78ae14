//! Prints help: `-h` fits a screen, and `--help` is complete. Help pages, man pages and shell completions are generated
//! from the same options.

use crate::cli::Cli;
use clap::builder::{PossibleValue, ValueHint};
use clap::{Arg, Command, CommandFactory, Error, FromArgMatches};
use clap_complete::Shell;

/// Options that `-h` omits in every command: few runs need them.
const RARE_OPTIONS: [&str; 48] = [
    "anonymize-key",
    "app-migrate",
    "batch",
    "busy-poll",
    "change-at",
    "else",
    "events",
    "faults",
    "fit",
    "flow-active-timeout",
    "flow-cnt",
    "flow-idle-timeout",
    "flow-limit",
    "flows-rotate",
    "flows-rotate-size",
    "from-hash-seed",
    "from-inner",
    "from-packets",
    "from-spread",
    "hash",
    "ipfix",
    "kernel-log",
    "key-tunnels",
    "listen-token-file",
    "copy",
    "max-backlog",
    "nic-hash",
    "outgoing",
    "ring-size",
    "max-flows",
    "no-flow-stats",
    "no-pin",
    "out",
    "partition-by",
    "repeat",
    "rfs-cpus",
    "rfs-namespaces",
    "rps-map",
    "rule",
    "rx-cpus",
    "rx-devices",
    "rx-threads",
    "socket",
    "sock-flow-entries",
    "standby",
    "threads",
    "work-ns",
    "zero-copy",
];

/// Parses the command line.
pub(crate) fn parse() -> Result<Cli, Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The command line, for parsing, help and completion.
pub(crate) fn command() -> Command {
    Cli::command().mut_subcommands(explained)
}

/// The same for man pages, which have all options, with all their values in the synopsis.
pub(crate) fn man_pages() -> Command {
    fn page(command: Command) -> Command {
        let usage = synopsis(&command);
        let command = command.override_usage(usage).mut_args(|arg| arg.hide_short_help(false));
        command.mut_subcommands(page)
    }
    let mut command = command().disable_help_subcommand(true);
    command.build();
    page(command)
}

/// Every option with its values, then the positional arguments.
fn synopsis(command: &Command) -> String {
    let (words, options): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .partition(|arg| arg.is_positional());
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let option =
        |arg: &&Arg| if arg.is_required_set() { arg.to_string() } else { format!("[{arg}]") };
    let below = command.has_subcommands().then(|| "<COMMAND>".to_owned());
    let parts =
        options.iter().map(option).chain(words.iter().map(ToString::to_string)).chain(below);
    [name].into_iter().chain(parts).collect::<Vec<_>>().join(" ")
}

/// bash splits words at `=`, and appends a space to a completed word.
const BASH_ASSIGNMENTS: &str = r#"
_rxsteer_assignments() {
    local word=${COMP_LINE:0:COMP_POINT}
    word=${word##* }
    if [[ $word != *=* || $word == -* ]]; then
        _rxsteer "$@"
    else
        _rxsteer "$1" "$word" "$3"
        [[ $COMP_WORDBREAKS != *=* ]] || COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}")
    fi
    [[ ${COMPREPLY[*]-} != *= ]] || compopt -o nospace
}
complete -F _rxsteer_assignments -o bashdefault -o default rxsteer
"#;

/// The completion script for a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "rxsteer", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash { script + BASH_ASSIGNMENTS } else { script }
}

/// Adds explanations to a command and its subcommands.
fn explained(command: Command) -> Command {
    let command = command.mut_args(argument).mut_subcommands(explained);
    match command.get_after_help().map(ToString::to_string) {
        None => command,
        Some(all) => command.after_help(first_example(&all)).after_long_help(all),
    }
}

fn argument(arg: Arg) -> Arg {
    let is_seldom = arg.get_long().is_some_and(|name| RARE_OPTIONS.contains(&name));
    let words: Vec<PossibleValue> = arg.get_possible_values();
    // The help text explains the words of a grammar.
    let explains_words = words.iter().all(|word| word.get_help().is_none());
    let takes_value = arg.get_action().takes_values();
    // Without a hint a shell would offer files.
    let is_no_file = arg.get_value_hint() == ValueHint::Unknown && words.is_empty();
    let arg = if is_seldom { arg.hide_short_help(true) } else { arg };
    let arg = if takes_value { arg.hide_possible_values(explains_words) } else { arg };
    if takes_value && is_no_file { arg.value_hint(ValueHint::Other) } else { arg }
}

/// The first of the examples at the end of a help page.
fn first_example(all: &str) -> String {
    let example = all.lines().nth(1).unwrap_or_default();
    // A description may follow the command.
    let command = example.trim().split("   ").next().unwrap_or_default();
    format!("Example:\n  {command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns and lines of a small terminal window.
    const SCREEN: (usize, usize) = (80, 40);

    /// Every command, including those in groups.
    fn all(root: &Command) -> Vec<&Command> {
        let of = |command| std::iter::once(command).chain(all(command));
        root.get_subcommands().flat_map(of).collect()
    }

    #[test]
    fn short_help_fits_a_screen() {
        let mut root = command().term_width(SCREEN.0);
        root.build();
        for command in all(&root) {
            let help = command.clone().term_width(SCREEN.0).render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= SCREEN.1, "{} has {lines} lines:\n{help}", command.get_name());
        }
        let lines = root.render_help().to_string().lines().count();
        assert!(lines <= SCREEN.1, "{lines} lines");
    }

    #[test]
    fn options_that_short_help_leaves_out_are_there() {
        let root = Cli::command();
        let options = || all(&root).into_iter().flat_map(Command::get_arguments);
        for name in RARE_OPTIONS {
            assert!(options().any(|arg| arg.get_long() == Some(name)), "--{name}");
        }
    }

    #[test]
    fn every_value_is_a_word_a_path_or_nothing_to_complete() {
        for command in all(&command()) {
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let (hint, words) = (arg.get_value_hint(), arg.get_possible_values());
                let name = format!("{} {}", command.get_name(), arg.get_id());
                assert!(hint != ValueHint::Unknown || !words.is_empty(), "{name} completes files");
            }
        }
    }

    #[test]
    fn man_pages_have_the_values_of_options() {
        let root = man_pages();
        let live = root.find_subcommand("live").unwrap();
        let usage = live.get_overridden_usage().unwrap().to_string();
        assert!(usage.starts_with("rxsteer live ") && usage.ends_with(" <IFACE>..."), "{usage}");
        for part in ["[--cpus <LIST|COUNT>]", "[--inner[=<on|off>]]", "[--json]"] {
            assert!(usage.contains(part), "{part} in {usage}");
        }
    }

    #[test]
    fn short_help_has_the_first_example() {
        let all = "Examples:\n  rxsteer check          the host\n  rxsteer check eth0\n";
        assert_eq!(first_example(all), "Example:\n  rxsteer check");
    }
}
