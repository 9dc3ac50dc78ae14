//! The forwarder of hand-off-patch, fitted to its rate without hand-off.

use super::{Compared, FitError, Part, Search};
use crate::published::fitted_rows::HAND_OFF_INLINE_SHARE;
use crate::published::machine::forwarder::{self, Pairs, SENT_PPS};
use crate::published::machine::server::RECEIVING_SHARE_BY_SLIDES;
use crate::published::measured::packets_per_second;
use std::collections::BTreeMap;

pub(super) fn parts() -> Result<BTreeMap<String, Part>, FitError> {
    let inline = Search {
        objective: "squared difference of the share of what is sent that is forwarded without \
                    hand-off",
        start: &[("packet_ns", 2_000.0)],
        machine: &|values| {
            let share = RECEIVING_SHARE_BY_SLIDES.value;
            forwarder::scenario(values[0], share, SENT_PPS.value, false, Pairs::Socket)
        },
        compared: &|result| {
            let forwarded = packets_per_second(result) / SENT_PPS.value;
            vec![Compared::mean(forwarded, HAND_OFF_INLINE_SHARE)]
        },
    };
    Ok(BTreeMap::from([("inline".to_owned(), inline.part()?)]))
}
