//! How far a result depends on assumed costs: the scenario with one cost changed at a time.

use crate::compare::{figures, headlines};
use crate::costs::Cost;
use crate::metric::{Metric, Subject};
use crate::{RunResult, Scenario};

/// What each cost is multiplied by. A cost that was assumed may well be off by this.
pub const FACTORS: [f64; 2] = [0.5, 2.0];

/// The scenario with one cost changed.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The cost.
    pub cost: &'static Cost,
    /// Its value here.
    pub value: f64,
    /// The scenario with it.
    pub scenario: Scenario,
}

/// The variants of `scenario`: for each of `costs`, one for each of [`FACTORS`]. A value stays below the highest valid
/// one. Costs that the scenario does not pay have none.
#[must_use]
pub fn variants(scenario: &Scenario, costs: &[&'static Cost]) -> Vec<Variant> {
    let variant = |cost: &'static Cost, factor: f64| {
        let mut scenario = scenario.clone();
        let value = (cost.field)(&mut scenario.costs);
        *value = (*value * factor).min(cost.most);
        Variant { cost, value: *value, scenario }
    };
    let paid = costs.iter().filter(|cost| cost.is_paid(scenario));
    paid.flat_map(|cost| FACTORS.map(|factor| variant(cost, factor))).collect()
}

/// How a figure changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The metric of the figure.
    pub metric: &'static Metric,
    /// The subject of the figure.
    pub subject: Subject,
    /// The change of the mean, as a share of what it was.
    pub relative: f64,
}

/// How the headline figures of `runs` differ from those of `base`, over the seeds that both have. A figure that is 0 has no
/// change.
#[must_use]
pub fn changes(scenario: &Scenario, base: &[RunResult], runs: &[RunResult]) -> Vec<Change> {
    let change = |(metric, subject)| {
        let pairs = figures(scenario, base, runs, metric, subject);
        let (was, is) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        (was > 0.0).then(|| Change { metric, subject, relative: is / was - 1.0 })
    };
    headlines(scenario, base, runs, 1).into_iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::COSTS;
    use crate::sample::{result, scenario};

    #[test]
    fn changes_are_of_the_means_over_common_seeds() {
        let base: Vec<RunResult> = (0..3).map(result).collect();
        let mut runs: Vec<RunResult> = (1..3).map(result).collect();
        for run in &mut runs {
            run.traffic.iter_mut().for_each(|traffic| traffic.bits_per_second *= 0.5);
        }
        let changes = changes(&scenario(), &base, &runs);
        let of = |name| changes.iter().find(|it| it.metric.name == name).unwrap();
        assert_eq!(
            (of("bits_per_second").subject, of("bits_per_second").relative),
            (Subject::Run, -0.5)
        );
        assert_eq!(of("latency_p99_ns").relative, 0.0);
        assert!(super::changes(&scenario(), &base, &[]).is_empty());
    }

    #[test]
    fn each_variant_differs_in_one_cost() {
        let mut base = scenario();
        let all: Vec<&'static Cost> = COSTS.iter().collect();
        let named = |key| COSTS.iter().find(|cost| cost.key == key).unwrap();
        base.costs.receive = named("receive").most;
        let variants = variants(&base, &all);
        // The sample has three costs; the others are 0.
        let keys: Vec<&str> = variants.iter().map(|variant| variant.cost.key).collect();
        assert_eq!(keys, ["interrupt", "interrupt", "receive", "receive", "protocol", "protocol"]);
        for mut variant in variants {
            variant.scenario.check().unwrap();
            let field = (variant.cost.field)(&mut variant.scenario.costs);
            assert_eq!(*field, variant.value);
            *field = *(variant.cost.field)(&mut base.costs.clone());
            assert_eq!(variant.scenario, base, "{}", variant.cost.key);
        }
    }
}
