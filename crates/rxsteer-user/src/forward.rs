//! Forwarding of packets: an inspector decides about each packet, and the worker sends it from where it is stored.
//!
//! ```text
//!  RX queue ─► worker: inspect ─► Action::Send(port) ─► TX ring or socket of this worker ─► NIC
//! ```
//!
//! Invariant: the driver has the packets of a list before they count as completed. Only then may a flow's next packets
//! run on another CPU, so each flow is in order on the wire as in the handlers. With AF_XDP the TX queue depends only on
//! the RX queue and the flow hash, so a flow uses one TX queue, whichever worker sends. With packet sockets the kernel
//! chooses the TX queue by the CPU that sends: if flows can move, the interface must have one TX queue.

#[cfg(feature = "xdp")]
use crate::block::FrameMeta;
use crate::handler::{Handler, Packet, PacketList};
use crate::printable::printable;
use rxsteer_core::CpuId;
use rxsteer_io::ListSender;
#[cfg(feature = "xdp")]
use rxsteer_io::xdp::{XdpError, XdpPort, XdpSender};
use std::io;

/// An interface that packets arrive on and are sent by.
///
/// [`LivePort`], [`PacketPort`] and, with the feature `xdp`, `XdpPort` implement it. Other types can't, since only these make a
/// [`PortSender`].
pub trait ForwardPort {
    /// How many RX queues of the pipeline belong to it.
    fn rx_queues(&self) -> usize;

    /// Makes the sender of one worker.
    ///
    /// # Errors
    /// [`ForwardError`] if the kernel provides no socket.
    fn sender(&self) -> Result<PortSender, ForwardError>;
}

/// One worker's sender on one port.
#[derive(Debug)]
pub struct PortSender(By);

#[derive(Debug)]
enum By {
    Packet(ListSender),
    #[cfg(feature = "xdp")]
    Xdp(XdpQueues),
}

/// The TX rings of one worker on one port.
#[cfg(feature = "xdp")]
#[derive(Debug)]
struct XdpQueues {
    /// By queue.
    senders: Vec<XdpSender>,
    /// For each RX queue of the pipeline, the TX queues that send its packets.
    shares: Vec<TxShare>,
    /// The TX queues that have frames of the present list. It is kept to reuse its memory.
    written: Vec<usize>,
}

/// The TX queues that send what one RX queue received: `first`, and each `step`th queue after it, `count` in all.
#[cfg(feature = "xdp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TxShare {
    first: u32,
    step: u32,
    count: u32,
}

#[cfg(feature = "xdp")]
impl TxShare {
    /// The share of RX queue `queue` of `rx_queues` in `tx_queues`; neither number is 0. If there are more RX queues than
    /// TX queues, several RX queues share a TX queue.
    fn new(queue: usize, rx_queues: usize, tx_queues: usize) -> TxShare {
        let first = queue % tx_queues;
        let count = (tx_queues - first).div_ceil(rx_queues);
        TxShare { first: first as u32, step: rx_queues as u32, count: count as u32 }
    }

    /// The TX queue of a flow. It is picked in the same way as a CPU from the CPU map. So under `rps` each worker uses
    /// few of the queues, and few workers share one. Workers that send by the same queue contend for its locks in the
    /// kernel.
    #[inline]
    fn queue_of(self, hash: u32) -> usize {
        let index = (u64::from(hash) * u64::from(self.count)) >> 32;
        (self.first + self.step * index as u32) as usize
    }
}

