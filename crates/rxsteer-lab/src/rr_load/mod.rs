//! Request and response: N TCP connections, each with one byte on its way at a time, as in netperf's TCP_RR.
//!
//! ```text
//!   client threads, one per CPU, pinned          server threads
//!   epoll: reply ─► latency ─► next request ────► epoll: request ─► (work) ─► reply
//! ```
//!
//! - **Closed loop**: a connection sends its next request when it has the reply. The rate is a result.
//! - **Open loop**: each connection has a schedule. A latency counts from the *intended* time of its request, even if
//!   the request had to wait for the reply before it. So a server that stalls affects the latencies of all requests
//!   that were due meanwhile: no coordinated omission (Gil Tene, "How NOT to Measure Latency").
//!
//! Both sides count requests and replies, so a load that is not as specified cannot have a figure.

mod client;
mod server;

use crate::cpu_use::{CpuUse, Snapshot};
use crate::error::{LabError, Result, Tried};
use crate::namespace::Namespace;
use hdrhistogram::Histogram;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The load.
#[derive(Debug, Clone, Copy)]
pub struct RrLoad {
    /// Connections.
    pub connections: usize,
    /// Requests per second of all connections together; 0: a closed loop.
    pub rate: u32,
    /// The server's work for each request, in user space.
    pub work: Duration,
    /// Threads of the server: 0 for one pinned thread per CPU; otherwise this many, each with its share of the
    /// connections, where the scheduler puts them.
    pub server_threads: usize,
    /// How long to send requests.
    pub time: Duration,
}

/// The result.
#[derive(Debug, Clone)]
pub struct RrReport {
    /// Requests that were sent.
    pub requests: u64,
    /// Replies that arrived.
    pub replies: u64,
    /// Requests that the server answered.
    pub served: u64,
    /// From the first request to the end of sending.
    pub took: Duration,
    /// Latencies in nanoseconds.
    pub latency: Histogram<u64>,
    /// Connections on which at least one reply arrived.
    pub answered: usize,
    /// The CPUs on which the client's threads ended, one per thread.
    pub client_cpus: Vec<usize>,
    /// How the CPUs spent their time from the first request to the last reply, without connecting.
    pub cpus: Vec<CpuUse>,
}

/// Latencies from 1 µs to 1 minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("the bounds are in order")
}

/// Sends requests from one namespace to a server in another, or to one in this namespace if `from` and `to` are `None`.
///
/// # Errors
///
/// A system error, or [`LabError::Load`] if a connection broke or had no reply, if the counts of both sides differ, or
/// if a thread of the client was on another CPU than its own.
pub fn request_response(
    from: Option<&Namespace>,
    to: Option<(&Namespace, Ipv4Addr)>,
    load: &RrLoad,
) -> Result<RrReport> {
    exchange(from, to, load, |_| server::spend(load.work))
}

/// The same with a server that calls `work` before each reply, with the number of replies that its thread sent so far.
fn exchange(
    from: Option<&Namespace>,
    to: Option<(&Namespace, Ipv4Addr)>,
    load: &RrLoad,
    work: impl Fn(u64) + Sync,
) -> Result<RrReport> {
    let (clients, servers) = connect(from, to, load.connections)?;
    let begin = Snapshot::now()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| server::serve(servers, load, &work, &stop));
        let sent = client::send(clients, load);
        let end = Snapshot::now();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let report = RrReport { served, cpus: begin.until(&end?), ..sent? };
        let counts = [report.requests, report.replies, report.served];
        LabError::check(counts == [report.requests; 3] && report.replies > 0, || {
            let [requests, replies, served] = counts;
            format!("{requests} requests were sent, {served} answered, {replies} replies arrived")
        })?;
        LabError::check(report.answered == load.connections, || {
            format!("{} of {} connections had a reply", report.answered, load.connections)
        })?;
        Ok(report)
    })
}

/// Both ends of the connections.
fn connect(
    from: Option<&Namespace>,
    to: Option<(&Namespace, Ipv4Addr)>,
    connections: usize,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let address = to.map_or(Ipv4Addr::LOCALHOST, |(_, address)| address);
    let listen = || TcpListener::bind((address, 0)).tried(|| format!("listen on {address}"));
    let listener = to.map_or_else(listen, |(namespace, _)| namespace.inside(listen))?;
    let server: SocketAddr = listener.local_addr().tried(|| "read an address".to_owned())?;
    let all = || -> Result<(Vec<TcpStream>, Vec<TcpStream>)> {
        let mut clients = Vec::with_capacity(connections);
        let mut servers = Vec::with_capacity(connections);
        for _ in 0..connections {
            let client = TcpStream::connect(server).tried(|| format!("connect to {server}"))?;
            let (served, _) = listener.accept().tried(|| "accept a connection".to_owned())?;
            for stream in [&client, &served] {
                let prepared = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
                prepared.tried(|| "prepare a connection".to_owned())?;
            }
            clients.push(client);
            servers.push(served);
        }
        Ok((clients, servers))
    };
    match from {
        Some(namespace) => namespace.inside(all),
        None => all(),
    }
}

/// A share of the connections for each of `parts` threads.
fn shares(streams: Vec<TcpStream>, parts: usize) -> Vec<Vec<TcpStream>> {
    let mut shares: Vec<Vec<TcpStream>> = (0..parts.max(1)).map(|_| vec![]).collect();
    let count = shares.len();
    for (index, stream) in streams.into_iter().enumerate() {
        shares[index % count].push(stream);
    }
    shares.retain(|share| !share.is_empty());
    shares
}

fn broken(why: impl std::fmt::Display) -> LabError {
    LabError::Load { why: format!("a connection broke: {why}") }
}

#[cfg(test)]
mod tests;
