//! All viewers share looks: a viewer that asks shortly after another one gets the same look.

use crate::history::History;
use crate::look::{Look, Source};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How often an instance is queried at most, per second.
pub const LOOKS_PER_SECOND: u32 = 4;
/// How long a look is the answer to all viewers.
const SHARED: Duration = Duration::from_millis(1000 / LOOKS_PER_SECOND as u64);
/// Rates cover the time since the latest look that is at least this old…
const RATES_OVER: Duration = Duration::from_millis(900);
/// …and at most this old: no rates exist for times without viewers.
const KEPT: Duration = Duration::from_secs(5);

/// The state that all viewers share.
#[derive(Clone, Debug)]
pub(crate) struct Looks {
    source: Source,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The looks of the last [`KEPT`], the latest last.
    recent: VecDeque<Arc<Look>>,
    history: History,
}

impl Looks {
    pub(crate) fn new(source: Source) -> Looks {
        Looks { source, state: Arc::default() }
    }

    /// Whether there can be several instances.
    pub(crate) fn is_of_several(&self) -> bool {
        matches!(self.source, Source::All)
    }

    /// A look that includes the counters.
    pub(crate) async fn at_counters(&self) -> Arc<Look> {
        self.latest(false).await
    }

    /// A look that also includes the largest flows.
    pub(crate) async fn at_flows(&self) -> Arc<Look> {
        self.latest(true).await
    }

    /// The JSON of the last 15 minutes.
    pub(crate) async fn history(&self) -> String {
        self.at_flows().await;
        self.state.lock().await.history.json()
    }

    async fn latest(&self, has_flows: bool) -> Arc<Look> {
        let looks = self.clone();
        // A separate task: a client that disconnects ends the task that answers it, but must not end a look that other
        // clients wait for. So there is never more than one look at a time.
        match tokio::spawn(async move { looks.look(has_flows).await }).await {
            Ok(look) => look,
            // This happens only while the runtime ends.
            Err(_) => std::future::pending().await,
        }
    }

    async fn look(self, has_flows: bool) -> Arc<Look> {
        let mut state = self.state.lock().await;
        if let Some(last) = state.recent.back() {
            let age = last.at.elapsed();
            if age < SHARED && (last.has_flows || !has_flows) {
                return Arc::clone(last);
            }
            tokio::time::sleep(SHARED.saturating_sub(age)).await;
        }
        let source = self.source.clone();
        let asked = tokio::task::spawn_blocking(move || Look::now(&source, has_flows)).await;
        let Ok(look) = asked else { return std::future::pending().await };
        state.add(look)
    }
}

impl State {
    fn add(&mut self, mut look: Look) -> Arc<Look> {
        self.recent.retain(|earlier| look.at.duration_since(earlier.at) <= KEPT);
        let is_old = |earlier: &&Arc<Look>| look.at.duration_since(earlier.at) >= RATES_OVER;
        if let Some(earlier) = self.recent.iter().rev().find(is_old).cloned() {
            look.compare(&earlier);
        }
        self.history.add(&look);
        let look = Arc::new(look);
        self.recent.push_back(Arc::clone(&look));
        look
    }
}

#[cfg(test)]
#[path = "looks_tests.rs"]
pub(crate) mod tests;
