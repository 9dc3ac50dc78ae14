//! Querying, losing and finding instances.

use super::*;
use rxsteer_status::testing::{Instance, sample};
use rxsteer_status::{FlowShown, ShareShown};

/// How long a test waits for an expected event.
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn lost_instance_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let serve = |pid| {
        let mut status = sample();
        status.pid = pid;
        Instance::at(&path, move |_| {
            status.running_ns += 1_000_000;
            status.clone()
        })
        .unwrap()
    };
    let instance = serve(1);
    let (news, heard) = channel();
    let commands =
        watch(Watcher::new(Target::Socket(path.clone())), Duration::from_millis(5), news).unwrap();
    let until = |is: &dyn Fn(&Update) -> bool| while !is(&heard.recv_timeout(TIMEOUT).unwrap()) {};
    until(&|update| matches!(update, Update::Reading(reading) if reading.status.pid == 1));
    drop(instance);
    std::fs::remove_file(&path).unwrap();
    until(
        &|update| matches!(update, Update::Lost(why) if why.contains("no instance can be reached")),
    );
    let _instance = serve(2);
    until(&|update| matches!(update, Update::Reading(reading) if reading.status.pid == 2));
    commands.send(Command::Pause(true)).unwrap();
    drop(commands);
    until(&|update| matches!(update, Update::Failed(_)));
}

#[test]
fn paused_instance_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (asked, questions) = channel();
    let _instance = Instance::at(&path, move |flows| {
        asked.send(flows).unwrap();
        sample()
    })
    .unwrap();
    let (news, _heard) = channel();
    let commands =
        watch(Watcher::new(Target::Socket(path)), Duration::from_millis(1), news).unwrap();
    assert_eq!(questions.recv_timeout(TIMEOUT).unwrap(), MAX_FLOWS);
    commands.send(Command::Pause(true)).unwrap();
    // Queries from before the command.
    while questions.recv_timeout(Duration::from_millis(200)).is_ok() {}
    commands.send(Command::Pause(false)).unwrap();
    questions.recv_timeout(TIMEOUT).unwrap();
}

#[test]
fn fewer_flows_are_asked_for_where_the_answer_would_be_too_long() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let cpus = (0..255).map(|cpu| ShareShown { cpu, packets: 1 << 40, bytes: 1 << 50 });
    let flow: FlowShown = serde_json::from_value(serde_json::json!({
        "flow": "10.0.0.1:1-10.0.0.2:2/tcp", "packets": 1u64 << 48, "bytes": 1u64 << 58, "moves": 0, "idle_s": 0.0,
        "tcp_flags": 0, "cpus": cpus.collect::<Vec<_>>(),
    }))
    .unwrap();
    let _instance = Instance::at(&path, move |flows| {
        let mut status = sample();
        status.largest_flows = vec![flow.clone(); flows as usize];
        status
    })
    .unwrap();
    let reading = Watcher::new(Target::Socket(path)).read().unwrap();
    let flows = reading.status.largest_flows.len();
    assert!((1..MAX_FLOWS as usize).contains(&flows), "{flows}");
}

#[test]
fn place_of_a_socket_is_known_by_its_link_too() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("mine"), dir.path().join("2.sock"));
    std::fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let all = [dir.path().join("1.sock"), link];
    assert_eq!(position(&all, &file), Position { number: 2, count: 2 });
    assert_eq!(position(&all, Path::new("/elsewhere")), Position { number: 1, count: 2 });
    assert_eq!(position(&[], &file), Position { number: 1, count: 1 });
}
