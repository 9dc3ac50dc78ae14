//! What becomes of interfaces, played with a datapath that is none.

use super::super::instance::Reply;
use super::super::instance::tests::{Mock, instance, link};
use super::super::protocol::{Answer, Request};
use super::*;

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
