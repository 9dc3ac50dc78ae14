//! Changes on recorded hosts: plans, writes, reads back, undoes and restores them.

mod recorded_host;

use recorded_host::{Recorded, recorded};
use rxsteer_host::change::{
    Journal, Lock, LockError, Outcome, Plan, PlanError, Refusal, Wanted, apply, restore, undo,
};
use rxsteer_host::testing::{MachineSpec, NicSpec};
use rxsteer_host::{CpuMask, Globals, InterfaceKnobs, Root, Topology, Tree};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn all() -> Wanted {
    Wanted { cpus: "0-1".parse().ok(), rfs: true, xps: true, flow_limit: true, ..Wanted::default() }
}

fn plan(root: &Root, interface: &str, wanted: &Wanted) -> Result<Plan, PlanError> {
    let (topology, globals) = (Topology::read(root), Globals::read(root));
    let knobs = InterfaceKnobs::read(root, interface).unwrap();
    Plan::new(root, &knobs, &topology, &globals, 0, wanted)
}

/// What a plan writes: the last part of the file's path with its queue, and the text.
fn writes(plan: &Plan) -> Vec<String> {
    let short = |path: &str| {
        path.replace("/sys/class/net/eth0/queues/", "").replace("/proc/sys/net/core/", "")
    };
    plan.writes.iter().map(|write| format!("{} {}", short(&write.path), write.new.trim())).collect()
}

fn two_queues() -> Recorded {
    recorded(&MachineSpec::cpus(4).nic(NicSpec::named("eth0").queues(2, 2).interrupts([0, 1])))
}

/// The contents of all files below the folder, except our own.
fn contents(host: &Recorded) -> Vec<(std::path::PathBuf, String)> {
    let mut all = host.files();
    all.retain(|(path, _)| !path.to_string_lossy().contains("/run/"));
    all
}

#[test]
fn plan_has_the_exact_writes_in_the_order_of_effect() {
    let host = two_queues();
    let plan = plan(&host.root, "eth0", &all()).unwrap();
    let expected = [
        "rps_sock_flow_entries 32768",
        "rx-0/rps_flow_cnt 16384",
        "rx-1/rps_flow_cnt 16384",
        "flow_limit_cpu_bitmap 3",
        "rx-0/rps_cpus 3",
        "rx-1/rps_cpus 3",
        "tx-0/xps_cpus 3",
        "tx-1/xps_cpus c",
    ];
    assert_eq!(writes(&plan), expected);
    assert_eq!(plan.writes[0].old, "0\n");
    assert!(plan.writes[0].owner.is_none() && plan.writes[1].owner.is_some());
    assert_eq!(plan.reversed().writes.last().unwrap().new, "0\n");
}

#[test]
fn sizes_follow_the_queues() {
    let flows = |queues, entries| {
        let machine = MachineSpec { sock_flow_entries: entries, ..MachineSpec::cpus(72) };
        let nic = NicSpec::named("eth0").queues(queues, 1).interrupts(0..64);
        let host = recorded(&machine.nic(nic));
        let wanted = Wanted { rfs: true, cpus: "0-3".parse().ok(), ..Wanted::default() };
        writes(&plan(&host.root, "eth0", &wanted).unwrap())
    };
    assert!(flows(64, 0).contains(&"rx-63/rps_flow_cnt 512".to_owned()));
    // The kernel rounds up: 32768 / 6 = 5461.
    assert!(flows(6, 0).contains(&"rx-5/rps_flow_cnt 8192".to_owned()));
    // A larger value is kept: other interfaces share it.
    let larger = flows(1, 131_072);
    assert!(larger.contains(&"rx-0/rps_flow_cnt 131072".to_owned()), "{larger:?}");
    assert!(!larger.iter().any(|write| write.starts_with("rps_sock")), "{larger:?}");
}

