//! Runs a scenario.

use crate::{RunResult, Scenario};
use rxsteer_core::ConfigError;

/// Runs `scenario` with `seed`: the same pair gives the same result, always.
///
/// # Errors
/// When the core refuses the steering's configuration.
pub fn run(_scenario: &Scenario, _seed: u64) -> Result<RunResult, ConfigError> {
    unreachable!("not yet there")
}
