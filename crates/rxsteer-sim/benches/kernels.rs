//! The measured cases: how long the simulator takes for each simulated packet, on the router of the first
//! published table.

use rxsteer_bench::Case;
use rxsteer_sim::file::builtin;
use rxsteer_sim::{Scenario, run};

/// All cases of this crate.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, policy, flows) in [
        ("rps, 1 connection each way", "rps", "1"),
        ("sparse, 1 connection each way", "sparse", "1"),
        ("rps, 32 connections each way", "rps", "32"),
    ] {
        let settings = [
            ("steering.policy", policy),
            ("traffic.to-wan.flows", flows),
            ("traffic.to-lan.flows", flows),
            ("duration", "50s"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let router = builtin::find("router-4-slow-cores").expect("it is built in");
        let scenario = router.scenario(&settings).expect("the settings are right");
        // The same seed simulates the same packets each time.
        let packets =
            |scenario: &Scenario| run(scenario, 1).expect("it was checked").account.arrived;
        let per_iter = packets(&scenario);
        let run = Box::new(move || packets(&scenario));
        cases.push(Case { group: "a simulated packet", name, baseline: false, per_iter, run });
    }
    cases
}
