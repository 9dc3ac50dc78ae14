//! `[[traffic]]`: its kind determines its keys beside the common ones.

use super::error::FileError;
use super::fields::{Fields, Item, Keys};
use crate::check::MAX_TRAFFIC;
use crate::scenario::{Constant, Headers, Load, Nic, Requests, Share, Stream, Traffic};

/// The keys of every kind.
pub(super) const COMMON: Keys = Keys {
    table: "[[traffic]]",
    keys: &["name", "kind", "nic", "out", "translated", "headers", "flows", "start", "ramp"],
};

/// The keys of bulk data.
pub(super) const STREAM: Keys = Keys {
    table: "[[traffic]] of kind 'stream'",
    keys: &["frame_bytes", "ack_bytes", "packets_per_ack", "window", "min_rto", "application"],
};

/// The keys of a constant rate.
pub(super) const CONSTANT: Keys = Keys {
    table: "[[traffic]] of kind 'constant'",
    keys: &["rate", "frame_bytes", "share", "poisson", "application"],
};

/// The keys of requests.
pub(super) const REQUESTS: Keys = Keys {
    table: "[[traffic]] of kind 'requests'",
    keys: &[
        "request_bytes",
        "response_bytes",
        "think",
        "threads",
        "service",
        "service_exponential",
    ],
};

/// A full Ethernet frame, without its frame check sequence.
const FULL_FRAME_BYTES: u32 = 1514;
/// An acknowledgement with TCP timestamps.
const ACK_BYTES: u32 = 66;
/// One acknowledgement for every second segment (RFC 1122, 4.2.3.2).
const PACKETS_PER_ACK: u32 = 2;
/// 64 KiB, the largest window without scaling, in full frames.
const WINDOW: u32 = 45;
/// Linux's `TCP_RTO_MIN`.
const MIN_RTO_NS: u64 = 200_000_000;
/// The shortest Ethernet frame, without its frame check sequence.
const SHORT_FRAME_BYTES: u32 = 60;
/// One byte of data over TCP, as in TCP_RR.
const REQUEST_BYTES: u32 = 67;
/// The application's cost of a packet or a request: reading and writing a socket; assumed.
const SERVICE_NS: f64 = 2000.0;
/// The application's cost of a packet of bulk data, of which it reads many at once; assumed.
const BULK_READ_NS: f64 = 500.0;

type Read<T> = Result<T, FileError>;

/// All traffic.
pub(super) fn read(top: &Fields<'_>, nics: &[Nic]) -> Read<Vec<Traffic>> {
    let items = top.needed("traffic", "what is sent: add a [[traffic]]", |item| {
        let items = item.list("a list of tables, [[traffic]]")?;
        if items.len() > MAX_TRAFFIC {
            let what = format!("there are {} kinds of traffic, at most {MAX_TRAFFIC}", items.len());
            return Err(item.wrong(what));
        }
        Ok(items)
    })?;
    items.iter().enumerate().map(|(index, item)| one(item, index, nics)).collect()
}

fn one(item: &Item<'_>, index: usize, nics: &[Nic]) -> Read<Traffic> {
    let kinds = [("stream", STREAM), ("constant", CONSTANT), ("requests", REQUESTS)];
    // The kind determines the valid keys, so it is read before the other keys.
    let keys = match item.entries()?.get("kind") {
        Some(node) => {
            Item { node, path: format!("{}.kind", item.path), ..item.clone() }.word(&kinds)?
        }
        // A misspelt `kind` is reported as an unknown key, an absent one as missing.
        None => COMMON,
    };
    let traffic = Fields::open(item, keys.table, &[&COMMON, &keys])?;
    let nic_called = |item: &Item<'_>| nic_called(item, nics);
    if nics.len() > 1 && traffic.get("nic").is_none() {
        return Err(traffic.missing("nic", "the name of the card it comes in by, of several"));
    }
    let load = match keys.table {
        table if table == STREAM.table => Load::Stream(stream(&traffic)?),
        table if table == CONSTANT.table => Load::Constant(constant(&traffic)?),
        table if table == REQUESTS.table => Load::Requests(requests(&traffic)?),
        _ => {
            return Err(
                traffic.missing("kind", "how it is sent: 'stream', 'constant' or 'requests'")
            );
        }
    };
    Ok(Traffic {
        name: traffic.or("name", format!("traffic{index}"), |item| Ok(item.text()?.to_string()))?,
        nic: traffic.or("nic", 0, nic_called)?,
        out: traffic.maybe("out", nic_called)?,
        translated: traffic.or("translated", false, Item::flag)?,
        headers: traffic.or("headers", Headers::default(), headers)?,
        flows: traffic.or("flows", 1, Item::whole)?,
        start_ns: traffic.or("start", 0, Item::time_ns)?,
        ramp_ns: traffic.or("ramp", 0, Item::time_ns)?,
        load,
    })
}

