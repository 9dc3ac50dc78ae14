//! How an instance reacts when CPUs and settings change, with a mock datapath.

use super::super::count;
use super::super::datapath::{Counted, DatapathView};
use super::*;
use crate::summaries::CpuActivity;
use rxsteer_host::Link;
use rxsteer_user::core::{CpuId, FlowKey, Policy, ThreadClass};
use rxsteer_xdp::{DeviceId, FlowExplained, FlowStatistics, LiveFlow, Mode, RxCounts};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Records the requests that it gets.
#[derive(Default)]
pub(crate) struct Mock {
    pub(crate) attached: Vec<u32>,
    applied: Vec<Settings>,
    /// Interfaces to which it cannot attach.
    pub(crate) refuses: Vec<u32>,
    /// The reason why it applies nothing, if it does not.
    busy: Option<String>,
    /// The active settings while a change is pending.
    in_force: Option<Settings>,
    /// Ticks until a change is done.
    ticks_left: u32,
    /// Ticks until a detached interface has left.
    pub(crate) leaves_in: u32,
    /// Whether a change cannot be finished.
    fails: bool,
    /// Whether frames go unguarded.
    unguarded: bool,
    /// The new names of interfaces.
    pub(crate) names: Vec<String>,
    /// Why threads are not in their class.
    threads_problem: Option<String>,
    /// Frames without a complete checksum, by interface.
    pub(crate) partial: BTreeMap<u32, u64>,
}

impl Datapath for Mock {
    type Device = u32;
    type View = MockView;

    fn mode(&self) -> Mode {
        Mode::Native
    }
    fn program_id(&self) -> u32 {
        7
    }
    fn rename(&mut self, _device: u32, name: &str) {
        self.names.push(name.to_owned());
    }
    fn attach(&mut self, ifindex: u32, _name: &str, tables: u16, _: bool) -> Result<u32, String> {
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
    fn is_fully_detached(&self, device: u32) -> bool {
        !self.is_attached(device) && self.leaves_in == 0
    }
    fn is_attached(&self, device: u32) -> bool {
        self.attached.contains(&device)
    }
    fn partial_checksums(&self, device: u32) -> u64 {
        self.partial.get(&device).copied().unwrap_or(0)
    }
    fn apply(&mut self, settings: &Settings) -> Result<(), String> {
        if let Some(why) = &self.busy {
            return Err(why.clone());
        }
        self.applied.push(settings.clone());
        self.ticks_left = 2;
        Ok(())
    }
    fn settings_in_force(&self) -> Option<Settings> {
        self.in_force.clone().filter(|_| self.ticks_left > 0)
    }
    fn tick(&mut self) -> Result<bool, String> {
        if self.fails {
            return Err("no memory".to_owned());
        }
        self.ticks_left = self.ticks_left.saturating_sub(1);
        self.leaves_in = self.leaves_in.saturating_sub(1);
        Ok(self.ticks_left > 0)
    }
    fn needs_tick_soon(&self) -> bool {
        self.leaves_in != 0
    }
    fn is_unguarded(&self) -> bool {
        self.unguarded
    }
    fn threads_problem(&self) -> Option<String> {
        self.threads_problem.clone()
    }
    fn begin_drain(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn is_drained(&mut self) -> bool {
        true
    }
    fn received(&self, _device: u32) -> Vec<(CpuId, RxCounts)> {
        Vec::new()
    }
    fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        let applied = self.applied.last().map(|settings| &settings.packet_rules);
        applied.into_iter().flatten().map(|rule| (rule.clone(), 0)).collect()
    }
    fn activity(&self) -> BTreeMap<u16, CpuActivity> {
        BTreeMap::new()
    }
}

impl Mock {
    /// The settings that it was asked to apply.
    pub(crate) fn applied(&self) -> &[Settings] {
        &self.applied
    }
}

/// A view of the mock, which counts nothing.
pub(crate) struct MockView;

impl DatapathView<u32> for MockView {
    fn device(&self, id: DeviceId) -> u32 {
        u32::from(id.0)
    }
    fn counted(&self) -> Counted<u32> {
        Counted { received: Vec::new(), processed: Vec::new() }
    }
    fn buckets(&self) -> rxsteer_xdp::Buckets {
        rxsteer_xdp::Buckets::default()
    }
    fn shadow(&self) -> Vec<(CpuId, u64)> {
        Vec::new()
    }
    fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        Vec::new()
    }
    fn explain(&self, _key: &FlowKey) -> FlowExplained {
        FlowExplained { decisions: Vec::new(), flows: Vec::new() }
    }
    fn flows(&self, _most: usize) -> FlowStatistics {
        FlowStatistics::default()
    }
    fn clear_flows(&self) -> Result<(), String> {
        Ok(())
    }
    fn take_records(&self) {}
    fn ended(&self, _most: usize) -> Vec<(u64, LiveFlow)> {
        Vec::new()
    }
}

