//! The scenario of a run: a built-in one or a file, with the settings of the command line.

use super::args::SimArgs;
use super::from::{DEFAULT_SCENARIO, FromFiles};
use crate::output;
use crate::output::lines::field;
use anyhow::{Context, anyhow};
use rxsteer_sim::costs::Cost;
use rxsteer_sim::file::CostFrom;
use rxsteer_sim::file::builtin::{builtin, find};
use rxsteer_sim::{Scenario, file};
use rxsteer_status::figures::grouped;

/// A scenario and its origin.
pub(crate) struct Chosen {
    /// The name of a built-in scenario, or the file's name.
    pub(crate) name: String,
    /// The scenario's text.
    pub(crate) text: String,
    pub(crate) scenario: Scenario,
    /// The recording, if the scenario's traffic is recorded.
    pub(crate) from: Option<FromFiles>,
    /// The costs that are known to be not measured, without those that a user set.
    pub(crate) assumed: Vec<&'static Cost>,
    /// Remarks to print before the run.
    pub(crate) notes: Vec<String>,
}

/// The largest file that is read, in bytes. A scenario needs some thousand bytes.
const LARGEST: u64 = 16 << 20;

/// The scenario that the arguments select.
pub(crate) fn choose(args: &SimArgs) -> anyhow::Result<Chosen> {
    let default = args.from.is_given().then_some(DEFAULT_SCENARIO);
    let asked = args.scenario.as_deref().or(default).context("no scenario is named")?;
    let built_in = find(asked);
    let (name, text) = match built_in {
        Some(builtin) => (builtin.name.to_owned(), builtin.text.to_owned()),
        None => (asked.to_owned(), read(asked)?),
    };
    for (index, (key, _)) in args.set.iter().enumerate() {
        anyhow::ensure!(
            args.set[..index].iter().all(|(other, _)| other != key),
            "--set {key} is given twice; leave one of them out"
        );
    }
    let mut scenario = file::read(&text, &name, &args.set)?;
    // The costs of a built-in scenario were not measured either. Those of a file, or of the command line, are the user's.
    let is_assumed = |cost: &Cost, from: CostFrom| match from {
        _ if !cost.is_paid(&scenario) => false,
        CostFrom::Default => cost.is_assumed(),
        CostFrom::File => built_in.is_some(),
        CostFrom::Set => false,
    };
    let costs = file::costs_from(&text, &name, &args.set)?.into_iter();
    let assumed = costs.filter(|(cost, from)| is_assumed(cost, *from)).map(|(cost, _)| cost);
    let assumed = assumed.collect();
    let (from, mut notes) = (args.from.read(args.seed)?, Vec::new());
    if let Some(from) = &from {
        let (replaced, left_out) = from.replace(&scenario)?;
        for index in 0..args.set.len() {
            let mut others = args.set.clone();
            let (key, value) = others.remove(index);
            let Ok(without) = file::read(&text, &name, &others) else { continue };
            if without != scenario && from.replace(&without).is_ok_and(|(it, _)| it == replaced) {
                notes.push(format!(
                    "--set {key}={value} changes nothing here: the recording replaces it"
                ));
            }
        }
        scenario = replaced;
        notes.extend(from.notes().into_iter().chain(left_out));
        notes.extend(args.from.note_of_seeds(args.seeds(), args.faults));
    }
    if let Some(seconds) = args.seconds {
        scenario.duration_ns = scenario.warm_up_ns + (seconds * 1e9) as u64;
        scenario.check().with_context(|| format!("--seconds {seconds} does not fit {name}"))?;
    }
    Ok(Chosen { name, text, scenario, from, assumed, notes })
}

fn read(path: &str) -> anyhow::Result<String> {
    let names: Vec<&str> = builtin().iter().map(|builtin| builtin.name).collect();
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        // A word without a folder or an extension was meant as a name.
        Err(_) if !path.contains(['/', '.']) => {
            let hint = nearest(path, &names);
            return Err(anyhow!("there is no scenario '{path}' and no file of that name; {hint}"));
        }
        Err(error) => return Err(anyhow!("can't read the scenario {path}: {error}")),
    };
    anyhow::ensure!(
        meta.len() <= LARGEST,
        "{path} has {} bytes, which is too much for a scenario; to simulate a capture: --from {path}",
        grouped(meta.len())
    );
    let bytes = std::fs::read(path).with_context(|| format!("can't read the scenario {path}"))?;
    String::from_utf8(bytes).map_err(|_| {
        anyhow!("{path} is not text, so it is not a scenario; to simulate a capture: --from {path}")
    })
}

/// Names are long, and users often type only their beginning, so the beginning has more weight than elsewhere.
fn nearest(word: &str, names: &[&str]) -> String {
    const ALIKE: f64 = 0.75;
    let word = word.to_lowercase();
    let likeness = |name: &&str| strsim::jaro_winkler(&word, name);
    let best = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match best.filter(|best| likeness(best) >= ALIKE) {
        Some(best) => format!("did you mean '{best}'?"),
        None => format!("built in are '{}'", names.join("', '")),
    }
}

/// `--list`.
pub(crate) fn list(json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for builtin in builtin() {
        rows.push((builtin.name, file::read(builtin.text, builtin.name, &[])?.title));
    }
    if json {
        let object = |(name, title)| serde_json::json!({ "name": name, "title": title });
        let all: serde_json::Value = rows.into_iter().map(object).collect();
        return output::print(&format!("{all:#}\n"));
    }
    let widest = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, title) in [("scenario", "what it shows".to_owned())].into_iter().chain(rows) {
        field(&mut text, &format!(" {name}"), widest + 3, &title);
    }
    output::print(&text)
}

/// The settings that differ from the scenario's own, for a report.
pub(crate) fn settings(args: &SimArgs) -> Vec<String> {
    let mut settings: Vec<String> =
        args.set.iter().map(|(key, value)| format!("--set {key}={value}")).collect();
    settings.extend(args.from.settings());
    settings.extend(args.seconds.map(|seconds| format!("--seconds {seconds}")));
    if args.faults > 0 {
        settings.push(format!("--faults {}", args.faults));
    }
    settings
}
