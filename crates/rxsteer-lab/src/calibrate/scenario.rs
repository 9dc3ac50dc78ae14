//! The costs, and the scenario that has them.

use super::Time;
use super::cells::{Cell, INLINE_FLOWS, INLINE_LENGTH, LONG, MANY};
use crate::experiment::{Machine, Method};
use crate::forwarding::End;
use rxsteer_sim::costs::{COSTS, default_costs};
use std::fmt::Write;

/// The methods of steering that are calibrated.
pub const METHODS: [Method; 3] =
    [Method::KernelRps, Method::Kernel("rps"), Method::Kernel("sparse")];

/// The times of a method, in nanoseconds of one CPU for one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steered {
    /// Steered to its own CPU, and forwarded there.
    pub local: f64,
    /// Handed to another CPU: the time of the CPU that receives.
    pub handed: f64,
    /// The same: the time of the CPU that forwards.
    pub remote: f64,
}

/// Costs of the simulator, in nanoseconds, with the names of `[costs]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostSet {
    /// Making and receiving a frame.
    pub receive: f64,
    /// Hash and decision.
    pub steer: f64,
    /// Putting it onto a list for another CPU.
    pub hand_off: f64,
    /// Everything from the entry of the stack on, sending included.
    pub forward: f64,
    /// What a packet costs more after it changed its CPU.
    pub miss: f64,
}

impl CostSet {
    /// The costs that explain the times of a method:
    ///
    /// ```text
    ///   local  = receive + steer + forward
    ///   handed = receive + steer + hand_off
    ///   remote =                   forward + miss
    /// ```
    ///
    /// Three times leave one of the four unknowns open, here `receive` + `steer`. It changes no prediction, since each packet takes
    /// one of these paths. It is `receive` without steering, or the nearest value with which no cost is negative. If a packet
    /// takes longer on one CPU than on two together, there is none; then `remote` counts and `forward` is cut.
    #[must_use]
    pub fn of(times: Steered, receive: f64) -> CostSet {
        let Steered { local, handed, remote } = times;
        let (least, most) = ((local - remote).max(0.0), handed.min(local));
        let begin = receive.clamp(least.min(most), most);
        let forward = (local - begin).min(remote);
        CostSet {
            receive: receive.min(begin),
            steer: (begin - receive).max(0.0),
            hand_off: handed - begin,
            forward,
            miss: remote - forward,
        }
    }
}

/// The time with this cell. All cells were measured.
fn time<'a>(cells: &[Cell], times: &[&'a Time], of: Cell) -> &'a Time {
    let index = cells.iter().position(|cell| *cell == of).unwrap_or(0);
    times[index]
}

