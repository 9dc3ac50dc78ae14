//! How long a frame takes with many flows: querying the instance, updating the state, drawing.
//!
//! ```text
//! cargo bench -p rxsteer-top --bench frames                   an instance of this process with 100 000 flows
//! cargo bench -p rxsteer-top --bench frames -- PATH           the instance at a socket
//! ```

use rxsteer_status::testing::{Instance, Traffic};
use rxsteer_top::ratatui::Terminal;
use rxsteer_top::ratatui::backend::CrosstermBackend;
use rxsteer_top::ratatui::layout::Rect;
use rxsteer_top::ratatui::{TerminalOptions, Viewport};
use rxsteer_top::{App, Display, Reading, Target, Watcher, draw};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FLOWS: u32 = 100_000;
const CPUS: u16 = 64;
const FRAMES: usize = 200;
const INTERVAL: Duration = Duration::from_millis(100);
const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

/// The bytes that would be written to a terminal.
#[derive(Default)]
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn main() {
    // Cargo adds --bench.
    let socket = std::env::args().skip(1).find(|word| !word.starts_with("--")).map(PathBuf::from);
    let dir = tempfile::tempdir().expect("a folder");
    let mine = dir.path().join("s");
    let mut traffic = Traffic::new(CPUS, FLOWS);
    let instance = socket.is_none().then(|| {
        let status = move |flows| traffic.advance(INTERVAL.as_nanos() as u64, flows);
        Instance::at(&mine, status).expect("it listens")
    });
    let socket = socket.unwrap_or(mine);
    for (width, height) in SIZES {
        let text = measure(&socket, width, height);
        let mut out = std::io::stdout();
        out.write_all(text.as_bytes()).expect("standard output");
    }
    drop(instance);
}

/// Queries at intervals, as the view does; returns one line per step of a frame.
fn measure(socket: &std::path::Path, width: u16, height: u16) -> String {
    let mut watcher = Watcher::new(Target::Socket(socket.to_owned()));
    let area = Rect::new(0, 0, width, height);
    let mut app = App::new(Display { ascii: false, color: true }, INTERVAL, area);
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    let mut sink = Counted::default();
    let mut terminal =
        Terminal::with_options(CrosstermBackend::new(&mut sink), options).expect("a size is given");
    let mut steps: [Vec<Duration>; 4] = Default::default();
    let mut last: Option<Reading> = None;
    let started = Instant::now();
    for frame in 0..FRAMES {
        let due = INTERVAL * frame as u32;
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        let at = Instant::now();
        let reading = watcher.read().expect("the instance answers");
        let asked = Instant::now();
        last = Some(reading.clone());
        let cloned = Instant::now();
        app.update(reading);
        let updated = Instant::now();
        terminal.draw(|frame| draw(&app, frame.buffer_mut())).expect("nothing can fail");
        let drawn = Instant::now();
        let took = [asked - at, updated - cloned, drawn - updated];
        for (step, took) in steps.iter_mut().zip(took.into_iter().chain([took.iter().sum()])) {
            step.push(took);
        }
    }
    let took = started.elapsed();
    drop(terminal);
    let status = last.expect("there were frames").status;
    let flows = status.flow_statistics.map_or(0, |statistics| statistics.flows);
    let mut text = format!(
        "{width} x {height}, {flows} flows ({} in an answer), {} CPUs: {FRAMES} frames in {:.1} s, {:.1} a second, {} bytes a \
         frame to the terminal\n",
        status.largest_flows.len(),
        status.cpus.len(),
        took.as_secs_f64(),
        FRAMES as f64 / took.as_secs_f64(),
        sink.0 / FRAMES
    );
    for (name, times) in ["ask and parse", "take in", "draw", "frame"].iter().zip(&mut steps) {
        times.sort_unstable();
        let at = |share: f64| {
            times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3
        };
        text.push_str(&format!(
            "  {name:<14} median {:7.2} ms   p99 {:7.2} ms\n",
            at(0.5),
            at(0.99)
        ));
    }
    text
}
