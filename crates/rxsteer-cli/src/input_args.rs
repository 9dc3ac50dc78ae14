//! Options and values that several commands share: inputs, their RX queues, the duration of a measurement, the work of
//! workers.

use crate::change_spec::parse_interval;
use crate::words::{suggestion, whole};
use clap::Args;
use rxsteer_user::core::MAX_RX_QUEUES;
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::source::synthetic::{SpecError, SyntheticSpec};
use std::time::Duration;

/// What the workers of a run in user space do beside the handler.
#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// Processing time of each packet, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole::<u32, 0, 1_000_000_000>, help_heading = "Processing")]
    pub(crate) work_ns: u32,

    /// Do not pin threads to their CPUs
    #[arg(long, help_heading = "Processing")]
    pub(crate) no_pin: bool,
}

/// The upper bound of --duration.
const LONGEST_SAMPLE: Duration = Duration::from_secs(3600);

pub(crate) fn parse_sample(text: &str) -> Result<Duration, String> {
    let time = parse_interval(text)?;
    if time.is_zero() || time > LONGEST_SAMPLE {
        return Err("the duration must be more than 0 and at most an hour, e.g. 1s".to_owned());
    }
    Ok(time)
}

pub(crate) fn parse_synthetic(text: &str) -> Result<SyntheticSpec, String> {
    text.parse().map_err(|error: SpecError| match &error {
        SpecError::UnknownKey(key) => {
            format!("{error}{}", suggestion(key, &SyntheticSpec::KEYS))
        }
        _ => error.to_string(),
    })
}

/// The words of `--rx-queues`.
pub(crate) const RX_QUEUES: [&str; 3] = ["single", "file", "interface"];

pub(crate) fn parse_rx_queues(text: &str) -> Result<RxQueues, String> {
    match text {
        "single" => Ok(RxQueues::Single),
        "file" => Ok(RxQueues::PerFile),
        "interface" => Ok(RxQueues::PerInterface),
        _ => match text.parse::<u16>() {
            Ok(queues) if (1..=MAX_RX_QUEUES).contains(&queues) => Ok(RxQueues::Hashed(queues)),
            Ok(_) => Err(format!("a count of RX queues must be 1 to {MAX_RX_QUEUES}")),
            Err(_) => Err(format!(
                "'{text}' is neither a mode nor a count{}",
                suggestion(text, &RX_QUEUES)
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_words_are_named_with_the_nearest() {
        assert!(parse_synthetic("flow=1").unwrap_err().contains("did you mean 'flows'"));
        assert!(parse_rx_queues("files").unwrap_err().contains("did you mean 'file'"));
    }
}
