//! The cost of the programs that follow applications (rfs): nanoseconds per send and per receive of a socket, compared
//! with a program that does nothing at the same tracepoint.
//!
//! The kernel measures the times, as for `bpf-cost`. Every send and receive on the host runs these programs, for any
//! socket; an unconnected socket is recognized by its state alone.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use anyhow::{Context, Result};
use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_bench::Quartiles;
use rxsteer_core::Policy;
use rxsteer_lab::{EmptySockets, Namespace};
use rxsteer_xdp::{Path, Settings};
use serde_json::{Value, json};

use super::bpf_cost::{FLOW_CNT, setup, timed, times};

/// Measures the nanoseconds that rfs adds to each send and receive, by kind of socket.
///
/// Sends datagrams of 64 bytes over the loopback interface of a separate network namespace.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab socket-cost --rounds 15")]
pub(crate) struct Options {
    /// How often each kind of socket is measured
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Messages sent in one turn
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    messages: u32,
}

/// A pair of sockets of one kind.
struct Pair {
    name: &'static str,
    /// Sends one message and receives it.
    pass: Box<dyn FnMut() -> std::io::Result<()> + Send>,
}

const LENGTH: usize = 64;

fn udp(connected: bool) -> std::io::Result<Pair> {
    let [sender, receiver] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    let to = receiver.local_addr()?;
    if connected {
        receiver.connect(sender.local_addr()?)?;
        sender.connect(to)?;
    }
    let pass = move || {
        let mut bytes = [0; LENGTH];
        match connected {
            true => sender.send(&bytes)?,
            false => sender.send_to(&bytes, to)?,
        };
        receiver.recv(&mut bytes).map(drop)
    };
    let name = if connected { "UDP, connected" } else { "UDP, not connected" };
    Ok(Pair { name, pass: Box::new(pass) })
}

fn tcp() -> std::io::Result<Pair> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    let pass = move || {
        let mut bytes = [0; LENGTH];
        sender.write_all(&bytes)?;
        receiver.read_exact(&mut bytes)
    };
    Ok(Pair { name: "TCP", pass: Box::new(pass) })
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    timed(|| measure(options))
}

fn measure(options: &Options) -> Result<Value> {
    let settings = Settings::new(Policy::Rfs, "0-1".parse()?);
    let path = Path::load(&setup(true, FLOW_CNT)?, &settings)?;
    let ids: BTreeMap<_, _> = path.programs().into_iter().collect();
    // These are attached after ours at each tracepoint, where they find the socket in the cache. This can only make
    // them look cheaper.
    let empty = EmptySockets::attach()?;
    let [empty_receives, empty_sends] = empty.program_ids()?;
    let programs = [ids["steer_sends"], ids["steer_receives"], empty_sends, empty_receives];
    let namespace = Namespace::new()?;
    namespace.ip("link set lo up")?;
    let open = || {
        let pairs = [udp(false), udp(true), tcp()];
        Ok(pairs.into_iter().collect::<std::io::Result<Vec<Pair>>>())
    };
    let mut pairs = namespace.inside(open)?.context("can't open sockets")?;
    let mut rows: BTreeMap<usize, Vec<[Option<f64>; 4]>> = BTreeMap::new();
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..=options.rounds {
        order.shuffle(&mut rng);
        for &index in &order {
            let before = times(programs);
            for _ in 0..options.messages {
                (pairs[index].pass)().context("a message got lost on the loopback interface")?;
            }
            let after = times(programs);
            let cost = std::array::from_fn(|at| {
                let (ns, count) = (after[at].0 - before[at].0, after[at].1 - before[at].1);
                (count > 0).then(|| ns as f64 / count as f64)
            });
            // The first turn of each pair includes first-time costs, and is discarded.
            if round > 0 {
                rows.entry(index).or_default().push(cost);
            }
        }
    }
    let figures = pairs.iter().enumerate().map(|(index, pair)| {
        let column = |at: usize| -> Vec<Option<f64>> {
            rows.get(&index).into_iter().flatten().map(|cost| cost[at]).collect()
        };
        let shown = |quartiles: Option<Quartiles>| {
            let round = |figure: f64| (figure * 10.0).round() / 10.0;
            quartiles.map(|q| json!([round(q.q1), round(q.median), round(q.q3)]))
        };
        let over = |ours: usize, theirs: usize| {
            let differences = |ours, theirs| ours - theirs;
            shown(Quartiles::of_pairs(&column(ours), &column(theirs), differences))
        };
        let empty: Vec<f64> = column(2).into_iter().flatten().collect();
        json!({
            "socket": pair.name,
            "send_over_empty_ns": over(0, 2),
            "receive_over_empty_ns": over(1, 3),
            "empty_ns": shown(Quartiles::of(&empty)),
        })
    });
    let figures: Vec<Value> = figures.collect();
    Ok(json!({
        "rounds": options.rounds,
        "messages_a_turn": options.messages,
        "sockets": figures,
    }))
}
