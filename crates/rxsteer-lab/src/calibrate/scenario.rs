//! Computes the costs, and writes the scenario with them.

use super::Time;
use super::cells::{
    Cell, INLINE_FLOWS, INLINE_LENGTH, LONG, MANY, METHODS, MORE, OF_REQUESTS, RULES,
};
use super::paused;
use crate::experiment::Machine;
use crate::forwarding::End;
use crate::method::Method;
use rxsteer_sim::costs::{COSTS, default_costs};
use rxsteer_sim::scenario::Pause;
use std::fmt::Write;

/// Packets per poll.
const POLL: f64 = 64.0;
/// A CPU that is busy for more than this share of the time has no time to sleep.
const FULL: f64 = 0.9;

/// The times of a method, in nanoseconds of one CPU per frame, while the other CPU is idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steered {
    /// Steered to its own CPU, and forwarded there.
    pub local: f64,
    /// Handed to another CPU: the time of the CPU that receives.
    pub handed: f64,
    /// The same: the time of the CPU that forwards.
    pub remote: f64,
    /// Whether the other CPU had time to sleep while all packets were handed off.
    pub sleeps: bool,
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
    /// Everything from the entry of the stack on, including sending, and the extra cost of a packet that changed its
    /// CPU.
    pub forward: f64,
}

impl CostSet {
    /// The costs that explain the times of a method:
    ///
    /// ```text
    ///   local  = receive + steer + forward
    ///   handed = receive + steer + hand_off, less the wake-ups that it does not have
    ///   remote =                   forward
    /// ```
    ///
    /// A poll takes 64 packets, since the source makes this many at once. While all packets are handed off, a poll
    /// wakes the other CPU at most once for 64 packets; with two CPUs, once for 32. `hand_off` includes the latter. The
    /// simulator's `wake_up` cannot, since its own polls take fewer packets at lower rates.
    ///
    /// `receive` is the cost without steering, if that is at most `local` less `remote`. It may be that no costs
    /// explain all three times: a packet takes longer on another CPU than all its work on one, or handing it over is
    /// quicker than receiving it. In that case this takes the nearest valid costs, and reduces `remote` before `local`.
    #[must_use]
    pub fn of(times: Steered, receive: f64, wake_up: f64) -> CostSet {
        let Steered { local, handed, remote, sleeps } = times;
        let forward = remote.min(local);
        let begin = local - forward;
        let woken = wake_up / (POLL / 2.0) - if sleeps { wake_up / POLL } else { 0.0 };
        CostSet {
            receive: receive.min(begin),
            steer: (begin - receive).max(0.0),
            hand_off: (handed - begin).max(0.0) + woken,
            forward,
        }
    }
}

/// The cost set of a firewall with [`RULES`] rules.
pub(crate) fn rules_set() -> String {
    format!("{RULES}-rules")
}

/// The cost set of requests and replies under a method.
pub(crate) fn requests_set(method: Method) -> String {
    format!("requests-{}", method.simulated().0)
}

/// The time of this cell. All cells must have been measured.
fn time<'a>(cells: &[Cell], times: &[&'a Time], of: Cell) -> &'a Time {
    let index = cells.iter().position(|cell| *cell == of).unwrap_or(0);
    times[index]
}

/// `flow_miss` and `flow_cache`, from the extra cost of a packet of one of 1024 and of 4096 flows compared with 64
/// flows.
fn flow_costs(more: f64, many: f64) -> (f64, f64) {
    let shares = |cache: f64| {
        let share = |flows: u32| f64::from(flows) / (f64::from(flows) + cache);
        (share(MORE) - share(INLINE_FLOWS), share(MANY) - share(INLINE_FLOWS))
    };
    let many = many.max(0.0);
    // The larger the cache, the smaller the part of the whole difference that appears with 1024 flows.
    let distance = |cache: f64| {
        let (of_more, of_many) = shares(cache);
        (of_more / of_many * many - more).abs()
    };
    let caches = (0..=65).map(|step| 64.0 * 1.1_f64.powi(step));
    let cache = caches.min_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    let cache = cache.unwrap_or(default_costs().flow_cache).round();
    (many / shares(cache).1, cache)
}

