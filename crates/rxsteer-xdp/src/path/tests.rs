//! Changes that are refused, and ticks that wait for nothing. Needs root; prints SKIPPED without it.

use super::*;
use crate::abi::{FLUSHING, LastPacket, MAX_DEVICES};
use crate::load::load_on;
use crate::rings::tests::setup;
use crate::testing::{loaded, skipped};
use libbpf_rs::query::LinkInfoIter;
use rxsteer_core::{PacketRule, Policy, Slots};

#[test]
fn rfs_is_refused_where_the_kernel_lacks_socket_tracepoints() {
    let test = "path::rfs_is_refused_where_the_kernel_lacks_socket_tracepoints";
    let has = |name: &str| name != "sock_send_length";
    let Some(loaded) = loaded(test, load_on(&setup(), has)) else { return };
    let settings = |policy| Settings::new(policy, "0".parse().unwrap());
    let mut path = Path::with(loaded, &setup(), &settings(Policy::Rps)).unwrap();
    for policy in [Policy::Rfs, Policy::RfsSparse(Slots::of(4))] {
        let refused = path.apply(&settings(policy.clone())).unwrap_err();
        assert_eq!(refused, SettingsError::NoTracepoint(policy.to_string(), "sock_send_length"));
        assert!(refused.to_string().contains("the tracepoint sock_send_length"), "{refused}");
    }
    let ruled = |rule: &str| Settings {
        packet_rules: vec![rule.parse().unwrap()],
        ..settings(Policy::Rps)
    };
    let refused = path.apply(&ruled("udp -> policy rfs+sparse")).unwrap_err().to_string();
    let begin = "the rule 'udp → policy rfs+sparse' follows applications by the tracepoint sock_send_length";
    assert!(refused.starts_with(begin), "{refused}");
    assert_eq!(path.tick().unwrap(), Progress::Done, "no change is under way");
    path.apply(&settings(Policy::Sparse(Slots::of(4)))).unwrap();
    while path.tick().unwrap() != Progress::Done {}
    assert_eq!(path.settings().policy, Policy::Sparse(Slots::of(4)));
    path.apply(&ruled("udp -> policy sparse")).unwrap();
}

/// How many links the kernel has to the programs at the tracepoints of sockets.
fn links_to_sockets(path: &Path) -> usize {
    let names = ["steer_receives", "steer_sends", "steer_closes"];
    let programs = path.programs().into_iter().filter(|(name, _)| names.contains(name));
    let ids: Vec<u32> = programs.map(|(_, id)| id).collect();
    assert_eq!(ids.len(), names.len());
    LinkInfoIter::default().filter(|link| ids.contains(&link.prog_id)).count()
}

/// Changes attach the tracepoints of sockets with the first rule or policy that has rfs, and detach them with the last.
#[test]
fn socket_tracepoints_are_attached_while_a_rule_has_rfs() {
    let test = "path::socket_tracepoints_are_attached_while_a_rule_has_rfs";
    let Some(loaded) = loaded(test, load(&setup())) else { return };
    if let Some(missing) = loaded.missing_tracepoint {
        return skipped(test, &format!("this kernel has no tracepoint {missing}"));
    }
    let mut path = Path::with(loaded, &setup(), &settings(Policy::Rps)).unwrap();
    assert_eq!(links_to_sockets(&path), 0);
    for (policy, rules, links) in [
        (Policy::Rps, &["udp -> 0", "tcp dst-port 5000 -> policy rfs"][..], 3),
        (Policy::None, &["udp -> policy rfs", "tcp dst-port 5000 -> policy rfs+sparse"], 3),
        (Policy::Rps, &["udp -> policy rfs"], 3),
        (Policy::Rps, &["udp -> policy sparse"], 0),
        (Policy::Rps, &["udp -> policy rfs"], 3),
        (Policy::Rfs, &[], 3),
        (Policy::Rps, &[], 0),
    ] {
        let packet_rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        path.apply(&Settings { packet_rules, ..settings(policy.clone()) }).unwrap();
        while path.tick().unwrap() == Progress::Waiting {
            path.graces.until_all_are_over();
        }
        assert_eq!(links_to_sockets(&path), links, "{policy} {rules:?}");
    }
}

#[test]
fn flow_limit_that_has_no_room_is_refused() {
    let settings = |buckets| Settings {
        flow_limit: Some(buckets),
        ..Settings::new(Policy::Rps, "0".parse().unwrap())
    };
    let possible = "0".parse().unwrap();
    for (buckets, holds) in [(0, false), (1, true), (4096, true), (4097, false), (u32::MAX, false)]
    {
        assert_eq!(settings(buckets).check(&possible).is_ok(), holds, "{buckets}");
    }
}

