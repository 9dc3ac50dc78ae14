//! What becomes of an instance when CPUs and settings change, played with a datapath that is none.

use super::super::datapath::Counted;
use super::*;
use rxsteer_host::Link;
use rxsteer_user::core::{CpuId, FlowKey, Policy};
use rxsteer_xdp::{DeviceId, LiveFlow, Mode, Whereabouts};

/// Remembers what it was asked for.
#[derive(Default)]
pub(crate) struct Mock {
    pub(crate) attached: Vec<u32>,
    applied: Vec<Settings>,
    /// Interfaces that it can't attach to.
    pub(crate) refuses: Vec<u32>,
    /// Why it applies nothing.
    busy: Option<String>,
    /// Ticks until a change is done.
    ticks_left: u32,
    /// A change can't be finished.
    fails: bool,
    /// Frames go unguarded.
    plain: bool,
}

impl Datapath for Mock {
    type Device = u32;

    fn device(id: DeviceId) -> u32 {
        u32::from(id.0)
    }
    fn mode(&self) -> Mode {
        Mode::Native
    }
    fn program_id(&self) -> u32 {
        7
    }
    fn attach(&mut self, ifindex: u32, tables: u16) -> Result<u32, String> {
        assert!(tables > 0);
        if self.refuses.contains(&ifindex) {
            return Err("the driver says no".to_owned());
        }
        self.attached.push(ifindex);
        Ok(ifindex)
    }
    fn detach(&mut self, device: u32) {
        self.attached.retain(|attached| *attached != device);
    }
    fn is_attached(&self, device: u32) -> bool {
        self.attached.contains(&device)
    }
    fn apply(&mut self, settings: &Settings) -> Result<(), String> {
        if let Some(why) = &self.busy {
            return Err(why.clone());
        }
        self.applied.push(settings.clone());
        self.ticks_left = 2;
        Ok(())
    }
    fn tick(&mut self) -> Result<bool, String> {
        if self.fails {
            return Err("no memory".to_owned());
        }
        self.ticks_left = self.ticks_left.saturating_sub(1);
        Ok(self.ticks_left > 0)
    }
    fn is_plain(&self) -> bool {
        self.plain
    }
    fn begin_drain(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn is_drained(&mut self) -> bool {
        true
    }
    fn counted(&self) -> Counted<u32> {
        Counted { received: Vec::new(), processed: Vec::new() }
    }
    fn whereabouts(&self, _key: &FlowKey) -> Whereabouts {
        Whereabouts {
            wish: CpuId::new(1),
            slots: Vec::new(),
            guarded: !self.plain,
            sparse: CpuId::new(0).map(|cpu| (DeviceId(1), cpu)).into_iter().collect(),
            place_in_map: 1,
            flows: Vec::new(),
        }
    }
    fn flows(&self) -> Vec<LiveFlow> {
        Vec::new()
    }
}

pub(crate) fn link(index: u32, name: &str) -> Link {
    Link { index, name: name.to_owned(), up: true, max_rx_queues: Some(2), ..Link::default() }
}

/// Steers those of `links` that `patterns` mean.
pub(crate) fn instance(patterns: &[&str], links: &[Link]) -> Instance<Mock> {
    let settings = Settings {
        policy: Policy::Rps,
        cpus: "0-1".parse().unwrap(),
        offline: None,
        queue_size: 64,
        flow_limit: None,
        shadow: false,
        without_guard: false,
    };
    let cpus = HostCpus { possible: "0-3".parse().unwrap(), online: "0-3".parse().unwrap() };
    let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::new(text).unwrap()).collect();
    let fixed = Fixed {
        patterns: patterns.clone(),
        socket: PathBuf::from("/run/rxsteer/1.sock"),
        network_namespace: None,
        flow_cnt: 1024,
        sock_flow_entries: 1024,
        inner: false,
        flow_stats: true,
        begun: Instant::now(),
        obstacle: |link, _| link.attached.is_some().then(|| "another program is there".to_owned()),
    };
    let mut instance = Instance::new(Mock::default(), fixed, settings, cpus);
    for link in links.iter().filter(|link| patterns.iter().any(|pattern| pattern.matches(link))) {
        instance.attach(link).unwrap();
    }
    instance
}

