//! Results of the simulator as text, JSON, CSV and a page.
//!
//! ```text
//!   Results ─┬─► table (one policy), compared (several), sensitivity ─► text
//!            ├─► json, csv
//!            └─► page: plots and tables
//! ```

pub mod advice;
pub mod compared;
pub mod csv;
mod figure;
pub mod json;
pub mod page;
pub mod results;
pub mod sensitivity;
pub mod table;
