//! Where live records go: files, a collector, or both.

use crate::files::Files;
use crate::ipfix::Ipfix;
use crate::Row;

/// The outputs of live records.
pub struct Outputs {
    /// Files.
    pub files: Option<Files>,
    /// A collector.
    pub ipfix: Option<Ipfix>,
}

impl Outputs {
    /// Takes a record.
    pub fn take(&mut self, row: &Row<'_>) {
        if let Some(files) = &mut self.files {
            files.take(row);
        }
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.take(row);
        }
    }

    /// Does what is due. To be called some times a second.
    pub fn tick(&mut self) {
        if let Some(files) = &mut self.files {
            files.tick();
        }
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.tick();
        }
    }

    /// Writes and sends what is left.
    pub fn finish(&mut self) {
        if let Some(files) = &mut self.files {
            files.finish();
        }
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.flush();
        }
    }
}
