//! For tests: a status, an instance that answers with it, and an instance under traffic.

mod traffic;

pub use traffic::Traffic;

use crate::Status;
use crate::control::{Control, Server};
use crate::protocol::{Answer, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

/// A thread that answers on a control socket like an instance, until this is dropped.
pub struct Instance {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Answers with the result of a function of the number of flows.
struct Shows<F>(F);

impl<F: FnMut(u32) -> Status> Server for Shows<F> {
    fn serve(&mut self, request: &Request) -> Option<Answer> {
        Some(match request {
            Request::Status { flows, .. } => Answer::Status(Box::new((self.0)(*flows))),
            _ => Answer::Error("only the status is shown".to_owned()),
        })
    }

    fn changed(&mut self) -> (bool, Answer) {
        (true, self.give_up())
    }

    fn give_up(&mut self) -> Answer {
        Answer::Error("nothing changes".to_owned())
    }
}

impl Instance {
    /// Answers on the socket `path` with what `status` returns for the requested number of flows.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub fn at(
        path: &Path,
        status: impl FnMut(u32) -> Status + Send + 'static,
    ) -> std::io::Result<Instance> {
        let (stop, stopped) = UnixStream::pair()?;
        let mut control = Control::new(UnixListener::bind(path)?)?;
        let mut server = Shows(status);
        let answer = move || {
            loop {
                control.serve(Instant::now(), &mut server);
                let wait = if control.has_work() { PollTimeout::ZERO } else { PollTimeout::NONE };
                let mut fds = control.wait_for();
                fds.push(PollFd::new(stopped.as_fd(), PollFlags::POLLIN));
                // A failed poll is repeated in the next round.
                let _ = poll(&mut fds, wait);
                if fds.last().and_then(PollFd::any).unwrap_or(false) {
                    return;
                }
            }
        };
        Ok(Instance { stop: Some(stop), thread: Some(std::thread::spawn(answer)) })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, the test shows that.
            let _ = thread.join();
        }
    }
}

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
            "inner": true, "key_tunnels": "none", "flow_stats": true, "order_guard": true,
        },
        "interfaces": [{
            "name": "eth0", "ifindex": 2, "state": "steered", "why": null, "flow_tables": 1,
        }],
        "cpus": [cpu(0), cpu(1)],
        "delivered": 0, "waiting": 0, "drops": drops(),
    });
    let mut status: Status = serde_json::from_value(status).expect("it is a status");
    // As in an instance, counters that are 0 are included.
    let zero = |_| 0;
    status.cpus.iter_mut().for_each(|on| on.counts.rx.add(zero));
    status.interfaces.iter_mut().for_each(|of| of.counts.add(zero));
    status.totals.rx.add(zero);
    status
}

fn drops() -> Value {
    json!({ "ring_full": 0, "alloc": 0, "redirect_errors": 0, "flow_limit": 0 })
}