#[test]
fn a_cpu_goes_and_comes_back() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let online = |text: &str| text.parse::<CpuSet>().unwrap();
    assert_eq!(instance.see_online(&online("0-3")), [""; 0]);
    assert!(instance.path.applied.is_empty());
    let said = instance.see_online(&online("0,2"));
    assert!(said.len() == 1 && said[0].starts_with("CPU 1,3 went offline"), "{said:?}");
    assert_eq!(instance.path.applied.last().unwrap().offline, "1,3".parse().ok());
    let said = instance.see_online(&online("0-2"));
    assert_eq!(said, ["CPU 1 is online again"]);
    assert_eq!(instance.path.applied.last().unwrap().offline, "3".parse().ok());
    instance.see_online(&online("0-3"));
    assert_eq!(instance.path.applied.last().unwrap().offline, None);
}

#[test]
fn what_can_not_be_applied_is_tried_again() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    instance.path.busy = Some("a change is under way".to_owned());
    let said = instance.see_online(&"0".parse().unwrap());
    assert_eq!(said[1], "that is not done yet: a change is under way");
    instance.tick();
    assert!(instance.path.applied.is_empty() && !instance.is_settled());
    instance.path.busy = None;
    instance.tick();
    assert_eq!(instance.path.applied.len(), 1);
    instance.tick();
    instance.tick();
    assert!(instance.is_settled());
}

fn set(instance: &mut Instance<Mock>, texts: &[&str]) -> Reply {
    let settings = texts.iter().map(|text| (*text).to_owned()).collect();
    instance.answer(&Request::Set { settings })
}

#[test]
fn a_change_is_whole_or_refused() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let before = instance.settings.clone();
    let Reply::Now(Answer::Error(why)) = set(&mut instance, &["policy=rfs", "cpus=0-9"]) else {
        panic!("there is no CPU 9");
    };
    assert!(why.contains("no CPU 4-9"), "{why}");
    assert!(instance.settings == before && instance.path.applied.is_empty());
    assert!(matches!(set(&mut instance, &["policy=rfs", "cpus=2-3"]), Reply::WhenDone));
    assert_eq!(instance.path.applied.len(), 1, "both at once");
    assert!(!instance.is_settled());
    instance.tick();
    instance.tick();
    assert!(matches!(instance.changed(), Answer::Set(Changed { done: true, .. })));
    assert_eq!(instance.shown().policy, "rfs");
    instance.path.busy = Some("no".to_owned());
    assert!(matches!(set(&mut instance, &["policy=rps"]), Reply::Now(Answer::Error(_))));
    assert_eq!(instance.shown().policy, "rfs", "what was refused does not hold");
}

#[test]
fn a_change_that_fails_is_said_once() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    set(&mut instance, &["queue-size=16384"]);
    instance.path.fails = true;
    let said = instance.tick();
    assert!(said.len() == 1 && said[0].contains("no memory"), "{said:?}");
    assert_eq!(instance.tick(), [""; 0]);
    assert!(!instance.is_settled());
    instance.path.fails = false;
    instance.tick();
    instance.tick();
    assert!(instance.is_settled());
}

#[test]
fn flows_are_explained_by_the_policy_or_the_mistake_is_named() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let mut ask = |policy: &str, flow: &str| {
        instance.settings.policy = policy.parse().unwrap();
        match instance.answer(&Request::Explain { flow: flow.to_owned() }) {
            Reply::Now(answer) => answer,
            Reply::WhenDone => panic!("it is answered at once"),
        }
    };
    for (policy, rule, cpu) in [
        ("none", "none", None),
        ("bound:0=1", "bound", None),
        ("rps", "hash", Some(1)),
        ("sparse", "slot", Some(0)),
        ("rfs+sparse", "wish", Some(1)),
    ] {
        let Answer::Explain(at) = ask(policy, "10.0.0.1:1-10.0.0.2:2/tcp") else {
            panic!("it is explained");
        };
        assert_eq!((at.wanted.rule.as_str(), at.wanted.cpu), (rule, cpu), "{policy}");
    }
    assert!(matches!(ask("rps", "10.0.0.1:1-10.0.0.2:2/tpc"), Answer::Error(_)));
}
