//! The outputs for records: a file, file after file, a collector, or a collector together with one of these.

use crate::files::{FileCounts, Files, Rotation};
use crate::ipfix::{Ipfix, IpfixCounts};
use crate::{Row, Sink, Target, Written};
use rxsteer_flows::FlowMask;
use std::net::SocketAddr;
use std::sync::Arc;

/// Files for records.
enum Place {
    /// None.
    Nowhere,
    /// One file for all records of a repeatable run. Holds the sink, or the error after a write has failed. A failure
    /// drops the sink, which removes the file, so it takes no room on a full disk.
    Once(anyhow::Result<Box<dyn Sink>>, Target, u64),
    /// File after file, for runs that cannot be repeated.
    Live(Box<Files>),
}

/// The outputs of records.
pub struct Outputs {
    place: Place,
    ipfix: Option<Ipfix>,
}

/// The result for the records, at the end.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The name of the file, or a pattern for several files; `None` if there is no file.
    pub file: Option<String>,
    /// The last error.
    pub failure: Option<anyhow::Error>,
    /// The number of records in files.
    pub records: u64,
    /// Records that could not be written, in live outputs.
    pub lost: Written,
    /// What was sent to a collector.
    pub ipfix: Option<(SocketAddr, Arc<IpfixCounts>)>,
}

impl Outputs {
    /// The outputs for the records of a repeatable run: one file (or one set of files) that is either complete or
    /// absent.
    pub fn once(
        target: Option<Target>,
        mask: FlowMask,
        ipfix: Option<Ipfix>,
    ) -> anyhow::Result<Outputs> {
        let place = match target {
            Some(target) => Place::Once(Ok(target.open(mask)?), target, 0),
            None => Place::Nowhere,
        };
        Ok(Outputs { place, ipfix })
    }

    /// The outputs for records of live traffic: after a failure, writing continues as soon as possible.
    pub fn live(
        target: Option<Target>,
        mask: FlowMask,
        ipfix: Option<Ipfix>,
        rotation: Rotation,
        report: fn(&str),
    ) -> anyhow::Result<Outputs> {
        let place = match target {
            Some(target) => Place::Live(Box::new(Files::begin(target, mask, rotation, report)?)),
            None => Place::Nowhere,
        };
        Ok(Outputs { place, ipfix })
    }

    /// The counts of live files, for any thread.
    #[must_use]
    pub fn file_counts(&self) -> Option<Arc<FileCounts>> {
        match &self.place {
            Place::Live(files) => Some(files.counts()),
            Place::Nowhere | Place::Once(..) => None,
        }
    }

    /// The collector and its counts, for any thread.
    #[must_use]
    pub fn ipfix_counts(&self) -> Option<(SocketAddr, Arc<IpfixCounts>)> {
        self.ipfix.as_ref().map(|ipfix| (ipfix.collector(), ipfix.counts()))
    }

    /// Accepts a record.
    pub fn take(&mut self, row: &Row<'_>) {
        match &mut self.place {
            Place::Nowhere => {}
            Place::Live(files) => files.take(row),
            Place::Once(place, _, records) => {
                if let Ok(sink) = place {
                    match sink.write(row) {
                        Ok(()) => *records += 1,
                        Err(error) => *place = Err(error),
                    }
                }
            }
        }
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.take(row);
        }
    }

    /// Does periodic work. The caller must call this several times a second.
    pub fn tick(&mut self) {
        if let Place::Live(files) = &mut self.place {
            files.tick();
        }
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.tick();
        }
    }

    /// Writes and sends the rest, and gives the last file its name.
    pub fn finish(mut self) -> Outcome {
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.flush();
        }
        let ipfix = self.ipfix_counts();
        match self.place {
            Place::Nowhere => Outcome { ipfix, ..Outcome::default() },
            Place::Once(place, target, records) => match place.and_then(Sink::close) {
                Ok(()) => {
                    Outcome { file: target.written(records), records, ipfix, ..Outcome::default() }
                }
                Err(error) => Outcome { failure: Some(error), ipfix, ..Outcome::default() },
            },
            Place::Live(mut files) => {
                files.finish();
                let counts = files.counts();
                let lost = counts.lost();
                let failure = counts.problem().filter(|_| lost.records > 0).map(anyhow::Error::msg);
                let records = counts.written().records;
                Outcome { file: files.written(), failure, records, lost, ipfix }
            }
        }
    }
}
