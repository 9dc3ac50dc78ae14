//! Variants that take turns, round after round: on a noisy machine, only figures of the same round can be compared.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_bench::{Gate, Quartiles};
use serde_json::{Map, Value, json};

use super::others::Others;

/// How often a turn is repeated if the gate rejects it; after that its round has no figure for the variant.
const RETRIES: u32 = 4;

/// How often, and for how long, a turn waits for the gate to open.
const WAITS: u32 = 10;
const WAIT: Duration = Duration::from_millis(30);

/// How to measure.
#[derive(Args, Clone)]
pub(crate) struct Plan {
    /// How often each variant is measured.
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub(crate) rounds: usize,
    /// Frames sent in one turn.
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub(crate) frames: u64,
    /// Turns count only while a cache line takes at most this many nanoseconds from CPU to CPU.
    #[arg(long, value_name = "NS", default_value_t = 70.0)]
    pub(crate) gate_ns: f64,
    /// Turns count only if other processes take at most this share of one CPU.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub(crate) others: f64,
}

/// One of the compared variants.
pub(crate) struct Variant<'a> {
    pub(crate) name: &'static str,
    /// Runs one turn; returns packets per second.
    pub(crate) turn: Box<dyn FnMut() -> Result<f64> + 'a>,
}

/// The result: a row for each variant, with a figure for each round.
pub(crate) struct Figures {
    names: Vec<&'static str>,
    rows: Vec<Vec<Option<f64>>>,
    thrown_away: ThrownAway,
}

/// Discarded turns, by reason.
#[derive(Default)]
struct ThrownAway {
    /// Turns in which a cache line took too long from CPU to CPU.
    by_gate: u32,
    /// Turns in which other processes took too much of a CPU.
    by_others: u32,
}

/// Measures the variants in turns.
pub(crate) fn measure(variants: &mut [Variant<'_>], plan: &Plan) -> Result<Figures> {
    let gate =
        Gate::find(plan.gate_ns).map_err(|why| anyhow::anyhow!("no gate: {}", why.reason()))?;
    let is_open = || gate.one_way_ns().is_some_and(|ns| ns <= gate.limit_ns);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut rows = vec![vec![]; variants.len()];
    let mut thrown_away = ThrownAway::default();
    let mut order: Vec<usize> = (0..variants.len()).collect();
    // The first turn of each variant includes first-time costs, and is discarded.
    for variant in variants.iter_mut() {
        (variant.turn)()?;
    }
    for _ in 0..plan.rounds {
        order.shuffle(&mut rng);
        for &index in &order {
            let mut figure = None;
            for _ in 0..=RETRIES {
                let before = (0..WAITS).any(|_| {
                    is_open() || {
                        sleep(WAIT);
                        false
                    }
                });
                let others = Others::now();
                let value = (variants[index].turn)()?;
                let is_alone = Others::now().share_since(&others) <= plan.others;
                let is_fast = before && is_open();
                if is_alone && is_fast {
                    figure = Some(value);
                    break;
                }
                thrown_away.by_others += u32::from(!is_alone);
                thrown_away.by_gate += u32::from(is_alone);
            }
            rows[index].push(figure);
        }
    }
    anyhow::ensure!(
        rows.iter().any(|row| row.iter().any(Option::is_some)),
        "no turn counts: during {} other processes took more than {} of a CPU, before or after {} more a cache \
         line took more than {} ns from CPU to CPU. The machine is busy, or in a slow mode; try later, or with \
         larger --others and --gate-ns",
        thrown_away.by_others,
        plan.others,
        thrown_away.by_gate,
        gate.limit_ns
    );
    let names = variants.iter().map(|variant| variant.name).collect();
    Ok(Figures { names, rows, thrown_away })
}

impl Figures {
    /// The figures, and the ratio of each variant to `baseline` in the same round.
    pub(crate) fn report(&self, baseline: &str) -> Value {
        let base = self.names.iter().position(|name| *name == baseline).unwrap_or(0);
        let shown = |quartiles: Option<Quartiles>, digits: f64| {
            let round = |figure: f64| (figure * digits).round() / digits;
            quartiles.map(|q| json!([round(q.q1), round(q.median), round(q.q3)]))
        };
        let mut report = Map::new();
        for (name, row) in self.names.iter().zip(&self.rows) {
            let figures: Vec<f64> = row.iter().copied().flatten().collect();
            let ratio = Quartiles::of_pairs(row, &self.rows[base], |ours, theirs| ours / theirs);
            let figures = json!({
                "rounds": figures.len(),
                "packets_per_second": shown(Quartiles::of(&figures), 1.0),
                "ratio": shown(ratio, 1000.0),
            });
            report.insert((*name).to_owned(), figures);
        }
        report.insert("ratio_to".to_owned(), json!(baseline));
        let ThrownAway { by_gate, by_others } = self.thrown_away;
        let thrown_away = json!({ "slow_cache_line": by_gate, "other_processes": by_others });
        report.insert("turns_thrown_away".to_owned(), thrown_away);
        Value::Object(report)
    }
}
