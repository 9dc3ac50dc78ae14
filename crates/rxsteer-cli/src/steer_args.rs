//! The steering options, for every command that makes decisions itself.

use crate::hash_key::{HashChoice, HashSeed};
use crate::output::note;
use crate::settings_file;
use crate::words::whole;
use anyhow::Context;
use clap::{Args, ValueHint};
use rxsteer_settings::words;
use rxsteer_settings::{Options, Rules, Steering, Tables, switch};
use rxsteer_user::PipelineConfig;
use rxsteer_user::core::{CpuSet, MAX_RX_QUEUES, Mechanisms, PacketRule, Policy};
use rxsteer_user::packet::{DissectOptions, TunnelKinds};
use std::path::PathBuf;

/// Options of every command that decides by itself.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Steering")]
pub(crate) struct SteerArgs {
    #[command(flatten)]
    pub(crate) options: Options<SteerSettings>,

    /// Settings from a TOML file; options override it
    ///
    /// The file can set all options of this group. Its keys are the names of the options: policy = "rfs+sparse", cpus
    /// = "0-3", flow-cnt = 65536, flow-limit = true, rps-map = { 1 = "4-7" }, else = "local", rfs-cpus = "0-7".
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// The settings, as far as they are given.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct SteerSettings {
    #[command(flatten)]
    pub(crate) steering: Steering,

    #[command(flatten)]
    pub(crate) rules: Rules,

    #[command(flatten)]
    pub(crate) tables: Tables,

    /// Devices that the RX queues belong to, the first queues to the first device; a sparse flow has a slot per
    /// device (1 by default)
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16, 1, { MAX_RX_QUEUES as u64 }>)]
    pub(crate) rx_devices: Option<u16>,

    /// The flow hash: symmetric (the default), toeplitz, or toeplitz:HEXKEY (40 bytes or more)
    #[arg(long, value_name = "HASH", value_parser = words(HashChoice::NAMES, |text: &str| text.parse::<HashChoice>()))]
    pub(crate) hash: Option<HashChoice>,

    #[command(flatten)]
    pub(crate) flows: FlowSettings,

    #[command(flatten)]
    pub(crate) tunnels: TunnelKeys,
}

/// What a frame's flow is, and its hash.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FlowSettings {
    /// Secret of the flow hash, in hex; by default random
    ///
    /// Up to 32 digits. It is the secret of the symmetric hash.
    #[arg(long, value_name = "HEX", value_parser = |text: &str| text.parse::<HashSeed>())]
    pub(crate) hash_seed: Option<HashSeed>,

    /// Steer by the packets inside tunnels
    ///
    /// IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U.
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", value_parser = switch)]
    pub(crate) inner: Option<bool>,
}

/// The tunnels that are steered by their number.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TunnelKeys {
    /// Steer tunnels by their number instead of their ports: esp, gtp, l2tp, wireguard; all or none (the
    /// default)
    ///
    /// ESP's SPI (also in UDP, port 4500), GTP-U's TEID, L2TPv3's session, WireGuard's receiver index (port 51820).
    /// Separate several by commas, e.g. esp,gtp. Each direction has its own number, so the two directions can be on
    /// different CPUs. Packets without the number (IKE, handshakes, fragments) are steered by addresses and ports.
    /// With --inner, this applies only to tunnels whose inner packets can't be read.
    #[arg(long, value_name = "LIST", value_parser = |text: &str| text.parse::<TunnelKinds>())]
    pub(crate) key_tunnels: Option<TunnelKinds>,
}

impl TunnelKeys {
    pub(crate) fn kinds(&self) -> TunnelKinds {
        self.key_tunnels.unwrap_or_default()
    }
}

impl FlowSettings {
    pub(crate) fn inner(&self) -> bool {
        self.inner.unwrap_or(false)
    }
}

/// The most partly hidden rules that a note names.
const MAX_NAMED: usize = 8;

/// Says which rules can never match, since an earlier one matches all their packets, and of which an earlier one takes some.
pub(crate) fn covered(rules: &Rules) -> Vec<String> {
    let rules = rules.rules().unwrap_or_default();
    let name = |index: usize| format!("rule {} ({})", index + 1, rules[index]);
    let never = PacketRule::never_matching(&rules).into_iter().map(|(never, by)| {
        format!(
            "{} never matches: {} comes first and matches all its packets",
            name(never),
            name(by)
        )
    });
    let hidden = PacketRule::partly_hidden(&rules);
    let part = hidden.iter().take(MAX_NAMED).map(|&(part, by)| {
        format!(
            "{} matches only in part: {} comes first, and applies to the packets that both match",
            name(part),
            name(by)
        )
    });
    let more = hidden.len().checked_sub(MAX_NAMED).filter(|more| *more > 0);
    let more = more
        .map(|more| format!("{more} more rules match only in part, since earlier ones come first"));
    never.chain(part).chain(more).collect()
}

