//! All integration tests, one module per file: one program is quicker to build than many.

mod agreement;
mod dissect;
mod flow;
mod flow_hash;
mod frames;
mod toeplitz;
mod tunnel;
mod tunnel_id;
