//! The options of `rxsteer sim`.

use super::from::FromArgs;
use super::policies::{Policies, parse_policies};
use super::published::PublishedArgs;
use crate::words::whole;
use clap::{Args, ValueHint};
use rxsteer_settings::words;
use rxsteer_sim::check::MAX_TIME_NS;
use rxsteer_sim::file::builtin::builtin;
use rxsteer_user::core::Policy;
use std::convert::Infallible;
use std::path::PathBuf;

/// The most seeds of one command: all their results are kept and shown.
const MAX_SEEDS: u64 = 10_000;

/// The longest measured time, in simulated seconds.
const LONGEST_SECONDS: f64 = (MAX_TIME_NS / 1_000_000_000) as f64;

/// Simulate policies on a described machine, and compare them
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer sim router-one-queue                           one run of a built-in scenario\n  \
    rxsteer sim --list                                     the built-in scenarios\n  \
    rxsteer sim router-one-queue --compare none,rps,sparse --seeds 20\n  \
    rxsteer sim mine.toml --set steering.policy=bound:0=1,1=2 --set traffic.0.flows=8\n  \
    rxsteer sim rpc-8 --compare none,rps,rfs --report ./rpc --csv rpc.csv\n  \
    rxsteer sim router-one-queue --sensitivity             which assumed costs matter?\n  \
    rxsteer sim --from capture.pcap --from-speed 100x --compare rps,sparse,rfs+sparse\n  \
    rxsteer sim --published rfs                            a published table next to simulated figures\n  \
    rxsteer sim web-server-64 --seconds 1 --json | jq '.cells[0].summary.run'\n\n\
    The first policy of --compare is the baseline: name what you have now. The same scenario, settings and seeds \
    give the same output, byte for byte, with any --threads.\n\n\
    Exit status: 0 success; 1 a flow was reordered although interrupts are fixed, packets do not add up, or a \
    recording is damaged; 2 it could not run; 130 interrupted, the report covers what was done until then.")]
pub(crate) struct SimArgs {
    /// A built-in scenario, or a scenario file (TOML; docs/sim.md)
    #[arg(value_name = "SCENARIO|FILE", value_hint = ValueHint::FilePath, value_parser = words(builtin().iter().map(|it| it.name), scenario),
          required_unless_present_any = ["list", "from", "published", "fit"])]
    pub(crate) scenario: Option<String>,

    /// List the built-in scenarios
    #[arg(long, conflicts_with_all = ["scenario", "set", "seconds", "faults", "seed", "seeds", "threads", "compare", "csv", "report"])]
    pub(crate) list: bool,

    /// Override a key, e.g. traffic.0.flows=8
    ///
    /// The keys are those of the scenario. The option can be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting, help_heading = "Scenario")]
    pub(crate) set: Vec<(String, String)>,

    /// Simulated seconds after the warm-up, e.g. 0.5
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true, help_heading = "Scenario")]
    pub(crate) seconds: Option<f64>,

    /// Random faults in each run, drawn by its seed
    ///
    /// Faults are CPUs that go offline, return or slow down, bursts, clock steps, and changes of policy.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole::<u32, 0, 1000>, help_heading = "Scenario")]
    pub(crate) faults: u32,

    #[command(flatten)]
    pub(crate) from: FromArgs,

    /// The first seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Runs")]
    pub(crate) seed: u64,

    /// Seeds, each a run; by default 1, with --compare 10
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 1, MAX_SEEDS>, help_heading = "Runs")]
    pub(crate) seeds: Option<u32>,

    /// Simultaneous runs; by default one per CPU
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16, 1, 1024>, help_heading = "Runs")]
    pub(crate) threads: Option<u16>,

    /// Run these policies, and compare each with the first
    ///
    /// All run with the same seeds. E.g. rps,sparse:loops=2,bound:0=1,1=2.
    #[arg(long, value_name = "POLICIES", value_parser = words(Policy::NAMES, parse_policies), help_heading = "Runs")]
    pub(crate) compare: Option<Policies>,

    /// Show which assumed costs the result depends on
    ///
    /// It runs the scenario with half and with twice each of them, one at a time, all with the same seeds (by default 3). The costs of a built-in scenario are assumed, and so are the defaults that were not measured.
    #[arg(long, conflicts_with_all = ["list", "compare", "csv", "report"], help_heading = "Runs")]
    pub(crate) sensitivity: bool,

    #[command(flatten)]
    pub(crate) published: PublishedArgs,

    /// Print one JSON object instead of tables
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Also write every figure of every seed to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) csv: Option<PathBuf>,

    /// Also write a page with plots into this folder
    ///
    /// The folder is created if it does not exist. index.html is the whole page.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,
}

impl SimArgs {
    /// How many seeds each cell is run with.
    pub(crate) fn seeds(&self) -> u32 {
        self.seeds.unwrap_or(match (&self.compare, self.sensitivity) {
            (Some(_), _) => 10,
            (None, true) => 3,
            (None, false) => 1,
        })
    }
}

/// Accepts any text; the scenario is looked up later.
fn scenario(text: &str) -> Result<String, Infallible> {
    Ok(text.to_owned())
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| {
            format!(
                "'{text}' is not KEY=VALUE; write e.g. steering.policy=sparse or traffic.0.flows=8"
            )
        })
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (1e-6..=LONGEST_SECONDS).contains(seconds))
        .ok_or_else(|| {
            format!(
                "expected seconds of simulated time, 0.000001 to {LONGEST_SECONDS:.0}, e.g. 0.5"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_split_at_the_first_sign() {
        let bound = ("steering.policy".to_owned(), "bound:0=1,1=2".to_owned());
        assert_eq!(parse_setting("steering.policy=bound:0=1,1=2"), Ok(bound));
        for bad in ["flows", "=8", ""] {
            assert!(parse_setting(bad).unwrap_err().contains("KEY=VALUE"), "{bad}");
        }
    }

    #[test]
    fn seconds_are_positive_and_finite() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for bad in ["0", "-1", "nan", "inf", "1s", "1e9"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
