//! Tries the operations of `rxsteer run` in advance, before a user's frames are at risk: loads and unloads the
//! programs, and tests generic mode on a veth pair in separate network namespaces (`generic.rs`, `namespace.rs`).
//!
//! The results are facts for `rxsteer-host`, which judges them, and itself loads nothing.

mod generic;
mod namespace;

pub(crate) use generic::generic;

use crate::run::privileges::raise_memory_limit;
use rxsteer_host::cpus::HIGHEST;
use rxsteer_host::{Btf, Host, Trial};
use rxsteer_user::core::CpuSet;
use rxsteer_user::packet::TunnelKinds;
use rxsteer_xdp::{LoadError, Mode, Setup, try_to_load};

/// Whether the kernel accepts the programs, and a process without capabilities may use them.
pub(crate) fn programs(host: &Host) -> Trial {
    if let Some(why) = obstacle(host) {
        return Trial::not_tried(why);
    }
    let Some(setup) = setup(host, Mode::Native) else { return Trial::not_tried(NO_CPUS) };
    raise_memory_limit();
    match try_to_load(&setup) {
        Ok(()) => Trial::Works,
        Err(error) => {
            let log = match &error {
                LoadError::Program(refusal) => refusal.log.clone(),
                _ => String::new(),
            };
            Trial::Fails { what: error.to_string(), log }
        }
    }
}

const NO_CPUS: &str = "which CPUs there are is not known";

/// Why the trial is impossible, if it is.
fn obstacle(host: &Host) -> Option<String> {
    let capabilities = host.capabilities?;
    let missing = capabilities.missing();
    if let Some(first) = missing.first() {
        return Some(format!("this process lacks {}", first.name()));
    }
    if capabilities.in_user_namespace == Some(true) {
        return Some("this process is in a user namespace".to_owned());
    }
    match host.btf {
        Btf::Readable { .. } => None,
        _ => Some("the kernel's type information can't be read".to_owned()),
    }
}

/// The smallest possible setup: the verifier examines the same instructions for all sizes.
fn setup(host: &Host, mode: Mode) -> Option<Setup> {
    let cpus = host.cpus.possible.as_ref().or(host.cpus.online.as_ref())?;
    let possible = CpuSet::new(cpus.iter().filter(|cpu| cpu.get() <= HIGHEST))?;
    let cpus = u32::from(possible.highest().get()) + 1;
    Some(Setup {
        mode,
        // In generic mode each receiving CPU has a table.
        tables: if mode == Mode::Generic { cpus } else { 1 },
        possible,
        flow_cnt: 64,
        interfaces: 1,
        sock_flow_entries: 16,
        secret: *b"tried, then gone",
        inner: true,
        key_tunnels: TunnelKinds::ALL,
        flow_stats: true,
        hz: host.hz,
        rfs_namespace: None,
        drop_on_arrival: false,
        flow_records: false,
        as_with_short_ticks: false,
    })
}
