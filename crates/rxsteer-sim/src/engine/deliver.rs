//! The life of packets: the order check, where packets go after their processing, what far hosts do with them, and
//! which packets are lost.
//!
//! Far hosts cost nothing and react at once. So a far host's reaction follows from the frame it receives, and is
//! planned when that frame is sent: its answers are put on the wire with their times of arrival. Frames wait for a
//! wire in the order in which they are planned.

use super::World;
use super::calendar::Other;
use super::nic::Watch;
use super::packet::{BURST, Packet, Role};
use crate::scenario::{Load, Stream};
use rand_distr::{Distribution, Exp1};

/// The time after which a client repeats a request that was lost.
const RETRY_NS: u64 = 200_000_000;

impl<'a> World<'a> {
    pub(crate) fn is_measured(&self) -> bool {
        self.now >= self.from_ns
    }

    /// A far host passes a frame of `flow` to its NIC at `at_ns`.
    pub(crate) fn emit(&mut self, flow: u32, at_ns: u64, bytes: u32, data: u32, more: u32) {
        let entry = &mut self.flows[flow as usize];
        entry.sent = entry.sent.wrapping_add(1);
        let arrived_ns = self.links[usize::from(entry.nic)].receive(at_ns, bytes);
        let packet =
            Packet { arrived_ns, flow, number: entry.sent, data, more, bytes, cpu: 0, producer: 0 };
        let queue = entry.queue;
        let rx = &mut self.queues[queue as usize];
        rx.wire.push_back(packet);
        if rx.watch == Watch::Armed
            && let Some(at_ns) = rx.next_interrupt(self.now)
        {
            rx.watch = Watch::Noted;
            self.calendar.note_interrupt(queue, at_ns);
        }
    }

    /// Drops the frames that found a full ring.
    pub(crate) fn lose_refused(&mut self, queue: u32) {
        while let Some(packet) = self.queues[queue as usize].refused.pop() {
            self.account.ring_full += 1;
            self.lost(&packet);
        }
    }

    /// Records that a packet was lost on its way.
    pub(crate) fn lost(&mut self, packet: &Packet) {
        let (traffic, role) = {
            let flow = &self.flows[packet.flow as usize];
            (usize::from(flow.traffic), flow.role)
        };
        if self.is_measured() {
            self.results[traffic].lost += 1;
        }
        if packet.data == BURST {
            return;
        }
        match role {
            Role::Data(connection) | Role::Ack(connection) => {
                self.streams[connection as usize].alive -= 1;
                self.wait_if_stalled(connection);
            }
            Role::Request(connection) => {
                self.calendar.note(self.now + RETRY_NS, Other::Request { connection });
            }
            Role::Packet(_) => {}
        }
    }

    /// Records that the processing of a packet begins on `cpu`, and checks the order.
    ///
    /// A packet is in order if every earlier packet of its flow has begun. If the previous packet began on another
    /// CPU, its processing must also have ended.
    #[inline]
    pub(crate) fn begins(&mut self, cpu: u16, packet: &Packet) {
        let is_measured = self.is_measured();
        let flow = &mut self.flows[packet.flow as usize];
        let has_moved = flow.cpu != cpu && flow.started != 0;
        let is_late = packet.number.wrapping_sub(flow.started) as i32 <= 0;
        if is_late || has_moved && flow.ended != flow.started {
            self.reordered += 1;
        }
        self.moves += u64::from(has_moved && is_measured);
        flow.cpu = cpu;
        if !is_late {
            flow.started = packet.number;
        }
    }