/// The status of the instance, as clients see it.
pub(crate) fn status(instance: &mut Instance<Mock>) -> rxsteer_status::Status {
    count::status(&instance.latest(), &MockView, 0)
}

/// The texts of events.
pub(crate) fn texts(events: Vec<NewEvent>) -> Vec<String> {
    events.into_iter().map(|event| event.text).collect()
}

pub(crate) fn link(index: u32, name: &str) -> Link {
    Link { index, name: name.to_owned(), up: true, max_rx_queues: Some(2), ..Link::default() }
}

thread_local! {
    static HOST_READS: Cell<u32> = const { Cell::new(0) };
}

/// How often this test has read the state of the host.
pub(crate) fn host_reads() -> u32 {
    HOST_READS.get()
}

/// Steers those of `links` that match `patterns`.
pub(crate) fn instance(patterns: &[&str], links: &[Link]) -> Instance<Mock> {
    let settings =
        Settings { queue_size: 64, ..Settings::new(Policy::Rps, "0-1".parse().unwrap()) };
    let cpus = HostCpus { possible: "0-3".parse().unwrap(), online: "0-3".parse().unwrap() };
    let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::new(text).unwrap()).collect();
    let fixed = Fixed {
        patterns: patterns.clone(),
        socket: PathBuf::from("/run/rxsteer/1.sock"),
        network_namespace: None,
        flow_cnt: 1024,
        sock_flow_entries: 1024,
        rfs_namespaces: RfsNamespaces::Own,
        memory_bytes: None,
        inner: false,
        key_tunnels: Default::default(),
        flow_stats: true,
        started: Instant::now(),
        rx_queues: |link| link.max_rx_queues.unwrap_or(1) as u16,
        obstacle: |link, _, _| {
            link.attached.is_some().then(|| "another program is there".to_owned())
        },
        read_host: || {
            HOST_READS.set(HOST_READS.get() + 1);
            Host::read()
        },
        threads_refused: |class| (class == ThreadClass::Fifo(99)).then(|| "no limit".to_owned()),
    };
    let mut instance = Instance::new(Mock::default(), fixed, settings, cpus);
    for link in links.iter().filter(|link| patterns.iter().any(|pattern| pattern.matches(link))) {
        instance.attach(link).unwrap();
    }
    instance
}

#[test]
fn cpu_goes_and_comes_back() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let online = |text: &str| text.parse::<CpuSet>().unwrap();
    assert_eq!(texts(instance.see_online(&online("0-3"))), [""; 0]);
    assert!(instance.path.applied.is_empty());
    let lines = texts(instance.see_online(&online("0,2")));
    assert!(lines.len() == 1 && lines[0].starts_with("CPU 1,3 went offline"), "{lines:?}");
    assert_eq!(instance.path.applied.last().unwrap().offline, "1,3".parse().ok());
    let lines = texts(instance.see_online(&online("0-2")));
    assert_eq!(lines, ["CPU 1 is online again"]);
    assert_eq!(instance.path.applied.last().unwrap().offline, "3".parse().ok());
    instance.see_online(&online("0-3"));
    assert_eq!(instance.path.applied.last().unwrap().offline, None);
}

