//! What packets are steered by, as the user says it: options, and the same in a TOML file. An option
//! beats the file, the file beats the default.

use crate::hash_key::{HashChoice, HashSeed};
use crate::help::words;
use crate::settings_file::{self, WrongKey, cpus_text, fill, flow_limit};
use crate::words::suggestion;
use crate::words::whole;
use anyhow::Context;
use clap::{Args, ValueHint};
use rxsteer_user::PipelineConfig;
use rxsteer_user::core::config::{MAX_FLOW_CNT, MAX_FLOW_LIMIT_BUCKETS, MAX_SOCK_FLOW_ENTRIES};
use rxsteer_user::core::{
    CpuId, CpuSet, CpuSetError, Fallback, MAX_RX_QUEUES, Policy, PolicyError, QueueName,
};
use rxsteer_user::packet::DissectOptions;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Options of every command that decides.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Steering")]
pub(crate) struct SteerArgs {
    /// none, rps (default), bound, sparse, rfs or rfs+sparse
    ///
    /// The rule that picks the CPU. none: the receiving CPU. rps: the flow hash picks from the CPU map. bound:QUEUE=CPU,…: by RX queue. sparse[:loops=N]:
    /// the first flows get a CPU each, in turn, N slots per CPU (1 to 5, 4 by default), others by hash. rfs: where the
    /// flow's application runs, else by hash. rfs+sparse[:loops=N]: both.
    #[arg(long, value_parser = words(Policy::NAMES, parse_policy))]
    pub(crate) policy: Option<Policy>,

    /// CPUs to steer to: 0-3,8 or a count; by default all
    ///
    /// CPU 4 alone is 4-4. All CPUs are those that this process may use.
    #[arg(long, value_name = "LIST|COUNT", value_parser = parse_cpus, allow_hyphen_values = true)]
    pub(crate) cpus: Option<CpuChoice>,

    /// A CPU map for one RX queue, e.g. 1=4-7; can be given for several
    #[arg(long, value_name = "QUEUE=CPUS", value_parser = parse_rps_map)]
    pub(crate) rps_map: Vec<(QueueName, CpuSet)>,

    /// Under rfs and sparse, where a flow goes that has neither a desired CPU nor a sparse slot: hash
    /// (its hash picks from the CPU map; the default) or local (it stays on the receiving CPU)
    #[arg(long = "else", value_name = "hash|local", value_parser = words(Fallback::NAMES, parse_fallback))]
    pub(crate) fallback: Option<Fallback>,

    /// CPUs that rfs may send a flow to because its application runs there: a list like 0-3,8; by
    /// default every CPU that packets can be sent to
    #[arg(long, value_name = "LIST", value_parser = parse_cpu_list)]
    pub(crate) rfs_cpus: Option<CpuSet>,

    /// Devices that the RX queues are shared out to, the first ones to the first device; a sparse flow
    /// has a slot per device (1 by default)
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16, 1, { MAX_RX_QUEUES as u64 }>)]
    pub(crate) rx_devices: Option<u16>,

    /// Entries of the table of applications' CPUs, for rfs (32768 by default); rounded up to a power
    /// of two
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 1, { MAX_SOCK_FLOW_ENTRIES as u64 }>)]
    pub(crate) sock_flow_entries: Option<u32>,

    /// Slots of each RX queue's flow table, for sparse and rfs (32768 by default, divided by the
    /// queues, but at least 1024); rounded up to a power of two
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 1, { MAX_FLOW_CNT as u64 }>)]
    pub(crate) flow_cnt: Option<u32>,

    /// When a backlog is half full, drop the flow that has most of the last packets first; with a
    /// number of buckets to count flows in, written --flow-limit=N (4096)
    #[arg(long, value_name = "BUCKETS", num_args = 0..=1, require_equals = true,
          default_missing_value = "4096",
          value_parser = whole::<u32, 1, { MAX_FLOW_LIMIT_BUCKETS as u64 }>)]
    pub(crate) flow_limit: Option<u32>,

    /// The flow hash: symmetric (the default), toeplitz, or toeplitz:HEXKEY (40 bytes or more)
    #[arg(long, value_name = "HASH", value_parser = words(HashChoice::NAMES, |text: &str| text.parse::<HashChoice>()))]
    pub(crate) hash: Option<HashChoice>,

    /// Secret of the flow hash, in hex; by default random
    ///
    /// Up to 32 digits. It is the secret of the symmetric hash.
    #[arg(long, value_name = "HEX", value_parser = |text: &str| text.parse::<HashSeed>())]
    pub(crate) hash_seed: Option<HashSeed>,

    /// Steer by the packets inside tunnels
    ///
    /// IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U.
    #[arg(long)]
    pub(crate) inner: bool,

    /// Settings from a TOML file; options override it
    ///
    /// The file can have all settings of this part. Its keys are the names of the options: policy = "rfs+sparse", cpus = "0-3", flow-cnt = 65536, flow-limit = true,
    /// rps-map = { 1 = "4-7" }, else = "local", rfs-cpus = "0-7".
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SteerFile {
    policy: Option<String>,
    cpus: Option<toml::Value>,
    #[serde(alias = "rps_map")]
    rps_map: Option<BTreeMap<String, String>>,
    #[serde(rename = "else")]
    fallback: Option<String>,
    #[serde(alias = "rfs_cpus")]
    rfs_cpus: Option<String>,
    #[serde(alias = "rx_devices")]
    rx_devices: Option<u16>,
    #[serde(alias = "sock_flow_entries")]
    sock_flow_entries: Option<u32>,
    #[serde(alias = "flow_cnt")]
    flow_cnt: Option<u32>,
    #[serde(alias = "flow_limit")]
    flow_limit: Option<toml::Value>,
    hash: Option<String>,
    #[serde(alias = "hash_seed")]
    hash_seed: Option<String>,
    inner: Option<bool>,
}