#[test]
fn masks_are_as_wide_as_the_host_shows_them() {
    let ids = (0..256).map(|place| place * 16);
    let nic = NicSpec::named("eth0").interrupts([0]);
    let host = recorded(&MachineSpec { cores_per_cache: 4, ..MachineSpec::ids(ids) }.nic(nic));
    let plan = plan(&host.root, "eth0", &Wanted::default()).unwrap();
    assert_eq!(
        plan.cpus.to_string(),
        "0,16,32,48",
        "those that share a cache with the interrupt's"
    );
    assert_eq!(plan.writes[0].new.len(), plan.writes[0].old.len());
    assert_eq!(CpuMask::read(&plan.writes[0].new).unwrap().0, Some(plan.cpus.clone()));
}

#[test]
fn default_cpus_are_near_and_usable() {
    let default = |machine: MachineSpec, nic: NicSpec| {
        let host = recorded(&machine.nic(nic));
        plan(&host.root, "eth0", &Wanted::default()).unwrap().cpus.to_string()
    };
    let nic = || NicSpec::named("eth0");
    assert_eq!(default(MachineSpec::cpus(2), nic()), "0-1");
    assert_eq!(default(MachineSpec::cpus(16).nodes(2), nic().interrupts([9])), "8-15");
    assert_eq!(default(MachineSpec::cpus(16).smt(), nic()), "0-15");
    let part = MachineSpec { isolated: "6-7", offline: "5", ..MachineSpec::cpus(8).nodes(2) };
    assert_eq!(default(part, nic().interrupts([4])), "4");
    // Without an interrupt, the device's node defines what is near; without a device nothing does.
    assert_eq!(default(MachineSpec::cpus(16).nodes(2), nic().interrupts([]).on_node(1)), "8-15");
    assert_eq!(default(MachineSpec::cpus(4), NicSpec::made_by("eth0", "wireguard", 65534)), "0-3");
}

#[test]
fn transmit_queues_share_the_cpus() {
    let shares = |machine: MachineSpec, queues| {
        let host = recorded(&machine.nic(NicSpec::named("eth0").queues(1, queues)));
        let wanted = Wanted { xps: true, ..Wanted::default() };
        let plan = plan(&host.root, "eth0", &wanted).unwrap();
        let of = plan.writes.iter().filter(|write| write.path.ends_with("xps_cpus"));
        let set = |text: &str| CpuMask::read(text).unwrap().to_string();
        (of.map(|write| set(&write.new)).collect::<Vec<_>>(), plan.notes)
    };
    assert_eq!(shares(MachineSpec::cpus(4), 2).0, ["cpus 0-1", "cpus 2-3"]);
    // Siblings send on one queue.
    assert_eq!(shares(MachineSpec::cpus(4).smt(), 2).0, ["cpus 0,2", "cpus 1,3"]);
    assert_eq!(
        shares(MachineSpec::cpus(2), 4).0,
        ["cpu 0", "cpu 1"],
        "the others have none, as before"
    );
    let (none, notes) = shares(MachineSpec::cpus(4), 1);
    assert!(none.is_empty() && notes[0].contains("one TX queue"), "{notes:?}");
}

#[test]
fn cpus_that_the_kernel_would_leave_out_are_refused() {
    let machine = MachineSpec { isolated: "2", offline: "3", ..MachineSpec::cpus(4) };
    let host = recorded(&machine.nic(NicSpec::named("eth0")));
    let wanted = |cpus: &str| Wanted { cpus: cpus.parse().ok(), ..Wanted::default() };
    let refused = |cpus: &str| plan(&host.root, "eth0", &wanted(cpus)).unwrap_err().to_string();
    let why = refused("0-9");
    assert!(why.contains("CPUs 3-9 are not online") && why.contains("CPU 2 is isolated"), "{why}");
    assert!(why.ends_with("choose among CPUs 0-1"), "{why}");
    assert!(plan(&host.root, "eth0", &wanted("0-1")).is_ok());
}

#[test]
fn what_is_set_already_is_not_written() {
    let host = recorded(&MachineSpec::cpus(2).nic(NicSpec::named("eth0").rps("0-1")));
    let wanted = Wanted { cpus: "0-1".parse().ok(), ..Wanted::default() };
    assert!(plan(&host.root, "eth0", &wanted).unwrap().writes.is_empty());
}

