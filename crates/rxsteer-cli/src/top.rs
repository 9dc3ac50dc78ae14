//! `rxsteer top`: the live view in the terminal. The view itself is the crate `rxsteer-top`.

use crate::change_spec::parse_interval;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// Watch running instances in the terminal: CPUs, flows, moves
///
/// It is a live view of rxsteer run, rxsteer live, or a replay. It reads the instance's control socket, as rxsteer
/// status does, and the host's CPU times.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer top                          the only instance, or the first of several\n  \
    rxsteer top eth0 --interval 500ms    the one that steers eth0, twice a second\n  \
    rxsteer top -r capture.pcap          a replay at recorded speed, while it runs\n  \
    rxsteer top --once                   one frame as text, without a terminal\n  \
    COLUMNS=120 LINES=40 rxsteer top --once --ascii > frame.txt\n\n\
    Keys: q quits, ? lists all keys: pause, sort, filter, scroll, the next instance. It needs 80 columns and 24 lines. \
    If the locale is not UTF-8, it draws in ASCII; if NO_COLOR is set, it uses no colours. All figures as JSON: \
    rxsteer \
    status --json --flows 1000.\n\n\
    Exit status: 0 success; 2 no instance runs, it does not answer, there is no terminal, or it is too small.")]
pub(crate) struct TopArgs {
    /// Only the instance that steers this interface
    #[arg(value_name = "IFACE", conflicts_with = "socket")]
    interface: Option<String>,

    /// Only the instance that listens at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,

    /// Replay this capture at its recorded speed, and watch that
    ///
    /// It starts rxsteer replay FILE --speed recorded, and ends it with the view.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["interface", "socket"])]
    replay: Option<PathBuf>,

    /// How often to query the instance, e.g. 500ms
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_top_interval)]
    interval: Duration,

    /// Print one frame as text, from two readings
    ///
    /// The readings are an interval apart. COLUMNS and LINES set the size of the frame; else it is the terminal's,
    /// else 100 by 40.
    #[arg(long)]
    once: bool,

    /// Draw in ASCII, even if the locale is UTF-8
    #[arg(long)]
    ascii: bool,
}

/// The bounds of --interval.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(3600);

fn parse_top_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_interval(text)?;
    if !(SHORTEST..=LONGEST).contains(&interval) {
        return Err("the interval must be 50ms to 1h, e.g. 1s".to_owned());
    }
    Ok(interval)
}

/// The command.
#[cfg(not(feature = "top"))]
pub(crate) fn command(_: &TopArgs) -> anyhow::Result<crate::Outcome> {
    anyhow::bail!(
        "this build has no view in the terminal: it was built without the feature 'top'. Rebuild with the default features; \
         rxsteer status shows the same figures"
    )
}

#[cfg(feature = "top")]
pub(crate) use showing::command;

#[cfg(feature = "top")]
mod showing {
    use super::TopArgs;
    use crate::{Outcome, output, signals};
    use anyhow::Context;
    use rxsteer_top::ratatui::layout::Size;
    use rxsteer_top::{Display, MIN_SIZE, Replay, Target, once, show};
    use std::ffi::OsStr;
    use std::io::IsTerminal;

    /// The size of a frame that no terminal gives.
    const SIZE: Size = Size { width: 100, height: 40 };

    /// The command.
    pub(crate) fn command(args: &TopArgs) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            args.once || (std::io::stdout().is_terminal() && std::io::stdin().is_terminal()),
            "standard input and output are not a terminal; rxsteer top --once prints one frame as text"
        );
        let size = args.once.then(frame_size);
        if let Some(Size { width, height }) = size {
            anyhow::ensure!(
                width >= MIN_SIZE.width && height >= MIN_SIZE.height,
                "a frame needs {} columns and {} lines, and has {width} and {height}; to set others: COLUMNS=100 \
                 LINES=40 rxsteer top --once",
                MIN_SIZE.width,
                MIN_SIZE.height
            );
        }
        let mut display = Display::of_environment(|name| std::env::var(name).ok());
        display.ascii |= args.ascii;
        // The child is to start with the signals as they are.
        let replay = args.replay.as_deref().map(|file| {
            let program = std::env::current_exe().context("can't start the replay")?;
            let options = ["--speed=recorded", "--end-with-parent"].map(OsStr::new);
            Replay::start(&program, &[file.as_os_str(), options[0], options[1]])
        });
        let replay = replay.transpose()?;
        let target = match (&replay, &args.socket, &args.interface) {
            (Some(replay), ..) => Target::Socket(replay.socket()),
            (None, Some(socket), _) => Target::Socket(socket.clone()),
            (None, None, Some(interface)) => Target::Interface(interface.clone()),
            (None, None, None) => Target::Any,
        };
        let signals = signals::block()?;
        let Some(size) = size else {
            show(target, replay, args.interval, display, signals)?;
            return Ok(Outcome::Success);
        };
        match once(target, replay, args.interval, size, display, signals)? {
            Some(frame) => output::print(&frame).map(|()| Outcome::Success),
            None => Ok(Outcome::Interrupted),
        }
    }

    /// The size of a frame that is printed.
    fn frame_size() -> Size {
        let given =
            |name: &str| std::env::var(name).ok()?.parse::<u16>().ok().filter(|size| *size > 0);
        let terminal = terminal_size::terminal_size();
        Size {
            width: given("COLUMNS").or(terminal.map(|(width, _)| width.0)).unwrap_or(SIZE.width),
            height: given("LINES").or(terminal.map(|(_, height)| height.0)).unwrap_or(SIZE.height),
        }
    }
}