#[test]
fn what_can_not_be_applied_is_tried_again() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    instance.path.busy = Some("a change is under way".to_owned());
    let lines = texts(instance.see_online(&"0".parse().unwrap()));
    assert_eq!(lines[1], "change still pending: a change is under way");
    instance.tick();
    assert!(instance.path.applied.is_empty() && !instance.is_change_done());
    instance.path.busy = None;
    instance.tick();
    assert_eq!(instance.path.applied.len(), 1);
    instance.tick();
    instance.tick();
    assert!(instance.is_change_done());
}

fn set(instance: &mut Instance<Mock>, texts: &[&str]) -> Result<(), String> {
    let settings: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    instance.set(&settings)
}

#[test]
fn change_is_whole_or_refused() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let before = instance.settings.clone();
    let why = set(&mut instance, &["policy=rfs", "cpus=0-9"]).unwrap_err();
    assert!(why.contains("no CPU 4-9"), "{why}");
    assert!(instance.settings == before && instance.path.applied.is_empty());
    set(&mut instance, &["policy=rfs", "cpus=2-3"]).unwrap();
    assert_eq!(instance.path.applied.len(), 1, "both at once");
    assert!(!instance.is_change_done());
    instance.tick();
    instance.tick();
    assert!(matches!(instance.changed(), Answer::Set(Changed { done: true, .. })));
    assert_eq!(instance.shown().policy, "rfs");
    instance.path.busy = Some("no".to_owned());
    assert!(set(&mut instance, &["policy=rps"]).is_err());
    assert_eq!(instance.shown().policy, "rfs", "what was refused does not hold");
}

#[test]
fn change_that_takes_too_long_is_withdrawn() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let before = instance.settings.clone();
    set(&mut instance, &["policy=rfs"]).unwrap();
    instance.path.in_force = Some(before.clone());
    let Answer::Error(why) = instance.give_up() else { panic!("it does not hold yet") };
    assert!(why.contains("withdrawn") && why.contains("settings are unchanged"), "{why}");
    assert_eq!((instance.shown().policy.as_str(), instance.path.applied.len()), ("rps", 2));
    assert_eq!(instance.path.applied.last(), Some(&before));
    // A change that is already active, while rings still drain, stays.
    set(&mut instance, &["policy=rfs"]).unwrap();
    instance.path.in_force = None;
    let Answer::Set(changed) = instance.give_up() else { panic!("it holds") };
    assert!(changed.holds && !changed.done && changed.settings.policy == "rfs");
}

#[test]
fn frames_without_a_checksum_are_reported_once() {
    let mut instance = instance(&["a", "b"], &[link(1, "a"), link(2, "b")]);
    assert_eq!(texts(instance.check_checksums()), [""; 0]);
    instance.path.partial.insert(2, 1);
    let lines = texts(instance.check_checksums());
    assert!(lines.len() == 1 && lines[0].starts_with("b: 1 frame came without"), "{lines:?}");
    assert!(lines[0].contains("ethtool -K PEER tx off"), "{lines:?}");
    instance.path.partial.insert(2, 9);
    assert_eq!(texts(instance.check_checksums()), [""; 0]);
}

#[test]
fn change_that_fails_is_reported_once() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    set(&mut instance, &["queue-size=16384"]).unwrap();
    instance.path.fails = true;
    let lines = texts(instance.tick());
    assert!(lines.len() == 1 && lines[0].contains("no memory"), "{lines:?}");
    assert_eq!(texts(instance.tick()), [""; 0]);
    assert!(!instance.is_change_done());
    instance.path.fails = false;
    instance.tick();
    instance.tick();
    assert!(instance.is_change_done());
}

