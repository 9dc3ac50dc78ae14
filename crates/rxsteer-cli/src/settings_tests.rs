//! Tests that the same text has the same meaning in every way to give a setting: every setting, every way.

use crate::change_spec::{ChangeSettings, PlannedChange};
use crate::cli::{Cli, Command};
use crate::record_args::RunRecordArgs;
use crate::run::args::{KernelSettings, LiveSettings, RunSettings};
use crate::settable::AnySettings;
use crate::settings_file;
use crate::steer_args::SteerSettings;
use clap::Parser;
use rxsteer_settings::{Rules, Steering, Tables, names};
use rxsteer_sim::{Scenario, file};
use rxsteer_user::SteerChange;
use std::collections::BTreeSet;

/// Each setting; texts that it takes; one that it does not, and what is said of it by each way.
const SETTINGS: [(&str, &[&str], &str, &str); 34] = [
    (
        "policy",
        &["none", "rfs+sparse:loops=2", "bound:0=1"],
        "sparse:loops=6",
        "loops must be 1 to 5",
    ),
    ("cpus", &["0-2", "4-4", "4096"], "8193", "a count of CPUs must be 1 to 8192, not 8193"),
    ("rps-map", &["1=0-1", "none"], "1024=0", "numbered from 0 to 1023"),
    ("else", &["hash", "local"], "lokal", "'local'"),
    ("rfs-cpus", &["1,3", "all"], "3-1", "the range 3-1 runs backwards"),
    (
        "flow-limit",
        &["64", "on", "off"],
        "1048577",
        "expected on, off or a number of buckets from 1 to",
    ),
    ("sock-flow-entries", &["1000"], "67108865", "a whole number from 1 to 67108864"),
    ("flow-cnt", &["200"], "16777217", "a whole number from 1 to 16777216"),
    ("max-backlog", &["1048576"], "1048577", "a whole number from 1 to 1048576"),
    ("budget", &["65536"], "65537", "a whole number from 1 to 65536"),
    ("queue-size", &["8", "16384"], "16385", "a whole number from 8 to 16384"),
    ("threads", &["nice:-5", "other"], "fifo:100", "a real-time priority is 1 to 99"),
    ("shadow", &["on", "off"], "yes", "expected on or off"),
    ("mode", &["generic"], "natve", "'native'"),
    ("rfs-namespaces", &["all"], "al", "'all'"),
    ("hash-seed", &["2a"], "g", "up to 32 hex digits"),
    ("inner", &["on", "off"], "1", "expected on or off"),
    ("key-tunnels", &["esp,gtp", "all", "none"], "vxlan", "there are esp, gtp"),
    ("no-flow-stats", &["on"], "yes", "expected on or off"),
    ("listen", &["127.0.0.1:9817", "[::1]:0"], "localhost", "expected ADDRESS:PORT"),
    ("listen-token-file", &["/etc/rxsteer/token"], "", "listen-token-file"),
    ("events", &["-", "/var/log/rxsteer.jsonl"], "", "events"),
    ("flows", &["/var/lib/rxsteer/flows.csv", "/var/lib/rxsteer/flows/"], "", "flows"),
    ("partition-by", &["hash-prefix:1"], "hash", "unknown partitioning 'hash'"),
    ("ipfix", &["192.0.2.1:4739", "[2001:db8::1]:4739"], "192.0.2.1", "expected HOST:PORT"),
    ("flows-rotate", &["10m"], "1ms", "expected whole seconds"),
    ("flows-rotate-size", &["100MiB", "4096"], "12", "not a size of at least 4KiB"),
    ("flow-active-timeout", &["30m"], "0s", "the timeout must be longer than 0"),
    ("flow-idle-timeout", &["15s"], "0s", "the timeout must be longer than 0"),
    ("anonymize", &["24/48", "pseudonym"], "pseudo", "pseudonym"),
    ("anonymize-key", &[KEY], "ab", "64"),
    ("rx-devices", &["1024"], "1025", "a whole number from 1 to 1024"),
    ("rule", &["tcp dst-port 22 → local", "none"], "tpc -> 1", "did you mean 'tcp'"),
    ("hash", &["toeplitz", "symmetric"], "toplitz", "'toeplitz'"),
];

/// A key of pseudonyms.
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A way to give settings.
struct Way {
    name: &'static str,
    settings: Vec<String>,
    /// What a setting means, in a form that is the same for all ways.
    read: fn(&str, &str) -> Result<String, String>,
    /// The name that stands before a misspelt one.
    misspelt: &'static str,
}

