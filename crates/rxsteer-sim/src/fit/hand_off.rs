//! The forwarder of hand-off-patch, fitted to its rate without hand-off: for the assumed rate that is sent, and for both
//! ends of its range.

use super::{Compared, FitError, Part, Search};
use crate::published::fitted_rows::HAND_OFF_INLINE_SHARE;
use crate::published::machine::forwarder::{self, PAIRS, PARTS, Pairs, SENT_PPS};
use crate::published::machine::server::RECEIVING_SHARE_BY_SLIDES;
use crate::published::measured::packets_per_second;
use std::collections::BTreeMap;

pub(super) fn parts() -> Result<BTreeMap<String, Part>, FitError> {
    let parts = PARTS.into_iter().zip(SENT_PPS.values());
    parts.map(|(name, sent)| Ok((name.to_owned(), inline(sent)?))).collect()
}

fn inline(sent: f64) -> Result<Part, FitError> {
    // All CPUs are full. The search stays nearby; far from there, the share does not depend on the cost.
    let full = f64::from(PAIRS) * 1e9 / (HAND_OFF_INLINE_SHARE * sent);
    let search = Search {
        objective: "squared difference of the share of what is sent that is forwarded without \
                    hand-off",
        start: &[("packet_ns", full.round())],
        machine: &|values| {
            let share = RECEIVING_SHARE_BY_SLIDES.value;
            forwarder::scenario(values[0], share, sent, false, Pairs::Socket)
        },
        compared: &|result| {
            let forwarded = packets_per_second(result) / sent;
            vec![Compared::mean(forwarded, HAND_OFF_INLINE_SHARE)]
        },
    };
    search.part()
}
