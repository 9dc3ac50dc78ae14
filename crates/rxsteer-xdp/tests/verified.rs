//! The programs stay far below the limit of the kernel's verifier (1,000,000 examined instructions), so that they also
//! load on a kernel that examines more instructions; and below the limit of its stack (512 bytes), so that they also load
//! if another compiler needs more.
//!
//! Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); prints SKIPPED without it.

use rxsteer_packet::TunnelKinds;
use rxsteer_xdp::testing::{Verified, loaded, verify};
use rxsteer_xdp::{Mode, Setup};

/// The most instructions that the verifier may have to examine in one program.
const MAX: u32 = 100_000;
/// The most stack in bytes that functions that call each other may take, as Linux 6.1 counts it. With clang 19 a chain
/// takes 32 more than with clang 14. (What the kernel reports includes 24 bytes for each inlined `bpf_loop`, which do not
/// count against its limit.)
const MAX_STACK: u32 = 512 - 32;

#[test]
fn no_program_nears_a_limit_of_the_verifier() {
    crate::quiet();
    let native = [(false, true), (true, true), (false, false)];
    let native = native.map(|(inner, flow_stats)| (inner, flow_stats, Mode::Native));
    for (inner, flow_stats, mode) in native.into_iter().chain([(true, true, Mode::Generic)]) {
        let setup = Setup {
            mode,
            possible: "0-3".parse().expect("CPUs"),
            flow_cnt: 1024,
            tables: 4,
            interfaces: 2,
            sock_flow_entries: 1024,
            rfs_namespace: Some(4_026_531_840),
            secret: [7; 16],
            inner,
            key_tunnels: TunnelKinds::ALL,
            flow_stats,
            hz: None,
            drop_on_arrival: false,
            flow_records: false,
            as_with_short_ticks: false,
        };
        let test = "verified::no_program_nears_a_limit_of_the_verifier";
        let Some(programs) = loaded(test, verify(&setup)) else { return };
        let names: Vec<&str> = programs.iter().map(|program| &*program.program).collect();
        // The programs for rfs are left out if the kernel lacks their tracepoints.
        for name in ["steer_entry", "steer_cpumap", "steer_kthread", "steer_switch"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        for program in &programs {
            let Verified { program: name, instructions, deepest, .. } = program;
            println!(
                "{mode}, inner {inner}, flow statistics {flow_stats}: {name}: {instructions} instructions verified, \
                 stack {} bytes of 512: {deepest:?}",
                program.deepest_bytes()
            );
            assert!(program.instructions <= MAX, "{mode}, inner {inner}: {program:?}");
            // Without flow statistics some functions are never called.
            assert!(!deepest.is_empty() || !flow_stats, "{mode}, inner {inner}: {program:?}");
            assert!(program.deepest_bytes() <= MAX_STACK, "{mode}, inner {inner}: {program:?}");
        }
    }
}
