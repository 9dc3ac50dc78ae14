//! `--from`: replaces a scenario's traffic by flows and arrival times from captures and flow records.
//!
//! ```text
//!  capture ─► dissect ─► key, hash ─┐
//!                                   ├─► Recording ─► traffic of the scenario
//!  .csv .jsonl .parquet ─► records ─┘   (rxsteer-sim)
//! ```

mod capture;
mod records;

use crate::hash_key::HashSeed;
use crate::words::whole;
use clap::{Args, ValueEnum, ValueHint};
use rxsteer_sim::Scenario;
use rxsteer_sim::check::MAX_FLOWS;
use rxsteer_sim::recorded::{
    DEFAULT_PACKETS, LONGEST_FRAME, LONGEST_SILENCE_NS, MAX_PACKETS, RecordedFigures, Recording,
    Spread, replace_traffic,
};
use rxsteer_sim::scenario::Recorded;
use rxsteer_user::packet::{DissectOptions, Hasher, SymmetricHash, TunnelKinds};
use std::path::{Path, PathBuf};

/// The built-in machine that gets a recording if no scenario is named.
pub(crate) const DEFAULT_SCENARIO: &str = "router-one-queue";

/// The highest speed. At this speed a recording of a day takes less than a tenth of a millisecond.
const HIGHEST_SPEED: f64 = 1e9;

/// The options about recordings.
#[derive(Args, Clone, Debug)]
pub(crate) struct FromArgs {
    /// Send recorded traffic: captures or flow records
    ///
    /// It replaces the scenario's traffic. Captures are pcap or pcapng, plain, gzip or zstd; - is standard input. Flow
    /// records are files of `rxsteer replay --flows` (.csv, .jsonl, .parquet). E.g. --from a.pcap b.pcap. The scenario is
    /// router-one-queue if none is named before --from.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, num_args = 1.., conflicts_with = "list", help_heading = "Recordings")]
    pub(crate) from: Vec<PathBuf>,

    /// Factor of the recorded speed [default: 1x]
    #[arg(long, value_name = "FACTOR", default_value = "1x", hide_default_value = true, value_parser = parse_speed, allow_hyphen_values = true, requires = "from", help_heading = "Recordings")]
    pub(crate) from_speed: f64,

    /// Most packets to send, e.g. 100000; the report counts those left out
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_PACKETS, value_parser = whole::<u32, 1, { MAX_PACKETS as u64 }>, requires = "from", help_heading = "Recordings")]
    pub(crate) from_packets: u32,

    /// Times of a flow record's packets, between its first and last one
    #[arg(
        long,
        value_enum,
        default_value = "even",
        requires = "from",
        help_heading = "Recordings"
    )]
    pub(crate) from_spread: SpreadChoice,

    /// The secret of the flow hash in every run, up to 32 hex digits, e.g. 2a
    ///
    /// Hashes are then those of `rxsteer replay --hash-seed 2a`. By default each seed has its own secret, so that
    /// different flows share a CPU.
    #[arg(long, value_name = "HEX", requires = "from", help_heading = "Recordings")]
    pub(crate) from_hash_seed: Option<HashSeed>,

    /// Hash packets inside IPIP, GRE, VXLAN, Geneve and GTP-U tunnels of captures by their own addresses
    #[arg(long, requires = "from", help_heading = "Recordings")]
    pub(crate) from_inner: bool,

    /// Hash tunnels of captures by their number instead of their ports: esp, gtp, l2tp, wireguard; all or none (the
    /// default)
    #[arg(
        long,
        value_name = "LIST",
        requires = "from",
        default_value_t,
        hide_default_value = true,
        help_heading = "Recordings"
    )]
    pub(crate) from_key_tunnels: TunnelKinds,
}

/// `--from-spread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpreadChoice {
    /// Equal gaps within a record
    Even,
    /// Random times, drawn by --seed
    Random,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix(['x', 'X']).unwrap_or(text);
    let speed = number.parse::<f64>().ok();
    speed.filter(|speed| *speed > 0.0 && *speed <= HIGHEST_SPEED).ok_or_else(|| {
        format!(
            "expected a factor above 0 and at most {HIGHEST_SPEED:.0}, e.g. 10x for ten times as fast"
        )
    })
}

