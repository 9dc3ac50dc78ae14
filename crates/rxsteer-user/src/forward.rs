//! Packets out again: an inspector says of each packet what becomes of it, and the worker sends it from where it lies.
//!
//! ```text
//!  RX queue ─► worker: inspect ─► Action::Send(port) ─► TX ring of this worker ─► NIC
//! ```
//!
//! What must hold: packets of a list are with the driver before they count as completed. Only then may a flow's next
//! packets run on another CPU, so order per flow holds on the wire as it does in handlers. A flow goes out by the queue
//! that it came in by, whatever worker sends it.

use crate::handler::{Handler, Packet, PacketList};
use rxsteer_io::xdp::{XdpError, XdpPort, XdpSender};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes no further: the inspector has had what it wanted of it.
    Keep,
    /// It goes no further, and is counted ([`ForwardCounts::refused`]).
    Drop,
    /// It is sent by this port, counted from 0.
    Send(usize),
}

/// Says of each packet what becomes of it.
pub trait Inspector: Send + 'static {
    /// What becomes of `packet`.
    fn inspect(&mut self, packet: &Packet<'_>) -> Action;
}

impl<F: FnMut(&Packet<'_>) -> Action + Send + 'static> Inspector for F {
    fn inspect(&mut self, packet: &Packet<'_>) -> Action {
        self(packet)
    }
}

/// Which port sends what another received, and by which of its queues.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// By RX queue of the instance: its port, and its number there.
    pub queues: Vec<(usize, usize)>,
}

impl Wiring {
    /// Of ports whose RX queues are numbered one after the other.
    #[must_use]
    pub fn of(ports: &[XdpPort]) -> Wiring {
        let queues = ports.iter().enumerate();
        let queues =
            queues.flat_map(|(port, about)| (0..about.queue_count()).map(move |q| (port, q)));
        Wiring { queues: queues.collect() }
    }

    /// The port that a packet came in by.
    #[must_use]
    pub fn port_of(&self, rx_queue: u16) -> usize {
        self.queues.get(usize::from(rx_queue)).map_or(0, |(port, _)| *port)
    }
}

/// Sends by one of two ports what the other received.
#[derive(Clone, Debug)]
pub struct Bridge {
    wiring: Wiring,
}

impl Bridge {
    /// Between the first two of `ports`.
    #[must_use]
    pub fn between(ports: &[XdpPort]) -> Bridge {
        Bridge { wiring: Wiring::of(ports) }
    }
}

impl Inspector for Bridge {
    #[inline]
    fn inspect(&mut self, packet: &Packet<'_>) -> Action {
        Action::Send(usize::from(self.wiring.port_of(packet.meta().rx_queue) == 0))
    }
}

/// What a worker did with packets, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardCounts {
    /// Handed to the driver.
    pub sent: u64,
    /// Refused by the inspector.
    pub refused: u64,
    /// To be sent, and dropped for want of room.
    pub unsent: u64,
}

impl ForwardCounts {
    /// Counts all of `other` too.
    pub fn merge(&mut self, other: &ForwardCounts) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.unsent += other.unsent;
    }
}

/// The handler of one CPU that inspects packets and sends them on.
#[derive(Debug)]
pub struct Forwarder<I> {
    inspector: I,
    wiring: Wiring,
    /// By port and queue.
    senders: Vec<Vec<XdpSender>>,
    /// What becomes of the packets of the list in hand.
    actions: Vec<Action>,
    counts: ForwardCounts,
    /// Of `counts.unsent`, what was not asked for yet.
    unsent: u64,
}

impl<I> Forwarder<I> {
    /// For one CPU, with a TX ring on each queue of `ports`.
    ///
    /// # Errors
    /// [`XdpError`], when the kernel gives no socket.
    pub fn new(inspector: I, ports: &[XdpPort]) -> Result<Forwarder<I>, XdpError> {
        let of_port = |port: &XdpPort| (0..port.queue_count()).map(|q| port.sender(q)).collect();
        let senders = ports.iter().map(of_port).collect::<Result<_, XdpError>>()?;
        let wiring = Wiring::of(ports);
        let counts = ForwardCounts::default();
        Ok(Forwarder { inspector, wiring, senders, actions: Vec::new(), counts, unsent: 0 })
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> ForwardCounts {
        self.counts
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
        let mut to_send = 0;
        for packet in list.iter() {
            let action = self.inspector.inspect(&packet);
            self.counts.refused += u64::from(action == Action::Drop);
            to_send += u64::from(matches!(action, Action::Send(_)));
            self.actions.push(action);
        }
        if to_send == 0 {
            return;
        }
        let sent = self.send(list);
        self.counts.sent += sent;
        self.counts.unsent += to_send - sent;
        self.unsent += to_send - sent;
    }

    fn take_unsent(&mut self) -> u64 {
        std::mem::take(&mut self.unsent)
    }
}

impl<I> Forwarder<I> {
    /// Sends what is to be sent of a list; how many packets the drivers took.
    fn send(&mut self, list: &PacketList<'_>) -> u64 {
        let Some(lent) = list.block.lent() else { return 0 };
        // A block's frames were received by one queue.
        let first = list.packets.first().map(|first| list.block.frames()[first.frame()].rx_queue);
        let queue = first.and_then(|rx_queue| self.wiring.queues.get(usize::from(rx_queue)));
        let queue = queue.map_or(0, |(_, queue)| *queue);
        let mut sent = 0;
        for (port, senders) in self.senders.iter_mut().enumerate() {
            let wanted = Action::Send(port);
            if !self.actions.contains(&wanted) {
                continue;
            }
            let queues = senders.len();
            let sender = &mut senders[queue % queues];
            let Some(mut sending) = sender.frames_of(lent) else { continue };
            let mut pushed = 0;
            for (packet, action) in list.packets.iter().zip(&self.actions) {
                if *action == wanted {
                    let frame = &list.block.frames()[packet.frame()];
                    pushed += u64::from(sending.push(frame.offset, frame.captured_len));
                }
            }
            sent += pushed.saturating_sub(u64::from(sender.flush().dropped));
        }
        sent
    }
}
