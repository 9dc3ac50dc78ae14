//! The settings of `rxsteer run` in a TOML file: what the options leave open.

use super::args::{
    MAX_FLOW_LIMIT, RunArgs, parse_mode, parse_queue_size, parse_rfs_namespaces, parse_threads,
};
use crate::settings_file::{WrongKey, cpus_text, fill, flow_limit};
use crate::steer_args::{parse_cpu_list, parse_cpus, parse_fallback, parse_policy, rps_maps};
use crate::words::whole;
use rxsteer_user::core::config::{MAX_FLOW_CNT, MAX_SOCK_FLOW_ENTRIES};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RunFile {
    policy: Option<String>,
    cpus: Option<toml::Value>,
    #[serde(alias = "rps_map")]
    rps_map: Option<BTreeMap<String, String>>,
    #[serde(rename = "else")]
    fallback: Option<String>,
    #[serde(alias = "rfs_cpus")]
    rfs_cpus: Option<String>,
    mode: Option<String>,
    #[serde(alias = "queue_size")]
    queue_size: Option<u32>,
    threads: Option<String>,
    shadow: Option<bool>,
    #[serde(alias = "flow_limit")]
    flow_limit: Option<toml::Value>,
    #[serde(alias = "flow_cnt")]
    flow_cnt: Option<u32>,
    #[serde(alias = "sock_flow_entries")]
    sock_flow_entries: Option<u32>,
    #[serde(alias = "rfs_namespaces")]
    rfs_namespaces: Option<String>,
    #[serde(alias = "hash_seed")]
    hash_seed: Option<String>,
    inner: Option<bool>,
    #[serde(alias = "no_flow_stats")]
    no_flow_stats: Option<bool>,
}

