//! What becomes of an instance when the host changes, played with a datapath that is none.

use super::super::datapath::Counted;
use super::*;
use rxsteer_user::core::{CpuId, FlowKey, Policy};
use rxsteer_xdp::{DeviceId, LiveFlow, Whereabouts};

/// Remembers what it was asked for.
#[derive(Default)]
struct Mock {
    attached: Vec<u32>,
    applied: Vec<Settings>,
    /// Interfaces that it can't attach to.
    refuses: Vec<u32>,
    /// Why it applies nothing.
    busy: Option<String>,
    /// Ticks until a change is done.
    ticks_left: u32,
    /// A change can't be finished.
    fails: bool,
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
    fn begin_drain(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn is_drained(&self) -> bool {
        true
    }
    fn counted(&self) -> Counted<u32> {
        Counted { received: Vec::new(), processed: Vec::new() }
    }
    fn whereabouts(&self, _key: &FlowKey) -> Whereabouts {
        Whereabouts {
            wish: CpuId::new(1),
            slots: Vec::new(),
            sparse: CpuId::new(0).map(|cpu| (DeviceId(1), cpu)).into_iter().collect(),
            place_in_map: 1,
            flows: Vec::new(),
        }
    }
    fn flows(&self) -> Vec<LiveFlow> {
        Vec::new()
    }
}

fn link(index: u32, name: &str) -> Link {
    Link { index, name: name.to_owned(), up: true, max_rx_queues: Some(2), ..Link::default() }
}

/// Steers those of `links` that `patterns` mean.
fn instance(patterns: &[&str], links: &[Link]) -> Instance<Mock> {
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

fn states(instance: &Instance<Mock>) -> Vec<(&str, State)> {
    instance.interfaces.iter().map(|known| (known.name.as_str(), known.state)).collect()
}

#[test]
fn a_deleted_interface_is_told_and_the_others_go_on() {
    let mut instance = instance(&["a", "b"], &[link(1, "a"), link(2, "b")]);
    // As the kernel does it: first it is not listed any more, then the program goes.
    assert_eq!(instance.see_links(&[link(2, "b")]), [""; 0]);
    assert!(instance.has_doubts());
    instance.path.attached.retain(|index| *index != 1);
    let said = instance.see_links(&[link(2, "b")]);
    assert!(
        said.len() == 1 && said[0].starts_with("a is no longer steered: it was deleted"),
        "{said:?}"
    );
    assert_eq!(states(&instance), [("a", State::Deleted), ("b", State::Steered)]);
    assert!(!instance.has_doubts() && !instance.is_deserted());
    assert_eq!(instance.see_links(&[link(2, "b")]), [""; 0], "it is said once");
    instance.path.attached.clear();
    instance.see_links(&[]);
    instance.see_links(&[]);
    assert!(instance.is_deserted(), "the last of the named ones is gone");
}

#[test]
fn one_that_moved_is_let_go() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    instance.see_links(&[]);
    let said = instance.see_links(&[]);
    assert!(said[0].contains("another network namespace"), "{said:?}");
    assert_eq!(states(&instance), [("a", State::Moved)]);
    assert!(instance.path.attached.is_empty(), "it is left as it was found");
    assert!(instance.is_deserted());
}

#[test]
fn a_program_that_was_taken_off_is_not_put_back() {
    let mut instance = instance(&["a*"], &[link(1, "a")]);
    instance.path.attached.clear();
    assert!(instance.lost_a_program());
    instance.see_links(&[link(1, "a")]);
    let said = instance.see_links(&[link(1, "a")]);
    assert!(said.len() == 1 && said[0].contains("somebody took the program off"), "{said:?}");
    assert!(!instance.lost_a_program());
    assert_eq!(instance.see_links(&[link(1, "a")]), [""; 0]);
    assert!(instance.path.attached.is_empty());
    assert!(!instance.is_deserted(), "it is still there to be told of");
    let Reply::Now(Answer::Status(status)) = instance.answer(&Request::Status { flows: 0 }) else {
        panic!("a status is asked for");
    };
    assert_eq!(status.interfaces[0].state, State::Detached);
    assert!(status.interfaces[0].why.is_some());
}

#[test]
fn names_and_up_and_down_are_followed() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let down = Link { up: false, ..link(1, "b") };
    assert_eq!(instance.see_links(&[down]), ["a is called b now; b is down"]);
    assert_eq!(states(&instance), [("b", State::Down)]);
    assert_eq!(instance.see_links(&[link(1, "b")]), ["b is up again"]);
}

#[test]
fn a_pattern_takes_what_appears() {
    let mut instance = instance(&["veth*"], &[]);
    assert!(!instance.is_deserted());
    instance.path.refuses.push(3);
    let taken = Link { attached: Some(attached()), ..link(4, "veth4") };
    let links = [link(1, "lo"), link(2, "veth2"), link(3, "veth3"), taken];
    let said = instance.see_links(&links);
    assert_eq!(
        said,
        [
            "steering veth2: native, 2 RX queues, rps to CPUs 0-1",
            "veth3 is not steered: the driver says no",
            "veth4 is not steered: another program is there",
        ]
    );
    assert_eq!(instance.see_links(&links), [""; 0], "it is said and tried once");
    assert_eq!(instance.path.attached, [2]);
    assert_eq!(instance.try_refused(&links), [""; 0], "nothing has changed");
    instance.path.refuses.clear();
    let said = instance.try_refused(&links);
    assert_eq!(said, ["steering veth3: native, 2 RX queues, rps to CPUs 0-1"]);
    assert_eq!(instance.path.attached, [2, 3]);
    assert!(instance.has_refused(), "the one that another program is on");
    // One of the same name is another interface.
    instance.path.attached.clear();
    instance.see_links(&[]);
    instance.see_links(&[]);
    assert!(!instance.has_refused());
    assert_eq!(instance.see_links(&[link(9, "veth2")]).len(), 1);
    assert_eq!(instance.path.attached, [9]);
}

fn attached() -> rxsteer_host::Attached {
    rxsteer_host::Attached { mode: rxsteer_host::AttachedMode::Native, id: Some(5), holder: None }
}

#[test]
fn there_is_a_limit_of_interfaces() {
    let links: Vec<Link> = (1..=400).map(|index| link(index, &format!("v{index}"))).collect();
    let mut instance = instance(&["v*"], &[]);
    let said = instance.see_links(&links);
    assert_eq!(instance.path.attached.len(), MAX_INTERFACES);
    assert!(said[69].contains("64 interfaces are steered already"), "{}", said[69]);
    assert_eq!(said.len(), MAX_INTERFACES + MAX_REFUSED);
    assert_eq!(instance.interfaces.len(), MAX_INTERFACES + MAX_REFUSED, "so is what is remembered");
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