fn headers(item: &Item<'_>) -> Read<Headers> {
    item.text()?.parse().map_err(|why: String| item.wrong(why))
}

fn nic_called(item: &Item<'_>, nics: &[Nic]) -> Read<usize> {
    let name = item.text()?;
    nics.iter().position(|nic| nic.name == name).ok_or_else(|| {
        let names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
        item.wrong(format!("there is no card '{name}'; there is '{}'", names.join("', '")))
    })
}

fn stream(traffic: &Fields<'_>) -> Read<Stream> {
    Ok(Stream {
        frame_bytes: traffic.or("frame_bytes", FULL_FRAME_BYTES, Item::whole)?,
        ack_bytes: traffic.or("ack_bytes", ACK_BYTES, Item::whole)?,
        packets_per_ack: traffic.or("packets_per_ack", PACKETS_PER_ACK, Item::whole)?,
        window: traffic.or("window", WINDOW, Item::whole)?,
        min_rto_ns: traffic.or("min_rto", MIN_RTO_NS, Item::time_ns)?,
        application: application(traffic, BULK_READ_NS)?,
    })
}

fn constant(traffic: &Fields<'_>) -> Read<Constant> {
    Ok(Constant {
        rate: traffic.needed("rate", "packets per second, e.g. \"100kpps\"", Item::packet_rate)?,
        frame_bytes: traffic.or("frame_bytes", SHORT_FRAME_BYTES, Item::whole)?,
        share: traffic.or("share", Share::Equal, share)?,
        poisson: traffic.or("poisson", true, Item::flag)?,
        application: application(traffic, SERVICE_NS)?,
    })
}

/// The application's cost per packet; forwarded packets reach no application.
fn application(traffic: &Fields<'_>, default: f64) -> Read<f64> {
    let default = if traffic.get("out").is_some() { 0.0 } else { default };
    traffic.or("application", default, Item::cost_ns)
}

/// `equal`, or `zipf:` with an exponent.
fn share(item: &Item<'_>) -> Read<Share> {
    let text = item.text()?;
    match text.split_once(':') {
        None if text == "equal" => Ok(Share::Equal),
        Some(("zipf", exponent)) => match exponent.trim().parse() {
            Ok(exponent) => Ok(Share::Zipf(exponent)),
            Err(_) => {
                Err(item.wrong(format!("'{exponent}' is not a number; write e.g. \"zipf:1.1\"")))
            }
        },
        _ => Err(item.wrong(format!("expected \"equal\" or \"zipf:EXPONENT\", not \"{text}\""))),
    }
}

fn requests(traffic: &Fields<'_>) -> Read<Requests> {
    Ok(Requests {
        request_bytes: traffic.or("request_bytes", REQUEST_BYTES, Item::whole)?,
        response_bytes: traffic.or("response_bytes", REQUEST_BYTES, Item::whole)?,
        think_ns: traffic.or("think", 0, Item::time_ns)? as f64,
        threads: traffic.maybe("threads", Item::whole)?,
        service: traffic.or("service", SERVICE_NS, Item::cost_ns)?,
        service_exponential: traffic.or("service_exponential", false, Item::flag)?,
    })
}
