//! The types that a program passes to the library or gets from it are public under these names.

use rxsteer::{
    Balance, Front, Packet, PacketList, PacketRule, PipelineBuilder, PipelineError, Policy,
    QueueName, Speed, SteerChange, SteerCounter,
};

#[test]
fn policies_rules_and_changes_can_be_made_of_their_parts() {
    let rule: PacketRule = "udp dst-port 53 -> local".parse().unwrap();
    let policy = Policy::Balance(Front::default(), Balance { buckets: 256, ..Balance::DEFAULT });
    let builder = PipelineBuilder::new(policy, "0".parse().unwrap()).rules(vec![rule]);
    builder.check().unwrap();
    let queue: QueueName = 0.into();
    let change = SteerChange {
        rps_maps: Some(vec![(queue, "0".parse().unwrap())]),
        policy: Some(Policy::Rps),
        ..SteerChange::default()
    };
    let handler = |_cpu| {
        |list: &PacketList<'_>| {
            let _first: Option<Packet<'_>> = list.iter().next();
        }
    };
    let (pipeline, receivers) = builder.start(handler).unwrap();
    pipeline.control().change(&change).unwrap();
    let progress = receivers[0].progress();
    drop(receivers);
    assert_eq!(progress.steered(SteerCounter::Matched), 0);
    assert_eq!(pipeline.finish().unwrap().packets, 0);
}

#[test]
fn impossible_speeds_are_refused() {
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let builder =
            PipelineBuilder::new(Policy::Rps, "0".parse().unwrap()).speed(Speed::Times(factor));
        assert!(matches!(builder.check(), Err(PipelineError::Speed(_))), "{factor}");
    }
    assert!(
        PipelineBuilder::new(Policy::Rps, "0".parse().unwrap())
            .speed(Speed::Times(0.5))
            .check()
            .is_ok()
    );
}