impl SteerArgs {
    /// These options, with what the file says where they say nothing.
    pub(crate) fn with_file(&self) -> anyhow::Result<SteerArgs> {
        match &self.config {
            None => Ok(self.clone()),
            Some(path) => settings_file::read(path, |file: SteerFile| file.under(self)),
        }
    }

    /// Whether the settings fit together, as far as the policy does not say.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.hash_seed.is_none() || self.hash() == HashChoice::Symmetric,
            "--hash-seed is the secret of the symmetric hash; Toeplitz takes a key: \
             --hash toeplitz:HEXKEY"
        );
        Ok(())
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy.clone().unwrap_or(Policy::Rps)
    }

    pub(crate) fn hash(&self) -> HashChoice {
        self.hash.clone().unwrap_or(HashChoice::Symmetric)
    }

    /// The CPUs that are meant.
    pub(crate) fn cpus(&self, allowed: Option<CpuSet>) -> anyhow::Result<CpuSet> {
        match &self.cpus {
            Some(choice) => Ok(choice.cpus(allowed)),
            None => allowed
                .context("this host doesn't say which CPUs there are; name them, e.g. --cpus 0-3"),
        }
    }

    /// Puts all settings but policy and CPUs into a configuration that says how many RX queues there
    /// are; returns the hash's secret, where it has one.
    pub(crate) fn apply(&self, config: &mut PipelineConfig) -> anyhow::Result<Option<HashSeed>> {
        let (hasher, hash_seed) = self.hash().hasher(self.hash_seed);
        config.hasher = hasher;
        config.rps_maps.clone_from(&self.rps_map);
        config.fallback = self.fallback.unwrap_or_default();
        config.rfs_cpus.clone_from(&self.rfs_cpus);
        config.rx_devices = self.devices(config.rx_queues)?;
        config.sock_flow_entries = self.sock_flow_entries.unwrap_or(config.sock_flow_entries);
        config.flow_cnt = self.flow_cnt;
        config.flow_limit = self.flow_limit;
        config.dissect = DissectOptions { inner: self.inner };
        Ok(hash_seed)
    }

    /// For each of `queues` RX queues its device.
    pub(crate) fn devices(&self, queues: u16) -> anyhow::Result<Vec<u16>> {
        let Some(devices) = self.rx_devices else { return Ok(Vec::new()) };
        anyhow::ensure!(
            (1..=queues).contains(&devices),
            "{devices} devices are asked for, but there are RX queues for {queues} at most"
        );
        let device = |queue| u32::from(queue) * u32::from(devices) / u32::from(queues);
        Ok((0..queues).map(|queue| device(queue) as u16).collect())
    }
}

