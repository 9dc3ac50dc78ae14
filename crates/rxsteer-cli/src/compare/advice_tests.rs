//! Tests every rule of the advice, with figures that lead to it.

use super::advice::{Advice, Measured, Rule, of};
use rxsteer_host::Help;
use rxsteer_user::core::Policy;

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// 1000 packets of 100 flows on 4 CPUs; medians of what fits, minimum and maximum a tenth apart.
fn measured(largest_flow: u64, medians: &[(&str, f64)]) -> Measured {
    let fits = medians.iter().map(|(name, fits)| (policy(name), [fits - 0.1, *fits, fits + 0.1]));
    Measured {
        cpus: 4,
        packets: 1000,
        flows: 100,
        largest_flow,
        fits: fits.collect(),
        apps_named: false,
        at_home: Some(0.9),
        inside: None,
        relief: None,
        too_few: None,
        left_out: 0,
    }
}

fn rule(advice: &Advice) -> (Rule, Option<String>) {
    (advice.rule, advice.policy.as_ref().map(ToString::to_string))
}

fn named(rule: Rule, policy: &str) -> (Rule, Option<String>) {
    (rule, Some(policy.to_owned()))
}

const SPREAD: [(&str, f64); 5] =
    [("none", 1.0), ("rps", 3.5), ("sparse", 3.6), ("rfs", 3.9), ("rfs+sparse", 3.9)];

#[test]
fn simplest_of_the_policies_that_are_as_good_is_named() {
    assert_eq!(rule(&of(&measured(50, &SPREAD))), named(Rule::Steer, "rps"));
    let few = [("none", 1.0), ("rps", 2.0), ("sparse", 4.0), ("rfs", 4.0), ("rfs+sparse", 4.0)];
    let advice = of(&measured(250, &few));
    assert_eq!(rule(&advice), named(Rule::Steer, "sparse"));
    assert!(
        advice.text.contains("4.0 x") && advice.text.contains("1.0 x without steering"),
        "{advice:?}"
    );
    assert!(advice.text.contains("rps gives 2.0 x (1.9 to 2.1)"), "{advice:?}");
    let mut unlucky = measured(250, &[("none", 1.0), ("rps", 3.5), ("sparse", 3.6)]);
    unlucky.fits[1].1[0] = 1.2;
    assert_eq!(rule(&of(&unlucky)), named(Rule::Steer, "sparse"), "the worst secret counts, too");
}

#[test]
fn balance_is_named_where_it_gives_enough_more() {
    let with = |balance| [("none", 1.0), ("rps", 2.0), ("sparse", 2.1), ("rps+balance", balance)];
    assert_eq!(rule(&of(&measured(250, &with(3.5)))).0, Rule::Steer);
    let advice = of(&measured(250, &with(3.5)));
    assert!(advice.policy.is_some_and(|policy| policy.balance().is_some()), "{}", advice.text);
    assert_eq!(rule(&of(&measured(250, &with(2.2)))), named(Rule::Steer, "rps"));
}

#[test]
fn rfs_is_named_only_where_applications_are() {
    let mut measured = measured(50, &SPREAD);
    measured.apps_named = true;
    assert_eq!(rule(&of(&measured)), named(Rule::Steer, "rfs"));
    measured.at_home = Some(0.1);
    assert_eq!(rule(&of(&measured)), named(Rule::Steer, "rps"), "it does not reach them");
}

#[test]
fn nothing_to_gain_is_left_alone() {
    let even = [("none", 3.6), ("rps", 3.7), ("sparse", 3.9)];
    assert_eq!(rule(&of(&measured(50, &even))), (Rule::Even, None));
    let collide = [("none", 1.0), ("rps", 1.1), ("sparse", 1.1)];
    assert_eq!(rule(&of(&measured(300, &collide))), (Rule::NoGain, None));
    let mut one = measured(50, &SPREAD);
    one.cpus = 1;
    assert_eq!(rule(&of(&one)), (Rule::OneCpu, None));
    let mut none = measured(0, &SPREAD);
    none.flows = 0;
    assert_eq!(rule(&of(&none)), (Rule::NoFlows, None));
    none.packets = 0;
    assert_eq!(rule(&of(&none)), (Rule::NoTraffic, None));
}

#[test]
fn one_flow_is_left_alone_unless_it_is_a_tunnel() {
    let one = [("none", 1.0), ("rps", 1.1), ("sparse", 1.1)];
    let mut measured = measured(900, &one);
    let advice = of(&measured);
    assert_eq!(rule(&advice), (Rule::OneFlow, None));
    assert!(advice.text.starts_with("Leave it alone: one flow has 90 %"), "{advice:?}");
    assert!(advice.text.contains("at most 1.1 x") && advice.text.contains("1.0 x without"));
    measured.inside = Some([1.0, 1.1, 1.1]);
    assert_eq!(rule(&of(&measured)), (Rule::OneFlow, None), "another tunnel inside, or none");
    measured.inside = Some([2.9, 3.2, 3.4]);
    let advice = of(&measured);
    assert_eq!(rule(&advice), named(Rule::InnerHeaders, "rps"));
    assert!(advice.inner);
}

#[test]
fn nothing_follows_from_a_packet_or_two() {
    let why = rxsteer_host::too_few("eth0", 0.3).unwrap();
    let few = Measured { packets: 1, flows: 1, too_few: Some(why), ..measured(1, &SPREAD) };
    let advice = of(&few);
    assert_eq!(rule(&advice), (Rule::TooFew, None));
    assert!(
        advice.text.contains("eth0 received 0 frames/s while it was measured, too few to judge")
    );
}

#[test]
fn measured_load_decides_before_the_spread() {
    let mut measured = measured(50, &SPREAD);
    measured.relief = Some(Help::Dont("CPU 0 spends 3 % of its time in softirqs".to_owned()));
    assert_eq!(rule(&of(&measured)), (Rule::NothingToRelieve, None));
    measured.relief = Some(Help::Likely("CPU 0 spends 97 % of its time in softirqs".to_owned()));
    let advice = of(&measured);
    assert_eq!(rule(&advice), named(Rule::Steer, "rps"));
    assert!(advice.text.ends_with("It is needed: CPU 0 spends 97 % of its time in softirqs."));
    measured.relief = Some(Help::Unknown("it is quiet".to_owned()));
    assert_eq!(rule(&of(&measured)), named(Rule::Steer, "rps"));
}
