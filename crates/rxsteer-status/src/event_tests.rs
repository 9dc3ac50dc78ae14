use super::*;

fn refused(index: u64) -> NewEvent {
    NewEvent::new(EventKind::InterfaceRefused, format!("veth{index} is not steered"))
        .with("interface", format!("veth{index}"))
}

#[test]
fn the_last_hundred_are_kept_with_their_numbers() {
    let now = Instant::now();
    let mut log = EventLog::new(now);
    for index in 0..150_u64 {
        let later = now + Duration::from_secs(2 * index);
        let event = log.add(refused(index), later).expect("they are far apart");
        assert_eq!((event.number, event.kind.as_str()), (index + 1, "interface_refused"));
        assert_eq!(event.known_kind(), Some(EventKind::InterfaceRefused));
    }
    let latest = log.latest();
    assert_eq!((latest.len(), latest[0].number, latest[KEPT - 1].number), (KEPT, 51, 150));
    assert_eq!(latest[0].fields["interface"], "veth50");
    let text = serde_json::to_string(&latest[0]).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), latest[0]);
}

#[test]
fn each_event_is_let_through_or_counted() {
    let now = Instant::now();
    let mut log = EventLog::new(now);
    let (mut seen, mut left_out) = (0, 0);
    let mut take = |events: Vec<Event>| {
        for event in events {
            match event.known_kind() {
                Some(EventKind::Suppressed) => {
                    assert_eq!(event.fields["of"], "interface_refused");
                    left_out += event.fields["count"].as_u64().unwrap();
                }
                _ => seen += 1,
            }
        }
    };
    // A hundred events a second for half a minute.
    for tick in 0..300_u64 {
        let now = now + Duration::from_millis(100 * tick);
        for index in 0..10 {
            take(log.add(refused(index), now).into_iter().collect());
        }
        take(log.overdue(now));
    }
    let end = now + Duration::from_secs(30);
    assert!(log.add(NewEvent::new(EventKind::CpuOffline, "CPU 1"), end).is_some(), "by kind");
    take(log.rest(end));
    assert_eq!(seen + left_out, 3000);
    assert!((129..=131).contains(&seen), "100 at once, and one a second: {seen}");
    assert!(log.rest(end).is_empty() && log.overdue(end).is_empty());
    // A minute later there is room for others again.
    assert!(log.add(refused(0), end + Duration::from_secs(60)).is_some());
}

#[test]
fn names_are_distinct_and_events_of_newer_versions_are_read() {
    let mut names: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), EventKind::ALL.len());
    assert!(EventKind::ALL.iter().all(|kind| kind.help().ends_with('.')));
    let newer = r#"{"number":3,"time_ns":5,"kind":"moon_rose","text":"The moon rose"}"#;
    let event: Event = serde_json::from_str(newer).unwrap();
    assert_eq!((event.known_kind(), event.fields.len()), (None, 0));
}
