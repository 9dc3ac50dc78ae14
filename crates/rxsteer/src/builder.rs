//! The configuration of a receive path, and its start.

use rxsteer_core::{CpuId, CpuSet, Fallback, PacketRule, Policy};
use rxsteer_packet::{Hasher, TunnelKinds};
use rxsteer_user::source::Source;
use rxsteer_user::source::live::LiveInterface;
use rxsteer_user::{
    Control, Handler, OnFull, Pipeline, PipelineConfig, PipelineError, Receiver, Report, Speed,
    SteerChange, When,
};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The configuration of a receive path: the policy, the CPUs, and the settings that differ from the defaults.
///
/// By default one thread receives one RX queue on the lowest CPU. Packets are steered by a symmetric hash with a new
/// random key. A packet whose backlog is full is dropped. Threads are pinned, and the order of packets is not checked.
///
/// ```
/// use rxsteer::source::SyntheticSource;
/// use rxsteer::{OnFull, PacketList, PipelineBuilder, Policy};
///
/// let mut source = SyntheticSource::new("packets=1000,flows=10".parse()?, 1, (0, 1));
/// let report = PipelineBuilder::new(Policy::Rps, "0-3".parse()?)
///     .on_full(OnFull::Wait)
///     .check_order(true)
///     .run(&mut source, |_cpu| |_list: &PacketList<'_>| {})?;
/// assert_eq!((report.delivered, report.reordered), (1000, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing by itself"]
pub struct PipelineBuilder {
    config: PipelineConfig,
    speed: Speed,
    stop: Arc<AtomicBool>,
}

/// Steering.
impl PipelineBuilder {
    /// Steers packets by `policy` to `cpus`. Each of these CPUs gets a worker, and so does every other CPU that a packet
    /// can go to.
    pub fn new(policy: Policy, cpus: CpuSet) -> PipelineBuilder {
        PipelineBuilder {
            config: PipelineConfig::new(policy, cpus),
            speed: Speed::Max,
            stop: Arc::default(),
        }
    }

    /// Sets a separate CPU map for one RX queue, for policies that use maps. Call it once for each such queue.
    pub fn rps_map(mut self, rx_queue: u16, cpus: CpuSet) -> PipelineBuilder {
        self.config.rps_maps.push((rx_queue.into(), cpus));
        self
    }

    /// Sets the rules that are applied before the policy. The first rule that matches a packet decides where the packet
    /// goes. By default there are no rules.
    pub fn rules(mut self, rules: Vec<PacketRule>) -> PipelineBuilder {
        self.config.packet_rules = rules;
        self
    }

    /// Sets how a flow is placed if nothing else places it, for policies that remember flows.
    pub fn fallback(mut self, fallback: Fallback) -> PipelineBuilder {
        self.config.fallback = fallback;
        self
    }

    /// Sets the CPUs that `rfs` may send a flow to because its application runs there. The default is every CPU with a
    /// worker. Other policies ignore this setting.
    pub fn rfs_cpus(mut self, cpus: CpuSet) -> PipelineBuilder {
        self.config.rfs_cpus = Some(cpus);
        self
    }

    /// Sets CPUs that get a worker although no packet is sent there yet. A [`SteerChange`] may name them, and
    /// applications may run there. CPUs that [`PipelineBuilder::change_at`] names get a worker in any case.
    pub fn standby(mut self, cpus: CpuSet) -> PipelineBuilder {
        self.config.standby = Some(cpus);
        self
    }

    /// Sets the number of entries of the sock flow table, for `rfs`: 1 to 67,108,864, rounded up to a power of two. The
    /// default is 32,768.
    pub fn sock_flow_entries(mut self, entries: u32) -> PipelineBuilder {
        self.config.sock_flow_entries = entries;
        self
    }

    /// Sets the number of entries of each RX queue's flow table, for policies that remember flows: 1 to 16,777,216,
    /// rounded up to a power of two. The default depends on the number of queues.
    pub fn flow_cnt(mut self, entries: u32) -> PipelineBuilder {
        self.config.flow_cnt = Some(entries);
        self
    }

    /// Sets a flow limit with this number of buckets, 1 to 1,048,576. By default there is no flow limit.
    pub fn flow_limit(mut self, buckets: u32) -> PipelineBuilder {
        self.config.flow_limit = Some(buckets);
        self
    }

    /// Sets the flow hash. The default is a symmetric hash with a new random key for each builder.
    pub fn hasher(mut self, hasher: Hasher) -> PipelineBuilder {
        self.config.hasher = hasher;
        self
    }