impl SteerFile {
    /// Fills what `args` leave open; or says which key is wrong and why.
    fn under(&self, args: &SteerArgs) -> Result<SteerArgs, WrongKey> {
        let mut args = args.clone();
        fill(&mut args.policy, "policy", self.policy.as_deref(), parse_policy)?;
        let cpus = cpus_text(self.cpus.as_ref())?;
        fill(&mut args.cpus, "cpus", cpus.as_deref(), parse_cpus)?;
        // Maps that the policy of the command line has no use for are left where they are.
        if args.rps_map.is_empty() && args.policy().has_maps() {
            args.rps_map = rps_maps(self.rps_map.as_ref())?;
        }
        fill(&mut args.fallback, "else", self.fallback.as_deref(), parse_fallback)?;
        fill(&mut args.rfs_cpus, "rfs-cpus", self.rfs_cpus.as_deref(), parse_cpu_list)?;
        args.rx_devices = args.rx_devices.or(self.rx_devices);
        args.sock_flow_entries = args.sock_flow_entries.or(self.sock_flow_entries);
        args.flow_cnt = args.flow_cnt.or(self.flow_cnt);
        let flow_limit = flow_limit(self.flow_limit.as_ref(), MAX_FLOW_LIMIT_BUCKETS)?;
        args.flow_limit = args.flow_limit.or(flow_limit);
        fill(&mut args.hash, "hash", self.hash.as_deref(), str::parse)?;
        let given = args.hash_seed;
        fill(&mut args.hash_seed, "hash-seed", self.hash_seed.as_deref(), str::parse)?;
        // So is a secret that the hash of the command line has no use for.
        if args.hash() != HashChoice::Symmetric && self.hash.is_none() {
            args.hash_seed = given;
        }
        args.inner |= self.inner.unwrap_or(false);
        Ok(args)
    }
}

pub(crate) fn parse_policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: PolicyError| match &error {
        PolicyError::UnknownName(name) => format!("{error}{}", suggestion(name, &Policy::NAMES)),
        _ => error.to_string(),
    })
}

/// `--cpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuChoice {
    /// These.
    List(CpuSet),
    /// So many; holds CPUs 0 up to that.
    Count(CpuSet),
}

impl CpuChoice {
    /// The CPUs that are meant: of a count the first ones this process may use, if it may use so
    /// many, else CPUs 0 up to that.
    pub(crate) fn cpus(&self, allowed: Option<CpuSet>) -> CpuSet {
        match (self, allowed) {
            (CpuChoice::Count(first), Some(allowed)) if first.len() <= allowed.len() => {
                CpuSet::new(allowed.iter().take(first.len())).unwrap_or_else(|| first.clone())
            }
            (CpuChoice::List(cpus) | CpuChoice::Count(cpus), _) => cpus.clone(),
        }
    }
}

/// A list of CPUs; a lone number is a count.
pub(crate) fn parse_cpus(text: &str) -> Result<CpuChoice, String> {
    match text.trim().parse::<u64>() {
        Ok(count) => {
            u16::try_from(count).ok().and_then(CpuSet::first).map(CpuChoice::Count).ok_or_else(
                || {
                    format!(
                        "a count of CPUs is 1 to {}, not {count} (CPU 0 alone is written 0-0)",
                        u32::from(CpuId::MAX.get()) + 1
                    )
                },
            )
        }
        Err(_) => parse_cpu_list(text).map(CpuChoice::List),
    }
}

pub(crate) fn parse_cpu_list(text: &str) -> Result<CpuSet, String> {
    text.parse().map_err(|error: CpuSetError| error.to_string())
}

/// `NAME=CPUS`.
pub(crate) fn parse_rps_map(text: &str) -> Result<(QueueName, CpuSet), String> {
    let (name, cpus) = QueueName::parse_setting(text).map_err(|error| error.to_string())?;
    Ok((name, parse_cpu_list(cpus)?))
}

/// `rps-map` of a file.
pub(crate) fn rps_maps(
    maps: Option<&BTreeMap<String, String>>,
) -> Result<Vec<(QueueName, CpuSet)>, WrongKey> {
    let maps = maps.into_iter().flatten();
    maps.map(|(name, cpus)| parse_rps_map(&format!("{name}={cpus}")))
        .collect::<Result<_, _>>()
        .map_err(|why| ("rps-map", why))
}

/// `--else`.
pub(crate) fn parse_fallback(text: &str) -> Result<Fallback, String> {
    let known = [Fallback::Hash, Fallback::Local];
    known
        .into_iter()
        .find(|fallback| Fallback::NAMES[*fallback as usize] == text)
        .ok_or_else(|| format!("'{text}' is not a place{}", suggestion(text, &Fallback::NAMES)))
}

