//! The listening socket, and the limits of its connections.
//!
//! | limit | consequence |
//! |---|---|
//! | [`MAX_CONNECTIONS`] at a time | the next one waits until one ends |
//! | [`MAX_HEAD`] bytes of a request's head | 431, and the connection is closed |
//! | [`HEAD_TIMEOUT`] until a head is complete, also for the next request of an idle connection | the connection is closed |
//! | [`CONNECTION_AGE`] since a connection began | it is closed after the answer in progress |
//! | one and a half times that age, e.g. if a client does not read its answer | the connection is cut |
//!
//! All connections are tasks of one thread, so a slow client costs a descriptor and some memory.

use crate::answers::Answers;
use crate::guard::Guard;
use crate::reading::Source;
use crate::readings::Readings;
use crate::token::Token;
use anyhow::Context;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// The most connections at a time.
pub const MAX_CONNECTIONS: usize = 32;
/// The most bytes of a request's head.
pub const MAX_HEAD: usize = 8 << 10;
/// How long a client may take for a request's head, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The age at which a connection is closed after the answer in progress. At one and a half times this age it is cut.
const CONNECTION_AGE: Duration = Duration::from_secs(20);
/// How long to wait when a connection can't be accepted (no descriptor is left).
const PAUSE: Duration = Duration::from_millis(100);
/// How long the end waits for a reading in progress.
const AT_THE_END: Duration = Duration::from_millis(100);

/// A listening socket that does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    guard: Guard,
    connection_age: Duration,
}

/// A server in its own thread.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Server {
    /// Checks whether a server may listen at `address`, with a token or without one.
    ///
    /// # Errors
    /// If other hosts can reach the address and there is no token.
    pub fn check(address: SocketAddr, has_token: bool) -> anyhow::Result<()> {
        anyhow::ensure!(
            address.ip().is_loopback() || has_token,
            "other hosts can reach {address}, so a token is required: --listen-token-file FILE; for this host only: \
             --listen 127.0.0.1:{}",
            address.port()
        );
        Ok(())
    }

    /// Listens at `address`.
    ///
    /// # Errors
    /// If other hosts can reach the address and there is no token, or if the address is in use.
    pub fn bind(address: SocketAddr, token: Option<Token>) -> anyhow::Result<Server> {
        Server::check(address, token.is_some())?;
        let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                anyhow::anyhow!(
                    "can't listen at {address}: the port is in use; choose another with --listen"
                )
            }
            _ => anyhow::anyhow!("can't listen at {address}: {error}"),
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let guard = Guard { address, token };
        Ok(Server { listener, guard, connection_age: CONNECTION_AGE })
    }

    /// Sets the age at which a connection is closed after the answer in progress; at one and a half times this age it
    /// is cut. The default is 20 seconds.
    #[must_use]
    pub fn with_connection_age(self, age: Duration) -> Server {
        Server { connection_age: age, ..self }
    }

    /// The address on which the server listens. If port 0 was requested, the address has the chosen port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.guard.address
    }

    /// Serves viewers in a separate thread, which first runs `first` (to drop privileges).
    ///
    /// # Errors
    /// If the thread can't be started, or `first` fails.
    pub fn start(
        self,
        source: Source,
        first: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Running> {
        let (stop, stopped) = oneshot::channel();
        let (started, begins) = std::sync::mpsc::channel();
        let serve = move || {
            let runtime = first().and_then(|()| {
                // One thread waits for the control sockets, since at most one reading is in progress.
                let mut builder = tokio::runtime::Builder::new_current_thread();
                builder.thread_name("rxsteer-serve").enable_io().enable_time();
                Ok(builder.max_blocking_threads(1).build()?)
            });
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(why) => return drop(started.send(Err(why))),
            };
            // The receiver is waiting for this.
            let _ = started.send(Ok(()));
            runtime.block_on(async {
                tokio::select! {
                    () = self.accept(source) => {}
                    // This also happens when the sender is gone.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(AT_THE_END);
        };
        let thread = std::thread::Builder::new().name("rxsteer-serve".to_owned()).spawn(serve);
        let thread = thread.context("can't serve metrics and page")?;
        begins.recv().context("the thread that serves metrics and page ended")??;
        Ok(Running { thread, stop })
    }

    async fn accept(self, source: Source) {
        let Server { listener, guard, connection_age } = self;
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        let answers = Arc::new(Answers::new(guard, Readings::new(source)));
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let answers = Arc::clone(&answers);
                    tokio::spawn(async move {
                        connection(stream, &answers, connection_age).await;
                        drop(place);
                    });
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

/// Serves a connection until it ends, or its time is over.
async fn connection(stream: TcpStream, answers: &Answers, age: Duration) {
    let began = Instant::now();
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answers.to(request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // The client notices the end of the connection, whatever caused it.
        _ = connection.as_mut() => return,
        () = sleep_until(began + age) => connection.as_mut().graceful_shutdown(),
    }
    let _ = timeout_at(began + age + age / 2, connection).await;
}

impl Running {
    /// Ends the thread; answers in progress are cut.
    ///
    /// # Errors
    /// If the thread panicked.
    pub fn stop(self) -> anyhow::Result<()> {
        // If the thread has already ended, there is no receiver.
        let _ = self.stop.send(());
        let ended = self.thread.join();
        ended.map_err(|_| anyhow::anyhow!("the thread that serves metrics and page panicked"))
    }
}