    /// If true, the flow key of a packet in an IPIP, 6in4, GRE, VXLAN, Geneve or GTP-U tunnel is taken from the inner
    /// packet. The outer addresses are those of the two tunnel ends: they would put all packets of a tunnel on one CPU.
    /// The default is false.
    pub fn look_into_tunnels(mut self, inner: bool) -> PipelineBuilder {
        self.config.dissect.inner = inner;
        self
    }

    /// Sets the kinds of tunnels whose tunnel number replaces the ports in the key, where the inner packet is not read.
    /// The default is none. Each direction of such a tunnel has a separate number.
    pub fn key_tunnels(mut self, kinds: TunnelKinds) -> PipelineBuilder {
        self.config.dissect.key_tunnels = kinds;
        self
    }

    /// Plans a change of settings. It takes effect at the first batch that begins when the change is due. Changes are
    /// made in the order of the calls.
    pub fn change_at(mut self, when: When, change: SteerChange) -> PipelineBuilder {
        self.config.changes.push((when, change));
        self
    }
}

/// Receiving and queueing.
impl PipelineBuilder {
    /// Sets the number of RX queues.
    pub fn rx_queues(mut self, queues: u16) -> PipelineBuilder {
        self.config.rx_queues = queues;
        self
    }

    /// Sets the device of each RX queue, for `sparse`. Queues beyond the end of the list belong to device 0.
    pub fn rx_devices(mut self, devices: impl IntoIterator<Item = u16>) -> PipelineBuilder {
        self.config.rx_devices = devices.into_iter().collect();
        self
    }

    /// Sets the CPU of each RX thread. There are as many RX threads as CPUs in this list. Thread `q % threads` receives
    /// RX queue `q`, and its CPU is the queue's default CPU.
    pub fn rx_cpus(mut self, cpus: impl IntoIterator<Item = CpuId>) -> PipelineBuilder {
        self.config.rx_cpus = cpus.into_iter().collect();
        self
    }

    /// Sets the RX queues, their devices and the RX threads for live interfaces
    /// ([`source::interfaces`](crate::source::interfaces)): each RX queue has a thread, and the threads use `rx_cpus` in
    /// turn.
    pub fn interfaces(
        mut self,
        interfaces: &[LiveInterface],
        rx_cpus: impl IntoIterator<Item = CpuId>,
    ) -> PipelineBuilder {
        self.config.receive_on(interfaces, rx_cpus.into_iter().collect());
        self
    }

    /// Sets how many packets may wait for each RX thread and CPU, 1 to [`MAX_BACKLOG`](crate::MAX_BACKLOG).
    pub fn max_backlog(mut self, packets: u32) -> PipelineBuilder {
        self.config.max_backlog = packets;
        self
    }

    /// Sets the largest backlog that a [`SteerChange`] may set. Memory is allocated for this many packets. A value below
    /// [`PipelineBuilder::max_backlog`] has no effect.
    pub fn largest_backlog(mut self, packets: u32) -> PipelineBuilder {
        self.config.largest_backlog = packets;
        self
    }

    /// Sets how many packets an RX thread decides on, and publishes to the workers, at once: 1 to
    /// [`MAX_BATCH`](crate::MAX_BATCH). The default is 16 for each CPU, but at least
    /// [`DEFAULT_BATCH`](crate::DEFAULT_BATCH) and at most [`MAX_BATCH`](crate::MAX_BATCH). A handler gets lists of at
    /// most 64 packets with any batch size.
    pub fn batch(mut self, packets: usize) -> PipelineBuilder {
        self.config.batch = packets;
        self
    }

    /// Sets what happens to a packet whose backlog is full. By default it is dropped, as on a live system. With
    /// [`OnFull::Wait`] no packet of a capture is lost.
    pub fn on_full(mut self, on_full: OnFull) -> PipelineBuilder {
        self.config.on_full = on_full;
        self
    }

    /// Sets whether threads are pinned to their CPUs. If this process may not use one of the CPUs, no thread is pinned
    /// ([`CpuReport::pinned`](crate::CpuReport::pinned)). Workers are named `rxsteer/CPU`.
    pub fn pin(mut self, pin: bool) -> PipelineBuilder {
        self.config.pin = pin;
        self
    }

    /// If true, the RX thread numbers each packet in its flow, and the workers check the order. This also counts flows
    /// and moves. It costs a table lookup per packet.
    pub fn check_order(mut self, check: bool) -> PipelineBuilder {
        self.config.check_order = check;
        self
    }