    /// Records that the processing of a packet, which had room in this backlog, has ended on `cpu`.
    #[inline]
    pub(crate) fn processed(&mut self, cpu: u16, backlog: usize, packet: &Packet) {
        self.backlogs.complete(backlog, packet.producer);
        self.account.processed += 1;
        self.cpus[usize::from(cpu)].packets += u64::from(self.is_measured());
        self.cpus[usize::from(cpu)].processed += 1;
        let flow = &mut self.flows[packet.flow as usize];
        if packet.number.wrapping_sub(flow.ended) as i32 <= 0 {
            self.reordered += 1;
        } else {
            flow.ended = packet.number;
        }
        let role = flow.role;
        match (flow.out, role) {
            _ if packet.data == BURST => self.account.ended += 1,
            (Some(out), _) => self.forwarded(packet, role, out),
            (None, Role::Data(connection)) => {
                let reads = self.stream(connection).application > 0.0;
                if reads {
                    let thread = self.reader_of[connection as usize];
                    self.give_or_lose(thread, cpu, packet);
                } else {
                    self.account.ended += 1;
                    self.reached(packet, self.now);
                    self.stream_data_came(connection, packet, self.now);
                }
            }
            (None, Role::Request(connection)) => {
                let thread = self.clients[connection as usize].thread;
                self.give_or_lose(thread, cpu, packet);
            }
            (None, Role::Packet(thread)) if thread > 0 => {
                self.give_or_lose(thread - 1, cpu, packet);
            }
            (None, Role::Packet(_)) => {
                self.account.ended += 1;
                self.reached(packet, self.now);
            }
            (None, Role::Ack(connection)) => {
                self.account.ended += 1;
                self.acknowledged(connection, packet, self.now);
            }
        }
    }

    fn give_or_lose(&mut self, thread: u32, cpu: u16, packet: &Packet) {
        if !self.give(thread, cpu, *packet) {
            self.socket_full += u64::from(self.is_measured());
            self.account.no_room += 1;
            self.lost(packet);
        }
    }

    fn forwarded(&mut self, packet: &Packet, role: Role, out: u16) {
        if self.links[usize::from(out)].is_full(self.now, packet.bytes) {
            self.tx_full += u64::from(self.is_measured());
            self.account.no_room += 1;
            self.lost(packet);
            return;
        }
        self.account.ended += 1;
        let there = self.links[usize::from(out)].send(self.now, packet.bytes);
        match role {
            Role::Data(connection) => {
                self.reached(packet, self.now);
                self.forwarded_data_came(connection, packet, there);
            }
            Role::Ack(connection) => self.acknowledged(connection, packet, there),
            Role::Request(_) | Role::Packet(_) => self.reached(packet, self.now),
        }
    }

    /// Records that a packet has reached its destination; its latency ends at `now`.
    pub(crate) fn reached(&mut self, packet: &Packet, now: u64) {
        if !self.is_measured() {
            return;
        }
        let flow = &mut self.flows[packet.flow as usize];
        flow.arrived += 1;
        let result = &mut self.results[usize::from(flow.traffic)];
        result.packets += 1;
        result.bytes += u64::from(packet.bytes);
        result.latency.note(now.saturating_sub(packet.arrived_ns));
    }

    // -----------------------------------------------------------------------------------------
    // Streams

