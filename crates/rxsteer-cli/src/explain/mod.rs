//! `rxsteer explain`: one decision with its reasons.

pub(crate) mod args;
pub(crate) mod flow;
mod live;
pub(crate) mod show;

use crate::Outcome;
use crate::advice;
use crate::output;
use crate::steer_args::SteerSettings;
use anyhow::Context;
use args::ExplainArgs;
use rxsteer_user::core::explain::Explanation;
use rxsteer_user::core::{
    Arrival, CpuId, CpuSet, Facts, FlowHash, FlowKey, Idle, Plan, Policy, SteerConfig, Steering,
    Verdict,
};
use rxsteer_user::packet::{DissectOptions, FrameClass, Hasher, dissect, facts};
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource, RxQueues};
use rxsteer_user::source::{Fill, Source};
use rxsteer_user::{Block, FrameMeta, PacketClock, sys};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The explanation of one packet.
pub(crate) struct Explained {
    /// The capture and the frame's number in it, as in "frame 7 of capture.pcap"; `None` for a flow given on the
    /// command line.
    pub(crate) of: Option<(String, u64)>,
    /// Why the frame has no flow, if it has none.
    pub(crate) no_flow: Option<String>,
    pub(crate) key: FlowKey,
    pub(crate) hash_name: &'static str,
    pub(crate) hash_seed: Option<u128>,
    /// Whether the secret was given; otherwise it was generated.
    pub(crate) seed_is_given: bool,
    pub(crate) policy: String,
    pub(crate) cpus: CpuSet,
    pub(crate) receiving_cpu: CpuId,
    pub(crate) decision: Explanation,
    /// Frames that were decided before this one.
    pub(crate) before: u64,
}

/// The command.
pub(crate) fn command(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    if args.live {
        return live::command(args);
    }
    let steer = args.steer.settings()?;
    let rules = steer.rules.rules().unwrap_or_default();
    let policies = advice::with_rules(&steer.policy(), &rules);
    for note in advice::without_effect(&steer, &policies, false) {
        output::note(&format!("rxsteer: {note}"));
    }
    if args.app_cpu.is_some() && !policies.iter().any(Policy::is_rfs) {
        output::note(&format!(
            "rxsteer: --app-cpu changes nothing here: {} does not look where applications run; \
             rfs does",
            steer.policy()
        ));
    }
    let explained = match args.frame {
        None => {
            let flow = args.flow().map_err(|why| {
                if Path::new(&args.what).is_file() {
                    anyhow::anyhow!(
                        "'{}' is a file; which frame of it? e.g. rxsteer explain --frame 1 {0}",
                        args.what
                    )
                } else {
                    anyhow::anyhow!(why)
                }
            })?;
            explain_flow(args, &steer, flow.0)?
        }
        Some(frame) => explain_frame(args, &steer, frame)?,
    };
    if args.json {
        output::print(&format!("{:#}\n", show::json(&explained)))?;
    } else {
        output::print(&show::text(&explained))?;
    }
    Ok(Outcome::Success)
}

fn explain_flow(
    args: &ExplainArgs,
    steer: &SteerSettings,
    key: FlowKey,
) -> anyhow::Result<Explained> {
    let queues = match args.rx_queues {
        RxQueues::Hashed(queues) => queues,
        RxQueues::Single => 1,
        RxQueues::PerFile | RxQueues::PerInterface => anyhow::bail!(
            "a flow that is typed in comes from no file and no interface; give --rx-queues a count"
        ),
    };
    anyhow::ensure!(
        args.rx_queue < queues,
        "--rx-queue {}: RX queues are numbered from 0, and there are {queues}; \
         --rx-queues makes more",
        args.rx_queue
    );
    let setup = Setup::new(args, steer, queues)?;
    let hash = setup.hasher.hash(&key);
    let rule = Facts::of_flow(&key).map_or(0, |facts| setup.rule_of(&facts));
    let packet = Arrival { hash, rx_queue: args.rx_queue, rule, ..Arrival::default() };
    Ok(setup.explain(&packet, key, None, None, 0))
}