fn ways() -> [Way; 9] {
    let every = [names::<Steering>(), names::<Tables>(), vec!["max-backlog".into()]].concat();
    let scenario = [every.clone(), names::<Rules>(), vec!["budget".into()]].concat();
    let replay = [names::<SteerSettings>(), vec!["max-backlog".into()]].concat();
    let clap = "a similar argument exists: '--";
    let ours = "did you mean '";
    let way = |name, settings, read, misspelt| Way { name, settings, read, misspelt };
    [
        way("replay", replay, replay_option, clap),
        way("replay --config", names::<SteerSettings>(), replay_file, ours),
        way("run", names::<RunSettings>(), run_option, clap),
        way("run --config", names::<RunSettings>(), run_file, ours),
        way("set", names::<AnySettings>(), set, ours),
        way("set of run", names::<LiveSettings>(), set_of_run, ours),
        way("set of live", names::<ChangeSettings>(), set_of_live, ours),
        way("--change-at", names::<ChangeSettings>(), change_at, ours),
        way("scenario", scenario, scenario_key, ours),
    ]
}

/// The value of one setting, in a form that all ways have in common.
fn common<const BUCKETS: u32>(
    name: &str,
    steering: &Steering<BUCKETS>,
    tables: &Tables,
) -> Option<String> {
    let cpus = steering.cpus.as_ref().map(|choice| choice.cpus(None));
    Some(match name {
        "policy" => format!("{:?}", steering.policy.as_ref()?),
        "cpus" => format!("{:?}", cpus?),
        "rps-map" => format!("{:?}", steering.rps_maps()?),
        "else" => format!("{:?}", steering.fallback?),
        "rfs-cpus" => format!("{:?}", steering.rfs_cpus()?),
        "flow-limit" => format!("{:?}", steering.flow_limit()?),
        "sock-flow-entries" => tables.sock_flow_entries?.to_string(),
        "flow-cnt" => tables.flow_cnt?.to_string(),
        _ => return None,
    })
}

fn of_replay(name: &str, settings: &SteerSettings) -> String {
    let SteerSettings { steering, rules, tables, rx_devices, hash, flows, tunnels } = settings;
    common(name, steering, tables).unwrap_or_else(|| match name {
        "rule" => format!("{:?}", rules.rules().unwrap()),
        "rx-devices" => format!("{rx_devices:?}"),
        "hash" => format!("{hash:?}"),
        "hash-seed" => format!("{:?}", flows.hash_seed),
        "inner" => format!("{:?}", flows.inner),
        "key-tunnels" => format!("{:?}", tunnels.key_tunnels),
        _ => panic!("{name} is not set: {settings:?}"),
    })
}

fn of_live(name: &str, settings: &LiveSettings) -> Option<String> {
    let LiveSettings { steering, rules, kernel } = settings;
    common(name, steering, &Tables::default())
        .or_else(|| of_kernel(name, kernel))
        .or_else(|| (name == "rule").then(|| format!("{:?}", rules.rules().unwrap())))
}

fn of_kernel(name: &str, settings: &KernelSettings) -> Option<String> {
    match name {
        "queue-size" => settings.queue_size.map(|size| size.to_string()),
        "threads" => settings.threads.map(|class| class.to_string()),
        "shadow" => settings.shadow.map(|shadow| shadow.to_string()),
        _ => None,
    }
}

fn of_run(name: &str, settings: &RunSettings) -> String {
    let RunSettings { live, fixed } = settings;
    let tables = || common(name, &live.steering, &fixed.tables);
    of_live(name, live).or_else(tables).unwrap_or_else(|| match name {
        "mode" => format!("{:?}", fixed.mode),
        "rfs-namespaces" => format!("{:?}", fixed.rfs_namespaces),
        "hash-seed" => format!("{:?}", fixed.flows.hash_seed),
        "inner" => format!("{:?}", fixed.flows.inner),
        "key-tunnels" => format!("{:?}", fixed.tunnels.key_tunnels),
        "no-flow-stats" => format!("{:?}", fixed.no_flow_stats),
        "listen" => format!("{:?}", fixed.listen.listen),
        "listen-token-file" => format!("{:?}", fixed.listen.listen_token_file),
        "events" => format!("{:?}", fixed.events.to),
        name => of_records(name, &fixed.records).unwrap_or_else(|| panic!("{name} is not set")),
    })
}

