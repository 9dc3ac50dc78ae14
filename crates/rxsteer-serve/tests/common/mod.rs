//! An instance that answers with a status of the test, and a server for it.

pub(crate) mod browser;
pub(crate) mod dashboard;

use rxsteer_serve::{Running, Server, Source, Token};
use rxsteer_status::Status;
use rxsteer_status::control::Control;
use rxsteer_status::protocol::{Answer, Request};
use rxsteer_status::testing::sample;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Prints that a test is skipped, and why.
pub(crate) fn skipped(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED {test}: {why}").expect("standard error is open");
}

/// An instance with a control socket.
pub(crate) struct Instance {
    pub(crate) socket: PathBuf,
    pub(crate) status: Arc<Mutex<Status>>,
    pub(crate) asked: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

struct Shows(Arc<Mutex<Status>>, Arc<AtomicU32>);

impl rxsteer_status::control::Server for Shows {
    fn serve(&mut self, request: &Request) -> Option<Answer> {
        let Request::Status { flows, .. } = request else { panic!("only the status is asked for") };
        self.1.fetch_add(1, Ordering::Relaxed);
        let mut status = self.0.lock().unwrap().clone();
        status.largest_flows.truncate(*flows as usize);
        Some(Answer::Status(Box::new(status)))
    }
    fn changed(&mut self) -> (bool, Answer) {
        unreachable!("nothing is changed")
    }
    fn give_up(&mut self) -> Answer {
        unreachable!("nothing is changed")
    }
}

impl Instance {
    /// Starts one that shows the sample status; with `began`, its time advances.
    pub(crate) fn start(began: Option<Instant>) -> Instance {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut control = Control::new(UnixListener::bind(&socket).unwrap()).unwrap();
        let mut shown = sample();
        shown.socket = socket.display().to_string();
        let (status, asked) = (Arc::new(Mutex::new(shown)), Arc::<AtomicU32>::default());
        let stop = Arc::<AtomicBool>::default();
        let mut server = Shows(Arc::clone(&status), Arc::clone(&asked));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(began) = began {
                    server.0.lock().unwrap().running_ns = began.elapsed().as_nanos() as u64;
                }
                control.serve(Instant::now(), &mut server);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Instance { socket, status, asked, stop, thread: Some(thread), _folder: folder }
    }

    /// Serves it at `address`.
    pub(crate) fn serve(&self, address: &str, token: Option<&str>) -> (Running, SocketAddr) {
        let token = token.map(|text| Token::new(text).unwrap());
        self.serve_by(Server::bind(address.parse().unwrap(), token).unwrap())
    }

    /// The same with a server that is already bound.
    pub(crate) fn serve_by(&self, server: Server) -> (Running, SocketAddr) {
        let address = server.address();
        let running = server.start(Source::Instance(self.socket.clone()), || Ok(())).unwrap();
        (running, address)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// Sends these bytes, and reads until the server closes the connection.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Option<Reply> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may already have closed the connection.
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Reply { status, head: head.to_owned(), body: body.to_owned() })
}

/// The answer to one request with these headers.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, headers: &[&str]) -> Reply {
    let host = format!("Host: {address}");
    let has_host = headers.iter().any(|header| header.to_lowercase().starts_with("host:"));
    let host = (!has_host).then_some(host.as_str());
    let lines: Vec<&str> = host.into_iter().chain(headers.iter().copied()).collect();
    let request =
        format!("{method} {path} HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", lines.join("\r\n"));
    raw(address, request.as_bytes()).unwrap_or_else(|| panic!("no answer to {request}"))
}

/// The answer to GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> Reply {
    ask(address, "GET", path, &[])
}