fn explain_frame(
    args: &ExplainArgs,
    steer: &SteerSettings,
    number: u64,
) -> anyhow::Result<Explained> {
    let path = PathBuf::from(&args.what);
    if !path.exists() && args.flow().is_ok() {
        anyhow::bail!(
            "--frame asks for a frame of a capture, but '{}' is a flow; leave one of them out",
            args.what
        );
    }
    let mut options = CaptureOptions::default();
    options.rx_queues = args.rx_queues;
    let mut source = CaptureSource::open(std::slice::from_ref(&path), options)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let queues = match args.rx_queues {
        RxQueues::Hashed(queues) => queues,
        RxQueues::PerInterface => rxsteer_user::core::MAX_RX_QUEUES,
        RxQueues::Single | RxQueues::PerFile => 1,
    };
    let mut setup = Setup::new(args, steer, queues)?;
    let options = steer.dissect();
    let mut block = Block::new();
    let mut clock = PacketClock::default();
    let mut seen = 0;
    loop {
        block.clear();
        let fill = source.fill(&mut block);
        for frame in block.frames() {
            seen += 1;
            let hash = setup.hash_of(frame, block.bytes_of(frame), options);
            let found = facts(frame.link, block.bytes_of(frame), options, true);
            let packet = Arrival {
                time_ns: clock.advance(frame.timestamp_ns, 0),
                hash,
                rx_queue: frame.rx_queue,
                rule: found.map_or(0, |facts| setup.rule_of(&facts)),
            };
            if seen < number {
                setup.decide(&packet);
                continue;
            }
            let dissection = dissect(frame.link, block.bytes_of(frame), options);
            let no_flow = match dissection.class {
                FrameClass::Ip => None,
                FrameClass::NotIp => Some("it carries no IP packet".to_owned()),
                FrameClass::Malformed(reason) => {
                    Some(format!("its IP header can't be read: {}", reason.name()))
                }
            };
            let of = Some((args.what.clone(), number));
            return Ok(setup.explain(&packet, dissection.key, of, no_flow, seen - 1));
        }
        if fill == Fill::End {
            let issue = source.take_issues().pop();
            let end = issue.map(|issue| format!(" ({issue})")).unwrap_or_default();
            anyhow::bail!("{} has {seen} frames{end}; there is no frame {number}", args.what);
        }
    }
}

/// The policy with everything needed for decisions.
struct Setup {
    steering: Steering,
    hasher: Hasher,
    hash_name: &'static str,
    hash_seed: Option<u128>,
    seed_is_given: bool,
    backlogs: Idle,
    policy: String,
    cpus: CpuSet,
    app_cpu: Option<CpuId>,
}

impl Setup {
    fn new(args: &ExplainArgs, steer: &SteerSettings, queues: u16) -> anyhow::Result<Setup> {
        let cpus = steer.cpus(sys::allowed_cpus())?;
        let lowest = CpuSet::new([cpus.lowest()]).context("a CPU set has a CPU")?;
        let rx_cpus = args.rx_cpus.as_ref().unwrap_or(&lowest);
        let receiving = rx_cpus.iter().cycle().take(usize::from(queues)).collect();
        let app_cpu = args.app_cpu.and_then(CpuId::new);
        let mut config = SteerConfig {
            packet_rules: steer.rules.rules().unwrap_or_default(),
            inner: steer.flows.inner(),
            rps_maps: steer.steering.rps_maps().unwrap_or_default(),
            fallback: steer.steering.fallback.unwrap_or_default(),
            rfs_cpus: steer.steering.rfs_cpus().flatten(),
            devices: steer.devices(queues)?,
            flow_cnt: steer.tables.flow_cnt,
            flow_limit: steer.steering.flow_limit().flatten(),
            ..SteerConfig::new(steer.policy(), cpus.clone(), receiving)
        };
        config.sock_flow_entries =
            steer.tables.sock_flow_entries.unwrap_or(config.sock_flow_entries);
        config.possible = CpuSet::new(config.destinations().iter().chain(app_cpu));
        let (hasher, hash_seed) = steer.hash().hasher(steer.flows.hash_seed);
        let plan = Arc::new(Plan::new(&config, 1)?);
        Ok(Setup {
            steering: Steering::of_plan(plan, 0..queues),
            hasher,
            hash_name: steer.hash().name(),
            hash_seed: hash_seed.map(|seed| seed.0),
            seed_is_given: steer.flows.hash_seed.is_some(),
            backlogs: Idle::default(),
            policy: steer.policy().to_string(),
            cpus,
            app_cpu,
        })
    }

    /// The number of the rule that matches, from 1; 0: none.
    fn rule_of(&self, facts: &Facts) -> u16 {
        let matcher = self.steering.plan().matcher();
        matcher.and_then(|matcher| matcher.find(facts)).map_or(0, |index| index + 1)
    }

    fn hash_of(&self, frame: &FrameMeta, bytes: &[u8], options: DissectOptions) -> FlowHash {
        match frame.info().nic_hash {
            Some(hash) => FlowHash::from_raw(hash),
            None => self.hasher.flow_hash(frame.link, bytes, options).hash,
        }
    }

    fn decide(&mut self, packet: &Arrival) {
        self.steering.decide(&[*packet], &mut self.backlogs, &mut [Verdict::default()]);
    }

    fn explain(
        mut self,
        packet: &Arrival,
        key: FlowKey,
        of: Option<(String, u64)>,
        no_flow: Option<String>,
        before: u64,
    ) -> Explained {
        if let Some(cpu) = self.app_cpu {
            self.steering.plan().sock_flows().record(packet.hash, cpu);
        }
        Explained {
            of,
            no_flow,
            key,
            hash_name: self.hash_name,
            hash_seed: self.hash_seed,
            seed_is_given: self.seed_is_given,
            policy: self.policy,
            cpus: self.cpus,
            receiving_cpu: self.steering.default_cpu(packet.rx_queue),
            decision: self.steering.explain(packet, &mut self.backlogs),
            before,
        }
    }
}