/// Why a port can't send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A packet socket of an interface; holds its name.
    #[error(
        "can't send by {0} on a packet socket: {1}; this requires CAP_NET_RAW and an existing interface"
    )]
    Packet(String, #[source] io::Error),
    /// An AF_XDP socket.
    #[cfg(feature = "xdp")]
    #[error(transparent)]
    Xdp(#[from] XdpError),
}

/// An interface that packet sockets receive from, with
/// [`PacketOptions::forwards`](crate::source::packet::PacketOptions::forwards).
#[derive(Clone, Debug)]
pub struct PacketPort {
    /// Its name, in the network namespace of the thread that makes the [`Forwarder`].
    pub name: String,
    /// How many RX queues of the pipeline belong to it: the number of its sources.
    pub rx_queues: usize,
}

impl ForwardPort for PacketPort {
    fn rx_queues(&self) -> usize {
        self.rx_queues
    }

    fn sender(&self) -> Result<PortSender, ForwardError> {
        let sender = ListSender::new(&self.name);
        let sender = sender.map_err(|error| ForwardError::Packet(self.name.clone(), error))?;
        Ok(PortSender(By::Packet(sender)))
    }
}

#[cfg(feature = "xdp")]
impl ForwardPort for XdpPort {
    fn rx_queues(&self) -> usize {
        self.queue_count()
    }

    fn sender(&self) -> Result<PortSender, ForwardError> {
        let senders = (0..self.queue_count()).map(|queue| XdpPort::sender(self, queue));
        let senders = senders.collect::<Result<_, XdpError>>()?;
        Ok(PortSender(By::Xdp(XdpQueues { senders, shares: Vec::new(), written: Vec::new() })))
    }
}

/// A live interface that was opened by [`source::live`](crate::source::live).
#[derive(Debug)]
pub struct LivePort(LivePortBy);

#[derive(Debug)]
enum LivePortBy {
    Packet(PacketPort),
    #[cfg(feature = "xdp")]
    Xdp(XdpPort),
}

impl From<PacketPort> for LivePort {
    fn from(port: PacketPort) -> LivePort {
        LivePort(LivePortBy::Packet(port))
    }
}

#[cfg(feature = "xdp")]
impl From<XdpPort> for LivePort {
    fn from(port: XdpPort) -> LivePort {
        LivePort(LivePortBy::Xdp(port))
    }
}

impl ForwardPort for LivePort {
    fn rx_queues(&self) -> usize {
        match &self.0 {
            LivePortBy::Packet(port) => port.rx_queues(),
            #[cfg(feature = "xdp")]
            LivePortBy::Xdp(port) => port.rx_queues(),
        }
    }

    fn sender(&self) -> Result<PortSender, ForwardError> {
        match &self.0 {
            LivePortBy::Packet(port) => port.sender(),
            #[cfg(feature = "xdp")]
            LivePortBy::Xdp(port) => ForwardPort::sender(port),
        }
    }
}

/// Why no flow may move to another CPU if packet sockets send on this interface, if so: the kernel chooses the TX queue by
/// the CPU that sends, and packets in another queue may be overtaken.
#[must_use]
pub fn why_none_may_move(name: &str, tx_queues: u32) -> Option<String> {
    (tx_queues > 1).then(|| {
        format!(
            "{} has {tx_queues} TX queues, and packet sockets send by the queue of the CPU: a flow that moves to another \
             CPU could be overtaken there",
            printable(name)
        )
    })
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do not send it: the inspector has processed it.
    Keep,
    /// Do not send it, and count it ([`ForwardCounts::refused`]).
    Drop,
    /// Send it by this port, counted from 0. A packet that was captured only in part can't be sent, and neither can one
    /// for a port that does not exist. Such packets count as without room ([`ForwardCounts::unsent`], `tx_full`).
    Send(usize),
}

/// Decides what to do with each packet.
pub trait Inspector: Send + 'static {
    /// Decides what to do with `packet`.
    fn inspect(&mut self, packet: &Packet<'_>) -> Action;

    /// As [`Handler::tick`].
    fn tick(&mut self, cpu: CpuId) {
        let _ = cpu;
    }
}

impl<F: FnMut(&Packet<'_>) -> Action + Send + 'static> Inspector for F {
    fn inspect(&mut self, packet: &Packet<'_>) -> Action {
        self(packet)
    }
}

/// Maps each RX queue to a port and to its number on that port.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// For each RX queue of the pipeline: its port, and its number there.
    pub queues: Vec<(usize, usize)>,
}

impl Wiring {
    /// The wiring of ports whose RX queues are numbered one after the other.
    #[must_use]
    pub fn of(ports: &[impl ForwardPort]) -> Wiring {
        let queues = ports.iter().enumerate();
        let queues =
            queues.flat_map(|(port, about)| (0..about.rx_queues()).map(move |q| (port, q)));
        Wiring { queues: queues.collect() }
    }

    /// The port that a packet arrived on.
    #[must_use]
    pub fn port_of(&self, rx_queue: u16) -> usize {
        self.queues.get(usize::from(rx_queue)).map_or(0, |(port, _)| *port)
    }
}

/// A bridge: each of two ports sends what the other received.
#[derive(Clone, Debug)]
pub struct Bridge {
    wiring: Wiring,
}

impl Bridge {
    /// A bridge between the first two of `ports`.
    #[must_use]
    pub fn between(ports: &[impl ForwardPort]) -> Bridge {
        Bridge { wiring: Wiring::of(ports) }
    }
}

impl Inspector for Bridge {
    #[inline]
    fn inspect(&mut self, packet: &Packet<'_>) -> Action {
        Action::Send(usize::from(self.wiring.port_of(packet.meta().rx_queue) == 0))
    }
}

/// What a worker did, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardCounts {
    /// Handed to the driver.
    pub sent: u64,
    /// Refused by the inspector.
    pub refused: u64,
    /// Meant to be sent, and dropped because there was no room.
    pub unsent: u64,
}