fn of_records(name: &str, records: &RunRecordArgs) -> Option<String> {
    let RunRecordArgs { output, rotate, flow_idle_timeout, anonymize } = records;
    Some(match name {
        "flows" => format!("{:?}", output.flows.as_ref()?),
        "partition-by" => output.partition_by?.to_string(),
        "ipfix" => output.ipfix.clone()?,
        "flows-rotate" => format!("{:?}", rotate.flows_rotate?),
        "flows-rotate-size" => rotate.flows_rotate_size?.to_string(),
        "flow-active-timeout" => format!("{:?}", rotate.flow_active_timeout?),
        "flow-idle-timeout" => format!("{:?}", (*flow_idle_timeout)?),
        "anonymize" => anonymize.mode?.to_string(),
        "anonymize-key" => format!("{:?}", anonymize.key?),
        _ => return None,
    })
}

fn command(line: &[&str]) -> Result<Command, String> {
    let line = [&["rxsteer"], line].concat();
    Cli::try_parse_from(line).map(|cli| cli.command).map_err(|error| error.to_string())
}

fn replay_option(name: &str, text: &str) -> Result<String, String> {
    let option = format!("--{name}={text}");
    match command(&["replay", "--synthetic", "", &option])? {
        Command::Replay(args) if name == "max-backlog" => Ok(args.max_backlog.to_string()),
        Command::Replay(args) => Ok(of_replay(name, &args.steer.options)),
        other => panic!("{other:?}"),
    }
}

fn run_option(name: &str, text: &str) -> Result<String, String> {
    match command(&["run", "lo", &format!("--{name}={text}")])? {
        Command::Run(args) => Ok(of_run(name, &args.options)),
        other => panic!("{other:?}"),
    }
}

/// The text as a file says it: a number, a map of RX queues, or a string.
fn toml(name: &str, text: &str) -> String {
    match text.split_once('=') {
        Some((queue, cpus)) if name == "rps-map" => format!("rps-map = {{ {queue} = '{cpus}' }}\n"),
        _ if text.parse::<u32>().is_ok() => format!("{name} = {text}\n"),
        _ => format!("{name} = '{text}'\n"),
    }
}

fn from_file(name: &str, text: &str, command_line: &[&str]) -> (tempfile::TempDir, Command) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("settings.toml");
    std::fs::write(&path, toml(name, text)).unwrap();
    let line = [command_line, &["--config", path.to_str().unwrap()]].concat();
    (dir, command(&line).unwrap())
}

fn replay_file(name: &str, text: &str) -> Result<String, String> {
    let (_dir, command) = from_file(name, text, &["replay", "--synthetic", ""]);
    let Command::Replay(args) = command else { panic!("{command:?}") };
    let settings = settings_file::settings(&args.steer.options, args.steer.config.as_deref());
    settings.map(|settings| of_replay(name, &settings)).map_err(|error| format!("{error:#}"))
}

fn run_file(name: &str, text: &str) -> Result<String, String> {
    let (_dir, command) = from_file(name, text, &["run", "lo"]);
    let Command::Run(args) = command else { panic!("{command:?}") };
    args.settings().map(|all| of_run(name, &all)).map_err(|error| format!("{error:#}"))
}

fn set(name: &str, text: &str) -> Result<String, String> {
    let AnySettings { change, kernel } = AnySettings::parse(&[format!("{name}={text}")])?;
    Ok(of_kernel(name, &kernel).unwrap_or_else(|| of_change(name, &change.into())))
}

fn set_of_run(name: &str, text: &str) -> Result<String, String> {
    let settings = LiveSettings::parse(&[format!("{name}={text}")])?;
    Ok(of_live(name, &settings).unwrap_or_else(|| panic!("{name} is not set")))
}

fn set_of_live(name: &str, text: &str) -> Result<String, String> {
    Ok(of_change(name, &ChangeSettings::parse(&[format!("{name}={text}")])?.into()))
}

fn change_at(name: &str, text: &str) -> Result<String, String> {
    let PlannedChange(_, change) = format!("1s:{name}={text}").parse()?;
    Ok(of_change(name, &change))
}

