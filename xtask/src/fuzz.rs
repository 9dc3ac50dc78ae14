//! Fuzzing of the dissectors and of the capture reader.

use std::fs;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{Outcome, shell};

/// Feeds random input to the dissectors and the capture reader (cargo-fuzz).
#[derive(Args)]
#[command(
    after_help = "Examples:\n  cargo xtask fuzz all\n  cargo xtask fuzz dissect --seconds 600"
)]
pub(crate) struct Options {
    /// A target of fuzz/fuzz_targets, or `all`.
    target: String,
    /// How long each target runs.
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Options of libFuzzer, after `--`: `-- -max_len=100000`.
    #[arg(last = true, value_name = "OPTION")]
    libfuzzer: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let known = targets()?;
    let chosen = chosen(&options.target, &known)?;
    if shell::output(shell::cargo().args(["fuzz", "--version"]))?.is_err() {
        return Ok(Outcome::Skipped(
            "fuzz: cargo-fuzz is not installed. Install it by `cargo install cargo-fuzz --locked` \
             and run this again."
                .to_owned(),
        ));
    }
    for target in chosen {
        // New inputs are written to the first corpus; the one in the repository is only read.
        let found = shell::target_dir("fuzz-corpus").join(target);
        fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
        let kept = shell::root().join("fuzz/corpus").join(target);

        let mut fuzz = shell::cargo();
        fuzz.args(["fuzz", "run", target]).arg(found).args(kept.is_dir().then_some(kept));
        // The sanitizer's flags are unstable; with RUSTC_BOOTSTRAP the stable compiler accepts them.
        fuzz.arg("--")
            .arg(format!("-max_total_time={}", options.seconds))
            .args(["-print_final_stats=1", "-timeout=10"])
            .args(&options.libfuzzer)
            .env("RUSTC_BOOTSTRAP", "1");
        if let Outcome::Failed = shell::outcome(&mut fuzz)? {
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Passed)
}

/// All targets: the files of fuzz/fuzz_targets.
fn targets() -> Result<Vec<String>> {
    let folder = shell::root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn chosen<'names>(asked: &str, known: &'names [String]) -> Result<Vec<&'names str>> {
    let chosen: Vec<&str> =
        known.iter().map(String::as_str).filter(|name| asked == "all" || *name == asked).collect();
    if chosen.is_empty() {
        bail!("there is no fuzz target {asked:?}; choose one of: all, {}", known.join(", "));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_chosen_by_name_or_with_all_others() {
        let known = ["capture".to_owned(), "dissect".to_owned()];
        assert_eq!(chosen("dissect", &known).unwrap(), ["dissect"]);
        assert_eq!(chosen("all", &known).unwrap(), ["capture", "dissect"]);
    }

    #[test]
    fn unknown_target_is_refused_with_the_ones_there_are() {
        let why = chosen("disect", &["capture".to_owned(), "dissect".to_owned()]).unwrap_err();
        assert_eq!(
            why.to_string(),
            "there is no fuzz target \"disect\"; choose one of: all, capture, dissect"
        );
    }
}
