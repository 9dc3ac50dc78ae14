//! `rxsteer explain`: one decision with its reasons.

pub(crate) mod args;
pub(crate) mod flow;
mod live;
pub(crate) mod show;

use crate::Outcome;
use crate::advice;
use crate::hash_key::HashSeed;
use crate::output;
use crate::output::json::decisive;
use crate::steer_args::SteerSettings;
use crate::words::is_plain;
use args::ExplainArgs;
use rxsteer_user::core::explain::Explanation;
use rxsteer_user::core::matching::Term;
use rxsteer_user::core::{
    Arrival, CpuId, CpuSet, Facts, FlowHash, FlowKey, Idle, PacketRule, Plan, Policy, Steering,
    Verdict,
};
use rxsteer_user::packet::{DissectOptions, FrameClass, dissect, facts};
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource, RxQueues};
use rxsteer_user::source::{Fill, Source};
use rxsteer_user::{Block, FrameMeta, PacketClock, PipelineConfig, shown, sys};
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

/// The explanation of one packet.
pub(crate) struct Explained {
    /// The capture and the frame's number in it, as in "frame 7 of capture.pcap"; `None` for a flow given on the
    /// command line.
    pub(crate) of: Option<(String, u64)>,
    /// Why the frame has no flow, if it has none.
    pub(crate) no_flow: Option<String>,
    /// The flow, with its ports.
    pub(crate) flow: FlowKey,
    /// The tunnel number that is hashed instead of the ports.
    pub(crate) tunnel: Option<u32>,
    pub(crate) hash_name: &'static str,
    pub(crate) hash_seed: Option<u128>,
    /// Whether the secret was given; otherwise it was generated.
    pub(crate) seed_is_given: bool,
    pub(crate) policy: String,
    pub(crate) cpus: CpuSet,
    /// All settings that the decision depends on.
    pub(crate) settings: Map<String, Value>,
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
    for note in unused(args, &steer, &rules) {
        output::note(&format!("rxsteer: {note}"));
    }
    let explained = match args.frame {
        None => {
            let flow = args.flow().map_err(|why| {
                let path = Path::new(&args.what);
                if path.is_file() {
                    let name = args.what.to_str().filter(|name| is_plain(name));
                    anyhow::anyhow!(
                        "'{}' is a file; which frame of it? e.g. rxsteer explain --frame 1 {}",
                        shown(path),
                        name.unwrap_or("CAPTURE")
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

/// Options and rules without effect.
fn unused(args: &ExplainArgs, steer: &SteerSettings, rules: &[PacketRule]) -> Vec<String> {
    // A flow from the command line has no tunnel and no other packet fields.
    let is_typed = args.frame.is_none();
    let no_tunnel = "a flow on the command line has no tunnel; a frame (--frame) can have one";
    let mut unused = advice::unused(&[
        (
            steer.steering.flow_limit().flatten().is_some(),
            "--flow-limit",
            "it drops packets when a backlog is half full, and here no packet waits",
        ),
        (is_typed && steer.flows.inner(), "--inner", no_tunnel),
        (is_typed && !steer.tunnels.kinds().is_empty(), "--key-tunnels", no_tunnel),
    ]);
    for (index, rule) in rules.iter().enumerate().filter(|_| is_typed) {
        let why = rule.terms.iter().find_map(|term| match term {
            Term::Vlan(_) => Some("a flow on the command line has no VLAN"),
            Term::Dscp(dscp) if *dscp != 0 => Some("a flow on the command line has code point 0"),
            Term::Tunnel(..) => Some("a flow on the command line has no tunnel"),
            _ => None,
        });
        let rule = format!("rule {} ({rule})", index + 1);
        unused.extend(why.map(|why| advice::changes_nothing(&rule, why)));
    }
    unused
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
            "a flow on the command line has no file and no interface; give --rx-queues a count"
        ),
    };
    anyhow::ensure!(
        args.rx_queue < queues,
        "--rx-queue {}: RX queues are numbered from 0, and there are {queues}; for more, give --rx-queues",
        args.rx_queue
    );
    let setup = Setup::new(args, steer, queues)?;
    let hash = setup.config.hasher.hash(&key);
    let rule = Facts::of_flow(&key).map_or(0, |facts| setup.rule_of(&facts));
    let packet = Arrival { hash, rx_queue: args.rx_queue, rule, ..Arrival::default() };
    Ok(setup.explain(&packet, Frame { flow: key, ..Frame::default() }, 0))
}

fn explain_frame(
    args: &ExplainArgs,
    steer: &SteerSettings,
    number: u64,
) -> anyhow::Result<Explained> {
    let path = Path::new(&args.what);
    if !path.exists() && args.flow().is_ok() {
        anyhow::bail!(
            "--frame requires a capture, but '{}' is a flow; leave one of them out",
            shown(path)
        );
    }
    let mut options = CaptureOptions::default();
    options.rx_queues = args.rx_queues;
    let mut source = CaptureSource::open(&[path.to_path_buf()], options)
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
            let (key, flow) = (dissection.key, dissection.flow().unwrap_or(dissection.key));
            let number_of = |key: FlowKey| u32::from(key.src_port) << 16 | u32::from(key.dst_port);
            // The key of a fragment has no ports, although the flow of the first one has.
            let tunnel = Some(number_of(key)).filter(|id| *id != 0 && *id != number_of(flow));
            let of = Some((shown(path), number));
            return Ok(setup.explain(&packet, Frame { of, no_flow, flow, tunnel }, seen - 1));
        }
        if fill == Fill::End {
            let issue = source.take_issues().pop();
            let end = issue.map(|issue| format!(" ({issue})")).unwrap_or_default();
            anyhow::bail!("{} has {seen} frames{end}; there is no frame {number}", shown(path));
        }
    }
}

/// What the explained packet is, as in [`Explained`].
#[derive(Default)]
struct Frame {
    of: Option<(String, u64)>,
    no_flow: Option<String>,
    flow: FlowKey,
    tunnel: Option<u32>,
}

/// The policy with everything needed for decisions.
struct Setup {
    steering: Steering,
    config: PipelineConfig,
    hash_name: &'static str,
    hash_seed: Option<HashSeed>,
    seed_is_given: bool,
    backlogs: Idle,
    app_cpu: Option<CpuId>,
}

impl Setup {
    fn new(args: &ExplainArgs, steer: &SteerSettings, queues: u16) -> anyhow::Result<Setup> {
        let cpus = steer.cpus(sys::allowed_cpus())?;
        let app_cpu = args.app_cpu.and_then(CpuId::new);
        let mut config = PipelineConfig::new(steer.policy(), cpus);
        if let Some(rx_cpus) = &args.rx_cpus {
            config.rx_cpus = rx_cpus.iter().collect();
        }
        config.rx_queues = queues;
        config.standby = app_cpu.and_then(|cpu| CpuSet::new([cpu]));
        let hash_seed = steer.apply(&mut config)?;
        let plan = Arc::new(Plan::new(&config.steer_config(), 1)?);
        Ok(Setup {
            steering: Steering::of_plan(plan, 0..queues),
            config,
            hash_name: steer.hash().name(),
            hash_seed,
            seed_is_given: steer.flows.hash_seed.is_some(),
            backlogs: Idle::default(),
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
            None => self.config.hasher.flow_hash(frame.link, bytes, options).hash,
        }
    }

    fn decide(&mut self, packet: &Arrival) {
        self.steering.decide(&[*packet], &mut self.backlogs, &mut [Verdict::default()]);
    }

    fn explain(mut self, packet: &Arrival, frame: Frame, before: u64) -> Explained {
        if let Some(cpu) = self.app_cpu {
            self.steering.plan().sock_flows().record(packet.hash, cpu);
        }
        Explained {
            of: frame.of,
            no_flow: frame.no_flow,
            flow: frame.flow,
            tunnel: frame.tunnel,
            hash_name: self.hash_name,
            hash_seed: self.hash_seed.map(|seed| seed.0),
            seed_is_given: self.seed_is_given,
            policy: self.config.policy.to_string(),
            settings: decisive(&self.config),
            cpus: self.config.cpus,
            receiving_cpu: self.steering.default_cpu(packet.rx_queue),
            decision: self.steering.explain(packet, &mut self.backlogs),
            before,
        }
    }
}