/// A recording, ready to be sent.
#[derive(Debug)]
pub(crate) struct FromFiles {
    /// The name of the traffic: the first file's name.
    name: String,
    recorded: Recorded,
    pub(crate) figures: RecordedFigures,
    /// Damaged files, of which the part before the damage was used: exit status 1.
    pub(crate) issues: Vec<String>,
    args: FromArgs,
    /// Flow records that were read; 0 if there are only captures.
    records: u64,
    /// Records of captures that were skipped because their link type is unknown.
    skipped: u64,
}

impl FromArgs {
    /// Whether there is any recording.
    pub(crate) fn is_given(&self) -> bool {
        !self.from.is_empty()
    }

    /// Whether each seed has a separate flow hash.
    pub(crate) fn hashes_by_seed(&self) -> bool {
        self.is_given() && self.from_hash_seed.is_none()
    }

    /// A remark about runs that differ only by their seed.
    pub(crate) fn note_of_seeds(&self, seeds: u32, faults: u32) -> Option<String> {
        (self.from_hash_seed.is_some() && seeds > 1 && faults == 0).then(|| {
            format!(
                "with --from-hash-seed nothing in a recording is random: {seeds} seeds repeat one run, so intervals \
                 and significance mean nothing; leave it out to get them"
            )
        })
    }

