//! What a packet application implements: a handler, called with lists of packets on the chosen CPU.

use crate::backlog::Descriptor;
use crate::block::{Block, FlowNumber, FrameMeta};
use rxsteer_core::{CpuId, FlowHash, FlowKey, SockFlowTable};
use rxsteer_packet::{DissectOptions, Dissection, FlowOfFrame, FrameClass, dissect, flow_of};

/// Processes packets on one CPU. Each worker has a handler of its own, so it needs no locks.
///
/// On a quiet CPU it is not called, unless [`PipelineConfig::tick`](crate::PipelineConfig::tick) asks for [`Handler::tick`].
pub trait Handler: Send + 'static {
    /// Processes the packets of `list`, oldest first. When it returns, they count as completed:
    /// later packets of their flows may then run on another CPU.
    ///
    /// Should it panic, the list is counted as dropped (`worker_lost`), this worker ends, and
    /// another takes over what waits.
    fn handle(&mut self, list: &PacketList<'_>);

    /// Called on the worker of `cpu` about every [`PipelineConfig::tick`](crate::PipelineConfig::tick), between two lists and also
    /// while no packet arrives: the place for timeouts and for counts to pass on. The first call comes one interval after the
    /// start. Lists that take long delay a call, and calls that are missed are not made up for. No call comes after the
    /// last packet was processed and no more can come; what is left then, the owner of the pipeline gets with the handlers.
    ///
    /// Should it panic, this worker ends as by a panic in [`Handler::handle`], without a list that is lost.
    fn tick(&mut self, cpu: CpuId) {
        let _ = cpu;
    }

    /// Packets that it could not send on since it was asked last: they count as dropped (`tx_full`), not as delivered.
    fn take_unsent(&mut self) -> u64 {
        0
    }
}

impl<F: FnMut(&PacketList<'_>) + Send + 'static> Handler for F {
    fn handle(&mut self, list: &PacketList<'_>) {
        self(list);
    }
}

/// Packets that reached one CPU together: at most 64, as the kernel's NAPI weight.
#[derive(Clone, Copy, Debug)]
pub struct PacketList<'a> {
    pub(crate) cpu: CpuId,
    pub(crate) block: &'a Block,
    pub(crate) packets: &'a [Descriptor],
    pub(crate) socks: &'a SockFlowTable,
    /// How far the RX thread looked into the frames.
    pub(crate) options: DissectOptions,
}

impl<'a> PacketList<'a> {
    /// The CPU whose worker processes them.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// How many packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there is none; a handler is never called with such a list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The application that consumes the flow of `hash` runs on `cpu` from now on: `rfs` steers the
    /// flow there. To be called where the data is consumed, as the kernel's `recvmsg` does it; a
    /// thread that is no handler uses a [`crate::FlowRecorder`].
    #[inline]
    pub fn record(&self, hash: FlowHash, cpu: CpuId) {
        self.socks.record(hash, cpu);
    }

    /// The flow of `hash` has ended; a later one with this hash does not inherit its CPU.
    #[inline]
    pub fn forget(&self, hash: FlowHash) {
        self.socks.forget(hash);
    }

    /// The packets, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Packet<'a>> + use<'a> {
        let (block, options) = (self.block, self.options);
        self.packets.iter().map(move |descriptor| Packet {
            block,
            index: descriptor.frame(),
            hash: descriptor.hash,
            options,
        })
    }
}

/// One packet, as a handler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    block: &'a Block,
    index: usize,
    hash: u32,
    options: DissectOptions,
}

impl<'a> Packet<'a> {
    /// The bytes captured, from the link header on.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.block.bytes_of(self.meta())
    }

    /// Its receive time, lengths, RX queue and link type.
    #[must_use]
    pub fn meta(&self) -> &'a FrameMeta {
        &self.block.frames[self.index]
    }

    /// What its headers say: the key, the ports, where the headers begin. Tunnels are entered as for steering.
    ///
    /// The headers are read when this is called, since the RX thread hands over no more than the hash: a key is 40
    /// bytes beside a descriptor of 16, and most handlers read the frame anyway.
    #[inline]
    #[must_use]
    pub fn dissect(&self) -> Dissection {
        dissect(self.meta().link, self.bytes(), self.options)
    }

    /// The directed flow key that it was steered by, read as by [`Packet::dissect`]: fragments have no ports. `None`
    /// for a frame that carries no IP packet, or whose IP header can't be read.
    ///
    /// Where the NIC gave the hash, the packet was steered by that, and this is what its headers say.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<FlowKey> {
        let dissection = self.dissect();
        (dissection.class == FrameClass::Ip).then_some(dissection.key)
    }

    /// What flow statistics need to know of it: [`Dissection::flow`] and the TCP flags, read in less time.
    #[inline]
    #[must_use]
    pub fn flow(&self) -> Option<FlowOfFrame> {
        flow_of(self.meta().link, self.bytes(), self.options)
    }

    /// The hash it was steered by.
    #[must_use]
    pub fn hash(&self) -> FlowHash {
        FlowHash::from_raw(self.hash)
    }

    /// Its number in its flow, where order is checked.
    pub(crate) fn number(&self) -> Option<FlowNumber> {
        self.block.numbers.get(self.index).copied()
    }

    /// Which RX thread numbered it.
    pub(crate) fn numbered_by(&self) -> usize {
        self.block.numbered_by
    }
}
