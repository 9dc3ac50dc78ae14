//! Tests: each key misspelt, each kind of invalid value, values of `--set`, and random edits.

use super::builtin::{builtin, find};
use super::settings::SteeringKeys;
use super::*;
use crate::scenario::{EventKind, Interrupts, Load, Share, Steering};
use proptest::prelude::*;
use rxsteer_core::{CpuId, Fallback, Policy, Slots};
use rxsteer_settings::names;
use std::io::Write;

/// The smallest valid scenario.
const SMALL: &str = "\
duration = \"1s\"
[machine]
cpus = 4
[[nic]]
[[traffic]]
kind = \"stream\"
";

/// A scenario with every table, and every key of most tables.
const LARGE: &str = include_str!("tests.toml");

fn small() -> Scenario {
    read(SMALL, "small", &[]).unwrap()
}

fn with(sets: &[(&str, &str)]) -> Result<Scenario, FileError> {
    let own = |(path, value): &(&str, &str)| (path.to_string(), value.to_string());
    read(SMALL, "small", &sets.iter().map(own).collect::<Vec<_>>())
}

fn refused(text: &str) -> String {
    match read(text, "x.toml", &[]) {
        Ok(scenario) => panic!("it was read: {scenario:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_built_in_reads() {
    for builtin in builtin() {
        let scenario = builtin.scenario(&[]).unwrap();
        assert!(!builtin.title().is_empty() && builtin.title() != builtin.name);
        assert_eq!(scenario.title, builtin.title());
        assert_eq!(find(builtin.name), Some(builtin));
    }
    assert_eq!(builtin().len(), 6);
    let spread = find("irq-spread").unwrap().scenario(&[]).unwrap();
    assert_eq!(spread.nics[0].interrupts, Interrupts::Spread("0-3".parse().unwrap()));
    assert_eq!(spread.steering.policy, Policy::None);
}

#[test]
fn what_is_left_out_has_defaults() {
    let scenario = small();
    assert_eq!(scenario.title, "small");
    assert_eq!(scenario.warm_up_ns, 100_000_000);
    assert_eq!(scenario.steering, Steering::new(Policy::None, "0-3".parse().unwrap()));
    assert_eq!(scenario.costs, crate::costs::default_costs());
    assert_eq!(scenario.nics[0].name, "eth0");
    let cores: Vec<_> = scenario.cpus.iter().map(|cpu| (cpu.core, cpu.cache)).collect();
    assert_eq!(cores, [(0, 0), (1, 0), (2, 0), (3, 0)]);
}

#[test]
fn all_is_read_as_it_is_written() {
    let scenario = read(LARGE, "large", &[]).unwrap();
    let cpu = |id| CpuId::new(id).unwrap();
    let cpus: Vec<_> = scenario.cpus.iter().map(|c| (c.speed, c.core, c.cache)).collect();
    assert_eq!(cpus, [(1.0, 0, 0), (0.5, 0, 0), (1.0, 2, 2), (0.5, 2, 2)]);
    assert_eq!(scenario.nics[0].irq_cpus, [cpu(2), cpu(0), cpu(2)]);
    assert_eq!(scenario.nics[1].rate, 1e8);
    assert_eq!(scenario.wire_ns, 10_500);
    let mut costs = scenario.costs;
    for (index, cost) in crate::costs::COSTS.iter().enumerate() {
        assert_eq!(*(cost.field)(&mut costs), 100.0 + index as f64, "{}", cost.key);
    }
    assert_eq!(scenario.steering.rps_maps, [(1.into(), "0-1".parse().unwrap())]);
    let rules: Vec<_> = scenario.steering.packet_rules.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["tcp dst-port 22 → local", "udp → 2-3"]);
    assert_eq!(scenario.traffic[1].headers, "udp src 10.1.0.0/16 vlan 7".parse().unwrap());
    assert_eq!(scenario.steering.fallback, Fallback::Local);
    assert_eq!(scenario.steering.rfs_cpus, "1-2".parse().ok());
    assert_eq!(scenario.steering.flow_limit, Some(4096));
    let Load::Constant(constant) = &scenario.traffic[1].load else { panic!("constant") };
    assert_eq!((constant.rate, constant.share), (5e4, Share::Zipf(1.1)));
    let Load::Requests(requests) = &scenario.traffic[2].load else { panic!("requests") };
    assert_eq!((requests.think_ns, requests.threads), (1e6, Some(4)));
    let times: Vec<_> = scenario.events.iter().map(|event| event.at_ns).collect();
    assert_eq!(times, [1, 2, 3, 4, 5, 6].map(|ms| ms * 1_000_000));
    let changed = Steering { policy: Policy::RfsSparse(Slots::of(2)), ..scenario.steering.clone() };
    assert_eq!(scenario.events[3].what, EventKind::Steering(changed));
    assert_eq!(scenario.events[5].what, EventKind::Burst(1, 1000));
}

/// Every key, if misspelt in its place, is reported with its line and the correct key.
#[test]
fn every_misspelt_key_is_found() {
    let mut seen = std::collections::BTreeSet::new();
    for (index, line) in LARGE.lines().enumerate() {
        let (head, tail) = line.split_at(line.find(|c| c != '[').unwrap_or(0));
        let end = tail
            .find(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c))
            .unwrap_or(tail.len());
        let (key, rest) = tail.split_at(end);
        if key.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut text: Vec<String> = LARGE.lines().map(str::to_string).collect();
        text[index] = format!("{head}{key}x{rest}");
        let error = read(&text.join("\n"), "x.toml", &[]).unwrap_err();
        let place = Place::Line { file: "x.toml".to_string(), line: index + 1 };
        let setting = key.replace('_', "-");
        let meant = match &error {
            FileError::UnknownKey { .. } => key,
            FileError::Setting { .. } => &setting,
            _ => panic!("{key}: {error}"),
        };
        assert_eq!(error.place(), &place, "{error}");
        assert!(error.to_string().ends_with(&format!("; did you mean '{meant}'?")), "{error}");
        seen.insert(meant.to_string());
    }
    let all = TABLES.iter().flat_map(|table| table.keys.iter().map(ToString::to_string));
    let missed: Vec<_> =
        all.chain(names::<SteeringKeys>()).filter(|key| !seen.contains(key)).collect();
    assert!(missed.is_empty(), "tests.toml leaves out {missed:?}");
}