    /// The options here that change the results, in the form of the command line.
    pub(crate) fn settings(&self) -> Vec<String> {
        if !self.is_given() {
            return Vec::new();
        }
        let files: Vec<String> = self.from.iter().map(|file| file.display().to_string()).collect();
        let spread = match self.from_spread {
            SpreadChoice::Even => None,
            SpreadChoice::Random => Some("--from-spread random".to_owned()),
        };
        [
            Some(format!("--from {}", files.join(" "))),
            (self.from_speed != 1.0).then(|| format!("--from-speed {}x", self.from_speed)),
            (self.from_packets != DEFAULT_PACKETS)
                .then(|| format!("--from-packets {}", self.from_packets)),
            spread,
            self.from_hash_seed.map(|seed| format!("--from-hash-seed {:x}", seed.0)),
            self.from_inner.then(|| "--from-inner".to_owned()),
            (!self.from_key_tunnels.is_empty())
                .then(|| format!("--from-key-tunnels {}", self.from_key_tunnels)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Reads the files, if any are given. `seed` spreads the packets of flow records, if they are spread at random.
    pub(crate) fn read(&self, seed: u64) -> anyhow::Result<Option<FromFiles>> {
        if !self.is_given() {
            return Ok(None);
        }
        let (records, captures): (Vec<PathBuf>, Vec<PathBuf>) =
            self.from.iter().cloned().partition(|file| records::Format::of(file).is_some());
        let secret = self.from_hash_seed.map_or(0, |seed| seed.0);
        let mut into = Into {
            recording: Recording::new(self.from_packets),
            hasher: Hasher::Symmetric(SymmetricHash::new(secret.to_be_bytes())),
            options: DissectOptions { inner: self.from_inner, key_tunnels: self.from_key_tunnels },
            issues: Vec::new(),
            skipped: 0,
        };
        if !captures.is_empty() {
            capture::read(&captures, &mut into)?;
        }
        let spread = match self.from_spread {
            SpreadChoice::Even => Spread::Even,
            SpreadChoice::Random => Spread::Random(seed),
        };
        let records = match records.is_empty() {
            true => 0,
            false => records::read(&records, spread, self.from_packets, &mut into)?,
        };
        let Into { recording, issues, skipped, .. } = into;
        let name = name_of(&self.from[0]);
        let (recorded, figures) = recording.finish(self.from_speed).map_err(|why| {
            // An empty file may be a damaged one.
            let damage: String = issues.iter().map(|issue| format!("{issue}; ")).collect();
            anyhow::anyhow!("can't simulate {name}: {damage}{why}")
        })?;
        Ok(Some(FromFiles {
            name,
            recorded,
            figures,
            issues,
            args: self.clone(),
            records,
            skipped,
        }))
    }
}

/// The result of reading both kinds of files.
struct Into {
    recording: Recording,
    hasher: Hasher,
    options: DissectOptions,
    issues: Vec<String>,
    skipped: u64,
}

fn name_of(file: &Path) -> String {
    match file.file_name() {
        Some(name) if name != "-" => name.to_string_lossy().into_owned(),
        _ => "standard input".to_owned(),
    }
}

impl FromFiles {
    /// The scenario with the recording as its traffic, and remarks for the user.
    pub(crate) fn replace(&self, scenario: &Scenario) -> anyhow::Result<(Scenario, Vec<String>)> {
        let (replaced, left_out) = replace_traffic(scenario, self.recorded.clone(), &self.name)?;
        replaced.check().map_err(|why| anyhow::anyhow!("can't simulate {}: {why}", self.name))?;
        let mut notes = Vec::new();
        if left_out.traffic > 0 {
            notes.push(format!(
                "the recording takes the path of the scenario's first traffic, '{}'; its other {} left \
                 out",
                scenario.traffic[0].name,
                counted(left_out.traffic as u64, "traffic is", "traffics are")
            ));
        }
        if left_out.events > 0 {
            notes.push(format!(
                "{} left out: bursts of the scenario's own traffic, and what would happen after the \
                 recording",
                counted(left_out.events as u64, "event of the scenario is", "events of the scenario are")
            ));
        }
        Ok((replaced, notes))
    }

    /// What was read, and how it was used.
    pub(crate) fn notes(&self) -> Vec<String> {
        let figures = &self.figures;
        let seconds = |ns: u64| format!("{:.6} s", ns as f64 / 1e9);
        // Within less than a millisecond some packets came in a burst, which has no rate.
        let rate = match figures.simulated_ns {
            0..1_000_000 => String::new(),
            ns => format!(" ({:.0} packets/s)", figures.packets as f64 * 1e9 / ns as f64),
        };
        let mut notes = vec![format!(
            "{} of {} in {} recorded, simulated in {}{rate}",
            counted(figures.packets, "packet", "packets"),
            counted(figures.flows, "flow", "flows"),
            seconds(figures.recorded_ns),
            seconds(figures.simulated_ns),
        )];
        if self.records > 0 {
            let how = match self.args.from_spread {
                SpreadChoice::Even => "evenly",
                SpreadChoice::Random => "at random, by the seed,",
            };
            notes.push(format!(
                "flow records do not have the time of each packet: the packets of {} are spread {how} over the time \
                 of their record",
                counted(self.records, "record", "records")
            ));
        }
        if self.records == 0 && self.args.from_spread == SpreadChoice::Random {
            notes.push(
                "--from-spread changes nothing here: captures have the time of each packet, flow records do not"
                    .to_owned(),
            );
        }
        if figures.more {
            notes.push(format!(
                "there are more than {} packets, and those beyond are left out; --from-packets takes \
                 more",
                self.args.from_packets
            ));
        }
        if figures.of_more_flows > 0 {
            notes.push(format!(
                "{} left out, which would be more than {MAX_FLOWS} flows",
                counted(
                    figures.of_more_flows,
                    "packet of a further flow is",
                    "packets of further flows are"
                )
            ));
        }
        if self.skipped > 0 {
            notes.push(format!(
                "{} left out, since the link type is unknown",
                counted(self.skipped, "record of a capture is", "records of captures are")
            ));
        }
        if figures.silences > 0 {
            notes.push(format!(
                "{} cut to {} s each, since steering remembers nothing for longer",
                counted(figures.silences, "longer silence is", "longer silences are"),
                LONGEST_SILENCE_NS / 1_000_000_000
            ));
        }
        if figures.late > 0 {
            notes.push(format!(
                "{} an earlier time than the one before; all are sent by their times",
                counted(figures.late, "packet has", "packets have")
            ));
        }
        if figures.too_long > 0 {
            notes.push(format!(
                "{} to be longer than {LONGEST_FRAME} bytes, and count with that",
                counted(figures.too_long, "frame claims", "frames claim")
            ));
        }
        notes
    }

    /// The recording as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let (figures, args) = (&self.figures, &self.args);
        serde_json::json!({
            "files": args.from.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
            "speed": args.from_speed,
            "hash_seed": args.from_hash_seed.map(|seed| format!("{:x}", seed.0)),
            "spread": (self.records > 0).then_some(match args.from_spread {
                SpreadChoice::Even => "even",
                SpreadChoice::Random => "random",
            }),
            "records": self.records,
            "records_skipped": self.skipped,
            "packets": figures.packets,
            "flows": figures.flows,
            "bytes": figures.bytes,
            "recorded_ns": figures.recorded_ns,
            "simulated_ns": figures.simulated_ns,
            "late_packets": figures.late,
            "silences_cut": figures.silences,
            "frames_too_long": figures.too_long,
            "packets_of_more_flows_left_out": figures.of_more_flows,
            "more_packets_left_out": figures.more,
            "errors": self.issues,
        })
    }
}

/// `1 packet`, `2 packets`.
fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
