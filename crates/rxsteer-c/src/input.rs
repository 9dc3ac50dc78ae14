//! The sources that a program can name.

use crate::error::Error;
use rxsteer::PipelineBuilder;
use rxsteer::forward::{LivePort, why_none_may_move};
use rxsteer::source::{
    CaptureOptions, CaptureSource, LiveInterface, LiveIo, LiveOptions, LiveSources, Source,
    SyntheticSource, SyntheticSpec, interfaces, open_live,
};
use rxsteer::{CpuSet, allowed_cpus, printable};
use rxsteer_host::Link;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A source that is named, and not yet opened.
#[derive(Debug)]
pub(crate) enum Named {
    Capture(PathBuf),
    Synthetic(SyntheticSpec),
    Live(LiveIo, Vec<LiveInterface>),
}

/// A source that is open.
pub(crate) enum Input {
    One(Box<dyn Source>),
    Live(LiveSources),
}

impl Named {
    /// Reads `KIND:NAME`, or the name of a capture. An interface has at most as many packet sockets as there are CPUs to
    /// receive on.
    pub(crate) fn read(
        source: &[u8],
        forwards: bool,
        rx_cpus: Option<&CpuSet>,
    ) -> Result<Named, Error> {
        use std::os::unix::ffi::OsStrExt;
        let colon = source.iter().position(|byte| *byte == b':');
        let (kind, name) = match colon {
            Some(colon) => (&source[..colon], &source[colon + 1..]),
            None => (&b"capture"[..], source),
        };
        let io = match kind {
            b"live" if !forwards => Some(LiveIo::Packet),
            b"live" | b"xdp" => Some(LiveIo::Xdp),
            b"packet" => Some(LiveIo::Packet),
            _ => None,
        };
        let Some(io) = io else {
            if forwards {
                return Err(format!(
                    "flags: RXSTEER_FORWARD requires live interfaces, and the source is '{}'; use live:, xdp: or packet:, \
                     or leave the flag out",
                    printable(&String::from_utf8_lossy(source))
                )
                .into());
            }
            return Ok(match kind {
                b"synthetic" => Named::Synthetic(std::str::from_utf8(name)?.parse()?),
                b"capture" => Named::Capture(OsStr::from_bytes(name).into()),
                // The name of a file that has a colon.
                _ => Named::Capture(OsStr::from_bytes(source).into()),
            });
        };
        let allowed = allowed_cpus();
        let rx_cpus = rx_cpus.or(allowed.as_ref()).map_or(1, CpuSet::len);
        let links = rxsteer_host::links()?;
        let named = std::str::from_utf8(name)?.split(',').map(|name| {
            // An interface that does not exist is reported when it is opened.
            let queues = links.iter().find(|link| link.name == name).map(Link::rx_queues_in_use);
            (name, io.rx_threads(queues.unwrap_or(1), rx_cpus))
        });
        Ok(Named::Live(io, interfaces(named)?))
    }

    /// The interfaces; none for other sources.
    pub(crate) fn interfaces(&self) -> &[LiveInterface] {
        match self {
            Named::Live(_, interfaces) => interfaces,
            Named::Capture(_) | Named::Synthetic(_) => &[],
        }
    }

    /// Refuses a receive path that could send packets of a flow out of order.
    pub(crate) fn check(&self, forwards: bool, builder: &PipelineBuilder) -> Result<(), Error> {
        let Named::Live(LiveIo::Packet, interfaces) = self else { return Ok(()) };
        if !forwards || !builder.flows_can_move() {
            return Ok(());
        }
        let links = rxsteer_host::links()?;
        let why = interfaces.iter().find_map(|interface| {
            let link = links.iter().find(|link| link.name == interface.name);
            why_none_may_move(&interface.name, link.and_then(Link::tx_queues).unwrap_or(1))
        });
        why.map_or(Ok(()), |why| {
            Err(format!("{why}. Use the policy rps without RXSTEER_NO_PIN, one TX queue (ethtool -L), or xdp:").into())
        })
    }

    /// Opens it. A live interface receives from now on, and ends when `stop` is set.
    pub(crate) fn open(
        self,
        promiscuous: bool,
        forwards: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<Input, Error> {
        Ok(match self {
            Named::Capture(path) => {
                Input::One(Box::new(CaptureSource::open(&[path], CaptureOptions::default())?))
            }
            Named::Synthetic(spec) => Input::One(Box::new(SyntheticSource::new(spec, 1, (0, 1)))),
            Named::Live(io, interfaces) => {
                let mut options = LiveOptions::default();
                options.io = io;
                options.promiscuous = promiscuous;
                options.forwards = forwards;
                options.stop = stop.clone();
                let opened = open_live(&interfaces, &options);
                // The messages name the option of the program.
                Input::Live(
                    opened.map_err(|error| error.to_string().replace("--io packet", "packet:"))?,
                )
            }
        })
    }
}

impl Input {
    /// One source for each RX thread.
    pub(crate) fn sources(&mut self) -> &mut [Box<dyn Source>] {
        match self {
            Input::One(source) => std::slice::from_mut(source),
            Input::Live(live) => &mut live.sources,
        }
    }

    /// The interfaces that packets arrive on, and that they can be sent by.
    pub(crate) fn ports(&self) -> &[LivePort] {
        match self {
            Input::One(_) => &[],
            Input::Live(live) => &live.ports,
        }
    }
}

/// Parses a list of CPUs.
pub(crate) fn cpus(name: &str, list: &str) -> Result<CpuSet, Error> {
    list.parse().map_err(|error| format!("{name} '{}': {error}", printable(list)).into())
}