/// The text of the scenario. `times` are those of `cells`.
pub(super) fn text(
    machine: &Machine,
    (cells, times): (&[Cell], &[&Time]),
    pauses: &[Pause],
    rounds: usize,
    quick: bool,
) -> String {
    let inline_cell = Cell::Inline { flows: INLINE_FLOWS, length: INLINE_LENGTH };
    let (alone, beside) = (time(cells, times, inline_cell), time(cells, times, Cell::Beside));
    // The speed of a CPU while the other one is busy too. The simulator accepts more than a half.
    let speed = (alone.median_ns / beside.median_ns).clamp(0.5, 1.0);
    let ns = |cell| {
        let Time { median_ns, other_busy, .. } = time(cells, times, cell);
        median_ns * (1.0 - other_busy * (1.0 - speed))
    };
    let inline = ns(inline_cell);
    let long = ns(Cell::Inline { flows: INLINE_FLOWS, length: LONG });
    let many = ns(Cell::Inline { flows: MANY, length: INLINE_LENGTH });
    // By chance, a difference of two medians may be negative.
    let receive = ns(Cell::Ends(End::Entry)).min(inline);
    let route = ns(Cell::Ends(End::Route)).clamp(receive, inline);
    let transmit = inline - route;
    let rules = (ns(Cell::Matched) - ns(Cell::Dropped(Method::Kernel("rps")))).max(0.0);
    let byte = (long - inline).max(0.0) / f64::from(LONG - INLINE_LENGTH);
    let more = ns(Cell::Inline { flows: MORE, length: INLINE_LENGTH });
    let (flow_miss, cache) = flow_costs(more - inline, many - inline);
    let share = |flows: u32| f64::from(flows) / (f64::from(flows) + cache);
    // The part of both that a frame of 64 bytes of one of 64 flows already includes.
    let included = byte * f64::from(INLINE_LENGTH) + flow_miss * share(INLINE_FLOWS);
    let protocol = |forward: f64| (forward - transmit - included).max(0.0);

    let from = |cell| {
        let Time { what, median_ns, lower_ns, upper_ns, other_busy, .. } = time(cells, times, cell);
        let busy = 100.0 * other_busy;
        format!(
            "{median_ns:.0} ({lower_ns:.0} to {upper_ns:.0}) ns, other CPU {busy:.0} % busy: {what}"
        )
    };
    let with = |flows, length| from(Cell::Inline { flows, length });
    // When half of the packets are handed off, the other CPU sleeps between polls, and each poll of 64 packets wakes
    // it for 32 of them. If it does not sleep while all are handed off, the difference is a whole wake-up, otherwise
    // half of one. All methods wake a CPU in the same way, so this uses the median of their figures.
    let sleeps = |method| time(cells, times, Cell::Handed(method)).other_busy < FULL;
    let mut wake_ups = METHODS.map(|method| {
        let mixed = 2.0 * ns(Cell::Half(method)) - ns(Cell::Dropped(method));
        let rarely = mixed - ns(Cell::Handed(method));
        (rarely * if sleeps(method) { POLL } else { POLL / 2.0 }).max(0.0)
    });
    wake_ups.sort_by(f64::total_cmp);
    let wake_up = wake_ups[METHODS.len() / 2];
    let measured = [
        ("receive", receive, format!("with making the frame: {}", from(Cell::Ends(End::Entry)))),
        (
            "protocol",
            protocol(inline - receive),
            format!("less receive: {}", from(Cell::Ends(End::Route))),
        ),
        ("transmit", transmit, format!("less the route: {}", with(INLINE_FLOWS, INLINE_LENGTH))),
        ("protocol_byte", byte, format!("a byte's share of: {}", with(INLINE_FLOWS, LONG))),
        ("rules", rules, format!("less that without rules: {}", from(Cell::Matched))),
        ("flow_miss", flow_miss, format!("what more flows cost: {}", with(MANY, INLINE_LENGTH))),
        ("flow_cache", cache, format!("the same: {}", with(MORE, INLINE_LENGTH))),
    ];
    let included = [
        ("interrupt", "included in receive: a veth has no interrupt"),
        ("splice", "included in hand_off"),
        ("wake_up", "included in hand_off"),
        ("woken", "included in protocol, by method"),
        ("miss_shared", "included in protocol, by method"),
        ("miss_remote", "included in protocol, by method"),
    ];
    let mut text = String::new();
    for cost in &COSTS {
        let key = cost.key;
        // Writing to a string does not fail.
        let _ = if let Some((_, value, why)) = measured.iter().find(|(of, ..)| *of == key) {
            let digits = if key == "protocol_byte" { 4 } else { 1 };
            writeln!(text, "{key} = {value:.digits$}  # measured, {why}")
        } else if let Some((_, why)) = included.iter().find(|(of, _)| *of == key) {
            writeln!(text, "{key} = 0  # {why}")
        } else if ["steer", "hand_off"].contains(&key) {
            writeln!(text, "{key} = {}  # measured by method: see the cost sets", cost.default)
        } else {
            writeln!(text, "{key} = {}  # not measured, the default", cost.default)
        };
    }
    let costs = text;

    let mut sets = String::new();
    for method in METHODS {
        let at = [Cell::Local(method), Cell::Handed(method), Cell::Remote(method)];
        let [local, handed, remote] = at.map(ns);
        let sleeps = sleeps(method);
        let set = CostSet::of(Steered { local, handed, remote, sleeps }, receive, wake_up);
        let [of_local, of_handed, of_remote] = at.map(from);
        let woken = if sleeps { "a wake-up / 64" } else { "a wake-up / 32" };
        let forward_rest = transmit.min(set.forward);
        let _ = write!(
            sets,
            "\n[cost_set.{}]  # a wake-up takes {wake_up:.0} ns\n# receive + steer + protocol + transmit = {of_local}\n# receive + steer + hand_off - {woken} = {of_handed}\n\
             # protocol + transmit = {of_remote}\n\
             receive = {:.1}\nsteer = {:.1}\nhand_off = {:.1}\nprotocol = {:.1}\ntransmit = {forward_rest:.1}\n",
            method.simulated().0,
            set.receive,
            set.steer,
            set.hand_off,
            protocol(set.forward),
        );
    }
    let walled = ns(Cell::Rules).max(inline);
    let _ = write!(
        sets,
        "\n[cost_set.{}]  # no steering; the difference is that of {RULES} rules\nprotocol = {:.1}  # {}\n",
        rules_set(),
        protocol(walled - receive),
        from(Cell::Rules)
    );
    // All other costs must be 0: these times contain everything.
    let zero: String = COSTS
        .iter()
        .filter(|cost| !["service", "protocol", "wake_delay", "flow_cache"].contains(&cost.key))
        .map(|cost| format!("{} = 0\n", cost.key))
        .collect();
    // While both CPUs are busy, the simulator slows both down, so the scenario has the time of a CPU whose neighbour is
    // idle.
    let of_requests = |method| time(cells, times, Cell::Requests(method)).median_ns * speed;
    for method in OF_REQUESTS {
        let (all, light) = (of_requests(method), time(cells, times, Cell::Light(method)).median_ns);
        let _ = write!(
            sets,
            "\n[cost_set.{}]  # requests and replies\nprotocol = {all:.1}  # {}\nwake_delay = {:.1}  # less that: {}\n{zero}",
            requests_set(method),
            from(Cell::Requests(method)),
            (light - all).max(0.0),
            from(Cell::Light(method)),
        );
    }
    sets.push_str("\n# The simulator has no such latencies: `rxsteer lab validate` scales those of other loads by them.\n");
    for method in OF_REQUESTS {
        let _ = writeln!(sets, "[measured.{}]", requests_set(method));
        for (key, cell) in [("p99", Cell::Requests(method)), ("light_p99", Cell::Light(method))] {
            // Only requests have a p99.
            let Time { what, p99_ns, .. } = time(cells, times, cell);
            let p99 = p99_ns.unwrap_or_default();
            let _ =
                writeln!(sets, "{key} = {p99:.1}  # the 99th percentile, measured with: {what}");
        }
    }
    let _ = write!(
        sets,
        "\n# Pauses of a busy CPU: {:.2} % of the time. The costs above contain them. So `rxsteer lab validate` reduces the\n\
         # costs by this share when it simulates open loops of requests with these pauses, which their latencies depend on.\n",
        100.0 * paused(pauses)
    );
    for Pause { every_ns, lasts_ns } in pauses {
        let _ = writeln!(sets, "[[measured.pauses]]\nevery_ns = {every_ns}\nlasts_ns = {lasts_ns}");
    }
    let short = if quick { " A short run: these figures prove nothing." } else { "" };
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
         [machine]\ncpus = {}\n\
         # CPUs 0 and 1 slow each other down as SMT siblings do, whatever they share: {}\n\
         smt = [\"0-1\"]\nsmt_speed = {speed:.3}\n\n\
         [[nic]]\nname = \"in\"\nrate = \"100Gbit\"\nqueues = 1\nirq_cpus = \"0\"\nring = 1024\n\n\
         [[nic]]\nname = \"out\"\nrate = \"100Gbit\"\nirq_cpus = \"0\"\n\n\
         [costs]\n{costs}{sets}\n\
         [steering]\npolicy = \"none\"\ncpus = \"0-1\"\n\n\
         [[traffic]]\nname = \"transit\"\nkind = \"constant\"\nnic = \"in\"\nout = \"out\"\nflows = {INLINE_FLOWS}\n\
         frame_bytes = {INLINE_LENGTH}\npoisson = false\nrate = {:.0}  # half of what one CPU forwards\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.rxsteer,
        machine.cpus,
        from(Cell::Beside),
        0.5e9 / inline
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::cells::{self, Once};
    use crate::validate::Expected;

    /// The times that a set of costs explains.
    fn explained(set: CostSet) -> [f64; 3] {
        let begin = set.receive + set.steer;
        [begin + set.forward, begin + set.hand_off, set.forward]
    }

    #[test]
    fn costs_add_up_to_the_times() {
        let table = [
            ([1000.0, 600.0, 800.0], 150.0),
            // Receiving is cheaper than without steering, since another CPU allocates the buffer.
            ([1000.0, 300.0, 900.0], 500.0),
            ([1000.0, 900.0, 300.0], 500.0),
        ];
        for (times, receive) in table {
            let [local, handed, remote] = times;
            let set = CostSet::of(Steered { local, handed, remote, sleeps: false }, receive, 0.0);
            assert_eq!(explained(set), times, "{set:?}");
            assert!(set.receive <= receive && set.steer >= 0.0, "{set:?}");
        }
    }

    #[test]
    fn times_that_no_costs_explain_give_valid_costs() {
        let of = |local, handed, remote| {
            let times = Steered { local, handed, remote, sleeps: false };
            explained(CostSet::of(times, 400.0, 0.0))
        };
        // One CPU takes longer than two together.
        assert_eq!(of(2000.0, 500.0, 700.0), [2000.0, 1300.0, 700.0]);
        // Another CPU takes longer for a part than this one for all.
        assert_eq!(of(1000.0, 500.0, 1700.0), [1000.0, 500.0, 1000.0]);
    }

    #[test]
    fn hand_off_has_a_wake_up_for_32_packets() {
        let times = Steered { local: 1000.0, handed: 400.0, remote: 800.0, sleeps: false };
        let hand_off = |sleeps| CostSet::of(Steered { sleeps, ..times }, 100.0, 6400.0).hand_off;
        // Half of it was measured already, if the other CPU slept.
        assert_eq!((hand_off(false), hand_off(true)), (400.0, 300.0));
    }

    #[test]
    fn flow_costs_explain_both_differences() {
        for (miss, cache) in [(300.0, 500.0), (800.0, 20_000.0)] {
            let at = |flows: u32| miss * f64::from(flows) / (f64::from(flows) + cache);
            let found = flow_costs(at(MORE) - at(INLINE_FLOWS), at(MANY) - at(INLINE_FLOWS));
            let of = |flows: u32| found.0 * f64::from(flows) / (f64::from(flows) + found.1);
            for flows in [MORE, MANY] {
                let (a, b) = (of(flows) - of(INLINE_FLOWS), at(flows) - at(INLINE_FLOWS));
                assert!((a - b).abs() < 0.05 * b, "{flows}: {a} {b}");
            }
        }
        assert_eq!(flow_costs(-5.0, -3.0).0, 0.0);
    }

    #[test]
    fn simulator_reads_the_scenario() {
        let cells = cells::all();
        let owned: Vec<Time> = (0..cells.len())
            .map(|n| {
                // The slowest requests take far longer than the others.
                let once = |ns| Once { ns, other_busy: 0.5, p99_ns: Some(1000.0 * ns) };
                Time::of(cells[n].name(), &[once(700.0 + 40.0 * n as f64), once(900.0)]).unwrap()
            })
            .collect();
        let times: Vec<&Time> = owned.iter().collect();
        let machine = Machine { cpus: 2, ..Machine::default() };
        let pause = Pause { every_ns: 10_000_000, lasts_ns: 50_000 };
        let text = text(&machine, (&cells, &times), &[pause], 2, true);
        for method in METHODS {
            let set = ("costs.set".to_owned(), method.simulated().0.to_owned());
            let scenario = rxsteer_sim::file::read(&text, "x.toml", &[set]);
            assert!(scenario.unwrap().costs.steer >= 0.0, "{text}");
        }
        for cost in &COSTS {
            assert!(text.contains(&format!("\n{} = ", cost.key)), "{}: {text}", cost.key);
        }
        // Every row of a short validation can be predicted, requests among them.
        let go_on = std::sync::atomic::AtomicBool::new(false);
        let predictions = crate::validate::predict(&text, "x.toml", true, &go_on).unwrap().unwrap();
        for of in &predictions {
            assert!(of.predicted.rate > 0.0 && of.null.rate > 0.0, "{of:?}");
        }
        // Requests have the measured tail, in the null model too.
        for of in predictions.iter().filter(|of| of.predicted.p50.is_some()) {
            for Expected { p50, p99, .. } in [of.predicted, of.null] {
                assert!(p99 > p50.map(|us| 10.0 * us), "{of:?}");
            }
        }
    }
}