    /// If true, `balance` uses the time that handlers take on each CPU instead of the number of packets. A CPU with slow
    /// handlers, or with other work (`/proc/stat`), then gets fewer buckets. Moves differ from run to run. A worker reads
    /// the clock once per list. The default is false.
    pub fn measure_load(mut self, measure: bool) -> PipelineBuilder {
        self.config.measure_load = measure;
        self
    }

    /// Sets how often each worker calls [`Handler::tick`]: from every 1 ms to every 1 h, by the clock of the host. The
    /// default is never.
    pub fn tick(mut self, every: Duration) -> PipelineBuilder {
        self.config.tick = Some(every);
        self
    }

    /// Sets how fast [`PipelineBuilder::run`] plays a recording. The default is as fast as possible.
    pub fn speed(mut self, speed: Speed) -> PipelineBuilder {
        self.speed = speed;
        self
    }

    /// Sets a flag that ends [`PipelineBuilder::run`] early. Packets that were received are still processed. Packets that
    /// the kernel still holds are not received; the source's own flag ends a run after those. A run that is out of memory
    /// sets this flag, too. rxsteer never clears it, and clones of a builder share it: clear it before another run.
    pub fn stop_flag(mut self, stop: Arc<AtomicBool>) -> PipelineBuilder {
        self.stop = stop;
        self
    }
}

/// Starting.
impl PipelineBuilder {
    /// Returns every CPU that gets a worker.
    #[must_use]
    pub fn workers(&self) -> CpuSet {
        self.config.workers()
    }

    /// Whether flows can move to other CPUs although the settings stay the same: by the policy, by rules, or because
    /// threads are not pinned.
    #[must_use]
    pub fn flows_can_move(&self) -> bool {
        self.config.flows_can_move()
    }

    /// Checks everything that can be checked before the start.
    ///
    /// # Errors
    /// [`PipelineError`] if settings contradict each other or are out of range.
    pub fn check(&self) -> Result<(), PipelineError> {
        self.speed.check()?;
        self.config.check()
    }

    /// Starts a worker per CPU. Before the first worker starts, `handler` makes the handler of each CPU, on the calling
    /// thread. The caller feeds the receivers, one per RX thread, and calls [`Pipeline::finish`] at the end.
    ///
    /// # Errors
    /// [`PipelineError`] if settings are impossible or a thread can't be started.
    pub fn start<H: Handler>(
        &self,
        handler: impl FnMut(CpuId) -> H,
    ) -> Result<(Pipeline<H>, Vec<Receiver>), PipelineError> {
        Pipeline::start(&self.config, handler)
    }

    /// Receives all frames of `source` on one RX thread, waits until they are processed, and returns the report.
    /// Afterwards [`Source::take_issues`] returns the problems with the input.
    ///
    /// A handler that panics is not an error of the run: [`CpuReport::failure`](crate::CpuReport::failure) has the
    /// message, and the packets of its CPU count as dropped.
    ///
    /// # Errors
    /// [`PipelineError`] if settings are impossible, a thread can't be started or memory runs out.
    pub fn run<S: Source, H: Handler>(
        &self,
        source: &mut S,
        handler: impl FnMut(CpuId) -> H,
    ) -> Result<Report<H>, PipelineError> {
        self.run_all(slice::from_mut(source), handler)
    }

    /// Does the same as [`PipelineBuilder::run`] with one source for each RX thread ([`PipelineBuilder::rx_cpus`]). A
    /// capture source reads the whole capture and keeps its share ([`CaptureOptions`](crate::source::CaptureOptions)).
    ///
    /// # Errors
    /// Those of [`PipelineBuilder::run`], and if the numbers of sources and RX threads differ.
    pub fn run_all<S: Source, H: Handler>(
        &self,
        sources: &mut [S],
        handler: impl FnMut(CpuId) -> H,
    ) -> Result<Report<H>, PipelineError> {
        self.run_watched(sources, handler, |_, _| {})
    }

    /// Does the same as [`PipelineBuilder::run_all`] and lets the caller watch or change the run. `started` is called
    /// once before the first frame. It gets the receivers, whose [`Receiver::progress`] any thread can read, and a
    /// [`Control`].
    ///
    /// # Errors
    /// Those of [`PipelineBuilder::run_all`].
    pub fn run_watched<S: Source, H: Handler>(
        &self,
        sources: &mut [S],
        handler: impl FnMut(CpuId) -> H,
        started: impl FnOnce(&[Receiver], Control),
    ) -> Result<Report<H>, PipelineError> {
        rxsteer_user::run(&self.config, sources, self.speed, &self.stop, handler, started)
    }
}