impl ForwardCounts {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &ForwardCounts) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.unsent += other.unsent;
    }
}

/// The handler of one CPU that inspects packets and sends them.
#[derive(Debug)]
pub struct Forwarder<I> {
    inspector: I,
    /// The actions for the packets of the present list.
    actions: Vec<Action>,
    outputs: Outputs,
}

impl<I> Forwarder<I> {
    /// Makes a forwarder for one CPU, with a TX ring on each queue of `ports`, or a socket for each port.
    ///
    /// # Errors
    /// [`ForwardError`] if the kernel provides no socket.
    pub fn new(inspector: I, ports: &[impl ForwardPort]) -> Result<Forwarder<I>, ForwardError> {
        Ok(Forwarder { inspector, actions: Vec::new(), outputs: Outputs::new(ports)? })
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> ForwardCounts {
        self.outputs.counts()
    }

    /// The inspector.
    #[must_use]
    pub fn into_inspector(self) -> I {
        self.inspector
    }
}

impl<I: Inspector> Handler for Forwarder<I> {
    fn handle(&mut self, list: &PacketList<'_>) {
        self.actions.clear();
        self.actions.extend(list.iter().map(|packet| self.inspector.inspect(&packet)));
        self.outputs.forward(list, &self.actions);
    }

    fn tick(&mut self, cpu: CpuId) {
        self.inspector.tick(cpu);
    }

    fn take_unsent(&mut self) -> u64 {
        self.outputs.take_unsent()
    }
}

/// The senders of one worker on all ports: for a [`Handler`] that decides about whole lists. A [`Forwarder`] decides packet
/// by packet.
#[derive(Debug)]
pub struct Outputs {
    /// By port.
    senders: Vec<PortSender>,
    counts: ForwardCounts,
    /// The part of `counts.unsent` that was not yet taken.
    unsent: u64,
}

impl Outputs {
    /// Makes a TX ring on each queue of `ports`, or a socket for each port.
    ///
    /// # Errors
    /// [`ForwardError`] if the kernel provides no socket.
    pub fn new(ports: &[impl ForwardPort]) -> Result<Outputs, ForwardError> {
        let senders = ports.iter().map(ForwardPort::sender).collect::<Result<Vec<_>, _>>()?;
        #[cfg(feature = "xdp")]
        let senders = with_shares(senders, &Wiring::of(ports));
        Ok(Outputs { senders, counts: ForwardCounts::default(), unsent: 0 })
    }

    /// The number of ports to send by.
    #[must_use]
    pub fn port_count(&self) -> usize {
        self.senders.len()
    }

