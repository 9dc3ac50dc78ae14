//! Well-behaved and misbehaving clients.

use super::*;
use crate::SettingsShown;
use crate::protocol::Changed;
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::path::PathBuf;

/// Answers every request except a change with a text of this length; completes changes on demand.
struct Fake {
    length: usize,
    done: bool,
    served: u32,
    withdrawn: u32,
}

impl Server for Fake {
    fn serve(&mut self, request: &Request) -> Option<Answer> {
        self.served += 1;
        match request {
            Request::Set { .. } => None,
            _ => Some(Answer::Error("x".repeat(self.length))),
        }
    }
    fn changed(&mut self) -> (bool, Answer) {
        let settings = SettingsShown {
            rules: vec![],
            policy: "rps".to_owned(),
            mode: "native".to_owned(),
            cpus: "0".to_owned(),
            rps_maps: Vec::new(),
            fallback: "hash".to_owned(),
            rfs_cpus: None,
            offline: None,
            queue_size: 1,
            flow_limit: None,
            threads: "fifo:1".to_owned(),
            shadow: false,
            flow_cnt: 1,
            sock_flow_entries: 1,
            rfs_namespaces: Some("own".to_owned()),
            inner: false,
            key_tunnels: "none".to_owned(),
            flow_stats: true,
            order_guard: true,
        };
        (
            self.done,
            Answer::Set(Changed {
                done: self.done,
                holds: self.done,
                settings: Box::new(settings),
            }),
        )
    }
    fn replaced(&mut self, settings: &[String]) -> Option<String> {
        settings.iter().find(|text| *text == "policy=old").map(|text| format!("not {text}"))
    }
    fn give_up(&mut self) -> Answer {
        self.withdrawn += 1;
        Answer::Error("withdrawn".to_owned())
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    path: PathBuf,
    control: Control,
    fake: Fake,
    now: Instant,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let control = Control::new(UnixListener::bind(&path).unwrap()).unwrap();
        let fake = Fake { length: 3, done: false, served: 0, withdrawn: 0 };
        Bench { _dir: dir, path, control, fake, now: Instant::now() }
    }

    fn client(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Enough rounds to complete everything that can be completed.
    fn rounds(&mut self) {
        for _ in 0..50 {
            self.control.serve(self.now, &mut self.fake);
        }
    }
}

const EXPLAIN: &str = "{\"do\":\"explain\",\"flow\":\"f\"}\n";

fn line(stream: &UnixStream) -> Option<String> {
    let mut line = String::new();
    BufReader::with_capacity(1, stream).read_line(&mut line).ok().filter(|length| *length > 0)?;
    Some(line)
}

#[test]
fn requests_are_answered_in_turn_and_piecewise() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write_all(EXPLAIN.repeat(2).as_bytes()).unwrap();
    client.write_all(&EXPLAIN.as_bytes()[..5]).unwrap();
    bench.rounds();
    assert_eq!(line(&client).as_deref(), Some("{\"error\":\"xxx\"}\n"));
    assert!(line(&client).is_some() && line(&client).is_none());
    client.write_all(&EXPLAIN.as_bytes()[5..]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    bench.rounds();
    assert!(line(&client).is_some(), "the last request counts, too");
    assert!(bench.control.clients.is_empty(), "and then it is let go");
}

#[test]
fn nonsense_is_named_and_what_is_too_long_ends() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write_all(b"nonsense\n\xff\n").unwrap();
    bench.rounds();
    for _ in 0..2 {
        assert!(line(&client).unwrap().starts_with("{\"error\":\"invalid request"));
    }
    let endless = vec![b'x'; 4096];
    for _ in 0..MAX_REQUEST / endless.len() + 2 {
        let _ = client.write(&endless);
        bench.rounds();
    }
    assert!(line(&client).unwrap().contains("at most 65536 bytes"));
    bench.rounds();
    assert!(bench.control.clients.is_empty());
}

#[test]
fn client_that_never_reads_stalls_no_other() {
    let mut bench = Bench::new();
    bench.fake.length = MAX_ANSWER / 2;
    let mut deaf = bench.client();
    deaf.write_all(EXPLAIN.repeat(50).as_bytes()).unwrap();
    bench.rounds();
    let served = bench.fake.served;
    assert!(served < 5, "nothing more is done for it: {served}");
    let held: usize = bench.control.clients.iter().map(|client| client.output.len()).sum();
    assert!(held > 0 && held <= MAX_ANSWER, "{held} bytes wait");
    bench.fake.length = 3;
    let mut other = bench.client();
    other.write_all(EXPLAIN.as_bytes()).unwrap();
    bench.rounds();
    assert!(line(&other).is_some());
    bench.now += IDLE_TIMEOUT;
    bench.rounds();
    assert!(bench.control.clients.is_empty(), "idle ones are let go");
}

