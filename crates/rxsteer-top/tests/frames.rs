//! Compares drawn frames with snapshots. After an intended change:
//!
//! ```text
//! INSTA_UPDATE=always cargo test -p rxsteer-top --test frames
//! ```

use rxsteer_host::{CpuLoad, Load, Ticks};
use rxsteer_status::testing::{Traffic, sample};
use rxsteer_status::{State, Status};
use rxsteer_top::ratatui::buffer::Buffer;
use rxsteer_top::ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rxsteer_top::ratatui::layout::Rect;
use rxsteer_top::ratatui::style::Color;
use rxsteer_top::{App, Command, Display, Effect, Position, Reading, draw, frame_text};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
const PLAIN: Display = Display { ascii: false, color: false };
const ASCII: Display = Display { ascii: true, color: false };

fn app(display: Display, width: u16, height: u16) -> App {
    App::new(display, Duration::from_secs(1), Rect::new(0, 0, width, height))
}

/// A reading after each CPU has run for this many seconds: a quarter of the time in softirqs, and the less idle the
/// higher its number.
fn reading(status: Status, seconds: u64) -> Reading {
    let cpus = status.cpus.len() as u64;
    let load = |cpu: u64| {
        let all = seconds * 100;
        let ticks = Ticks { softirq: all / 4, idle: all * 3 / 4 * (cpus - cpu) / cpus, all };
        CpuLoad { cpu: cpu as u32, ticks, ..CpuLoad::default() }
    };
    let load = Load { cpus: (0..cpus).map(load).collect(), ..Load::default() };
    Reading { status, load: Some(load), position: Position { number: 1, count: 1 } }
}

/// The state after ten readings, one per second.
fn watched(mut app: App, mut traffic: Traffic) -> App {
    for second in 1..=10 {
        app.update(reading(traffic.advance(SECOND_NS, 1000), second));
    }
    app
}

