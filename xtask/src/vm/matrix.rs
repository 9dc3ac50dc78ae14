//! The matrix of kernels and machines in xtask/vm/vm.toml, and the selection of machines.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// The drivers that a machine can have, with the QEMU device of their NIC; veth has none.
const DRIVERS: [(&str, Option<&str>); 6] = [
    ("veth", None),
    ("virtio_net", Some("virtio-net-pci")),
    ("vmxnet3", Some("vmxnet3")),
    ("igb", Some("igb")),
    ("e1000e", Some("e1000e")),
    ("e1000", Some("e1000")),
];

/// The origin of a kernel.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    /// The Debian suite.
    pub(crate) suite: String,
    /// A regular expression for the whole name of its package.
    pub(crate) package: String,
    /// Words of the reason for which `rxsteer run` must refuse on this kernel.
    refused: Option<String>,
}

/// A machine to boot.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    /// Its name in results.
    pub(crate) name: String,
    /// The name of its kernel.
    pub(crate) kernel: String,
    /// The driver of its interfaces.
    pub(crate) driver: String,
    /// How many CPUs it has.
    pub(crate) cpus: u32,
    /// RX queues of each NIC.
    #[serde(default = "one")]
    pub(crate) queues: u32,
    /// Whether its NICs are joined by the host's bridge, as they are with several queues. The host then passes merged
    /// segments on to a NIC that takes them.
    #[serde(default)]
    pub(crate) bridge: bool,
    /// QEMU's description of the CPUs, if their number is not sufficient.
    pub(crate) smp: Option<String>,
    /// Boot parameters.
    #[serde(default)]
    pub(crate) append: String,
    /// Additional options of QEMU.
    #[serde(default)]
    pub(crate) qemu: Vec<String>,
    /// Additional properties of the NICs.
    #[serde(default)]
    pub(crate) device: String,
    /// CPUs that are offline.
    #[serde(default)]
    pub(crate) offline: Vec<u32>,
    /// Names of live tests, or parts of them.
    #[serde(default = "machine_tests")]
    pub(crate) tests: Vec<String>,
    /// Words of the reason for which `rxsteer run` must refuse; without them it must work.
    pub(crate) refused: Option<String>,
    /// The tests that ./test runs; it does not boot a machine for which this is empty.
    #[serde(default)]
    pub(crate) quick: Vec<String>,
}

fn one() -> u32 {
    1
}

fn machine_tests() -> Vec<String> {
    vec!["machine::".to_owned()]
}

impl Machine {
    /// Whether its NICs are joined by the host's bridge.
    pub(crate) fn has_bridge(&self) -> bool {
        self.bridge || self.queues > 1
    }

    /// The QEMU device of its NICs, if it has any.
    pub(crate) fn card(&self) -> Option<&'static str> {
        DRIVERS.iter().find(|(driver, _)| *driver == self.driver).and_then(|(_, card)| *card)
    }
}

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matrix {
    #[serde(rename = "kernel")]
    pub(crate) kernels: BTreeMap<String, Kernel>,
    #[serde(rename = "machine")]
    pub(crate) machines: Vec<Machine>,
}

/// The selected machines: those that match all given criteria.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// Names of machines.
    pub(crate) machines: Vec<String>,
    /// Names of kernels.
    pub(crate) kernels: Vec<String>,
    /// Names of drivers.
    pub(crate) drivers: Vec<String>,
    /// Number of CPUs.
    pub(crate) cpus: Option<u32>,
    /// Additional boot parameters.
    pub(crate) append: Option<String>,
    /// Whether only the machines are selected that ./test boots.
    pub(crate) quick: bool,
}