/// Ticks ask for grace periods, and go on in later ticks.
#[test]
fn change_and_the_way_to_unguarded_frames_go_on_in_ticks() {
    let test = "path::change_and_the_way_to_unguarded_frames_go_on_in_ticks";
    let Some(loaded) = loaded(test, load(&setup())) else { return };
    let settings = Settings::new(Policy::Rps, "0".parse().unwrap());
    let mut path = Path::with(loaded, &setup(), &settings).unwrap();
    let until_unguarded = |path: &mut Path| {
        let requested = path.graces.requested();
        for _ in 0..1000 {
            path.tick().unwrap();
            path.graces.until_all_are_over();
            if path.is_unguarded() {
                break;
            }
        }
        assert!(path.is_unguarded());
        let requested_by_now = path.graces.requested();
        // What was counted has its numbers, twice; no program reads a slot that was unset.
        assert!(requested_by_now >= requested + 3, "{requested} {requested_by_now}");
    };
    until_unguarded(&mut path);
    // Rings of another size replace the first ones, which have to drain.
    path.apply(&Settings { queue_size: settings.queue_size * 2, ..settings }).unwrap();
    while path.tick().unwrap() == Progress::Waiting {
        path.graces.until_all_are_over();
    }
    assert!(!path.loaded.rings.lock().retired().is_empty());
    until_unguarded(&mut path);
    assert!(path.loaded.rings.lock().retired().is_empty());
}

/// Slots that could defer a flow after 2³¹ frames: of a ring that was deleted, and set while frames went unguarded.
#[test]
fn no_slot_outlives_frames_without_the_guard() {
    let test = "path::no_slot_outlives_frames_without_the_guard";
    let Some(loaded) = loaded(test, load(&setup())) else { return };
    let settings = Settings::new(Policy::Rps, "0".parse().unwrap());
    let mut path = Path::with(loaded, &setup(), &settings).unwrap();
    path.tables[0] = true;
    let set = |path: &Path, generation: u32| {
        let last = LastPacket { seq: 7, cpu: 0, generation, rx_cpu: 0, hysteresis: 7 };
        let [seq, packed] = last.words();
        path.loaded.lines.slots.exchange_word(0, 0, u64::from(packed) << 32 | u64::from(seq));
        assert_ne!(path.loaded.lines.slots.get_number(0, 0), 0, "it is set");
    };
    let is_unset = |path: &Path| path.loaded.lines.slots.get_number(0, 0) == 0;
    assert!(!path.loaded.rings.lock().all().contains(&1), "no ring of the other generation");
    set(&path, 1);
    for _ in 0..1000 {
        path.tick().unwrap();
        path.graces.until_all_are_over();
        if path.is_unguarded() {
            break;
        }
    }
    assert!(path.is_unguarded() && is_unset(&path));
    set(&path, 0);
    while !path.guard_again().unwrap() {
        path.graces.until_all_are_over();
    }
    assert!(!path.is_unguarded() && is_unset(&path));
}

/// A path under `none` in a network namespace of its own, in whose place 1 is `lo`, and a change to `rps` under way that is
/// not active yet: it waits for frames that passed.
fn during_a_change(test: &str, then: impl FnOnce(Path) + Send) {
    let run = || {
        let setup = Setup { mode: Mode::Generic, tables: 2, ..setup() };
        let Some(loaded) = loaded(test, load(&setup)) else { return };
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let mut path = Path::with(loaded, &setup, &settings(Policy::None)).unwrap();
        path.apply(&settings(Policy::Rps)).unwrap();
        while path.pending().is_none() {
            path.graces.until_all_are_over();
            path.tick().unwrap();
        }
        assert!(path.is_flushing);
        then(path);
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap());
}

fn settings(policy: Policy) -> Settings {
    Settings::new(policy, "0".parse().unwrap())
}

#[test]
fn interface_that_is_attached_during_a_change_waits_for_it() {
    let test = "path::interface_that_is_attached_during_a_change_waits_for_it";
    during_a_change(test, |mut path| {
        let id = path.attach(1, "lo", 1, false).unwrap();
        let place = |path: &mut Path| path.bss().steer_devices[(1 % MAX_DEVICES) as usize];
        assert_eq!(place(&mut path).ifindex, 0, "its frames pass as if no program were attached");
        path.tick_until_done().unwrap();
        assert_eq!((place(&mut path).ifindex, place(&mut path).flags & FLUSHING), (1, 0));
        assert_eq!(path.settings().policy, Policy::Rps);
        path.detach(id);
        assert!(!path.is_fully_detached(id));
        assert!(matches!(path.attach(1, "lo", 1, false), Err(AttachError::StillDetaching)));
        path.graces.until_all_are_over();
        path.tick_until_done().unwrap();
        assert!(path.is_fully_detached(id) && place(&mut path).ifindex == 0);
    });
}

