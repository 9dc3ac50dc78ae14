//! One look at all instances, for all viewers: who asks shortly after another one gets the same.

use crate::api::{self, Host};
use crate::history::History;
use bytes::Bytes;
use rxsteer_host::Load;
use rxsteer_status::{Rates, Status, client, registry};
use rxsteer_user::shown;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex;

/// How often an instance is asked at most, in a second.
pub const LOOKS_PER_SECOND: u32 = 4;
/// For how long a look is the answer to all viewers.
const SHARED: Duration = Duration::from_millis(1000 / LOOKS_PER_SECOND as u64);
/// Flows that are asked for, the largest first.
const FLOWS: u32 = 50;
/// How long an instance may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Rates are of the time since the latest look that is at least this old…
const RATES_OVER: Duration = Duration::from_millis(900);
/// …and at most this old: there are no rates of times in which there was no viewer.
const KEPT: Duration = Duration::from_secs(5);

/// The instances that are shown.
#[derive(Clone, Debug)]
pub enum Source {
    /// The one with this control socket.
    Instance(PathBuf),
    /// Those that run now, also those that start later.
    All,
}

impl Source {
    fn sockets(&self) -> Vec<PathBuf> {
        match self {
            Self::Instance(socket) => vec![socket.clone()],
            Self::All => registry::instances(),
        }
    }
}

/// An instance at a look.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// What it answered.
    pub(crate) status: Status,
    /// The rates since an earlier look, if there was one lately.
    pub(crate) rates: Option<Rates>,
}

/// An instance that did not answer.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Silent {
    /// Its control socket.
    socket: String,
    /// Why there is no answer.
    why: String,
}

/// All instances at one time.
#[derive(Debug)]
pub(crate) struct Look {
    /// When it was done.
    at: Instant,
    /// The same, in milliseconds of Unix time.
    pub(crate) time_ms: u64,
    has_flows: bool,
    pub(crate) seen: Vec<Seen>,
    pub(crate) silent: Vec<Silent>,
    load: Option<Load>,
    /// What the host's CPUs did since an earlier look, if there was one lately.
    pub(crate) host: Option<Host>,
    json: OnceLock<Bytes>,
}

impl Look {
    /// Asks all instances.
    fn now(source: &Source, has_flows: bool) -> Look {
        let flows = if has_flows { FLOWS } else { 0 };
        let (mut seen, mut silent) = (Vec::new(), Vec::new());
        for socket in source.sockets() {
            match client::status_within(&socket, flows, TIMEOUT) {
                Ok(status) => seen.push(Seen { status, rates: None }),
                Err(why) => {
                    silent.push(Silent { socket: shown(&socket), why: format!("{why:#}") });
                }
            }
        }
        let load = Load::look();
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Look {
            at: Instant::now(),
            time_ms: time.as_millis() as u64,
            has_flows,
            seen,
            silent,
            load,
            host: None,
            json: OnceLock::new(),
        }
    }

    /// Fills in the rates since `earlier`.
    fn compare(&mut self, earlier: &Look) {
        for seen in &mut self.seen {
            let same = |before: &&Seen| before.status.socket == seen.status.socket;
            let before = earlier.seen.iter().find(same);
            seen.rates = before.and_then(|before| Rates::between(&before.status, &seen.status));
        }
        self.host = self
            .load
            .as_ref()
            .zip(earlier.load.as_ref())
            .map(|(now, then)| Host::between(then, now));
    }

    /// The answer at `/api/status`.
    pub(crate) fn json(&self) -> Bytes {
        self.json.get_or_init(|| api::status(self).into()).clone()
    }
}

/// What all viewers share.
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

    /// A look that has the counters.
    pub(crate) async fn at_counters(&self) -> Arc<Look> {
        self.latest(false).await
    }

    /// A look that also has the largest flows.
    pub(crate) async fn at_flows(&self) -> Arc<Look> {
        self.latest(true).await
    }

    /// The JSON of what was shown in the last 15 minutes.
    pub(crate) async fn history(&self) -> String {
        self.at_flows().await;
        self.state.lock().await.history.json()
    }

    async fn latest(&self, has_flows: bool) -> Arc<Look> {
        let looks = self.clone();
        // A task of its own: a client that hangs up ends the task that answers it, but not a look under way, which
        // others wait for. So there is never more than one.
        match tokio::spawn(async move { looks.look(has_flows).await }).await {
            Ok(look) => look,
            // Only while the runtime ends.
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
