//! A status to test views with.

use crate::Status;
use serde_json::{Value, json};

/// The status of an instance with one interface and two CPUs that has not yet received a packet.
///
/// # Panics
/// Never: the status is a constant.
#[must_use]
pub fn sample() -> Status {
    let cpu = |cpu| json!({ "cpu": cpu, "delivered": 0, "waiting": 0, "drops": drops(), "thread": { "class": "fifo:1" } });
    let status = json!({
        "command": "run", "version": "0.2.0", "pid": 4711, "socket": "/run/rxsteer/4711.sock",
        "network_namespace": 4_026_531_840_u64, "program_id": 7, "running_ns": 1_000_000_000_u64,
        "memory_bytes": 5_000_000, "policy": "rfs+sparse", "changing": false, "guarded": true,
        "settings": {
            "policy": "rfs+sparse", "mode": "native", "cpus": "0-1", "rps_maps": [], "else": "hash",
            "rfs_cpus": null, "offline": null, "queue_size": 2048, "flow_limit": null, "threads": "fifo:1",
            "shadow": false, "flow_cnt": 4096, "sock_flow_entries": 32768, "rfs_namespaces": "own",
            "inner": true, "flow_stats": true, "order_guard": true,
        },
        "interfaces": [{
            "name": "eth0", "ifindex": 2, "state": "steered", "why": null, "flow_tables": 1,
        }],
        "cpus": [cpu(0), cpu(1)],
        "delivered": 0, "waiting": 0, "drops": drops(),
    });
    serde_json::from_value(status).expect("it is a status")
}

fn drops() -> Value {
    json!({ "ring_full": 0, "alloc": 0, "redirect_errors": 0, "flow_limit": 0 })
}
