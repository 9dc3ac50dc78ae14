//! How an instance reacts when interfaces change, with a mock datapath.

use super::super::instance::tests::{Mock, host_reads, instance, link, status, texts};
use super::*;

fn states(instance: &Instance<Mock>) -> Vec<(&str, State)> {
    instance.interfaces.iter().map(|known| (known.name.as_str(), known.state)).collect()
}

#[test]
fn deleted_interface_is_reported_and_the_others_go_on() {
    let mut instance = instance(&["a", "b"], &[link(1, "a"), link(2, "b")]);
    // As in the kernel: first the interface is no longer listed, then the program is detached.
    assert_eq!(see(&mut instance, &[link(2, "b")]), [""; 0]);
    assert!(instance.needs_recheck());
    instance.path.attached.retain(|index| *index != 1);
    let lines = see(&mut instance, &[link(2, "b")]);
    assert!(
        lines.len() == 1 && lines[0].starts_with("a is no longer steered: it was deleted"),
        "{lines:?}"
    );
    assert_eq!(states(&instance), [("a", State::Deleted), ("b", State::Steered)]);
    assert!(!instance.needs_recheck() && !instance.has_nothing_to_steer());
    assert_eq!(see(&mut instance, &[link(2, "b")]), [""; 0], "it is said once");
    instance.path.attached.clear();
    see(&mut instance, &[]);
    see(&mut instance, &[]);
    assert!(instance.has_nothing_to_steer(), "the last of the named ones is gone");
}

/// Its number and flow tables are in use until then.
#[test]
fn interface_that_appears_waits_until_a_deleted_one_has_left() {
    let mut instance = instance(&["v*"], &[link(1, "v1")]);
    let attachments = instance.attachments;
    instance.path.attached.clear();
    instance.path.leaves_in = 2;
    let replaced = [link(2, "v1")];
    assert_eq!(see(&mut instance, &[]), [""; 0]);
    let lines = see(&mut instance, &replaced);
    assert!(lines.len() == 1 && lines[0].contains("it was deleted"), "{lines:?}");
    assert!(instance.path.attached.is_empty());
    assert_eq!(instance.attachments, attachments, "its counts go on");
    instance.tick();
    assert!(!instance.has_room_again());
    instance.tick();
    assert_eq!(instance.attachments, attachments + 1, "its counts are kept");
    assert!(instance.has_room_again(), "interfaces are listed once more");
    assert_eq!(see(&mut instance, &replaced).len(), 1);
    assert_eq!(instance.path.attached, [2]);
    assert!(!instance.has_room_again());
}

#[test]
fn interface_that_is_made_again_goes_on_in_its_row() {
    let mut instance = instance(&["v*"], &[link(1, "v1")]);
    let rows = |instance: &mut Instance<Mock>| -> Vec<(String, u32, u64)> {
        let row = |of: rxsteer_status::InterfaceStatus| {
            (of.name, of.ifindex, of.counts.get(LiveCounter::Received))
        };
        instance.show();
        status(instance).interfaces.into_iter().map(row).collect()
    };
    let goes = |instance: &mut Instance<Mock>, links: &[Link]| {
        instance.path.attached.retain(|index| links.iter().any(|link| link.index == *index));
        see(instance, links);
        see(instance, links);
    };
    Arc::make_mut(&mut instance.interfaces[0].counts).add(|_| 7);
    instance.path.partial.insert(1, 3);
    assert_eq!(instance.check_checksums().len(), 1);
    goes(&mut instance, &[]);
    assert_eq!(rows(&mut instance), [("v1".to_owned(), 1, 7)]);
    see(&mut instance, &[link(2, "v1"), link(3, "v3")]);
    assert_eq!(rows(&mut instance), [("v1".to_owned(), 2, 7), ("v3".to_owned(), 3, 0)]);
    instance.path.partial.insert(2, 5);
    assert_eq!(texts(instance.check_checksums()), [""; 0], "it was said of v1");
    // Another one gets the name.
    goes(&mut instance, &[link(3, "v3")]);
    assert_eq!(states(&instance), [("v1", State::Deleted), ("v3", State::Steered)]);
    assert_eq!(see(&mut instance, &[link(3, "v1")]), ["v3 was renamed to v1"]);
    assert_eq!(rows(&mut instance), [("v1".to_owned(), 3, 7)]);
    // The next one is refused, is deleted, is refused again, and is then steered: one row all the time.
    instance.path.refuses = vec![4, 5];
    for index in [4, 5] {
        goes(&mut instance, &[]);
        assert_eq!(states(&instance), [("v1", State::Deleted)]);
        see(&mut instance, &[link(index, "v1")]);
        assert_eq!(states(&instance), [("v1", State::Refused)]);
        assert_eq!(rows(&mut instance), [("v1".to_owned(), index, 7)]);
    }
    instance.path.refuses.clear();
    let later = Instant::now() + Duration::from_secs(9);
    assert!(instance.retry(&[link(5, "v1")], later).is_some());
    assert_eq!(states(&instance), [("v1", State::Steered)]);
    assert_eq!(rows(&mut instance), [("v1".to_owned(), 5, 7)]);
}

