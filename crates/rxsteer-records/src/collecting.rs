//! Collects flow records during a run: a thread takes the records of flows that ended, so that memory stays
//! bounded however many flows there are.

use anyhow::{Context, anyhow};
use rxsteer_core::CpuId;
use rxsteer_flows::{
    FlowCounts, FlowRecord, FlowTable, FlowTableConfig, FlowTableError, FlowWriter,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread sleeps after it found few records.
const PAUSE: Duration = Duration::from_millis(2);

/// If a call returns at least this many records, more are probably waiting, so the thread does not sleep.
const MANY: usize = 256;

/// The receiver of the records; it gets each record once.
pub trait Consumer: Send + 'static {
    /// Accepts a final record. This method returns no error: a problem with records is no reason to end the run.
    fn take(&mut self, record: &FlowRecord);

    /// Does periodic work; it is called some hundred times a second.
    fn tick(&mut self) {}
}

/// The clock of live packets: now, in nanoseconds.
pub type Clock = fn() -> u64;

/// How often all flows of a live table are checked for timeouts.
const EXPIRE: Duration = Duration::from_secs(1);

/// A flow table, and the thread that passes its final records to a consumer. If a value is dropped before
/// [`Collecting::finish`], the consumer is dropped too.
pub struct Collecting<C> {
    table: Arc<FlowTable>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<C>>,
}

impl<C: Consumer> Collecting<C> {
    /// Starts with an empty table. With `clock`, timeouts of the table also end flows that get no more packets.
    pub fn start(
        config: &FlowTableConfig,
        mut consumer: C,
        clock: Option<Clock>,
    ) -> anyhow::Result<Collecting<C>> {
        let table = FlowTable::new(config).map_err(|error| match error {
            FlowTableError::Memory(bytes, _) => anyhow!(
                "{} flows can take {:.1} GiB of memory, which cannot be allocated; lower --max-flows",
                config.max_flows,
                bytes as f64 / f64::from(1 << 30)
            ),
            error => error.into(),
        })?;
        let done = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("flow-records".to_owned()).spawn({
            let (table, done) = (table.clone(), done.clone());
            move || {
                // ORDER: Relaxed; the flag is a request and carries no data.
                let is_over = || done.load(Ordering::Relaxed);
                let taking = catch_unwind(AssertUnwindSafe(|| {
                    let mut expired = Instant::now();
                    while !is_over() {
                        if let Some(clock) = clock
                            && expired.elapsed() >= EXPIRE
                        {
                            table.expire(clock());
                            expired = Instant::now();
                        }
                        let (_, count) = collect(&table, &mut consumer);
                        consumer.tick();
                        if count < MANY {
                            std::thread::park_timeout(PAUSE);
                        }
                    }
                }));
                if let Err(panic) = taking {
                    // Workers may wait for room, and the run must end before this panic is passed on.
                    while !is_over() {
                        table.collect(|_| {});
                        std::thread::park_timeout(PAUSE);
                    }
                    resume_unwind(panic);
                }
                consumer
            }
        });
        let thread = Some(thread.context("can't start a thread for flow records")?);
        Ok(Collecting { table, done, thread })
    }

    /// The flow table.
    pub fn table(&self) -> Arc<FlowTable> {
        self.table.clone()
    }

    /// The writer that counts on `cpu`.
    pub fn writer(&self, cpu: CpuId) -> anyhow::Result<FlowWriter> {
        Ok(self.table.writer(cpu)?)
    }

    /// Passes on the remaining records, after all writers have gone.
    pub fn finish(mut self) -> anyhow::Result<(C, FlowCounts)> {
        let thread = self.join().context("the thread for flow records is gone")?;
        let mut consumer = thread.unwrap_or_else(|panic| resume_unwind(panic));
        self.table.finish();
        while collect(&self.table, &mut consumer).0 > 0 {
            std::thread::yield_now();
        }
        Ok((consumer, self.table.counts()))
    }
}

impl<C> Collecting<C> {
    fn join(&mut self) -> Option<std::thread::Result<C>> {
        // ORDER: Relaxed; the flag is a request and carries no data.
        self.done.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        Some(thread.join())
    }
}

impl<C> Drop for Collecting<C> {
    fn drop(&mut self) {
        // A panic of the thread is ignored here: the run has already failed for another reason.
        let _ = self.join();
    }
}

/// Takes the available records. Returns how many flows that ended can't be taken yet, and how many records were
/// taken.
fn collect(table: &FlowTable, consumer: &mut impl Consumer) -> (usize, usize) {
    let mut count = 0;
    let waiting = table.collect(|record| {
        count += 1;
        consumer.take(record);
    });
    (waiting, count)
}
