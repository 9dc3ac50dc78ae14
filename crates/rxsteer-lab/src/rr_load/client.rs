//! The client, which sends requests and measures.

use super::{RrLoad, RrReport, broken, histogram, shares};
use crate::cpus::{online_cpus, pin};
use crate::error::{LabError, Result, Tried};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// How long replies may take after the last request.
const TO_DRAIN: Duration = Duration::from_secs(5);

/// Sends and measures on a thread of each CPU.
pub(super) fn send(streams: Vec<TcpStream>, load: &RrLoad) -> Result<RrReport> {
    let begin = Instant::now();
    let mut report = RrReport {
        requests: 0,
        replies: 0,
        served: 0,
        took: load.time,
        latency: histogram(),
        answered: 0,
        client_cpus: vec![],
        cpus: vec![],
    };
    let connections = streams.len();
    let of_threads: Vec<Result<Thread>> = std::thread::scope(|scope| {
        let running: Vec<_> = shares(streams, online_cpus())
            .into_iter()
            .enumerate()
            .map(|(cpu, share)| {
                scope.spawn(move || {
                    pin(cpu)?;
                    // Requests are sent when they are due; by default the kernel wakes a thread up to 50 µs later.
                    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
                        .tried(|| "set the slack of timers".to_owned())?;
                    let mut thread = Thread::new(share, connections, load, begin)?;
                    thread.run()?;
                    let here = rustix::thread::sched_getcpu();
                    LabError::check(here == cpu, || {
                        format!("a thread of the client was on CPU {here}, not on CPU {cpu}")
                    })?;
                    thread.cpu = cpu;
                    Ok(thread)
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    for thread in of_threads {
        let thread = thread?;
        report.requests += thread.requests;
        report.replies += thread.latency.len();
        report.answered +=
            thread.connections.iter().filter(|connection| connection.is_answered).count();
        report.client_cpus.push(thread.cpu);
        report
            .latency
            .add(&thread.latency)
            .map_err(|why| LabError::Load { why: why.to_string() })?;
    }
    Ok(report)
}

/// A connection.
struct Connection {
    stream: TcpStream,
    /// When the pending request was intended; `None`: none is pending.
    intended_at: Option<Instant>,
    /// Whether a reply arrived.
    is_answered: bool,
    /// In an open loop, when its next request is due.
    due: Instant,
}

struct Thread {
    /// Where it ran.
    cpu: usize,
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    /// Open loop: idle connections by the time of their next request.
    schedule: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The time between two requests of a connection; zero in a closed loop.
    period: Duration,
    until: Instant,
    requests: u64,
    latency: hdrhistogram::Histogram<u64>,
}

impl Thread {
    fn new(
        streams: Vec<TcpStream>,
        connections: usize,
        load: &RrLoad,
        begin: Instant,
    ) -> Result<Thread> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).tried(|| "make an epoll".to_owned())?;
        let period = match load.rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(connections as f64 / f64::from(rate)),
        };
        let mut schedule = BinaryHeap::new();
        let mut all = Vec::with_capacity(streams.len());
        let count = streams.len().max(1);
        for (index, stream) in streams.into_iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)
                .tried(|| "wait for a connection".to_owned())?;
            // Connections are spread over the period.
            let due = begin + period.mul_f64(index as f64 / count as f64);
            if !period.is_zero() {
                schedule.push(Reverse((due, index)));
            }
            all.push(Connection { stream, intended_at: None, is_answered: false, due });
        }
        let until = begin + load.time;
        Ok(Thread {
            cpu: 0,
            epoll,
            connections: all,
            schedule,
            period,
            until,
            requests: 0,
            latency: histogram(),
        })
    }

    fn run(&mut self) -> Result<()> {
        if self.period.is_zero() {
            for index in 0..self.connections.len() {
                self.send_request(index, Instant::now())?;
            }
        }
        let mut events = Vec::with_capacity(64);
        loop {
            let now = Instant::now();
            if now >= self.until {
                self.schedule.clear();
                if self.connections.iter().all(|connection| connection.intended_at.is_none()) {
                    return Ok(());
                }
                LabError::check(now < self.until + TO_DRAIN, || {
                    format!("replies were missing {} s after the last request", TO_DRAIN.as_secs())
                })?;
            }
            while let Some(Reverse((due, index))) = self.schedule.peek().copied()
                && due <= now
            {
                self.schedule.pop();
                self.send_request(index, due)?;
            }
            let next =
                self.schedule.peek().map_or(Duration::from_millis(20), |Reverse((due, _))| {
                    due.saturating_duration_since(Instant::now()).min(Duration::from_millis(20))
                });
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(next.subsec_nanos()) };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(broken(why)),
            }
            for event in &events {
                self.reply(event.data.u64() as usize)?;
            }
        }
    }

    fn send_request(&mut self, index: usize, intended: Instant) -> Result<()> {
        let connection = &mut self.connections[index];
        connection.stream.write_all(b"?").map_err(broken)?;
        connection.intended_at = Some(intended);
        self.requests += 1;
        Ok(())
    }

    fn reply(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        let mut byte = [0; 1];
        match connection.stream.read(&mut byte) {
            Ok(1) => {}
            Ok(_) => return Err(broken("the server closed it")),
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(why) => return Err(broken(why)),
        }
        let now = Instant::now();
        let Some(intended_at) = connection.intended_at.take() else {
            return Err(broken("a reply to nothing"));
        };
        connection.is_answered = true;
        let took = now.saturating_duration_since(intended_at).as_nanos();
        self.latency.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
        if now >= self.until {
            return Ok(());
        }
        if self.period.is_zero() {
            return self.send_request(index, now);
        }
        // The schedule continues from the intended time: requests that became due meanwhile are sent late, but count
        // from when they were due.
        connection.due += self.period;
        self.schedule.push(Reverse((connection.due, index)));
        Ok(())
    }
}