fn of_change(name: &str, change: &SteerChange) -> String {
    match name {
        "policy" => format!("{:?}", change.policy.as_ref().unwrap()),
        "rule" => format!("{:?}", change.packet_rules.as_ref().unwrap()),
        "cpus" => format!("{:?}", change.cpus.as_ref().unwrap()),
        "rps-map" => format!("{:?}", change.rps_maps.as_ref().unwrap()),
        "else" => format!("{:?}", change.fallback.as_ref().unwrap()),
        "rfs-cpus" => format!("{:?}", change.rfs_cpus.as_ref().unwrap()),
        "flow-limit" => format!("{:?}", change.flow_limit.as_ref().unwrap()),
        "sock-flow-entries" => change.sock_flow_entries.unwrap().to_string(),
        "flow-cnt" => change.flow_cnt.unwrap().to_string(),
        "max-backlog" => change.max_backlog.unwrap().to_string(),
        _ => panic!("{name} is not set"),
    }
}

/// By the file and by `--set`, at the start and in an event: all four, which must agree.
fn scenario_key(name: &str, text: &str) -> Result<String, String> {
    let machine =
        "duration = '1s'\nmachine.cpus = 4096\n[[nic]]\nqueues = 2\n[[traffic]]\nkind = 'stream'\n";
    let value = toml(name, text);
    let value = value.trim_end();
    let read = |more: &str, sets: &[(String, String)]| {
        file::read(&format!("{machine}{more}"), "s.toml", sets).map_err(|error| error.to_string())
    };
    let at_start = read(&format!("[steering]\n{value}\n"), &[])?;
    let by_set = read("", &[(format!("steering.{name}"), text.to_owned())])?;
    let event = read(&format!("[[event]]\nat = '1ms'\nsteering = {{ {value} }}\n"), &[])?;
    let changed = event.events.into_iter().map(|event| event.what).collect::<Vec<_>>();
    assert_eq!(at_start.steering, by_set.steering, "{name}={text}");
    assert_eq!(changed, [rxsteer_sim::scenario::EventKind::Steering(by_set.steering.clone())]);
    let Scenario { steering, .. } = at_start;
    Ok(match name {
        "policy" => format!("{:?}", steering.policy),
        "cpus" => format!("{:?}", steering.cpus),
        "rps-map" => format!("{:?}", steering.rps_maps),
        "else" => format!("{:?}", steering.fallback),
        "rfs-cpus" => format!("{:?}", steering.rfs_cpus),
        "flow-limit" => format!("{:?}", steering.flow_limit),
        "sock-flow-entries" => steering.sock_flow_entries.to_string(),
        "flow-cnt" => steering.flow_cnt.unwrap().to_string(),
        "max-backlog" => steering.max_backlog.to_string(),
        "budget" => steering.budget.to_string(),
        "rule" => format!("{:?}", steering.packet_rules),
        _ => panic!("{name} is not set"),
    })
}

#[test]
fn same_text_means_the_same_by_each_way() {
    for (name, texts, _, _) in SETTINGS {
        for text in texts {
            let mut meanings = BTreeSet::new();
            for way in ways().iter().filter(|way| way.settings.iter().any(|known| known == name)) {
                let read = (way.read)(name, text);
                meanings.insert(
                    read.unwrap_or_else(|why| panic!("{}: {name}={text}: {why}", way.name)),
                );
            }
            assert_eq!(meanings.len(), 1, "{name}={text} means {meanings:?}");
        }
    }
}

#[test]
fn same_text_is_refused_for_the_same_reason_by_each_way() {
    for (name, _, text, part) in SETTINGS {
        for way in ways().iter().filter(|way| way.settings.iter().any(|known| known == name)) {
            let why = (way.read)(name, text).expect_err(way.name);
            assert!(why.contains(part), "{}: {name}={text}: {why}", way.name);
        }
    }
}

#[test]
fn misspelt_setting_is_refused_with_the_nearest_by_each_way() {
    for way in ways() {
        for name in &way.settings {
            let why = (way.read)(&format!("{name}x"), "1").expect_err(way.name);
            let hint = format!("{}{name}'", way.misspelt);
            assert!(why.contains(&hint), "{}: {name}x: {why}", way.name);
        }
    }
}

#[test]
fn all_settings_of_all_ways_are_tested() {
    let tested: BTreeSet<_> = SETTINGS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let known: BTreeSet<_> = ways().into_iter().flat_map(|way| way.settings).collect();
    assert_eq!(tested, known);
}