#[test]
fn faults_are_reported_with_their_lines() {
    let table = [
        ("duration = ", "x.toml:1: "),
        ("duration = \"1s\"\nduration = \"2s\"\n", "x.toml:2: duplicate key"),
        ("title = \"x\"", "x.toml:1: the scenario needs the key 'duration'"),
        ("duration = 5", "x.toml:1: duration: expected a time with its unit"),
        ("duration = \"-1s\"", "x.toml:1: duration: a time can't be negative"),
        ("duration = \"1s\"\n\n[machine]\n", "x.toml:3: [machine] needs the key 'cpus'"),
        (
            "duration = \"1s\"\n[machine]\ncpus = 0",
            "x.toml:3: machine.cpus: the machine has no CPUs",
        ),
        ("duration = \"1s\"\n[machine]\ncpus = -1", "x.toml:3: machine.cpus: it can't be negative"),
        (
            "duration = \"1s\"\n[machine]\ncpus = 1.5",
            "x.toml:3: machine.cpus: expected a whole number",
        ),
        (
            "duration = \"1s\"\n[machine]\ncpus = 9999999",
            "x.toml:3: machine.cpus: 9999999 CPUs are too many",
        ),
        (
            "duration = \"1s\"\n[machine]\ncpus = 2\nspeed = [1]",
            "x.toml:4: machine.speed: there are 1 speeds",
        ),
        (
            "duration = \"1s\"\n[machine]\ncpus = 2\nsmt = [\n\"0-1\",\n\"1\"]",
            "x.toml:6: machine.smt.1: CPU 1 is in two",
        ),
        (
            "nic = 5\nduration = \"1s\"\n[machine]\ncpus = 1",
            "x.toml:1: nic: expected a list of tables",
        ),
        ("zzzzzzzzz = 1", "x.toml:1: the scenario has no key 'zzzzzzzzz'; choose one of 'title'"),
    ];
    for (text, start) in table {
        let error = refused(text);
        assert!(error.starts_with(start), "{text:?}: {error}");
    }
}

#[test]
fn values_can_be_set_from_outside() {
    let scenario = with(&[
        ("duration", "20s"),
        ("steering.policy", "sparse:loops=2"),
        ("steering.cpus", "1-3"),
        ("steering.rps-map.0", "2"),
        ("traffic.0.flows", "8"),
        ("traffic.0.name", "bulk"),
        ("traffic.bulk.window", "9"),
        ("machine.smt", "[\"0-1\", \"2-3\"]"),
        ("title", "a\nduration = 5"),
    ])
    .unwrap();
    assert_eq!((scenario.duration_ns, scenario.warm_up_ns), (20_000_000_000, 2_000_000_000));
    assert_eq!(scenario.steering.policy, Policy::Sparse(Slots::of(2)));
    assert_eq!(scenario.steering.rps_maps, [(0.into(), "2".parse().unwrap())]);
    assert_eq!((scenario.traffic[0].flows, scenario.cpus[3].core), (8, 2));
    assert!(matches!(&scenario.traffic[0].load, Load::Stream(stream) if stream.window == 9));
    assert_eq!(scenario.title, "a\nduration = 5");
}

