//! Tests that clients are answered whatever the event thread is doing.

use super::super::instance::tests::{Mock, MockView, instance, link};
use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::Path;

fn request(socket: &Path, request: &str) -> serde_json::Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    writeln!(stream, "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn clients_are_answered_while_the_event_thread_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let control = Control::new(UnixListener::bind(&path).unwrap()).unwrap();
    let mut instance = instance(&["a"], &[link(1, "a")]);
    let (queries, mut inbox) = QueryServer::<Mock>::new(MockView, instance.latest()).unwrap();
    let queries = queries.open(control).unwrap();
    // No thread reads the inbox.
    let status = request(&path, r#"{"do":"status","flows":3}"#);
    assert_eq!(status["status"]["interfaces"][0]["name"], "a", "{status}");
    assert_eq!(status["status"]["flow_statistics"]["packets"], 0, "{status}");
    let flow = "10.0.0.1:1-10.0.0.2:2/tcp";
    let explained = request(&path, &format!(r#"{{"do":"explain","flow":"{flow}"}}"#));
    assert_eq!(explained["explain"]["policy"], "rps", "{explained}");
    // The event thread makes or refuses a change.
    let changes = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let refused = request(&path, r#"{"do":"set","settings":["policy=x"]}"#);
            (refused, request(&path, r#"{"do":"set","settings":["policy=rfs"]}"#))
        });
        let mut asked = 0;
        while !asking.is_finished() {
            inbox.answer(|request| {
                asked += 1;
                instance.reply_to(request)
            });
            instance.tick();
            std::thread::yield_now();
        }
        assert!(asked >= 3, "both changes, and whether the second is done");
        asking.join().unwrap()
    });
    assert!(changes.0["error"].as_str().unwrap().contains("policy"), "{changes:?}");
    assert_eq!(changes.1["set"]["settings"]["policy"], "rfs", "{changes:?}");
    // The wake-up of the last request may have followed its answer; the next poll is for the next request.
    inbox.answer(|_| unreachable!("every question was answered"));
    // A change that is never made is refused when the instance ends.
    let last =
        std::thread::spawn(move || request(&path, r#"{"do":"set","settings":["policy=rps"]}"#));
    let mut fds = [PollFd::new(inbox.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(10_000_u16)), Ok(1), "it was asked");
    queries.close(inbox).unwrap();
    assert!(last.join().unwrap()["error"].as_str().unwrap().contains("is ending"));
}
