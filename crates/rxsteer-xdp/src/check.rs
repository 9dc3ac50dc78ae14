//! Checks whether settings are valid on this machine.

use crate::abi::{MAX_CPUS, MAX_RULES};
use crate::compile::Rows;
use crate::rules;
use crate::setup::{
    MAX_FLOW_LIMIT_BUCKETS, MAX_QUEUE_SIZE, MIN_QUEUE_SIZE, Settings, SettingsError,
};
use rxsteer_core::CpuSet;

impl Settings {
    /// Checks the settings against the machine.
    ///
    /// # Errors
    /// [`SettingsError`] for the first setting that is wrong.
    pub fn check(&self, possible: &CpuSet) -> Result<(), SettingsError> {
        for cpu in self.named_cpus() {
            if cpu.get() >= MAX_CPUS {
                return Err(SettingsError::CpuTooHigh(cpu));
            }
            if !possible.contains(cpu) {
                return Err(SettingsError::NoSuchCpu(cpu, possible.clone()));
            }
        }
        for (at, (name, _)) in self.rps_maps.iter().enumerate() {
            if self.rps_maps[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(SettingsError::MappedTwice(name.clone()));
            }
        }
        if let Some((name, _)) = self.rps_maps.first()
            && self.policy.balance().is_some()
        {
            return Err(SettingsError::MapsAndBuckets(name.clone()));
        }
        if self.packet_rules.len() > MAX_RULES {
            return Err(SettingsError::TooManyRules(self.packet_rules.len()));
        }
        if let Err(sets) = rules::fit(&self.packet_rules) {
            return Err(SettingsError::RuleSets(sets));
        }
        if !Rows::new(self).fit() {
            return Err(SettingsError::TooManyMaps);
        }
        if !self.cpus.iter().any(|cpu| self.is_online(cpu)) {
            return Err(SettingsError::AllOffline(self.cpus.clone()));
        }
        if !(MIN_QUEUE_SIZE..=MAX_QUEUE_SIZE).contains(&self.queue_size) {
            return Err(SettingsError::QueueSize(self.queue_size));
        }
        match self.flow_limit {
            Some(buckets) if !(1..=MAX_FLOW_LIMIT_BUCKETS).contains(&buckets) => {
                Err(SettingsError::FlowLimit(buckets))
            }
            _ => Ok(()),
        }
    }
}