#[test]
fn queues_that_are_not_there_are_refused() {
    let mut instance = instance(&["a", "veth*"], &[link(1, "a")]);
    for text in ["policy=bound:2=1", "policy=bound:a:2=1", "policy=bound:b:0=1", "rps-map=a:7=1"] {
        let why = set(&mut instance, &[text]).unwrap_err();
        assert!(why.contains("no RX queue") || why.contains("b is not steered"), "{why}");
    }
    assert!(instance.path.applied.is_empty());
    let changes = ["policy=bound:a:1=1,veth3:5=2", "rps-map=a:1=2-3", "else=local", "rfs-cpus=3"];
    set(&mut instance, &changes).unwrap();
    let shown = instance.shown();
    assert_eq!(
        (shown.policy.as_str(), shown.fallback.as_str()),
        ("bound:a:1=1,veth3:5=2", "local")
    );
    assert_eq!(
        (shown.rps_maps, shown.rfs_cpus),
        (vec!["a:1=2-3".to_owned()], Some("3".to_owned()))
    );
    let lines = texts(instance.see_links(&[link(1, "a"), link(2, "veth3")], Instant::now()));
    assert!(
        lines[0].ends_with("veth3 has 2 RX queues; without effect: policy bound:veth3:5"),
        "{lines:?}"
    );
    instance.see_links(&[link(1, "a"), link(2, "c")], Instant::now());
    assert_eq!(instance.path.names, ["c"], "maps and bindings follow the name");
}

#[test]
fn what_is_shown_is_of_the_last_time_it_was_shown() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let shown = instance.latest();
    set(&mut instance, &["policy=rfs"]).unwrap();
    assert_eq!((shown.get().settings.policy.clone(), shown.get().changing), (Policy::Rps, false));
    instance.show();
    assert_eq!((shown.get().settings.policy.clone(), shown.get().changing), (Policy::Rfs, true));
    let attachments = shown.get().attachments;
    instance.attach(&link(2, "b")).unwrap();
    assert_eq!(shown.get().attachments, attachments, "what went before is shown until then");
    instance.show();
    assert_ne!(shown.get().attachments, attachments, "numbers of interfaces may be used again");
}

fn kinds(events: &[NewEvent]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

#[test]
fn changes_are_events_when_they_are_done_refused_or_withdrawn() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    assert!(set(&mut instance, &["policy=x"]).is_err());
    let events = instance.tick();
    assert_eq!(kinds(&events), [EventKind::ChangeRefused]);
    assert_eq!(events[0].fields["settings"], serde_json::json!(["policy=x"]));
    set(&mut instance, &["policy=rfs", "queue-size=512"]).unwrap();
    assert_eq!(instance.tick(), [], "it is under way");
    let events = instance.tick();
    assert_eq!(kinds(&events), [EventKind::ChangeDone]);
    let changes = "policy=rfs (was rps), queue-size=512 (was 64)";
    assert_eq!(events[0].fields["changes"], changes);
    assert!(events[0].text.starts_with(changes), "{events:?}");
    let before = instance.settings.clone();
    set(&mut instance, &["policy=none"]).unwrap();
    instance.path.in_force = Some(before);
    assert!(matches!(instance.give_up(), Answer::Error(_)));
    let events = instance.tick();
    assert_eq!(kinds(&events), [EventKind::ChangeWithdrawn], "{events:?}");
    assert!(
        events[0].text.starts_with("policy=none (was rfs): the change could not"),
        "{events:?}"
    );
    instance.tick();
    assert_eq!(instance.tick(), [], "what was withdrawn is not done");
    let events = instance.see_online(&"0-2".parse().unwrap());
    assert_eq!(kinds(&events), [EventKind::CpuOffline]);
    instance.tick();
    let events = instance.tick();
    assert_eq!(kinds(&events), [EventKind::ChangeDone]);
    assert_eq!(events[0].fields["changes"], "without CPU 3");
}

#[test]
fn threads_that_lose_their_class_are_reported_once() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    assert_eq!(instance.tick(), []);
    instance.path.threads_problem = Some("it lacks CAP_SYS_NICE".to_owned());
    assert_eq!(texts(instance.tick()), ["it lacks CAP_SYS_NICE"]);
    assert_eq!(instance.tick(), []);
    instance.path.threads_problem = None;
    assert_eq!(texts(instance.tick()), ["the rings' threads are at fifo:1"]);
}

#[test]
fn events_are_in_the_status() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let _latest = instance.latest();
    for event in instance.see_online(&"0-2".parse().unwrap()) {
        instance.events.add(event, Instant::now()).unwrap();
    }
    instance.show();
    let status = status(&mut instance);
    assert_eq!(status.events.len(), 1);
    assert_eq!((status.events[0].number, status.events[0].kind.as_str()), (1, "cpu_offline"));
    assert!(status.interfaces[0].running_ns > 0);
}
