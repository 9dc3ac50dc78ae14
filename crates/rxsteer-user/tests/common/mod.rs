//! Helpers of the receive path's tests.
#![allow(unreachable_pub, reason = "tests are no library")]

use rxsteer_user::core::CpuId;
use rxsteer_user::packet::{Hasher, LinkType, SymmetricHash};
use rxsteer_user::source::Source;
use rxsteer_user::source::synthetic::SyntheticSource;
use rxsteer_user::{FrameInfo, Handler, OnFull, PacketList, PipelineConfig, Report, Speed, run};
use std::sync::atomic::AtomicBool;

pub fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

pub fn config(policy: &str, cpus: &str) -> PipelineConfig {
    let mut config = PipelineConfig::new(policy.parse().unwrap(), cpus.parse().unwrap());
    config.hasher = Hasher::Symmetric(SymmetricHash::new([7; 16]));
    config.check_order = true;
    config.on_full = OnFull::Wait;
    config
}

pub fn synthetic(config: &PipelineConfig, spec: &str) -> Vec<Box<dyn Source>> {
    let threads = config.rx_cpus.len() as u16;
    (0..threads)
        .map(|thread| {
            let spec = spec.parse().unwrap();
            Box::new(SyntheticSource::new(spec, config.rx_queues, (thread, threads)))
                as Box<dyn Source>
        })
        .collect()
}

pub fn run_with<H: Handler>(
    config: &PipelineConfig,
    spec: &str,
    handler: impl FnMut(CpuId) -> H,
) -> Report<H> {
    let mut sources = synthetic(config, spec);
    run(config, &mut sources, Speed::Max, &AtomicBool::new(false), handler, |_, _| {}).unwrap()
}

pub fn nothing(_: &PacketList<'_>) {}

pub fn assert_conserved<H>(report: &Report<H>) {
    assert_eq!(report.packets, report.delivered + report.drops.total());
    let by_cpu: u64 = report.per_cpu.iter().map(|cpu| cpu.packets).sum();
    assert_eq!(by_cpu, report.delivered);
}

pub fn info(rx_queue: u16) -> FrameInfo {
    FrameInfo::new(LinkType::Ethernet, 0, 60).on_rx_queue(rx_queue)
}

/// An Ethernet frame of a UDP flow that depends on `port`.
pub fn udp(port: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[17] = 46;
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    (frame[35], frame[37], frame[39]) = (port, 9, 26);
    frame
}
