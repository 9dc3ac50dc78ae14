//! What a receive path is made of, and how it is started.

use rxsteer_core::{CpuId, CpuSet, Fallback, PacketRule, Policy};
use rxsteer_packet::{Hasher, TunnelKinds};
use rxsteer_user::source::Source;
use rxsteer_user::{
    Control, Handler, OnFull, Pipeline, PipelineConfig, PipelineError, Receiver, Report, Speed,
    SteerChange, When,
};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Everything a receive path is given before it starts: the policy and the CPUs, and what differs from the defaults.
///
/// By default one thread receives one RX queue on the lowest CPU; packets are steered by the symmetric hash under a
/// fresh random key; a full backlog drops; threads are pinned; order is not checked.
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

/// What packets are steered by.
impl PipelineBuilder {
    /// Steers by `policy` to `cpus`. Each of them gets a worker, and so does every other CPU that a packet can go to.
    pub fn new(policy: Policy, cpus: CpuSet) -> PipelineBuilder {
        PipelineBuilder {
            config: PipelineConfig::new(policy, cpus),
            speed: Speed::Max,
            stop: Arc::default(),
        }
    }

    /// A separate CPU map for one RX queue, for policies that use maps. To be called once for each such queue.
    pub fn rps_map(mut self, rx_queue: u16, cpus: CpuSet) -> PipelineBuilder {
        self.config.rps_maps.push((rx_queue.into(), cpus));
        self
    }

    /// Rules before the policy, in order: the first that matches a packet says where it goes. By default there are none.
    pub fn rules(mut self, rules: Vec<PacketRule>) -> PipelineBuilder {
        self.config.packet_rules = rules;
        self
    }

    /// What places a flow that nothing else places, for policies that remember flows.
    pub fn fallback(mut self, fallback: Fallback) -> PipelineBuilder {
        self.config.fallback = fallback;
        self
    }

    /// The CPUs that `rfs` may send a flow to since its application runs there; by default every one with a worker. Without
    /// effect under other policies.
    pub fn rfs_cpus(mut self, cpus: CpuSet) -> PipelineBuilder {
        self.config.rfs_cpus = Some(cpus);
        self
    }

    /// CPUs that get a worker though nothing goes there yet: a [`SteerChange`] may name them, and applications may run
    /// there. CPUs of [`PipelineBuilder::change_at`] get one in any case.
    pub fn standby(mut self, cpus: CpuSet) -> PipelineBuilder {
        self.config.standby = Some(cpus);
        self
    }

    /// Entries of the sock flow table, for `rfs`: 1 to 67,108,864, rounded up to a power of two. The default is 32,768.
    pub fn sock_flow_entries(mut self, entries: u32) -> PipelineBuilder {
        self.config.sock_flow_entries = entries;
        self
    }

    /// Entries of each RX queue's flow table, for policies that remember flows: 1 to 16,777,216, rounded up to a power of
    /// two. The default depends on the number of queues.
    pub fn flow_cnt(mut self, entries: u32) -> PipelineBuilder {
        self.config.flow_cnt = Some(entries);
        self
    }

    /// A flow limit of so many buckets, 1 to 1,048,576; by default there is none.
    pub fn flow_limit(mut self, buckets: u32) -> PipelineBuilder {
        self.config.flow_limit = Some(buckets);
        self
    }

    /// The flow hash. The default is symmetric, under a key that is drawn anew for each builder.
    pub fn hasher(mut self, hasher: Hasher) -> PipelineBuilder {
        self.config.hasher = hasher;
        self
    }

    /// Whether keys are taken from inside IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U tunnels; the outer addresses of one
    /// are two tunnel ends, which would put all that it carries on one CPU.
    pub fn look_into_tunnels(mut self, inner: bool) -> PipelineBuilder {
        self.config.dissect.inner = inner;
        self
    }

    /// The tunnels whose number takes the place of the ports in the key, where their inside is not looked at; the default
    /// is none. Each direction of such a tunnel has a number of its own.
    pub fn key_tunnels(mut self, kinds: TunnelKinds) -> PipelineBuilder {
        self.config.dissect.key_tunnels = kinds;
        self
    }

    /// A change to make on the way, at the first batch that begins when it is due. Changes are made in the order in which
    /// they are given here.
    pub fn change_at(mut self, when: When, change: SteerChange) -> PipelineBuilder {
        self.config.changes.push((when, change));
        self
    }
}

/// How frames are received, and what may wait.
impl PipelineBuilder {
    /// How many RX queues there are.
    pub fn rx_queues(mut self, queues: u16) -> PipelineBuilder {
        self.config.rx_queues = queues;
        self
    }

    /// For each RX queue its device, for `sparse`; queues beyond the end belong to device 0.
    pub fn rx_devices(mut self, devices: impl IntoIterator<Item = u16>) -> PipelineBuilder {
        self.config.rx_devices = devices.into_iter().collect();
        self
    }

    /// The CPU of each RX thread; there are as many threads as CPUs here. RX queue `q` is received by thread
    /// `q % threads`, and its CPU is the queue's default CPU.
    pub fn rx_cpus(mut self, cpus: impl IntoIterator<Item = CpuId>) -> PipelineBuilder {
        self.config.rx_cpus = cpus.into_iter().collect();
        self
    }

    /// Packets that may wait for each RX thread and CPU, 1 to [`MAX_BACKLOG`](crate::MAX_BACKLOG).
    pub fn max_backlog(mut self, packets: u32) -> PipelineBuilder {
        self.config.max_backlog = packets;
        self
    }

    /// What a [`SteerChange`] may raise that to: memory is taken for so many. Without effect below
    /// [`PipelineBuilder::max_backlog`].
    pub fn largest_backlog(mut self, packets: u32) -> PipelineBuilder {
        self.config.largest_backlog = packets;
        self
    }

