//! All integration tests, one module per file: one program is quicker to build than many.

mod admission;
mod captures;
mod check;
mod cli;
mod compare;
mod events;
mod flows;
mod host;
mod key_tunnels;
mod out;
mod outputs;
mod program;
#[cfg(feature = "sim")]
mod published;
#[path = "../../rxsteer-user/tests/reference/mod.rs"]
mod reference;
mod rules;
mod run;
mod seeds;
mod signals;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "sim")]
mod sim_from;
mod snapshots;
mod status;
#[cfg(feature = "top")]
mod top;
mod units;
mod width;
mod without_sim;
mod without_top;
mod without_xdp;