/// Reads settings from a file's text, as `--config` does; for tests.
#[cfg(test)]
fn from_toml(text: &str) -> Result<SteerArgs, String> {
    let file: SteerFile = toml::from_str(text).map_err(|error| error.to_string())?;
    file.under(&SteerArgs::default()).map_err(|(key, why)| format!("{key}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_number_is_a_count_of_cpus() {
        let meant = |text: &str, allowed: &str| {
            parse_cpus(text).unwrap().cpus(allowed.parse().ok()).to_string()
        };
        assert_eq!(meant("4", "0-1"), "0-3");
        assert_eq!(meant("2", "8-11"), "8-9");
        assert_eq!(meant("2", ""), "0-1");
        assert_eq!(meant("4-4", "0-1"), "4");
        assert!(parse_cpus("0").unwrap_err().contains("0-0"));
        assert!(parse_cpus("").unwrap_err().contains("empty"));
        assert!(parse_cpus("70000").is_err());
    }

    #[test]
    fn misspelt_policies_are_named_with_the_nearest() {
        assert!(parse_policy("rsp").unwrap_err().contains("did you mean 'rps'"));
        assert!(parse_policy("sprase").unwrap_err().contains("did you mean 'sparse'"));
    }

    #[test]
    fn file_says_what_options_can() {
        let args = from_toml(
            "policy = 'rfs+sparse:loops=3'\ncpus = 4\nrx-devices = 2\nsock_flow_entries = 1024\n\
             flow-cnt = 256\nflow-limit = true\nhash = 'symmetric'\nhash_seed = '2a'\ninner = true\n\
             else = 'local'\nrfs-cpus = '1'\n[rps_map]\n1 = '4-7'\n",
        )
        .unwrap();
        assert_eq!(args.policy(), Policy::RfsSparse(3));
        assert_eq!(args.cpus, Some(CpuChoice::Count("0-3".parse().unwrap())));
        assert_eq!(args.rps_map, [(1.into(), "4-7".parse().unwrap())]);
        assert_eq!((args.fallback, args.rfs_cpus), (Some(Fallback::Local), "1".parse().ok()));
        assert_eq!((args.sock_flow_entries, args.flow_cnt), (Some(1024), Some(256)));
        assert_eq!((args.flow_limit, args.rx_devices), (Some(4096), Some(2)));
        assert_eq!((args.hash_seed, args.inner), (Some(HashSeed(0x2a)), true));
    }

    #[test]
    fn option_beats_the_file_and_mistakes_are_named() {
        let given = SteerArgs { policy: Some(Policy::None), ..SteerArgs::default() };
        let file: SteerFile = toml::from_str("policy = 'rfs'\nflow_cnt = 8").unwrap();
        let both = file.under(&given).unwrap();
        assert_eq!((both.policy(), both.flow_cnt), (Policy::None, Some(8)));
        assert!(from_toml("polciy = 'rfs'").unwrap_err().contains("unknown field `polciy`"));
        assert!(from_toml("policy = 'rsp'").unwrap_err().contains("did you mean 'rps'"));
        assert!(from_toml("cpus = '3-1'").unwrap_err().starts_with("cpus: "));
        assert!(from_toml("else = 'here'").unwrap_err().contains("'hash', 'local'"));
        assert!(from_toml("rps-map = { 'eth*:0' = '1' }").unwrap_err().contains("is a pattern"));
        assert!(from_toml("cpus = [0, 1]").unwrap_err().contains("not an array"));
        assert!(from_toml("flow-limit = 'on'").unwrap_err().contains("not a string"));
        for buckets in ["0", "-1", "1048577", "5000000000"] {
            let error = from_toml(&format!("flow-limit = {buckets}")).unwrap_err();
            assert!(error.contains(&format!("from 1 to 1048576, not {buckets}")), "{error}");
        }
        let given = SteerArgs { policy: Some(Policy::None), ..SteerArgs::default() };
        let file: SteerFile = toml::from_str("rps-map = { 1 = '4-7' }").unwrap();
        assert!(file.under(&given).unwrap().rps_map.is_empty(), "of no use under none");
    }

    #[test]
    fn queues_are_shared_out_to_devices() {
        let devices = |count, queues| {
            SteerArgs { rx_devices: Some(count), ..SteerArgs::default() }.devices(queues)
        };
        assert_eq!(devices(2, 4).unwrap(), [0, 0, 1, 1]);
        assert_eq!(devices(3, 4).unwrap(), [0, 0, 1, 2]);
        assert!(devices(5, 4).is_err());
    }
}
