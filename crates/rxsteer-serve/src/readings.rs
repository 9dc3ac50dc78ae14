//! All viewers share readings: a viewer that asks shortly after another one gets the same reading.

use crate::history::History;
use crate::reading::{Reading, Source};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How often an instance is queried at most, per second.
pub const READINGS_PER_SECOND: u32 = 4;
/// How long a reading is the answer to all viewers.
const SHARED: Duration = Duration::from_millis(1000 / READINGS_PER_SECOND as u64);
/// Rates cover the time since the latest reading that is at least this old…
const RATES_OVER: Duration = Duration::from_millis(900);
/// …and at most this old: no rates exist for times without viewers.
const KEPT: Duration = Duration::from_secs(5);

/// The state that all viewers share.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    source: Source,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The readings of the last [`KEPT`], the latest last.
    recent: VecDeque<Arc<Reading>>,
    history: History,
}

impl Readings {
    pub(crate) fn new(source: Source) -> Readings {
        Readings { source, state: Arc::default() }
    }

    /// Whether there can be several instances.
    pub(crate) fn is_of_several(&self) -> bool {
        matches!(self.source, Source::All)
    }

    /// A reading that includes the counters.
    pub(crate) async fn at_counters(&self) -> Arc<Reading> {
        self.latest(false).await
    }

    /// A reading that also includes the largest flows.
    pub(crate) async fn at_flows(&self) -> Arc<Reading> {
        self.latest(true).await
    }

    /// The JSON of the last 15 minutes.
    pub(crate) async fn history(&self) -> String {
        self.at_flows().await;
        self.state.lock().await.history.json()
    }

    async fn latest(&self, has_flows: bool) -> Arc<Reading> {
        let readings = self.clone();
        // A separate task: a client that disconnects ends the task that answers it, but must not end a reading that
        // other clients wait for. So there is never more than one reading at a time.
        match tokio::spawn(async move { readings.reading(has_flows).await }).await {
            Ok(reading) => reading,
            // This happens only while the runtime ends.
            Err(_) => std::future::pending().await,
        }
    }

    async fn reading(self, has_flows: bool) -> Arc<Reading> {
        let mut state = self.state.lock().await;
        if let Some(last) = state.recent.back() {
            let age = last.at.elapsed();
            if age < SHARED && (last.has_flows || !has_flows) {
                return Arc::clone(last);
            }
            tokio::time::sleep(SHARED.saturating_sub(age)).await;
        }
        let source = self.source.clone();
        let asked = tokio::task::spawn_blocking(move || Reading::now(&source, has_flows)).await;
        let Ok(reading) = asked else { return std::future::pending().await };
        state.add(reading)
    }
}

impl State {
    fn add(&mut self, mut reading: Reading) -> Arc<Reading> {
        self.recent.retain(|earlier| reading.at.duration_since(earlier.at) <= KEPT);
        let is_old = |earlier: &&Arc<Reading>| reading.at.duration_since(earlier.at) >= RATES_OVER;
        if let Some(earlier) = self.recent.iter().rev().find(is_old).cloned() {
            reading.compare(&earlier);
        }
        self.history.add(&reading);
        let reading = Arc::new(reading);
        self.recent.push_back(Arc::clone(&reading));
        reading
    }
}

#[cfg(test)]
#[path = "readings_tests.rs"]
pub(crate) mod tests;