/// Settings go by names. Those of a former name are named once, and refuse no other change.
#[test]
fn settings_of_a_former_name_are_named() {
    let mut instance = instance(&["v1", "v2"], &[link(1, "v1"), link(2, "v2")]);
    instance.set(&["rps-map=v1=0-0".to_owned()]).unwrap();
    let lines = see(&mut instance, &[link(1, "w1"), link(2, "v2")]);
    assert!(lines[0].starts_with("v1 was renamed to w1; "), "{lines:?}");
    assert!(lines[0].ends_with("without effect now: rps-map v1"), "{lines:?}");
    instance.set(&["policy=rfs".to_owned()]).unwrap();
    let refused = instance.set(&["rps-map=v3=0-0".to_owned()]).unwrap_err();
    assert!(refused.contains("v3 is not steered here"), "{refused}");
}

#[test]
fn change_that_another_replaced_is_known() {
    let mut instance = instance(&["v1"], &[link(1, "v1")]);
    let settings = |text: &str| vec![text.to_owned()];
    instance.set(&settings("policy=rps")).unwrap();
    instance.set(&settings("queue-size=512")).unwrap();
    assert_eq!(instance.replaced(&settings("policy=rps")), None, "both hold");
    instance.set(&settings("policy=none")).unwrap();
    let why = instance.replaced(&settings("policy=rps")).unwrap();
    assert!(why.ends_with("policy=none (was rps)"), "{why}");
    assert_eq!(instance.replaced(&settings("policy=none")), None);
}

#[test]
fn one_that_moved_is_released() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    see(&mut instance, &[]);
    let lines = see(&mut instance, &[]);
    assert!(lines[0].contains("another network namespace"), "{lines:?}");
    assert_eq!(states(&instance), [("a", State::Moved)]);
    assert!(instance.path.attached.is_empty(), "it is left as it was found");
    assert!(instance.has_nothing_to_steer());
}

#[test]
fn program_that_was_taken_off_is_not_put_back() {
    let mut instance = instance(&["a*"], &[link(1, "a")]);
    instance.path.attached.clear();
    assert!(instance.lost_a_program());
    see(&mut instance, &[link(1, "a")]);
    let lines = see(&mut instance, &[link(1, "a")]);
    assert!(lines.len() == 1 && lines[0].contains("another process detached its XDP"), "{lines:?}");
    assert!(!instance.lost_a_program());
    assert_eq!(see(&mut instance, &[link(1, "a")]), [""; 0]);
    assert!(instance.path.attached.is_empty());
    assert!(!instance.has_nothing_to_steer(), "the pattern may bring others");
    let status = status(&mut instance);
    assert_eq!(status.interfaces[0].state, State::Detached);
    assert!(status.interfaces[0].why.is_some());
}

#[test]
fn named_interfaces_that_were_all_detached_leave_nothing_to_do() {
    let links = [link(1, "a"), link(2, "b")];
    let mut instance = instance(&["a", "b"], &links);
    instance.path.attached.retain(|index| *index == 2);
    see(&mut instance, &links);
    see(&mut instance, &links);
    assert!(!instance.has_nothing_to_steer(), "b is steered still");
    instance.path.attached.clear();
    see(&mut instance, &links);
    see(&mut instance, &links);
    assert!(instance.has_nothing_to_steer());
}

#[test]
fn queues_that_the_kernel_steers_or_that_have_no_table_are_reported_once() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    assert_eq!(texts(instance.see_queues(1, 2, &[])), [""; 0]);
    let lines = texts(instance.see_queues(1, 2, &[0, 1]));
    assert!(lines.len() == 1 && lines[0].starts_with("a: the kernel's RPS is on"), "{lines:?}");
    assert!(
        lines[0].contains("RX queue 0, 1") && lines[0].contains("host apply a --off"),
        "{lines:?}"
    );
    assert_eq!(texts(instance.see_queues(1, 2, &[0, 1])), [""; 0], "it was said");
    let status = status(&mut instance);
    assert_eq!(status.interfaces[0].state, State::Steered);
    assert!(status.interfaces[0].why.as_ref().is_some_and(|why| why.contains("RPS is on")));
    let lines = texts(instance.see_queues(1, 4, &[0, 1]));
    assert!(
        lines.len() == 1 && lines[0].contains("4 RX queues now, and flow tables for 2"),
        "{lines:?}"
    );
    let lines = texts(instance.see_queues(1, 2, &[]));
    assert_eq!(lines, ["a: its RX queues are steered by rxsteer alone again"]);
}