/// The scenario. `times` are those of `cells`.
pub(super) fn text(
    machine: &Machine,
    cells: &[Cell],
    times: &[&Time],
    rounds: usize,
    quick: bool,
) -> String {
    let ns = |cell| time(cells, times, cell).median_ns;
    let inline = ns(Cell::Inline { flows: INLINE_FLOWS, length: INLINE_LENGTH });
    let long = ns(Cell::Inline { flows: INLINE_FLOWS, length: LONG });
    let many = ns(Cell::Inline { flows: MANY, length: INLINE_LENGTH });
    // A difference of two medians may come out negative by chance.
    let receive = ns(Cell::Ends(End::Entry)).min(inline);
    let route = ns(Cell::Ends(End::Route)).clamp(receive, inline);
    let transmit = inline - route;
    let byte = (long - inline).max(0.0) / f64::from(LONG - INLINE_LENGTH);
    let cache = default_costs().flow_cache;
    let share = |flows: u32| f64::from(flows) / (f64::from(flows) + cache);
    let flow_miss = (many - inline).max(0.0) / (share(MANY) - share(INLINE_FLOWS));
    // What a frame of 64 bytes of one of 64 flows has of both.
    let included = byte * f64::from(INLINE_LENGTH) + flow_miss * share(INLINE_FLOWS);
    let protocol = |forward: f64| (forward - transmit - included).max(0.0);

    let mut text = String::new();
    let from = |cell| {
        let Time { what, median_ns, lower_ns, upper_ns, .. } = time(cells, times, cell);
        format!("{median_ns:.0} ({lower_ns:.0} to {upper_ns:.0}) ns: {what}")
    };
    let mut line = |key: &str, value: f64, why: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{key} = {value:.1}  # {why}");
    };
    let inline_cell = Cell::Inline { flows: INLINE_FLOWS, length: INLINE_LENGTH };
    line(
        "receive",
        receive,
        &format!("measured, with making the frame: {}", from(Cell::Ends(End::Entry))),
    );
    line(
        "protocol",
        protocol(inline - receive),
        &format!("measured, less receive: {}", from(Cell::Ends(End::Route))),
    );
    line("transmit", transmit, &format!("measured, less the route: {}", from(inline_cell)));
    let of_long = from(Cell::Inline { flows: INLINE_FLOWS, length: LONG });
    let of_many = from(Cell::Inline { flows: MANY, length: INLINE_LENGTH });
    let _ = writeln!(
        text,
        "protocol_byte = {byte:.4}  # measured, the difference for each byte: {of_long}"
    );
    let _ = writeln!(
        text,
        "flow_miss = {flow_miss:.1}  # measured, the difference for more flows: {of_many}"
    );
    for (key, why) in [
        ("interrupt", "included in receive: a veth has no interrupt"),
        ("splice", "included in hand_off"),
        ("wake_up", "included in hand_off"),
        ("woken", "included in the miss of a method"),
    ] {
        let _ = writeln!(text, "{key} = 0  # {why}");
    }
    let measured = [
        "receive",
        "protocol",
        "transmit",
        "protocol_byte",
        "flow_miss",
        "interrupt",
        "splice",
        "wake_up",
        "woken",
    ];
    for cost in COSTS.iter().filter(|cost| !measured.contains(&cost.key)) {
        let per_method = ["steer", "hand_off", "miss_shared", "miss_remote"].contains(&cost.key);
        let why = if per_method { "not used without a set" } else { "not measured, the default" };
        let _ = writeln!(text, "{} = {}  # {why}", cost.key, cost.default);
    }
    let costs = text;

    let mut sets = String::new();
    for method in METHODS {
        let at = [Cell::Local(method), Cell::Handed(method), Cell::Remote(method)];
        let [local, handed, remote] = at.map(ns);
        let set = CostSet::of(Steered { local, handed, remote }, receive);
        let [of_local, of_handed, of_remote] = at.map(from);
        let forward_rest = transmit.min(set.forward);
        let _ = write!(
            sets,
            "\n[cost_set.{}]\n# receive + steer + protocol + transmit = {of_local}\n# receive + steer + hand_off = {of_handed}\n\
             # protocol + transmit + miss = {of_remote}\n\
             receive = {:.1}\nsteer = {:.1}\nhand_off = {:.1}\nprotocol = {:.1}\ntransmit = {forward_rest:.1}\n\
             miss_shared = {:.1}\nmiss_remote = {:.1}\n",
            method.simulated().0,
            set.receive,
            set.steer,
            set.hand_off,
            protocol(set.forward),
            set.miss,
            set.miss
        );
    }
    let short = if quick { " A short run: these figures decide nothing." } else { "" };
    format!(
        "# The costs of packets on this machine: {}, {} CPUs, Linux {}.\n\
         # Made by `rxsteer lab calibrate` {} in {rounds} interleaved rounds. Medians, with quartiles in parentheses.{short}\n\
         #\n\
         # A veth pair is the NIC, and CPU 0 makes the frames, so `receive` contains making a frame.\n\
         #   rxsteer sim FILE                                                              no steering\n\
         #   rxsteer sim FILE --set steering.policy=rps --set costs.set=kernel-rps         the kernel's RPS\n\
         #   rxsteer sim FILE --set steering.policy=rps --set costs.set=rps                rxsteer run --policy rps\n\
         # `rxsteer lab validate FILE` compares predictions with measurements.\n\n\
         title = \"This machine: a router of veth pairs, as calibrated\"\n\
         duration = \"300ms\"\nwarm_up = \"50ms\"\n\n\
         [machine]\ncpus = {}\n\n\
         [[nic]]\nname = \"in\"\nrate = \"100Gbit\"\nqueues = 1\nirq_cpus = \"0\"\nring = 1024\n\n\
         [[nic]]\nname = \"out\"\nrate = \"100Gbit\"\nirq_cpus = \"0\"\n\n\
         [costs]\n{costs}{sets}\n\
         [steering]\npolicy = \"none\"\ncpus = \"0-{}\"\n\n\
         [[traffic]]\nname = \"transit\"\nkind = \"constant\"\nnic = \"in\"\nout = \"out\"\nflows = {INLINE_FLOWS}\n\
         frame_bytes = {INLINE_LENGTH}\npoisson = false\nrate = {:.0}  # half of what one CPU forwards\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.rxsteer,
        machine.cpus,
        machine.cpus - 1,
        0.5e9 / inline
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::cells;

    /// The times that a set of costs explains.
    fn explained(set: CostSet) -> Steered {
        let begin = set.receive + set.steer;
        Steered {
            local: begin + set.forward,
            handed: begin + set.hand_off,
            remote: set.forward + set.miss,
        }
    }

    fn is_valid(set: &CostSet) -> bool {
        [set.receive, set.steer, set.hand_off, set.forward, set.miss]
            .iter()
            .all(|cost| *cost >= 0.0)
    }

    #[test]
    fn costs_add_up_to_the_times() {
        let table = [
            (Steered { local: 1000.0, handed: 600.0, remote: 800.0 }, 500.0),
            // Receiving is cheaper than without steering, since another CPU allocates the buffer.
            (Steered { local: 1000.0, handed: 300.0, remote: 900.0 }, 500.0),
            // Forwarding is cheaper than without steering: the part before it is not.
            (Steered { local: 1000.0, handed: 900.0, remote: 300.0 }, 500.0),
            (Steered { local: 1000.0, handed: 1200.0, remote: 1100.0 }, 0.0),
        ];
        for (times, receive) in table {
            let set = CostSet::of(times, receive);
            assert!(is_valid(&set), "{times:?}: {set:?}");
            let Steered { local, handed, remote } = explained(set);
            for (a, b) in [(local, times.local), (handed, times.handed), (remote, times.remote)] {
                assert!((a - b).abs() < 1e-9, "{times:?}: {set:?}");
            }
        }
    }

    #[test]
    fn times_that_no_costs_explain_give_valid_costs() {
        // One CPU takes longer than two together.
        let set = CostSet::of(Steered { local: 2000.0, handed: 500.0, remote: 700.0 }, 400.0);
        assert!(is_valid(&set), "{set:?}");
        assert_eq!((explained(set).handed, explained(set).remote), (500.0, 700.0));
    }

    #[test]
    fn simulator_reads_the_scenario() {
        let cells = cells::all();
        let owned: Vec<Time> = (0..cells.len())
            .map(|n| Time::of(cells[n].name(), &[700.0 + 40.0 * n as f64, 900.0]).unwrap())
            .collect();
        let times: Vec<&Time> = owned.iter().collect();
        let machine = Machine { cpus: 2, ..Machine::default() };
        let text = text(&machine, &cells, &times, 2, true);
        for method in METHODS {
            let set = ("costs.set".to_owned(), method.simulated().0.to_owned());
            let scenario = rxsteer_sim::file::read(&text, "x.toml", &[set]);
            assert!(scenario.unwrap().costs.steer >= 0.0, "{text}");
        }
        for cost in &COSTS {
            assert!(text.contains(&format!("\n{} = ", cost.key)), "{}: {text}", cost.key);
        }
    }
}