impl Matrix {
    /// Parses the file, and checks that its parts are consistent.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut matrix: Self = toml::from_str(text)?;
        let mut names: Vec<String> = Vec::new();
        for machine in &mut matrix.machines {
            let name = &machine.name;
            ensure!(!name.contains([' ', '/']), "machine '{name}': a name has no blank and no '/'");
            ensure!(!names.contains(name), "there are two machines '{name}'");
            names.push(name.clone());
            let kernel = matrix.kernels.get(&machine.kernel).with_context(|| {
                format!("machine '{name}': there is no kernel '{}'", machine.kernel)
            })?;
            if machine.refused.is_none() {
                machine.refused.clone_from(&kernel.refused);
            }
            check(machine)?;
        }
        Ok(matrix)
    }

    /// The selected machines. If no machine of the file has a given kernel and driver, a machine is generated for them.
    pub(crate) fn select(&self, selection: &Selection) -> Result<Vec<Machine>> {
        let Selection { machines, kernels, drivers, cpus, append, quick } = selection;
        known("machine", machines, self.machines.iter().map(|machine| &*machine.name))?;
        known("kernel", kernels, self.kernels.keys().map(String::as_str))?;
        known("driver", drivers, DRIVERS.iter().map(|(driver, _)| *driver))?;
        let is_meant = |machine: &&Machine| {
            (machines.is_empty() || machines.contains(&machine.name))
                && (kernels.is_empty() || kernels.contains(&machine.kernel))
                && (drivers.is_empty() || drivers.contains(&machine.driver))
                && cpus.is_none_or(|cpus| cpus == machine.cpus)
                && (!quick || !machine.quick.is_empty())
        };
        let mut meant: Vec<Machine> = self.machines.iter().filter(is_meant).cloned().collect();
        if meant.is_empty() && machines.is_empty() && !quick {
            meant = self.made_up(kernels, drivers, cpus.unwrap_or(2))?;
        }
        ensure!(
            !meant.is_empty(),
            "no machine of xtask/vm/vm.toml matches all the options; `cargo xtask vm --list` shows them"
        );
        if let Some(append) = append {
            for machine in &mut meant {
                machine.name = format!("{}+{}", machine.name, append.replace([' ', '/'], "_"));
                machine.append = format!("{} {append}", machine.append).trim().to_owned();
            }
        }
        Ok(meant)
    }

    /// A machine for each combination of a kernel and a driver.
    fn made_up(&self, kernels: &[String], drivers: &[String], cpus: u32) -> Result<Vec<Machine>> {
        let all: Vec<String> = self.kernels.keys().cloned().collect();
        let virtio = ["virtio_net".to_owned()];
        let kernels = if kernels.is_empty() { &all } else { kernels };
        let drivers = if drivers.is_empty() { &virtio } else { drivers };
        let pairs =
            kernels.iter().flat_map(|kernel| drivers.iter().map(move |driver| (kernel, driver)));
        pairs
            .map(|(kernel, driver)| {
                let machine = Machine {
                    name: format!("{kernel}-{driver}-{cpus}"),
                    kernel: kernel.clone(),
                    driver: driver.clone(),
                    cpus,
                    queues: 1,
                    bridge: false,
                    smp: None,
                    append: String::new(),
                    qemu: vec![],
                    device: String::new(),
                    offline: vec![],
                    tests: machine_tests(),
                    refused: self.kernels.get(kernel).and_then(|kernel| kernel.refused.clone()),
                    quick: vec![],
                };
                check(&machine)?;
                Ok(machine)
            })
            .collect()
    }
}

/// Checks that a machine is possible.
fn check(machine: &Machine) -> Result<()> {
    let Machine { name, driver, cpus, queues, offline, .. } = machine;
    ensure!(
        DRIVERS.iter().any(|(known, _)| known == driver),
        "machine '{name}': there is no driver '{driver}'; there are {}",
        DRIVERS.map(|(driver, _)| driver).join(", ")
    );
    ensure!((1..=64).contains(cpus), "machine '{name}': {cpus} CPUs are not 1 to 64");
    ensure!((1..=64).contains(queues), "machine '{name}': {queues} queues are not 1 to 64");
    ensure!(
        *queues == 1 || driver == "virtio_net",
        "machine '{name}': only virtio_net can be given a number of queues"
    );
    ensure!(
        !machine.bridge || driver == "virtio_net",
        "machine '{name}': only virtio_net can be joined by a bridge"
    );
    if let Some(cpu) = offline.iter().find(|cpu| !(1..*cpus).contains(cpu)) {
        bail!("machine '{name}': CPU {cpu} can't be offline; CPUs 1 to {} can", cpus - 1);
    }
    Ok(())
}

