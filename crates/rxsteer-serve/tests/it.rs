//! All integration tests, one module per file: one program is quicker to build than many.

mod common;
mod docs;
mod grafana;
mod http;
mod page;
mod prometheus;