/// The same, printed.
pub(crate) fn note_covered(rules: &Rules) {
    covered(rules).iter().for_each(|text| note(&format!("rxsteer: {text}")));
}

impl SteerArgs {
    /// The settings of the options, with what the file says where they say nothing.
    pub(crate) fn settings(&self) -> anyhow::Result<SteerSettings> {
        let options = &self.options;
        let mut settings = settings_file::settings(options, self.config.as_deref())?;
        // Maps that the policy has no use for are left in the file, and so is a secret that the hash of the
        // command line has no use for.
        let rules = settings.rules.rules().unwrap_or_default();
        if !options.has("rps-map") && !Mechanisms::of(&settings.policy(), &rules).maps {
            settings.steering.rps_map = None;
        }
        let is_symmetric = settings.hash() == HashChoice::Symmetric;
        if options.has("hash") && !options.has("hash-seed") && !is_symmetric {
            settings.flows.hash_seed = None;
        }
        note_covered(&settings.rules);
        PacketRule::check_headers(&rules, settings.flows.inner())
            .map_err(|why| anyhow::anyhow!("--rule {why}"))?;
        anyhow::ensure!(
            settings.flows.hash_seed.is_none() || is_symmetric,
            "--hash-seed is the secret of the symmetric hash; Toeplitz has a key instead: --hash toeplitz:HEXKEY"
        );
        Ok(settings)
    }
}

impl SteerSettings {
    /// How far frames are looked into.
    pub(crate) fn dissect(&self) -> DissectOptions {
        DissectOptions { inner: self.flows.inner(), key_tunnels: self.tunnels.kinds() }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.steering.policy.clone().unwrap_or(Policy::Rps)
    }

    pub(crate) fn hash(&self) -> HashChoice {
        self.hash.clone().unwrap_or(HashChoice::Symmetric)
    }

    /// Whether the CPU map is that of an option or a file.
    pub(crate) fn names_cpus(&self) -> bool {
        self.steering.cpus.is_some()
    }

    /// The CPUs that are meant.
    pub(crate) fn cpus(&self, allowed: Option<CpuSet>) -> anyhow::Result<CpuSet> {
        match &self.steering.cpus {
            Some(choice) => Ok(choice.cpus(allowed)),
            None => allowed
                .context("can't find out which CPUs this host has; name them, e.g. --cpus 0-3"),
        }
    }

    /// Puts all settings but policy and CPUs into a configuration that says how many RX queues there
    /// are; returns the hash's secret, where it has one.
    pub(crate) fn apply(&self, config: &mut PipelineConfig) -> anyhow::Result<Option<HashSeed>> {
        let (hasher, hash_seed) = self.hash().hasher(self.flows.hash_seed);
        config.hasher = hasher;
        config.packet_rules = self.rules.rules().unwrap_or_default();
        config.rps_maps = self.steering.rps_maps().unwrap_or_default();
        config.fallback = self.steering.fallback.unwrap_or_default();
        config.rfs_cpus = self.steering.rfs_cpus().flatten();
        config.rx_devices = self.devices(config.rx_queues)?;
        config.sock_flow_entries =
            self.tables.sock_flow_entries.unwrap_or(config.sock_flow_entries);
        config.flow_cnt = self.tables.flow_cnt;
        config.flow_limit = self.steering.flow_limit().flatten();
        config.dissect = self.dissect();
        Ok(hash_seed)
    }

    /// For each of `queues` RX queues its device.
    pub(crate) fn devices(&self, queues: u16) -> anyhow::Result<Vec<u16>> {
        let Some(devices) = self.rx_devices else { return Ok(Vec::new()) };
        anyhow::ensure!(
            (1..=queues).contains(&devices),
            "--rx-devices {devices} is too many: there are {queues} RX queues; give at most that many"
        );
        let device = |queue| u32::from(queue) * u32::from(devices) / u32::from(queues);
        Ok((0..queues).map(|queue| device(queue) as u16).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_shared_out_to_devices() {
        let devices = |count, queues| {
            SteerSettings { rx_devices: Some(count), ..SteerSettings::default() }.devices(queues)
        };
        assert_eq!(devices(2, 4).unwrap(), [0, 0, 1, 1]);
        assert_eq!(devices(3, 4).unwrap(), [0, 0, 1, 2]);
        assert!(devices(5, 4).is_err());
    }
}
