//! Flow records while a run lasts: a thread takes those of flows that ended, so that memory stays
//! bounded however many flows there are.

use anyhow::Context;
use rxsteer_user::core::CpuId;
use rxsteer_user::flows::{FlowCounts, FlowRecord, FlowTable, FlowTableConfig, FlowWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread rests when there was little to take.
const REST: Duration = Duration::from_millis(2);

/// So many records at once are not little: more are waiting by now.
const MANY: usize = 256;

/// Who gets the records, each once.
pub(crate) trait Consumer: Send + 'static {
    /// Takes a final record.
    fn take(&mut self, record: &FlowRecord) -> anyhow::Result<()>;
}

/// A flow table, and the thread that hands its final records to a consumer. Dropped before
/// [`Collecting::finish`], it drops the consumer.
pub(crate) struct Collecting<C> {
    table: Arc<FlowTable>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<Taken<C>>>,
}

/// The consumer, and the first error it had; it gets nothing after that.
struct Taken<C> {
    consumer: C,
    result: anyhow::Result<()>,
}

impl<C: Consumer> Collecting<C> {
    /// An empty table. `stop` is set when the consumer fails, since the run is then for nothing.
    pub(crate) fn start(
        config: &FlowTableConfig,
        consumer: C,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Collecting<C>> {
        let table = FlowTable::new(config).context("can't count flows; lower --max-flows")?;
        let done = Arc::new(AtomicBool::new(false));
        let mut taken = Taken { consumer, result: Ok(()) };
        let thread = std::thread::Builder::new().name("flow-records".to_owned()).spawn({
            let (table, done) = (table.clone(), done.clone());
            move || {
                // ORDER: Relaxed; a request without data.
                while !done.load(Ordering::Relaxed) {
                    let (_, count) = taken.collect(&table);
                    if taken.result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if count < MANY {
                        std::thread::park_timeout(REST);
                    }
                }
                taken
            }
        });
        let thread = Some(thread.context("can't start a thread for flow records")?);
        Ok(Collecting { table, done, thread })
    }

    /// What counts on `cpu`.
    pub(crate) fn writer(&self, cpu: CpuId) -> anyhow::Result<FlowWriter> {
        Ok(self.table.writer(cpu)?)
    }

    /// Hands out what is left, when all writers have gone.
    pub(crate) fn finish(mut self) -> anyhow::Result<(C, FlowCounts)> {
        let mut taken = self.join().context("the thread for flow records is gone")?;
        self.table.finish();
        while taken.collect(&self.table).0 > 0 {
            std::thread::yield_now();
        }
        taken.result?;
        Ok((taken.consumer, self.table.counts()))
    }
}

impl<C> Collecting<C> {
    fn join(&mut self) -> Option<Taken<C>> {
        // ORDER: Relaxed; a request without data.
        self.done.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl<C> Drop for Collecting<C> {
    fn drop(&mut self) {
        self.join();
    }
}

impl<C: Consumer> Taken<C> {
    /// Takes what there is; returns how many flows that ended can't be taken yet, and how many
    /// records were taken. Also those that nobody wants are: they would fill the table.
    fn collect(&mut self, table: &FlowTable) -> (usize, usize) {
        let mut count = 0;
        let waiting = table.collect(|record| {
            count += 1;
            if self.result.is_ok() {
                self.result = self.consumer.take(record);
            }
        });
        (waiting, count)
    }
}