/// Checks that all names are known.
fn known<'a>(what: &str, names: &[String], there: impl Iterator<Item = &'a str>) -> Result<()> {
    let there: Vec<&str> = there.collect();
    match names.iter().find(|name| !there.contains(&name.as_str())) {
        Some(name) => bail!("there is no {what} '{name}'; there are {}", there.join(", ")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../../vm/vm.toml");
    const SMALL: &str = "
        [kernel.a]
        suite = 'x'
        package = 'y'
        [kernel.rt]
        suite = 'x'
        package = 'z'
        refused = 'REALTIME'
        [[machine]]
        name = 'one'
        kernel = 'a'
        driver = 'veth'
        cpus = 2
        quick = ['machine::rps']
        [[machine]]
        name = 'two'
        kernel = 'rt'
        driver = 'virtio_net'
        cpus = 8
        queues = 8
        offline = [7]
    ";

    fn names(machines: &[Machine]) -> Vec<&str> {
        machines.iter().map(|machine| &*machine.name).collect()
    }

    fn refusal(text: &str) -> String {
        Matrix::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn file_holds_what_has_to_be_tried() {
        let matrix = Matrix::parse(FILE).unwrap();
        let has = |what: &dyn Fn(&Machine) -> bool| matrix.machines.iter().any(what);
        for driver in DRIVERS.map(|(driver, _)| driver) {
            assert!(has(&|machine| machine.driver == driver), "{driver}");
        }
        for cpus in [1, 2, 8] {
            assert!(has(&|machine| machine.cpus == cpus), "{cpus} CPUs");
        }
        for kernel in matrix.kernels.keys() {
            assert!(has(&|machine| &machine.kernel == kernel), "{kernel}");
        }
        for words in ["nohz_full=", "isolcpus="] {
            assert!(has(&|machine| machine.append.contains(words)), "{words}");
        }
        assert!(has(&|machine| !machine.offline.is_empty()));
        assert!(has(&|machine| machine.queues == 8));
        let quick = matrix.select(&Selection { quick: true, ..Selection::default() }).unwrap();
        let kernels: Vec<&str> = quick.iter().map(|machine| &*machine.kernel).collect();
        assert_eq!(kernels, ["newest", "6.1"], "what ./test boots");
    }

    #[test]
    fn machine_inherits_the_refusal_of_its_kernel() {
        let matrix = Matrix::parse(SMALL).unwrap();
        let refused: Vec<_> = matrix.machines.iter().map(|m| m.refused.as_deref()).collect();
        assert_eq!(refused, [None, Some("REALTIME")]);
        assert_eq!(matrix.machines[0].tests, ["machine::"]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let with = |from: &str, to: &str| refusal(&SMALL.replace(from, to));
        assert!(with("'veth'", "'eth'").contains("there is no driver 'eth'; there are veth"));
        assert!(with("kernel = 'a'", "kernel = 'b'").contains("there is no kernel 'b'"));
        assert!(with("'two'", "'one'").contains("two machines 'one'"));
        assert!(with("[7]", "[8]").contains("CPU 8"));
        assert!(with("[7]", "[0]").contains("CPU 0"));
        assert!(with("'veth'", "'veth'\nqueues = 2").contains("only virtio_net"));
        assert!(with("cpus = 2", "cpus = 0").contains("not 1 to 64"));
        assert!(with("cpus = 2", "cpus = 2\ncolour = 'red'").contains("colour"));
    }

    #[test]
    fn machines_are_selected_by_all_that_is_given() {
        let matrix = Matrix::parse(SMALL).unwrap();
        let select = |selection: Selection| matrix.select(&selection).unwrap();
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let base = Selection::default;
        assert_eq!(names(&select(base())), ["one", "two"]);
        assert_eq!(names(&select(Selection { quick: true, ..base() })), ["one"]);
        assert_eq!(names(&select(Selection { cpus: Some(8), ..base() })), ["two"]);
        assert_eq!(names(&select(Selection { kernels: list(&["rt"]), ..base() })), ["two"]);
        assert_eq!(names(&select(Selection { drivers: list(&["veth"]), ..base() })), ["one"]);
        let of_its_own = Selection {
            kernels: list(&["rt"]),
            drivers: list(&["e1000e"]),
            cpus: Some(4),
            append: Some("nohz_full=1-3 quiet".to_owned()),
            ..base()
        };
        let made_up = select(of_its_own);
        assert_eq!(names(&made_up), ["rt-e1000e-4+nohz_full=1-3_quiet"]);
        assert_eq!(made_up[0].refused.as_deref(), Some("REALTIME"));
        assert_eq!(made_up[0].append, "nohz_full=1-3 quiet");
    }

    #[test]
    fn name_that_there_is_not_is_answered_with_those_there_are() {
        let matrix = Matrix::parse(SMALL).unwrap();
        let kernels = vec!["b".to_owned()];
        let why = matrix.select(&Selection { kernels, ..Selection::default() }).unwrap_err();
        assert_eq!(why.to_string(), "there is no kernel 'b'; there are a, rt");
        let why = matrix
            .select(&Selection {
                cpus: Some(2),
                quick: true,
                kernels: vec!["rt".to_owned()],
                ..Selection::default()
            })
            .unwrap_err();
        assert!(why.to_string().contains("--list"), "{why}");
    }
}