fn key(app: &mut App, code: KeyCode) -> Effect {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn keys(app: &mut App, text: &str) {
    for c in text.chars() {
        key(app, KeyCode::Char(c));
    }
}

fn compare(name: &str, app: &App) -> String {
    let text = frame_text(app);
    let widest = text.lines().map(|line| line.chars().count()).max();
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
    assert!(widest.is_some_and(|widest| widest > 0));
    text
}

#[test]
fn small_terminal_has_all_panels() {
    compare("80x24", &watched(app(PLAIN, 80, 24), Traffic::new(4, 300)));
}

#[test]
fn middle_terminal_has_tables() {
    compare("120x40", &watched(app(PLAIN, 120, 40), Traffic::new(8, 5000)));
}

/// In shadow mode, the table shows what each CPU would get instead of its backlog and delays.
#[test]
fn shadow_mode_has_what_each_cpu_would_carry() {
    let mut traffic = Traffic::new(4, 300);
    let mut app = app(PLAIN, 80, 24);
    for second in 1..=10 {
        let mut status = traffic.advance(SECOND_NS, 1000);
        status.settings.shadow = true;
        for cpu in &mut status.cpus {
            cpu.would = Some(second * 1000 * (u64::from(cpu.cpu) + 1));
        }
        app.update(reading(status, second));
    }
    let text = compare("shadow", &app);
    assert!(text.contains("would/s") && !text.contains("waiting"), "{text}");
}

#[test]
fn large_terminal_has_all_columns() {
    let mut traffic = Traffic::new(16, 5000);
    traffic.drops = true;
    compare("200x60", &watched(app(PLAIN, 200, 60), traffic));
}

#[test]
fn many_cpus_stand_in_columns_and_scroll() {
    let mut app = watched(app(PLAIN, 80, 24), Traffic::new(64, 300));
    compare("80x24-64-cpus", &app);
    key(&mut app, KeyCode::End);
    assert!(frame_text(&app).contains("  63 █"), "{}", frame_text(&app));
    key(&mut app, KeyCode::Char('c'));
    compare("80x24-64-cpus-rows", &app);
    key(&mut app, KeyCode::Char('z'));
    key(&mut app, KeyCode::End);
    let text = frame_text(&app);
    assert!(text.contains("   63 ") && text.lines().count() == 24, "{text}");
    let wide = watched(self::app(PLAIN, 200, 60), Traffic::new(256, 10));
    compare("200x60-256-cpus", &wide);
}

#[test]
fn ascii_is_ascii() {
    let mut app = watched(app(ASCII, 120, 40), Traffic::new(4, 300));
    keys(&mut app, "/größe");
    let text = compare("120x40-ascii", &app);
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    let mut traffic = Traffic::new(4, 30);
    traffic.drops = true;
    let colours = |color| {
        let app = watched(app(Display { ascii: false, color }, 80, 24), traffic.clone());
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        draw(&app, &mut buffer);
        let colored = buffer.content.iter().filter(|cell| cell.fg != Color::Reset).count();
        (colored, frame_text(&app))
    };
    let ((with, text), (without, plain)) = (colours(true), colours(false));
    assert!(with > 0 && without == 0);
    assert_eq!(text, plain, "the same is said without colours");
    assert!(text.contains("! dropped") && text.contains(" !12 964 "), "drops have marks: {text}");
}

#[test]
fn hostile_names_are_escaped() {
    let mut status = sample();
    let hostile = "\x1b]0;owned\x07\u{202e}\n\u{9b}2J";
    status.interfaces[0].name = hostile.to_owned();
    status.interfaces.push(status.interfaces[0].clone());
    (status.interfaces[1].name, status.interfaces[1].state) =
        ("wlan\t0".to_owned(), State::Deleted);
    status.settings.policy = hostile.to_owned();
    status.threads_problem = Some(hostile.to_owned());
    let event = serde_json::json!({ "number": 1, "time_ns": 0, "kind": hostile, "text": hostile });
    status.events = vec![serde_json::from_value(event).expect("it is an event")];
    let mut traffic = Traffic::new(2, 3).advance(SECOND_NS, 10);
    for (flow, name) in traffic.largest_flows.iter_mut().zip([
        hostile,
        "表表表表表表表表表表表表表表表表表表表表表表",
        "",
    ]) {
        name.clone_into(&mut flow.flow);
    }
    status.largest_flows = traffic.largest_flows;
    for (width, height) in [(80, 24), (120, 40)] {
        let mut app = app(PLAIN, width, height);
        app.update(reading(status.clone(), 1));
        let text = compare(&format!("{width}x{height}-hostile"), &app);
        assert!(!text.replace('\n', "").contains(char::is_control) && !text.contains('\u{202e}'));
        app.lose(hostile);
        assert!(frame_text(&app).contains(r"NO ANSWER, trying again: \u001b]0;owned\u0007\u202e"));
    }
}

#[test]
fn lost_instance_keeps_its_last_reading() {
    let mut app = watched(app(PLAIN, 80, 24), Traffic::new(4, 300));
    app.lose("no instance can be reached at /run/rxsteer/4711.sock");
    assert!(compare("80x24-lost", &app).contains("NO ANSWER, trying again: no instance"));
}

#[test]
fn help_lists_the_keys() {
    let mut app = watched(app(PLAIN, 80, 24), Traffic::new(4, 300));
    keys(&mut app, "?");
    compare("80x24-help", &app);
    keys(&mut app, "x");
    assert!(frame_text(&app).contains("flows by rate"));
}

#[test]
fn flows_are_filtered_and_sorted_by_keys() {
    let mut app = watched(app(PLAIN, 100, 40), Traffic::new(4, 300));
    keys(&mut app, "b/0.17");
    compare("100x40-filter-typed", &app);
    key(&mut app, KeyCode::Enter);
    let text = frame_text(&app);
    assert!(text.contains("flows by bytes with \"0.17\"") && text.contains(" q quit"), "{text}");
    assert!(text.contains("10.0.0.17:") && !text.contains("10.0.0.18:"), "{text}");
    keys(&mut app, "/nothing like it");
    key(&mut app, KeyCode::Enter);
    assert!(frame_text(&app).contains("no flow contains the filter's text"));
    key(&mut app, KeyCode::Esc);
    assert!(frame_text(&app).contains("10.0.0.3:"));
    for (sort, name) in [('m', "moves"), ('p', "packets"), ('r', "rate"), ('s', "packets")] {
        keys(&mut app, &sort.to_string());
        assert!(frame_text(&app).contains(&format!("flows by {name}")), "{name}");
    }
}

#[test]
fn keys_ask_for_what_is_outside_the_view() {
    let mut app = watched(app(PLAIN, 80, 24), Traffic::new(4, 300));
    assert_eq!(key(&mut app, KeyCode::Char(' ')), Effect::Ask(Command::Pause(true)));
    assert!(frame_text(&app).contains("PAUSED"));
    assert_eq!(key(&mut app, KeyCode::Char(' ')), Effect::Ask(Command::Pause(false)));
    let slower = Command::Interval(Duration::from_secs(2));
    assert_eq!(key(&mut app, KeyCode::Char('-')), Effect::Ask(slower));
    for _ in 0..20 {
        key(&mut app, KeyCode::Char('+'));
    }
    assert!(frame_text(&app).contains("+- 100 ms"));
    assert_eq!(key(&mut app, KeyCode::Char('n')), Effect::Ask(Command::Next));
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Effect::Quit);
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('l'), KeyModifiers::CONTROL)), Effect::Redraw);
    keys(&mut app, "/q");
    assert_eq!(key(&mut app, KeyCode::Esc), Effect::None, "a letter of the filter does not quit");
    assert_eq!(key(&mut app, KeyCode::Char('q')), Effect::Quit);
}