    /// The settings of the connection's stream.
    pub(crate) fn stream(&self, connection: u32) -> &'a Stream {
        let traffic = usize::from(self.streams[connection as usize].traffic);
        match &self.scenario.traffic[traffic].load {
            Load::Stream(stream) => stream,
            _ => unreachable!("a stream's state belongs to a stream's traffic"),
        }
    }

    /// Sends the packets that the sender's window allows.
    pub(crate) fn stream_sends(&mut self, connection: u32, at_ns: u64) {
        let settings = self.stream(connection);
        while let Some(number) = self.streams[connection as usize].next(settings.window) {
            let flow = self.streams[connection as usize].data_flow;
            self.emit(flow, at_ns, settings.frame_bytes, number, 0);
        }
    }

    /// Whether the receiver, which just got this packet, acknowledges now. Returns the acknowledgement's contents.
    fn acknowledgement(&mut self, connection: u32, packet: &Packet) -> Option<(u32, u32)> {
        let each = self.stream(connection).packets_per_ack;
        let stream = &mut self.streams[connection as usize];
        let is_missing = stream.receiver.receive(packet.data);
        stream.alive -= 1;
        let receiver = &mut stream.receiver;
        // A receiver that expects no more packets soon does not wait.
        if receiver.unacked < each && !is_missing && stream.alive > 0 {
            return None;
        }
        receiver.unacked = 0;
        Some((receiver.received, receiver.missing))
    }

    /// Data has reached its receiver, beyond the NIC that forwarded it.
    fn forwarded_data_came(&mut self, connection: u32, packet: &Packet, at_ns: u64) {
        if let Some((received, missing)) = self.acknowledgement(connection, packet) {
            let bytes = self.stream(connection).ack_bytes;
            let stream = &mut self.streams[connection as usize];
            stream.alive += 1;
            let flow = stream.ack_flow;
            self.emit(flow, at_ns, bytes, received, missing);
        }
    }

    /// Data has reached its receiver, which is this machine.
    pub(crate) fn stream_data_came(&mut self, connection: u32, packet: &Packet, now: u64) {
        if let Some((received, missing)) = self.acknowledgement(connection, packet) {
            let settings = self.stream(connection);
            let nic = self.flows[packet.flow as usize].nic;
            let there = self.links[usize::from(nic)].send(now, settings.ack_bytes);
            self.streams[connection as usize].acknowledged(received, missing, settings.window);
            self.stream_sends(connection, there);
        }
        self.wait_if_stalled(connection);
    }

    /// An acknowledgement has reached the sender.
    fn acknowledged(&mut self, connection: u32, packet: &Packet, at_ns: u64) {
        let most = self.stream(connection).window;
        let stream = &mut self.streams[connection as usize];
        stream.alive -= 1;
        stream.acknowledged(packet.data, packet.more, most);
        self.stream_sends(connection, at_ns);
        self.wait_if_stalled(connection);
    }

    /// Starts the stream's timer if no packet of the stream is under way any more.
    fn wait_if_stalled(&mut self, connection: u32) {
        if self.streams[connection as usize].alive == 0 {
            let at_ns = self.now + self.stream(connection).min_rto_ns;
            self.calendar.note(at_ns, Other::Timeout { connection });
        }
    }

    /// The timer of a stream expires.
    pub(crate) fn timeout(&mut self, connection: u32) {
        if self.streams[connection as usize].alive == 0 {
            self.streams[connection as usize].time_out();
            self.stream_sends(connection, self.now);
        }
    }

    // -----------------------------------------------------------------------------------------
    // Requests

    /// The client sends its request, or repeats it.
    pub(crate) fn request(&mut self, connection: u32, at_ns: u64) {
        let client = &mut self.clients[connection as usize];
        if client.requested_ns == u64::MAX {
            client.requested_ns = at_ns;
        }
        let (flow, bytes) = (client.flow, client.request_bytes);
        self.emit(flow, at_ns, bytes, 0, 0);
    }

    /// A thread has served the request: the answer goes to the client, which pauses and sends its next request.
    pub(crate) fn answer(&mut self, connection: u32, packet: &Packet) {
        let flow = &mut self.flows[packet.flow as usize];
        let traffic = usize::from(flow.traffic);
        let Load::Requests(requests) = &self.scenario.traffic[traffic].load else { return };
        let there = self.links[usize::from(flow.nic)].send(self.now, requests.response_bytes);
        let client = &mut self.clients[connection as usize];
        let took = there.saturating_sub(client.requested_ns);
        client.requested_ns = u64::MAX;
        if self.now >= self.from_ns {
            flow.arrived += 1;
            let result = &mut self.results[traffic];
            result.packets += 1;
            result.bytes += u64::from(packet.bytes);
            result.latency.note(took);
        }
        if requests.think_ns > 0.0 {
            let pause: f64 = Exp1.sample(&mut self.rng);
            let at_ns = there + (pause * requests.think_ns) as u64;
            self.calendar.note(at_ns, Other::Request { connection });
        } else {
            self.request(connection, there);
        }
    }
}