/// Neither waits for ever where the other comes again and again.
#[test]
fn interfaces_and_changes_take_turns() {
    during_a_change("path::interfaces_and_changes_take_turns", |mut path| {
        path.tick_until_done().unwrap();
        let is_steered = |path: &mut Path| path.bss().steer_devices[1].ifindex == 1;
        let sparse = settings(Policy::Sparse(Slots::of(4)));
        path.apply(&sparse).unwrap();
        path.attach(1, "lo", 1, false).unwrap();
        while path.settings() != &sparse {
            assert!(!is_steered(&mut path), "the change was requested before");
            path.graces.until_all_are_over();
            path.tick().unwrap();
        }
        path.apply(&settings(Policy::Rps)).unwrap();
        while path.settings() == &sparse {
            path.graces.until_all_are_over();
            path.tick().unwrap();
        }
        assert!(is_steered(&mut path), "the interface came before the second change");
    });
}

#[test]
fn rename_during_a_change_does_not_undo_it() {
    during_a_change("path::rename_during_a_change_does_not_undo_it", |mut path| {
        let id = path.attach(1, "lo", 1, false).unwrap();
        path.rename(id, "other");
        path.tick_until_done().unwrap();
        assert_eq!(path.settings().policy, Policy::Rps);
        assert_eq!(path.known_devices()[0].name, "other");
    });
}

#[test]
fn other_settings_replace_those_that_are_not_active_yet() {
    let test = "path::other_settings_replace_those_that_are_not_active_yet";
    during_a_change(test, |mut path| {
        let sparse = settings(Policy::Sparse(Slots::of(4)));
        path.apply(&sparse).unwrap();
        assert_eq!(path.settings_in_force().unwrap().policy, Policy::None);
        path.tick().unwrap();
        assert_eq!(path.latest(), &sparse);
        path.tick_until_done().unwrap();
        assert_eq!((path.settings(), path.settings_in_force()), (&sparse, None));
        assert!(!path.is_flushing);
    });
}

#[test]
fn drain_during_a_change_ends_it() {
    during_a_change("path::drain_during_a_change_ends_it", |mut path| {
        path.begin_drain().unwrap();
        while !path.is_drained() {
            path.graces.until_all_are_over();
            path.tick().unwrap();
        }
        assert!(path.change.is_none() && !path.is_flushing && path.passes_frames);
    });
}

/// The report at the end has the rules that held, although programs without rules let frames pass by then.
#[test]
fn rules_stay_known_while_frames_pass_at_the_end() {
    let Some(loaded) =
        loaded("path::rules_stay_known_while_frames_pass_at_the_end", load(&setup()))
    else {
        return;
    };
    let rule: PacketRule = "udp → 0".parse().unwrap();
    let all = Settings::new(Policy::Rps, "0".parse().unwrap());
    let settings = Settings { packet_rules: vec![rule.clone()], ..all };
    let mut path = Path::with(loaded, &setup(), &settings).unwrap();
    path.tick_until_done().unwrap();
    let view = path.view().unwrap();
    assert_eq!(view.rule_hits(), [(rule.clone(), 0)]);
    path.begin_drain().unwrap();
    while !path.is_drained() {
        path.graces.until_all_are_over();
        path.tick().unwrap();
    }
    path.tick().unwrap();
    assert_eq!(view.rule_hits(), [(rule, 0)]);
}

/// Where the load can't be measured any more, no bucket moves, and the path says why until it can be measured again.
#[test]
fn buckets_stay_while_the_load_is_unknown() {
    let test = "path::buckets_stay_while_the_load_is_unknown";
    let Some(loaded) = loaded(test, load(&setup())) else { return };
    let policy: Policy = "balance:interval=10ms".parse().unwrap();
    let mut path =
        Path::with(loaded, &setup(), &Settings::new(policy, "0".parse().unwrap())).unwrap();
    let interval = |path: &mut Path| {
        if let Some(counting) = &mut path.counting {
            counting.end_interval();
        }
        path.balance();
    };
    interval(&mut path);
    interval(&mut path);
    assert!(path.counting.is_some() && path.buckets().problem.is_none());
    for stopped in [(|| None) as fn() -> Option<String>, || Some("cpu0 1 2".to_owned())] {
        path.read_stat = stopped;
        interval(&mut path);
        let why = path.buckets().problem.clone().expect("it says so");
        assert!(why.starts_with("the load can't be measured, so no bucket moves"), "{why}");
        assert!(path.counting.is_none(), "what was counted before the gap counts no more");
        let moved = path.buckets().moved;
        interval(&mut path);
        assert_eq!((path.buckets().moved, path.counting.is_none()), (moved, true));
        path.read_stat = balance::read_stat;
        interval(&mut path);
        assert!(path.counting.is_some() && path.buckets().problem.is_none());
    }
}
