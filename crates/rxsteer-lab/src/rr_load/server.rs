//! The server, which answers requests.

use super::{RrLoad, broken, shares};
use crate::cpus::{online_cpus, pin};
use crate::error::{Result, Tried};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Answers until `stop`; returns the number of requests.
pub(super) fn serve(
    streams: Vec<TcpStream>,
    load: &RrLoad,
    work: &(impl Fn(u64) + Sync),
    stop: &AtomicBool,
) -> Result<u64> {
    let is_pinned = load.server_threads == 0;
    let threads = if is_pinned { online_cpus() } else { load.server_threads };
    std::thread::scope(|scope| {
        let running: Vec<_> = shares(streams, threads)
            .into_iter()
            .enumerate()
            .map(|(cpu, share)| {
                scope.spawn(move || {
                    if is_pinned {
                        pin(cpu)?;
                    }
                    answer(share, work, stop)
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum()
    })
}

fn answer(mut streams: Vec<TcpStream>, work: &impl Fn(u64), stop: &AtomicBool) -> Result<u64> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).tried(|| "make an epoll".to_owned())?;
    for (index, stream) in streams.iter().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&epoll, stream, data, epoll::EventFlags::IN)
            .tried(|| "wait for a connection".to_owned())?;
    }
    let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut events = Vec::with_capacity(64);
    let mut served = 0;
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(broken(why)),
        }
        for event in &events {
            let stream = &mut streams[event.data.u64() as usize];
            let mut byte = [0; 1];
            match stream.read(&mut byte) {
                Ok(1) => {
                    work(served);
                    stream.write_all(&byte).map_err(broken)?;
                    served += 1;
                }
                // The other side ends first.
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                Err(why) => return Err(broken(why)),
            }
        }
    }
    Ok(served)
}

/// Works for `work` in user space.
pub(super) fn spend(work: Duration) {
    if work.is_zero() {
        return;
    }
    let until = Instant::now() + work;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
