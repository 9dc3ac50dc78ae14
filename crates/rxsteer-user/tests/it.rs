//! All integration tests, one module per file: one program is quicker to build than many.

mod captures;
mod changes;
mod common;
mod ends;
mod flow_stats;
mod pipeline;
mod reference;
mod workers;