    /// Does what `actions` has for each packet of `list`, in order, and counts it. Call it before the handler returns:
    /// only then are the flows in order on the wire. Packets beyond the end of `actions` are kept.
    pub fn forward(&mut self, list: &PacketList<'_>, actions: &[Action]) {
        let mut to_send = 0;
        for action in actions {
            self.counts.refused += u64::from(*action == Action::Drop);
            to_send += u64::from(matches!(action, Action::Send(_)));
        }
        if to_send == 0 {
            return;
        }
        let sent = self.send(list, actions);
        self.counts.sent += sent;
        self.counts.unsent += to_send - sent;
        self.unsent += to_send - sent;
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> ForwardCounts {
        self.counts
    }

    /// How many packets were not sent since the last call, for [`Handler::take_unsent`].
    pub fn take_unsent(&mut self) -> u64 {
        std::mem::take(&mut self.unsent)
    }

    /// Sends the packets of a list that are to be sent. Returns how many the drivers took.
    fn send(&mut self, list: &PacketList<'_>, actions: &[Action]) -> u64 {
        let mut sent = 0;
        for (port, sender) in self.senders.iter_mut().enumerate() {
            let wanted = Action::Send(port);
            if !actions.contains(&wanted) {
                continue;
            }
            let frames = list.packets.iter().zip(actions);
            let frames = frames.filter(|(_, action)| **action == wanted);
            let frames =
                frames.map(|(packet, _)| (&list.block.frames()[packet.frame()], packet.hash));
            // A frame that was cut off can't be sent.
            let frames = frames.filter(|(frame, _)| frame.captured_len >= frame.wire_len);
            sent += match &mut sender.0 {
                By::Packet(sender) => {
                    let block = &list.block;
                    let frames = frames.map(|(frame, _)| frame);
                    sender
                        .send(frames.map(|frame| (block.send_header(frame), block.bytes_of(frame))))
                }
                #[cfg(feature = "xdp")]
                By::Xdp(queues) => queues.send(list, frames),
            };
        }
        sent
    }
}

/// The same, which know the RX queues.
#[cfg(feature = "xdp")]
fn with_shares(mut senders: Vec<PortSender>, wiring: &Wiring) -> Vec<PortSender> {
    for PortSender(by) in &mut senders {
        let By::Xdp(queues) = by else { continue };
        let shares = wiring.queues.iter().map(|(port, queue)| {
            let rx_queues = wiring.queues.iter().filter(|(other, _)| other == port).count();
            TxShare::new(*queue, rx_queues, queues.senders.len())
        });
        queues.shares = shares.collect();
    }
    senders
}

#[cfg(feature = "xdp")]
impl XdpQueues {
    /// Sends frames of a list, each with its flow hash, from where they are stored. Returns how many the driver took.
    fn send<'a>(
        &mut self,
        list: &PacketList<'_>,
        frames: impl Iterator<Item = (&'a FrameMeta, u32)>,
    ) -> u64 {
        let Some(lent) = list.block.lent() else { return 0 };
        let mut frames = frames.peekable();
        // All frames of a block were received on one queue.
        let share =
            frames.peek().and_then(|(frame, _)| self.shares.get(usize::from(frame.rx_queue)));
        let Some(share) = share.copied() else { return 0 };
        let mut sent = 0_u64;
        while let Some((frame, hash)) = frames.next() {
            let queue = share.queue_of(hash);
            let Some(mut sending) = self.senders[queue].frames_of(lent) else { return 0 };
            sent += u64::from(sending.push(frame.offset, frame.captured_len));
            while let Some((frame, _)) = frames.next_if(|(_, hash)| share.queue_of(*hash) == queue)
            {
                sent += u64::from(sending.push(frame.offset, frame.captured_len));
            }
            // A full ring is flushed too: its frames are sent when the driver accepts frames again.
            if !self.written.contains(&queue) {
                self.written.push(queue);
            }
        }
        for queue in self.written.drain(..) {
            sent = sent.saturating_sub(u64::from(self.senders[queue].flush().dropped));
        }
        sent
    }
}

#[cfg(all(test, feature = "xdp"))]
mod tests {
    use super::*;

    #[test]
    fn tx_queues_are_shared_out_to_rx_queues() {
        let hashes = [0, 1, 1 << 30, 1 << 31, u32::MAX];
        for (rx_queues, tx_queues) in [(1, 1), (1, 16), (4, 4), (3, 8), (16, 4), (5, 7)] {
            let mut used = vec![0; tx_queues];
            for queue in 0..rx_queues {
                let share = TxShare::new(queue, rx_queues, tx_queues);
                assert!(hashes.iter().all(|hash| share.queue_of(*hash) < tx_queues), "{share:?}");
                for index in 0..share.count {
                    used[(share.first + share.step * index) as usize] += 1;
                }
            }
            // Each RX queue has a TX queue; with fewer RX queues, each TX queue serves one of them.
            let most = rx_queues.div_ceil(tx_queues);
            assert!(used.iter().all(|users| (1..=most).contains(users)), "{used:?}");
        }
        let all = TxShare::new(0, 1, 4);
        assert_eq!(hashes.map(|hash| all.queue_of(hash)), [0, 0, 1, 2, 3]);
    }
}