impl RunFile {
    pub(super) fn under(&self, args: &mut RunArgs) -> Result<(), WrongKey> {
        fill(&mut args.policy, "policy", self.policy.as_deref(), parse_policy)?;
        fill(&mut args.cpus, "cpus", cpus_text(self.cpus.as_ref())?.as_deref(), parse_cpus)?;
        if args.rps_map.is_empty() {
            args.rps_map = rps_maps(self.rps_map.as_ref())?;
        }
        fill(&mut args.fallback, "else", self.fallback.as_deref(), parse_fallback)?;
        fill(&mut args.rfs_cpus, "rfs-cpus", self.rfs_cpus.as_deref(), parse_cpu_list)?;
        fill(&mut args.mode, "mode", self.mode.as_deref(), parse_mode)?;
        let number = |value: Option<u32>| value.map(|number| number.to_string());
        let queue_size = number(self.queue_size);
        fill(&mut args.queue_size, "queue-size", queue_size.as_deref(), parse_queue_size)?;
        fill(&mut args.threads, "threads", self.threads.as_deref(), parse_threads)?;
        args.flow_limit = args.flow_limit.or(flow_limit(self.flow_limit.as_ref(), MAX_FLOW_LIMIT)?);
        let flow_cnt = number(self.flow_cnt);
        let slots = whole::<u32, 1, { MAX_FLOW_CNT as u64 }>;
        fill(&mut args.flow_cnt, "flow-cnt", flow_cnt.as_deref(), slots)?;
        let entries = number(self.sock_flow_entries);
        let sized = whole::<u32, 1, { MAX_SOCK_FLOW_ENTRIES as u64 }>;
        fill(&mut args.sock_flow_entries, "sock-flow-entries", entries.as_deref(), sized)?;
        let namespaces = self.rfs_namespaces.as_deref();
        fill(&mut args.rfs_namespaces, "rfs-namespaces", namespaces, parse_rfs_namespaces)?;
        fill(&mut args.hash_seed, "hash-seed", self.hash_seed.as_deref(), str::parse)?;
        args.shadow |= self.shadow.unwrap_or(false);
        args.inner |= self.inner.unwrap_or(false);
        args.no_flow_stats |= self.no_flow_stats.unwrap_or(false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::{ModeChoice, RfsNamespaces, parse_duration};
    use super::*;
    use crate::hash_key::HashSeed;
    use crate::steer_args::CpuChoice;
    use clap::Parser;
    use rxsteer_user::core::{Fallback, Policy, ThreadClass};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    fn run(options: &[&str]) -> RunArgs {
        Cli::try_parse_from([&["rxsteer", "eth0"], options].concat()).expect("right options").run
    }

    fn with_file(options: &[&str], text: &str) -> Result<RunArgs, String> {
        let mut args = run(options);
        let file: RunFile = toml::from_str(text).map_err(|error| error.to_string())?;
        file.under(&mut args).map_err(|(key, why)| format!("{key}: {why}"))?;
        Ok(args)
    }

    #[test]
    fn file_says_what_options_can() {
        let text = "policy = 'sparse:loops=2'\ncpus = '0-1'\nmode = 'generic'\nqueue_size = 64\n\
                    threads = 'nice:-5'\nshadow = true\nflow-limit = 8\nflow_cnt = 16\nsock-flow-entries = 32\n\
                    rfs-namespaces = 'all'\nhash-seed = '2a'\ninner = true\n\
                    no-flow-stats = true\nelse = 'local'\nrfs_cpus = '0-2'\n\
                    [rps-map]\n'eth0:0' = '0-3'\neth1 = '4'\n";
        let args = with_file(&[], text).unwrap();
        assert_eq!(
            (args.policy.clone(), args.mode()),
            (Some(Policy::Sparse(2)), ModeChoice::Generic)
        );
        assert_eq!(args.cpus, Some(CpuChoice::List("0-1".parse().unwrap())));
        assert_eq!((args.queue_size, args.flow_limit), (Some(64), Some(8)));
        assert_eq!(args.threads, Some(ThreadClass::Nice(-5)));
        assert_eq!((args.flow_cnt, args.sock_flow_entries), (Some(16), Some(32)));
        assert_eq!(args.rfs_namespaces, Some(RfsNamespaces::All));
        assert_eq!(args.hash_seed, Some(HashSeed(0x2a)));
        assert!(args.shadow && args.inner && args.no_flow_stats);
        let maps = args.rps_map.iter().map(|(name, cpus)| format!("{name}={cpus}"));
        assert_eq!(maps.collect::<Vec<_>>(), ["eth0:0=0-3", "eth1=4"]);
        assert_eq!((args.fallback, args.rfs_cpus), (Some(Fallback::Local), "0-2".parse().ok()));
    }

    #[test]
    fn option_beats_the_file_and_mistakes_are_named() {
        let args = with_file(&["--policy", "none"], "policy = 'rfs'\nqueue-size = 8").unwrap();
        assert_eq!((args.policy, args.queue_size), (Some(Policy::None), Some(8)));
        for (text, part) in [
            ("polciy = 'rfs'", "unknown field `polciy`"),
            ("policy = 'rsp'", "did you mean 'rps'"),
            ("mode = 'natve'", "did you mean 'native'"),
            ("hash = 'nic'", "unknown field `hash`"),
            ("queue-size = 16385", "queue-size: it takes a whole number from 8 to 16384"),
            ("queue-size = 0", "from 8 to 16384"),
            (
                "flow-limit = 4097",
                "flow-limit: it takes true, false or a number of buckets from 1 to 4096, not 4097",
            ),
            ("flow-limit = 0", "from 1 to 4096, not 0"),
            ("flow-limit = 5000000000", "from 1 to 4096, not 5000000000"),
            ("flow-limit = -1", "from 1 to 4096, not -1"),
            ("flow-limit = 'on'", "from 1 to 4096, not a string"),
            ("threads = 'fifo:0'", "threads: a real-time priority is 1 to 99"),
            ("flow-cnt = 0", "flow-cnt: "),
            ("cpus = '3-1'", "cpus: "),
            ("else = 'lokal'", "did you mean 'local'"),
            ("rps-map = { 'eth*' = '1' }", "rps-map: 'eth*' is a pattern"),
            ("rfs-cpus = ''", "rfs-cpus: the CPU list is empty"),
        ] {
            let error = with_file(&[], text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn by_default_the_policy_is_left_to_the_machine() {
        assert_eq!(run(&[]).policy, None);
        assert_eq!(run(&["--flow-limit=4096"]).flow_limit, Some(4096));
        assert!(Cli::try_parse_from(["rxsteer", "eth0", "--flow-limit=4097"]).is_err());
        assert!(parse_duration("0s").is_err());
    }
}
