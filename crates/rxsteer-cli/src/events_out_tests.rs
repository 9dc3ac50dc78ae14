use super::*;
use rxsteer_status::{EventLog, NewEvent};
use std::sync::{Arc, Mutex};
use std::time::Instant;

fn events(kinds: &[EventKind]) -> Vec<Event> {
    let now = Instant::now();
    let mut log = EventLog::new(now);
    let text = |kind: EventKind| format!("{} \u{1b}[2J\n of an interface", kind.name());
    kinds.iter().filter_map(|kind| log.add(NewEvent::new(*kind, text(*kind)), now)).collect()
}

#[test]
fn a_file_is_continued_with_one_line_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    let arg = EventsArg { to: Some(path.clone()) };
    let kinds = [EventKind::InterfaceGone, EventKind::Moves, EventKind::ChangeDone];
    let all = events(&kinds);
    for part in [&all[..1], &all[1..]] {
        let mut out = EventsTo::open(&arg).unwrap().begin().unwrap();
        part.iter().for_each(|event| out.take(event));
        out.close();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let read: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, all);
    let arg = EventsArg { to: Some(dir.path().join("none/events")) };
    let why = EventsTo::open(&arg).err().expect("there is no such folder").to_string();
    assert!(why.contains("for --events"), "{why}");
}

#[test]
fn without_events_the_messages_are_unchanged() {
    let [gone, steered, moves] =
        &events(&[EventKind::InterfaceGone, EventKind::InterfaceSteered, EventKind::Moves])[..]
    else {
        panic!("three events")
    };
    assert!(message(gone).unwrap().starts_with("rxsteer: interface_gone"));
    assert!(message(steered).unwrap().starts_with("interface_steered"));
    assert_eq!(message(moves), None);
    assert_eq!((level(gone), level(moves)), ("<4>", "<6>"));
}

/// A writer that is stalled, or fails, as long as a test wants.
#[derive(Clone, Default)]
struct Reader {
    stalled: Arc<Mutex<()>>,
    fails: Arc<Mutex<bool>>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        drop(self.stalled.lock().unwrap());
        if *self.fails.lock().unwrap() {
            return Err(std::io::Error::from_raw_os_error(28));
        }
        self.written.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_reader_loses_lines_and_delays_no_event() {
    let reader = Reader::default();
    let mut lines = Lines::begin("a pipe".to_owned(), Box::new(reader.clone()), false).unwrap();
    let event = &events(&[EventKind::Moves])[0];
    {
        let _stalled = reader.stalled.lock().unwrap();
        (0..ROOM + 100).for_each(|_| lines.take(event));
        assert!((98..=100).contains(&lines.lost), "{} lines", lines.lost);
    }
    let lost = lines.lost as usize;
    EventsOut { messages: false, stdout: false, lines: Some(lines) }.close();
    let written = reader.written.lock().unwrap();
    assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), ROOM + 100 - lost);
}

#[test]
fn a_full_disk_ends_nothing() {
    let reader = Reader::default();
    *reader.fails.lock().unwrap() = true;
    let lines = Lines::begin("a file".to_owned(), Box::new(reader.clone()), false).unwrap();
    let mut out = EventsOut { messages: false, stdout: false, lines: Some(lines) };
    out.take(&events(&[EventKind::Moves])[0]);
    out.close();
    assert_eq!(reader.written.lock().unwrap().len(), 0);
}

#[test]
fn only_what_systemd_named_is_the_journal() {
    assert!(!is_journal(std::io::stderr()), "tests are not started by systemd");
}