#[test]
fn many_applies_are_restored_byte_for_byte() {
    let host = two_queues();
    let before = contents(&host);
    for (cpus, rfs) in [("0-1", false), ("2", true), ("0-3", true)] {
        let wanted = Wanted { cpus: cpus.parse().ok(), rfs, ..all() };
        let plan = plan(&host.root, "eth0", &wanted).unwrap();
        let mut journal = Journal::open(&host.root).unwrap();
        apply(&host.root, &mut journal, &plan).unwrap();
    }
    assert_ne!(contents(&host), before);
    let restored = restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
    assert_eq!(contents(&host), before);
    assert_eq!(restored.len(), 8);
    assert!(!Journal::path(&host.root).exists(), "nothing is left on record");
    assert!(restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap().is_empty());
}

/// A kernel that panics before or after its n-th write, as if the process were killed there.
struct Killing<'a> {
    root: &'a Root,
    left: Cell<u32>,
    after: bool,
}

impl Tree for Killing<'_> {
    fn read(&self, path: &str) -> io::Result<String> {
        self.root.read(path)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let is_now = self.left.get() == 0;
        self.left.set(self.left.get().wrapping_sub(1));
        assert!(!is_now || self.after, "killed");
        let result = self.root.write(path, text);
        assert!(!is_now, "killed");
        result
    }
}

#[test]
fn kill_at_any_write_is_restored() {
    for after in [false, true] {
        for place in 0..8 {
            let host = two_queues();
            let before = contents(&host);
            let plan = plan(&host.root, "eth0", &all()).unwrap();
            let kernel = Killing { root: &host.root, left: Cell::new(place), after };
            let killed = catch_unwind(AssertUnwindSafe(|| {
                apply(&kernel, &mut Journal::open(&host.root).unwrap(), &plan)
            }));
            assert!(killed.is_err(), "write {place}");
            let restored = restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
            assert_eq!(contents(&host), before, "write {place}, after {after}: {restored:?}");
        }
    }
}

#[test]
fn journal_may_be_cut_off_anywhere() {
    let host = two_queues();
    let before = contents(&host);
    let plan = plan(&host.root, "eth0", &all()).unwrap();
    apply(&host.root, &mut Journal::open(&host.root).unwrap(), &plan).unwrap();
    let whole = std::fs::read(Journal::path(&host.root)).unwrap();
    restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
    for length in 0..whole.len() {
        std::fs::write(Journal::path(&host.root), &whole[..length]).unwrap();
        let journal = Journal::open(&host.root).unwrap();
        journal.check().unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        // The file continues with complete lines.
        let text = std::fs::read_to_string(Journal::path(&host.root)).unwrap();
        assert!(text.ends_with('\n'), "{length} bytes: {text:?}");
        restore(&host.root, journal, 0).unwrap();
        assert_eq!(contents(&host), before, "{length} bytes");
    }
}

#[test]
fn damaged_journal_stops_an_apply_and_restores_what_it_has() {
    let host = two_queues();
    let before = contents(&host);
    let plan = plan(&host.root, "eth0", &all()).unwrap();
    apply(&host.root, &mut Journal::open(&host.root).unwrap(), &plan).unwrap();
    let path = Journal::path(&host.root);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}garbage\n{{}}\n")).unwrap();
    let journal = Journal::open(&host.root).unwrap();
    assert!(journal.check().unwrap_err().to_string().contains("line 18"), "{text}");
    restore(&host.root, journal, 0).unwrap();
    assert_eq!(contents(&host), before);
}

#[test]
fn values_of_a_former_boot_are_forgotten() {
    let host = two_queues();
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    apply(&host.root, &mut Journal::open(&host.root).unwrap(), &planned).unwrap();
    std::fs::write(host.root.path("/proc/sys/kernel/random/boot_id"), "another\n").unwrap();
    let set = contents(&host);
    assert!(restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap().is_empty());
    assert_eq!(contents(&host), set, "they are not of that boot");
}