#[test]
fn wrong_settings_are_reported_as_such() {
    let table = [
        (
            "steering.polcy",
            "rps",
            "--set steering.polcy=rps: steering: there is no setting 'polcy'; did you mean 'policy'?",
        ),
        (
            "steering.policy",
            "rsp",
            "--set steering.policy=rsp: steering: policy=rsp: there is no policy 'rsp'; did you mean 'rps'?",
        ),
        (
            "traffic.1.flows",
            "2",
            "--set traffic.1.flows=2: traffic.1.flows: there is no traffic '1': they are 0 to 0",
        ),
        (
            "traffic.bulk.flows",
            "2",
            "--set traffic.bulk.flows=2: traffic.bulk.flows: there is no traffic 'bulk'",
        ),
        ("duration.x", "2", "--set duration.x=2: duration.x: 'duration' is a value"),
        ("", "2", "--set =2: that is not the path"),
        ("a..b", "2", "--set a..b=2: that is not the path"),
        (
            "steering.cpus",
            "0-4",
            "--set steering.cpus=0-4: steering.cpus: there is no CPU 4, which the CPU map names",
        ),
        ("warm_up", "2s", "--set warm_up=2s: warm_up: a warm-up of 2 s leaves nothing of 1 s"),
        ("machine", "5", "--set machine=5: machine: expected a table"),
    ];
    for (path, value, start) in table {
        let error = with(&[(path, value)]).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn reference_names_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sim.md");
    let Ok(reference) = std::fs::read_to_string(path) else {
        let test = "file::reference_names_every_key";
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: the package has no docs folder");
        return;
    };
    let all = TABLES.iter().flat_map(|table| table.keys.iter().map(ToString::to_string));
    for key in all.chain(names::<SteeringKeys>()) {
        assert!(reference.contains(&format!("| `{key}` |")), "{key}");
    }
    for cost in &crate::costs::COSTS {
        let line = format!("| `{}` | {} |", cost.key, cost.default);
        assert!(reference.contains(&line), "{line}");
        assert!(
            reference.contains(&format!("| {} |", cost.source)),
            "{}: {}",
            cost.key,
            cost.source
        );
    }
}

/// Texts that edits insert.
const PIECES: [&str; 24] = [
    "0",
    "-1",
    "9223372036854775807",
    "nan",
    "inf",
    "1e308",
    "\"\"",
    "\"0-8191\"",
    "[",
    "]",
    "[[",
    "{",
    "=",
    "\n",
    "\"1s\"",
    "true",
    "spread:",
    "bound:0=9",
    "\"zipf:nan\"",
    "#",
    ".",
    "[machine]",
    "[[event]]\nat=\"0\"\noffline=0\n",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the edits, a file is read or refused; a scenario that is read is valid.
    #[test]
    fn edited_files_never_panic(
        which in 0..7_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, 0..PIECES.len()), 1..4),
    ) {
        let mut text: Vec<char> = builtin().get(which).map_or(LARGE, |b| b.text).chars().collect();
        for (at, cut, piece) in edits {
            let at = at.index(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, PIECES[piece].chars());
        }
        let text: String = text.into_iter().collect();
        match read(&text, "x", &[]) {
            Ok(scenario) => prop_assert_eq!(scenario.check(), Ok(())),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    /// The same for `--set`: any value at any key.
    #[test]
    fn set_values_never_panic(
        line in any::<prop::sample::Index>(),
        key in any::<prop::sample::Index>(),
        piece in 0..PIECES.len(),
        deep in any::<bool>(),
    ) {
        let steering = names::<SteeringKeys>();
        let tables: Vec<(&str, Vec<&str>)> = TABLES.iter().map(|table| (table.table, table.keys.to_vec()))
            .chain([("[steering]", steering.iter().map(String::as_str).collect())]).collect();
        let (table, keys) = &tables[line.index(tables.len())];
        let key = keys[key.index(keys.len())];
        let name = table.trim_matches(|c| "[]".contains(c)).split(']').next().unwrap();
        let path = match (table.starts_with("[["), deep) {
            (true, _) => format!("{name}.0.{key}"),
            (false, true) => format!("{name}.{key}"),
            (false, false) => key.to_string(),
        };
        let set = (path, PIECES[piece].trim_matches('"').to_string());
        if let Ok(scenario) = read(LARGE, "x", &[set]) {
            prop_assert_eq!(scenario.check(), Ok(()));
        }
    }
}

#[test]
fn origins_of_costs_are_the_default_the_file_or_a_set() {
    let text = format!(
        "{SMALL}[costs]\nreceive = 10\nset = \"slow\"\n[cost_set.slow]\nsplice = 20\n[cost_set.other]\nwoken = 30\n"
    );
    let sets = [("costs.protocol".to_owned(), "40".to_owned())];
    let costs = costs_from(&text, "x.toml", &sets).unwrap();
    assert_eq!(costs.len(), COSTS.len());
    for (cost, from) in costs {
        let expected = match cost.key {
            "receive" | "splice" => CostFrom::File,
            "protocol" => CostFrom::Set,
            _ => CostFrom::Default,
        };
        assert_eq!(from, expected, "{}", cost.key);
    }
    let assumed = COSTS.iter().filter(|cost| cost.is_assumed()).count();
    assert_eq!((assumed, COSTS.len()), (14, 18), "docs/sim.md names these numbers");
}
