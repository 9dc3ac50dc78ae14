//! `rxsteer config check`: checks a file for `rxsteer run --config`.

use crate::Outcome;
use crate::output;
use crate::run::args::RunSettings;
use crate::settings_file;
use clap::{Args, Subcommand, ValueHint};
#[cfg(feature = "xdp")]
use rxsteer_settings::names;
use rxsteer_settings::{Text, mistakes, read};
use rxsteer_user::shown;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Check a settings file before rxsteer run reads it
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
/// It changes nothing and requires no privilege. It reports each mistake with its place. Settings that rxsteer run
/// would refuse on this host are mistakes: missing CPUs, RX queues, folders and tracepoints, and threads that would
/// starve others. It notes missing interfaces, and settings and rules without effect. rxsteer check shows whether the
/// host and an interface can be steered at all.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer config check /etc/rxsteer/rxsteer.toml\n  \
    rxsteer config check /etc/rxsteer/rxsteer.toml && systemctl reload rxsteer\n  \
    rxsteer config check other-host.toml --any-host\n\n\
    Exit status: 0 the file is correct; 1 it has mistakes, which are printed; 2 it can't be read.")]
struct CheckFileArgs {
    /// The TOML file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Check only what does not depend on the host, for another host's file
    #[arg(long)]
    any_host: bool,

    /// Print one JSON object: version, file, ok, error, mistakes and notes
    #[arg(long)]
    json: bool,
}

/// The mistakes in a file, each with its place, and notes.
#[derive(Debug, Default)]
struct Checked {
    mistakes: Vec<String>,
    notes: Vec<String>,
}

/// The command.
pub(crate) fn command(args: &ConfigArgs) -> anyhow::Result<Outcome> {
    let ConfigCommand::Check(args) = &args.command;
    let file = shown(&args.file);
    let text = match settings_file::text(&args.file) {
        Ok(text) => text,
        Err(error) => {
            if args.json {
                let mistakes = vec![output::error_text(&error)];
                print(&file, &Checked { mistakes, notes: Vec::new() })?;
            }
            return Err(error);
        }
    };
    let checked = checked(&args.file, &text, !args.any_host);
    let is_right = checked.mistakes.is_empty();
    if args.json {
        print(&file, &checked)?;
    } else {
        let note = |text: &String| output::note(&format!("rxsteer: {text}"));
        checked.mistakes.iter().for_each(note);
        if is_right {
            checked.notes.iter().for_each(|text| note(&format!("{file}: {text}")));
            output::print(&format!("{file} is correct\n"))?;
        }
    }
    Ok(if is_right { Outcome::Success } else { Outcome::Findings })
}

/// Checks the text of the file at `path`: for this host (`here`), or for any.
fn checked(path: &Path, text: &str, here: bool) -> Checked {
    let (texts, mut wrong) = settings_file::parse(text);
    wrong.extend(mistakes::<RunSettings>(&texts).iter().map(settings_file::mistake));
    let is_right = |text: &&Text| wrong.iter().all(|(place, _)| *place != text.place);
    let right: Vec<Text> = texts.iter().filter(is_right).cloned().collect();
    // The other settings are checked without it.
    let unread: Vec<&str> =
        texts.iter().filter(|text| !is_right(text)).map(|text| text.name.as_str()).collect();
    let (unplaced, notes) = match read::<RunSettings>(right.clone()) {
        Ok(settings) => check_parsed(&settings, &right, &unread, here, &mut wrong),
        Err(refused) => {
            wrong.push(settings_file::mistake(&refused));
            Default::default()
        }
    };
    wrong.sort_by_key(|(place, _)| *place);
    let placed = wrong.iter().map(|(place, why)| settings_file::placed(path, text, *place, why));
    let unplaced = unplaced.iter().map(|why| format!("{}: {why}", shown(path)));
    Checked { mistakes: placed.chain(unplaced).collect(), notes }
}

/// Checks settings that could be parsed, which are `right` in the file; those in `unread` have other values there.
/// Returns mistakes without a place, and notes.
#[cfg(feature = "xdp")]
fn check_parsed(
    settings: &RunSettings,
    right: &[Text],
    unread: &[&str],
    here: bool,
    wrong: &mut Vec<settings_file::Mistake>,
) -> (Vec<String>, Vec<String>) {
    use crate::run::args::LiveSettings;
    use crate::run::file_check::{fixed, live};
    let mut unplaced = Vec::new();
    let for_others = |why: String, is_right_elsewhere: bool| match here && is_right_elsewhere {
        true => format!("{why} (a file for another host: --any-host)"),
        false => why,
    };
    for (names, why) in fixed(settings, here) {
        if names.iter().any(|name| unread.contains(&name.as_str())) {
            continue;
        }
        let is_elsewhere = !fixed(settings, false).iter().any(|(of, _)| *of == names);
        let there = || names.iter().filter_map(|name| right.iter().find(|text| text.name == *name));
        let is_named = |text: &&Text| {
            let mut words = why.split([' ', ';', ',', ':']);
            words.any(|word| word.strip_prefix("--") == Some(&text.name))
        };
        let place = there().find(is_named).or_else(|| there().next()).map(|text| text.place);
        let why = for_others(why.clone(), is_elsewhere);
        match place {
            Some(place) => wrong.push((place, why)),
            None => unplaced.push(why),
        }
    }
    let of_all = match live(settings, here) {
        Ok(notes) => return (unplaced, notes),
        Err(why) => for_others(why, live(settings, false).is_ok()),
    };
    // To find which setting is wrong, each is checked alone.
    let names = names::<LiveSettings>();
    let alone = |text: &&Text| {
        let one = read::<RunSettings>([Text::clone(text)]).ok()?;
        let one = RunSettings { live: one.live, fixed: settings.fixed.clone() };
        let why = live(&one, here).err()?;
        Some((text.place, for_others(why, live(&one, false).is_ok())))
    };
    let each: Vec<_> = right
        .iter()
        .filter(|text| names.contains(&text.name))
        .filter_map(|text| alone(&text))
        .collect();
    match settings_file::place_of(right, &of_all) {
        _ if !each.is_empty() => wrong.extend(each),
        Some(place) => wrong.push((place, of_all)),
        None => unplaced.push(of_all),
    }
    (unplaced, Vec::new())
}

/// A build without the in-kernel path has no `rxsteer run` that could refuse them.
#[cfg(not(feature = "xdp"))]
fn check_parsed(
    _: &RunSettings,
    _: &[Text],
    _: &[&str],
    here: bool,
    _: &mut Vec<settings_file::Mistake>,
) -> (Vec<String>, Vec<String>) {
    let note = "this build has no in-kernel path, so what depends on the host is not checked";
    (Vec::new(), here.then(|| note.to_owned()).into_iter().collect())
}

/// The JSON object.
fn print(file: &str, Checked { mistakes, notes }: &Checked) -> anyhow::Result<()> {
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "file": file,
        "ok": mistakes.is_empty(),
        "error": (!mistakes.is_empty()).then(|| mistakes.join("\n")),
        "mistakes": mistakes,
        "notes": notes,
    });
    output::print(&format!("{report:#}\n"))
}