#[test]
fn what_another_set_is_left_and_named() {
    let host = two_queues();
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    apply(&host.root, &mut Journal::open(&host.root).unwrap(), &planned).unwrap();
    let file = "/sys/class/net/eth0/queues/rx-1/rps_cpus";
    host.root.write(file, "4\n").unwrap();
    let restored = restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
    let of_file = restored.iter().find(|one| one.path == file).unwrap();
    let expected = Outcome::SetByAnother { ours: "3\n".to_owned(), now: "4\n".to_owned() };
    assert_eq!(of_file.outcome, expected);
    assert_eq!(host.root.read(file).unwrap(), "4\n");
    assert_eq!(host.root.read("/sys/class/net/eth0/queues/rx-0/rps_cpus").unwrap(), "0\n");
    // A later apply restores what the other software had set.
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    apply(&host.root, &mut Journal::open(&host.root).unwrap(), &planned).unwrap();
    restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
    assert_eq!(host.root.read(file).unwrap(), "4\n");
}

#[test]
fn value_set_between_two_applies_is_what_to_go_back_to() {
    let host = two_queues();
    let file = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
    for other in ["4\n", "8\n"] {
        let planned = plan(&host.root, "eth0", &all()).unwrap();
        apply(&host.root, &mut Journal::open(&host.root).unwrap(), &planned).unwrap();
        if other == "4\n" {
            host.root.write(file, other).unwrap();
        }
    }
    restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
    assert_eq!(host.root.read(file).unwrap(), "4\n");
}

#[test]
fn interfaces_that_are_gone_or_others_are_not_written_to() {
    let host = two_queues();
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    apply(&host.root, &mut Journal::open(&host.root).unwrap(), &planned).unwrap();
    // Another interface has taken its name.
    std::fs::write(host.root.path("/sys/class/net/eth0/ifindex"), "9\n").unwrap();
    let restored = restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
    let gone = restored.iter().filter(|one| one.outcome == Outcome::Gone).count();
    assert_eq!((gone, restored.len()), (6, 8));
    assert_eq!(host.root.read("/sys/class/net/eth0/queues/rx-0/rps_cpus").unwrap(), "3\n");
    assert_eq!(host.root.read("/proc/sys/net/core/rps_sock_flow_entries").unwrap(), "0\n");
}

#[test]
fn renamed_interface_is_restored_under_its_new_name() {
    let host = two_queues();
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    apply(&host.root, &mut Journal::open(&host.root).unwrap(), &planned).unwrap();
    let folder = |name: &str| host.root.path(format!("/sys/class/net/{name}"));
    std::fs::rename(folder("eth0"), folder("lan0")).unwrap();
    restore(&host.root, Journal::open(&host.root).unwrap(), 0).unwrap();
    assert_eq!(host.root.read("/sys/class/net/lan0/queues/rx-0/rps_cpus").unwrap(), "0\n");
    assert!(!Journal::path(&host.root).exists());
}

/// A kernel that removes CPUs from masks, and refuses some files.
struct Strict<'a> {
    root: &'a Root,
    keeps: u32,
    refuses: &'static str,
    kind: io::ErrorKind,
}

impl Tree for Strict<'_> {
    fn read(&self, path: &str) -> io::Result<String> {
        self.root.read(path)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        if path.ends_with(self.refuses) {
            return Err(self.kind.into());
        }
        match u32::from_str_radix(text.trim(), 16) {
            Ok(mask) if path.ends_with("rps_cpus") => {
                self.root.write(path, &format!("{:x}\n", mask & self.keeps))
            }
            _ => self.root.write(path, text),
        }
    }
}

#[test]
fn mask_that_the_kernel_filters_is_named_and_all_is_undone() {
    let host = two_queues();
    let before = contents(&host);
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    let (refuses, kind) = ("nothing", io::ErrorKind::Other);
    let kernel = Strict { root: &host.root, keeps: 1, refuses, kind };
    let mut journal = Journal::open(&host.root).unwrap();
    let error = apply(&kernel, &mut journal, &planned).unwrap_err();
    assert!(matches!(error.refusal, Refusal::Filtered { .. }), "{error}");
    assert!(
        error.to_string().contains("rx-0/rps_cpus") && error.to_string().contains("left out CPU 1"),
        "{error}"
    );
    assert!(error.left.is_empty(), "{error:?}");
    assert_eq!(contents(&host), before);
    journal.forget_unchanged().unwrap();
    assert!(!Journal::path(&host.root).exists());
}

