//! The interface of a packet application: a handler, which is called with lists of packets on the chosen CPU.

use crate::backlog::Descriptor;
use crate::block::{Block, FlowNumber, FrameMeta};
use rxsteer_core::{CpuId, FlowHash, FlowKey, SockFlowTable};
use rxsteer_packet::{DissectOptions, Dissection, FlowOfFrame, FrameClass, dissect, flow_of};

/// Processes packets on one CPU. Each worker has a separate handler, so a handler needs no locks.
///
/// A handler is not called while no packets arrive, except for [`Handler::tick`] if
/// [`PipelineConfig::tick`](crate::PipelineConfig::tick) is set.
pub trait Handler: Send + 'static {
    /// Processes the packets of `list`, oldest first. When it returns, they count as completed: later packets of their
    /// flows may then run on another CPU.
    ///
    /// If it panics, the list counts as dropped (`worker_lost`), this worker ends, and another worker takes over the
    /// waiting packets.
    fn handle(&mut self, list: &PacketList<'_>);

    /// The worker of `cpu` calls this about every [`PipelineConfig::tick`](crate::PipelineConfig::tick), between two
    /// lists and also while no packet arrives. Use it for timeouts and to publish counts. The first call comes one
    /// interval after the start. A long list delays the call, and missed calls are not made up for. The calls end when
    /// the last packet was processed and no more can come. The owner of the pipeline then gets the handlers with the data
    /// that they still hold.
    ///
    /// If it panics, this worker ends as after a panic in [`Handler::handle`], but no list is lost.
    fn tick(&mut self, cpu: CpuId) {
        let _ = cpu;
    }

    /// Returns how many packets it could not send on since the last call. They count as dropped (`tx_full`), not as
    /// delivered.
    fn take_unsent(&mut self) -> u64 {
        0
    }
}

impl<F: FnMut(&PacketList<'_>) + Send + 'static> Handler for F {
    fn handle(&mut self, list: &PacketList<'_>) {
        self(list);
    }
}

/// Packets that reached one CPU together: at most 64, like the kernel's NAPI weight.
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

    /// The number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the list is empty. A handler is never called with an empty list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Records that the application that consumes the flow of `hash` runs on `cpu` from now on: `rfs` steers the flow
    /// there. Call it where the data is consumed, as the kernel does in `recvmsg`. A thread outside of a handler uses a
    /// [`crate::FlowRecorder`].
    #[inline]
    pub fn record(&self, hash: FlowHash, cpu: CpuId) {
        self.socks.record(hash, cpu);
    }

    /// Records that the flow of `hash` has ended. A later flow with this hash does not inherit its CPU.
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

/// One packet of a list.
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

    /// The receive time, lengths, RX queue and link type.
    #[must_use]
    pub fn meta(&self) -> &'a FrameMeta {
        &self.block.frames[self.index]
    }

    /// Reads the headers: the key, the ports, the offsets of the headers. It looks into tunnels as steering does.
    ///
    /// The RX thread hands off only the hash, so this call reads the headers again: a key would add 40 bytes to a
    /// descriptor of 16 bytes, and most handlers read the frame anyway.
    #[inline]
    #[must_use]
    pub fn dissect(&self) -> Dissection {
        dissect(self.meta().link, self.bytes(), self.options)
    }

    /// The directed flow key that the packet was steered by, read as by [`Packet::dissect`]: fragments have no ports.
    /// `None` for a frame without an IP packet, or whose IP header can't be read.
    ///
    /// If the NIC provided the hash, that hash steered the packet, and this is the key in its headers.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<FlowKey> {
        let dissection = self.dissect();
        (dissection.class == FrameClass::Ip).then_some(dissection.key)
    }

    /// Reads only what flow statistics need: [`Dissection::flow`] and the TCP flags. It takes less time than
    /// [`Packet::dissect`].
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

    /// The number of the packet in its flow, if order is checked.
    pub(crate) fn number(&self) -> Option<FlowNumber> {
        self.block.numbers.get(self.index).copied()
    }

    /// The RX thread that numbered it.
    pub(crate) fn numbered_by(&self) -> usize {
        self.block.numbered_by
    }
}