#[test]
fn answer_that_is_too_long_is_refused() {
    let mut bench = Bench::new();
    bench.fake.length = MAX_ANSWER;
    let mut client = bench.client();
    client.write_all(EXPLAIN.as_bytes()).unwrap();
    bench.rounds();
    assert!(line(&client).unwrap().contains("ask for fewer flows"));
}

#[test]
fn there_is_a_limit_of_clients() {
    let mut bench = Bench::new();
    let mut clients: Vec<UnixStream> = (0..MAX_CLIENTS + 1).map(|_| bench.client()).collect();
    bench.rounds();
    let last = clients.pop().unwrap();
    assert!(line(&last).unwrap().contains("16 other clients are connected"));
    drop(clients);
    bench.rounds();
    let mut client = bench.client();
    client.write_all(EXPLAIN.as_bytes()).unwrap();
    bench.rounds();
    assert!(line(&client).is_some());
}

#[test]
fn change_is_answered_when_it_is_done_or_takes_too_long() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let request = "{\"do\":\"set\",\"settings\":[\"policy=rps\"]}\n";
    client.write_all(request.as_bytes()).unwrap();
    bench.rounds();
    assert!(line(&client).is_none());
    bench.fake.done = true;
    bench.rounds();
    assert!(line(&client).unwrap().contains("\"done\":true"));
    bench.fake.done = false;
    client.write_all(request.as_bytes()).unwrap();
    bench.rounds();
    // A later change replaced it, so that change is withdrawn, and the earlier one is not withdrawn again.
    bench.now += Duration::from_secs(1);
    let mut later = bench.client();
    later.write_all(request.as_bytes()).unwrap();
    bench.rounds();
    bench.now += CHANGE_TAKES - Duration::from_secs(1);
    bench.rounds();
    assert!(line(&client).unwrap().contains("\"done\":false"));
    assert!(line(&later).is_none() && bench.fake.withdrawn == 0);
    bench.now += Duration::from_secs(1);
    bench.rounds();
    assert!(line(&later).unwrap().contains("withdrawn"));
    assert_eq!(bench.fake.withdrawn, 1);
}

#[test]
fn client_whose_change_another_replaced_gets_no_success() {
    let mut bench = Bench::new();
    let [mut first, mut second] = [bench.client(), bench.client()];
    let asks = |client: &mut UnixStream, policy: &str| {
        let request = format!("{{\"do\":\"set\",\"settings\":[\"policy={policy}\"]}}\n");
        client.write_all(request.as_bytes()).unwrap();
    };
    asks(&mut first, "old");
    asks(&mut second, "new");
    bench.rounds();
    bench.fake.done = true;
    bench.rounds();
    assert!(line(&first).unwrap().contains("not policy=old"));
    assert!(line(&second).unwrap().contains("\"done\":true"));
}

#[test]
fn change_whose_client_gave_up_before_it_was_read_is_not_made() {
    let mut bench = Bench::new();
    let request = b"{\"do\":\"set\",\"settings\":[\"policy=rps\"]}\n";
    let mut client = bench.client();
    client.write_all(request).unwrap();
    drop(client);
    bench.rounds();
    assert_eq!(bench.fake.served, 0);
    assert!(bench.control.clients.is_empty());
    // A client that only shut down its sending side waits for the answer.
    let mut client = bench.client();
    client.write_all(request).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    bench.rounds();
    assert_eq!(bench.fake.served, 1);
}

#[test]
fn client_that_goes_while_it_waits_for_a_change_wakes_no_thread() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write_all(b"{\"do\":\"set\",\"settings\":[\"policy=rps\"]}\n").unwrap();
    bench.rounds();
    drop(client);
    let ready = nix::poll::poll(&mut bench.control.wait_for(), nix::poll::PollTimeout::ZERO);
    assert_eq!(ready, Ok(0));
    bench.rounds();
    assert!(bench.control.clients.is_empty());
    assert_eq!(bench.fake.withdrawn, 1, "its change is withdrawn");
}

#[test]
fn client_that_only_ends_its_requests_waits_for_its_change() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write_all(b"{\"do\":\"set\",\"settings\":[\"policy=rps\"]}\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    bench.rounds();
    assert_eq!((bench.control.clients.len(), bench.fake.withdrawn), (1, 0));
    bench.fake.done = true;
    bench.rounds();
    assert!(line(&client).unwrap().contains("\"done\":true"));
}