#[test]
fn refused_write_is_named_and_all_is_undone() {
    for (kind, says) in [
        (io::ErrorKind::PermissionDenied, "CAP_NET_ADMIN"),
        (io::ErrorKind::ReadOnlyFilesystem, "read-only"),
        (io::ErrorKind::InvalidInput, "offline, isolated"),
    ] {
        let host = two_queues();
        let before = contents(&host);
        let planned = plan(&host.root, "eth0", &all()).unwrap();
        let kernel = Strict { root: &host.root, keeps: 3, refuses: "rx-1/rps_cpus", kind };
        let mut journal = Journal::open(&host.root).unwrap();
        let error = apply(&kernel, &mut journal, &planned).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!((error.undone, error.left.len()), (5, 0), "{error:?}");
        assert_eq!(contents(&host), before);
        assert!(
            restore(&host.root, journal, 0)
                .unwrap()
                .iter()
                .all(|one| one.outcome == Outcome::AsBefore)
        );
    }
}

#[test]
fn value_that_changes_meanwhile_stops_the_apply() {
    let host = two_queues();
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    let file = "/sys/class/net/eth0/queues/rx-1/rps_cpus";
    host.root.write(file, "8\n").unwrap();
    let changed = contents(&host);
    let error = apply(&host.root, &mut Journal::open(&host.root).unwrap(), &planned).unwrap_err();
    assert!(matches!(error.refusal, Refusal::Meanwhile { .. }), "{error}");
    assert_eq!(contents(&host), changed);
}

#[test]
fn undo_leaves_what_another_set() {
    let host = two_queues();
    let planned = plan(&host.root, "eth0", &all()).unwrap();
    let mut journal = Journal::open(&host.root).unwrap();
    apply(&host.root, &mut journal, &planned).unwrap();
    let file = "/sys/class/net/eth0/queues/rx-1/rps_cpus";
    host.root.write(file, "8\n").unwrap();
    let left = undo(&host.root, &mut journal, &planned);
    assert!(
        matches!(left.as_slice(), [Refusal::Meanwhile { path, .. }] if path == file),
        "{left:?}"
    );
    assert_eq!(host.root.read(file).unwrap(), "8\n");
    assert_eq!(host.root.read("/sys/class/net/eth0/queues/rx-0/rps_cpus").unwrap(), "0\n");
}

#[test]
fn second_lock_is_refused_with_the_first_ones_process() {
    let host = two_queues();
    let lock = Lock::take(&host.root).unwrap();
    match Lock::take(&host.root) {
        Err(LockError::Held { holder, .. }) => assert_eq!(holder, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
    drop(lock);
    drop(Lock::take(&host.root).unwrap());
}

#[test]
fn several_interfaces_are_one_plan() {
    let nics = [("eth0", 1), ("eth1", 3)];
    let mut machine = MachineSpec::cpus(4);
    for (name, cpu) in nics {
        machine = machine.nic(NicSpec::named(name).interrupts([cpu]));
    }
    let host = recorded(&machine);
    let before = contents(&host);
    let knobs = nics.map(|(name, _)| InterfaceKnobs::read(&host.root, name).unwrap());
    let (topology, globals) = (Topology::read(&host.root), Globals::read(&host.root));
    let wanted = Wanted { xps: false, ..all() };
    let plans = Plan::of_each(&host.root, &knobs, &topology, &globals, 0, &wanted).unwrap();
    let plan = Plan::join(plans).unwrap();
    assert_eq!(plan.interfaces, ["eth0", "eth1"]);
    let of = |file: &str| -> Vec<&str> {
        let writes = plan.writes.iter().filter(|write| write.path.ends_with(file));
        writes.map(|write| write.new.trim()).collect()
    };
    assert_eq!((of("rps_sock_flow_entries"), of("rps_cpus")), (vec!["32768"], vec!["3", "3"]));
    assert_eq!(of("flow_limit_cpu_bitmap"), ["a"], "the CPUs of both interrupts");
    let mut journal = Journal::open(&host.root).unwrap();
    apply(&host.root, &mut journal, &plan).unwrap();
    assert_ne!(contents(&host), before);
    assert!(undo(&host.root, &mut journal, &plan).is_empty());
    assert_eq!(contents(&host), before);
    assert!(Plan::join([]).is_none());
}