#[test]
fn panels_scroll_as_far_as_they_have_rows() {
    let mut app = watched(app(PLAIN, 80, 24), Traffic::new(4, 300));
    key(&mut app, KeyCode::Tab);
    for _ in 0..3 {
        key(&mut app, KeyCode::End);
    }
    let text = frame_text(&app);
    assert!(text.contains("to 300 of 300"), "{text}");
    key(&mut app, KeyCode::Up);
    assert!(frame_text(&app).contains("to 299 of 300"));
    key(&mut app, KeyCode::PageUp);
    key(&mut app, KeyCode::Home);
    assert!(frame_text(&app).contains(", 1 to "));
    // A larger terminal and fewer flows leave no empty panel.
    key(&mut app, KeyCode::End);
    app.resize(Rect::new(0, 0, 120, 60));
    assert!(frame_text(&app).contains("to 300 of 300"));
    app.update(reading(Traffic::new(4, 2).advance(SECOND_NS, 10), 11));
    assert!(frame_text(&app).contains("10.0.0.1:"));
}

#[test]
fn terminal_without_room_is_named() {
    for (width, height) in [(79, 24), (80, 23), (30, 5)] {
        let mut app = watched(app(PLAIN, width, height), Traffic::new(4, 300));
        let text = frame_text(&app);
        assert!(
            text.contains("needs more room") && text.contains("80 columns, 24 lines"),
            "{text}"
        );
        assert_eq!(key(&mut app, KeyCode::Char('q')), Effect::Quit);
    }
    // Every size can be drawn on, and every key handled.
    for (width, height) in [(0, 0), (1, 1), (80, 1), (5, 60)] {
        let mut app = watched(app(PLAIN, width, height), Traffic::new(4, 300));
        for code in
            [KeyCode::End, KeyCode::Tab, KeyCode::PageDown, KeyCode::Char('c'), KeyCode::Char('z')]
        {
            key(&mut app, code);
            assert_eq!(frame_text(&app).lines().count(), usize::from(height));
        }
    }
}

#[test]
fn every_size_is_drawn_within_its_lines() {
    let mut traffic = Traffic::new(40, 300);
    traffic.drops = true;
    let mut app = watched(app(PLAIN, 80, 24), traffic);
    for (width, height) in (80..240).step_by(7).zip((24..).step_by(3)) {
        app.resize(Rect::new(0, 0, width, height));
        for code in ['z', 'z', 'c', 'c'] {
            keys(&mut app, &code.to_string());
            let text = frame_text(&app);
            assert_eq!(text.lines().count(), usize::from(height));
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)));
            let heads = text.lines().find(|line| line.starts_with("  CPU"));
            assert!(
                heads.is_some_and(|heads| heads.contains("p99") || heads.ends_with("proc./s")),
                "{text}"
            );
            assert!(text.lines().last().is_some_and(|line| line.starts_with(" q quit")), "{text}");
        }
    }
}

#[test]
fn first_reading_and_none_are_drawn() {
    let app_without = app(PLAIN, 80, 24);
    assert!(frame_text(&app_without).contains("waiting for an answer"));
    let mut app = app(PLAIN, 80, 24);
    app.update(reading(Traffic::new(4, 10).advance(SECOND_NS, 1000), 1));
    compare("80x24-first-reading", &app);
}

#[test]
fn states_are_reported_in_words() {
    let mut traffic = Traffic::new(2, 0);
    let mut status = traffic.advance(SECOND_NS, 10);
    (status.guarded, status.settings.flow_stats) = (false, false);
    status.settings.shadow = true;
    let mut app = app(PLAIN, 120, 24);
    app.update(reading(status.clone(), 1));
    let text = frame_text(&app);
    for words in ["order guard bypassed", "flows are not counted", ", shadow"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    status.changing = true;
    app.update(reading(status.clone(), 1));
    assert!(frame_text(&app).contains("a change is in progress"));
    status.settings.order_guard = false;
    app.update(reading(status, 1));
    assert!(frame_text(&app).contains("! order guard OFF by the settings"));
    app.end("THE REPLAY IS OVER: this is the last reading");
    assert!(frame_text(&app).contains("THE REPLAY IS OVER"));
}