#[test]
fn names_and_up_and_down_are_followed() {
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let down = Link { up: false, ..link(1, "b") };
    assert_eq!(see(&mut instance, &[down]), ["a was renamed to b; b is down"]);
    assert_eq!(states(&instance), [("b", State::Down)]);
    assert_eq!(see(&mut instance, &[link(1, "b")]), ["b is up again"]);
}

#[test]
fn pattern_takes_what_appears() {
    let mut instance = instance(&["veth*"], &[]);
    assert!(!instance.has_nothing_to_steer());
    instance.path.refuses.push(3);
    let taken = Link { attached: Some(attached()), ..link(4, "veth4") };
    let links = [link(1, "lo"), link(2, "veth2"), link(3, "veth3"), taken];
    let lines = see(&mut instance, &links);
    assert_eq!(
        lines,
        [
            "steering veth2: native, 2 RX queues, rps to CPUs 0-1",
            "veth3 is not steered: the driver says no",
            "veth4 is not steered: another program is there",
        ]
    );
    assert_eq!(see(&mut instance, &links), [""; 0], "it is said and tried once");
    assert_eq!(instance.path.attached, [2]);
    let start = Instant::now();
    let later = |seconds| start + Duration::from_secs(seconds);
    assert!(!instance.has_retry(start), "it was tried just now");
    for _ in 0..2 {
        assert_eq!(instance.retry(&links, later(4)), None, "nothing has changed");
    }
    assert!(!instance.has_retry(later(4)), "each was tried once more");
    instance.path.refuses.clear();
    assert!(!instance.has_retry(later(9)), "the second time they wait twice as long");
    let event = instance.retry(&links, later(11));
    assert_eq!(
        event.as_ref().map(|event| &*event.text),
        Some("steering veth3: native, 2 RX queues, rps to CPUs 0-1")
    );
    assert_eq!(instance.path.attached, [2, 3]);
    assert!(instance.has_retry(later(11)), "the one that another program is on");
    // An interface with the same name is another interface.
    instance.path.attached.clear();
    see(&mut instance, &[]);
    see(&mut instance, &[]);
    assert!(!instance.has_retry(later(3600)));
    assert_eq!(see(&mut instance, &[link(9, "veth2")]).len(), 1);
    assert_eq!(instance.path.attached, [9]);
}

#[test]
fn refused_interfaces_are_tried_less_and_less_often_and_the_host_is_read_once_per_round() {
    let links: Vec<Link> = (1..=100).map(|index| link(index, &format!("v{index}"))).collect();
    let mut instance = instance(&["v*"], &[]);
    instance.path.refuses = (1..=100).collect();
    let reads = host_reads();
    let start = Instant::now();
    assert_eq!(instance.see_links(&links, start).len(), 100);
    assert_eq!(host_reads() - reads, 1, "one read for all that appear at once");
    // Ten minutes of ticks, ten a second.
    let (mut tried, mut rounds) = (0, 0);
    for tick in 1..=6000 {
        let now = start + Duration::from_millis(100 * tick);
        let before = host_reads();
        if instance.has_retry(now) {
            tried += 1;
            assert_eq!(instance.retry(&links, now), None);
        }
        rounds += host_reads() - before;
    }
    // After 3, 6, 12, 24 and 48 s, and then every minute, with some ticks in between when all are due at once.
    assert!((100 * 12..=100 * 14).contains(&tried), "{tried} in ten minutes");
    assert!(rounds <= 6000 / 30, "{rounds} reads of the host in 600 s");
    instance.path.refuses.clear();
    let now = start + Duration::from_secs(700);
    assert!(instance.retry(&links, now).is_some_and(|event| event.text.starts_with("steering v")));
    assert_eq!(instance.path.attached.len(), 1, "one at a time");
}

fn see(instance: &mut Instance<Mock>, links: &[Link]) -> Vec<String> {
    texts(instance.see_links(links, Instant::now()))
}

fn attached() -> rxsteer_host::Attached {
    rxsteer_host::Attached { mode: rxsteer_host::AttachedMode::Native, id: Some(5), holder: None }
}

#[test]
fn there_is_a_limit_of_interfaces() {
    let links: Vec<Link> = (1..=400).map(|index| link(index, &format!("v{index}"))).collect();
    let mut instance = instance(&["v*"], &[]);
    let lines = see(&mut instance, &links);
    assert_eq!(instance.path.attached.len(), MAX_INTERFACES);
    assert!(lines[69].contains("64 interfaces are steered already"), "{}", lines[69]);
    assert_eq!(lines.len(), MAX_INTERFACES + MAX_REFUSED);
    assert_eq!(instance.interfaces.len(), MAX_INTERFACES + MAX_REFUSED, "so is what is remembered");
}