    /// Packets decided on at once, 1 to [`MAX_BATCH`](crate::MAX_BATCH), and so published to a worker at once. The
    /// default is 16 for each CPU, but at least [`DEFAULT_BATCH`](crate::DEFAULT_BATCH) and at most
    /// [`MAX_BATCH`](crate::MAX_BATCH). A handler gets lists of at most 64 packets, whatever the batch.
    pub fn batch(mut self, packets: usize) -> PipelineBuilder {
        self.config.batch = packets;
        self
    }

    /// What happens to a packet whose backlog is full. The default is to drop, as a live system does; a capture loses
    /// nothing by [`OnFull::Wait`].
    pub fn on_full(mut self, on_full: OnFull) -> PipelineBuilder {
        self.config.on_full = on_full;
        self
    }

    /// Whether threads are pinned to their CPUs. If this process may not use one of the CPUs, none is pinned
    /// ([`CpuReport::pinned`](crate::CpuReport::pinned)). Workers are named `rxsteer/CPU`.
    pub fn pin(mut self, pin: bool) -> PipelineBuilder {
        self.config.pin = pin;
        self
    }

    /// Whether each packet is numbered in its flow and the order checked on the workers, which also counts flows and
    /// moves. Costs a table lookup per packet.
    pub fn check_order(mut self, check: bool) -> PipelineBuilder {
        self.config.check_order = check;
        self
    }

    /// Whether `balance` goes by the time that handlers take on each CPU, in place of the number of packets: a CPU on which
    /// they are slow, or that has other work (`/proc/stat`), gets fewer buckets. Moves then differ from run to run. The default is
    /// false. It costs a worker a look at the clock per list.
    pub fn measure_load(mut self, measure: bool) -> PipelineBuilder {
        self.config.measure_load = measure;
        self
    }

    /// How often [`Handler::tick`] is called on each worker, by the clock of the host, from 1 ms to 1 h; never by default.
    pub fn tick(mut self, every: Duration) -> PipelineBuilder {
        self.config.tick = Some(every);
        self
    }

    /// How fast [`PipelineBuilder::run`] plays a recording; as fast as it can by default.
    pub fn speed(mut self, speed: Speed) -> PipelineBuilder {
        self.speed = speed;
        self
    }

    /// A flag that ends [`PipelineBuilder::run`] early when it is set: what was received is still processed, and what the
    /// kernel still holds is not received (a source's own flag ends it after that). A run that is out of memory sets it, too.
    /// Nothing clears it, and clones of a builder share it: clear it before another run.
    pub fn stop_flag(mut self, stop: Arc<AtomicBool>) -> PipelineBuilder {
        self.stop = stop;
        self
    }
}

/// Starting it.
impl PipelineBuilder {
    /// Every CPU that gets a worker.
    #[must_use]
    pub fn workers(&self) -> CpuSet {
        self.config.workers()
    }

    /// Whether it can be started; everything that can be checked beforehand.
    ///
    /// # Errors
    /// [`PipelineError`], when settings contradict each other or are out of range.
    pub fn check(&self) -> Result<(), PipelineError> {
        self.speed.check()?;
        self.config.check()
    }

    /// Starts a worker per CPU, each with the handler that `handler` makes for it on the calling thread, before any worker
    /// starts. The caller feeds the receivers, one
    /// per RX thread, and calls [`Pipeline::finish`] at the end.
    ///
    /// # Errors
    /// [`PipelineError`], when settings are impossible or a thread can't be started.
    pub fn start<H: Handler>(
        &self,
        handler: impl FnMut(CpuId) -> H,
    ) -> Result<(Pipeline<H>, Vec<Receiver>), PipelineError> {
        Pipeline::start(&self.config, handler)
    }

    /// Receives all that `source` has on one RX thread, waits until it is processed, and reports. Afterwards
    /// [`Source::take_issues`] has what was wrong with the input.
    ///
    /// A handler that panics is no error of the run: [`CpuReport::failure`](crate::CpuReport::failure) has the message, and
    /// the packets of its CPU are drops.
    ///
    /// # Errors
    /// [`PipelineError`], when settings are impossible, a thread can't be started or memory runs out.
    pub fn run<S: Source, H: Handler>(
        &self,
        source: &mut S,
        handler: impl FnMut(CpuId) -> H,
    ) -> Result<Report<H>, PipelineError> {
        self.run_all(slice::from_mut(source), handler)
    }

    /// As [`PipelineBuilder::run`], with one source for each RX thread ([`PipelineBuilder::rx_cpus`]). Of captures each
    /// reads all and keeps its share ([`CaptureOptions`](crate::source::CaptureOptions)).
    ///
    /// # Errors
    /// As there; and where there are more or fewer sources than RX threads.
    pub fn run_all<S: Source, H: Handler>(
        &self,
        sources: &mut [S],
        handler: impl FnMut(CpuId) -> H,
    ) -> Result<Report<H>, PipelineError> {
        self.run_watched(sources, handler, |_, _| {})
    }

    /// As [`PipelineBuilder::run_all`], for a run that is watched or changed meanwhile: `started` is called once before the
    /// first frame, with the receivers, whose [`Receiver::progress`] any thread can read, and with a [`Control`].
    ///
    /// # Errors
    /// As there.
    pub fn run_watched<S: Source, H: Handler>(
        &self,
        sources: &mut [S],
        handler: impl FnMut(CpuId) -> H,
        started: impl FnOnce(&[Receiver], Control),
    ) -> Result<Report<H>, PipelineError> {
        rxsteer_user::run(&self.config, sources, self.speed, &self.stop, handler, started)
    }
}
