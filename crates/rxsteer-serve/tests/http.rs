//! What the server answers and refuses, over plain TCP.

use crate::common::{Instance, Reply, ask, get, raw};
use rxsteer_serve::{MAX_CONNECTIONS, MAX_HEAD, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn started() -> (Instance, rxsteer_serve::Running, SocketAddr) {
    let instance = Instance::start(None);
    let (running, address) = instance.serve("127.0.0.1:0", None);
    (instance, running, address)
}

/// What every answer must have, whatever its status.
fn assert_safe(reply: &Reply) {
    for (name, part) in [
        ("content-security-policy", "default-src 'self'"),
        ("content-security-policy", "frame-ancestors 'none'"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert!(
            reply.header(name).is_some_and(|value| value.contains(part)),
            "{name}: {}",
            reply.head
        );
    }
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[test]
fn paths_have_their_types_and_no_others_are_there() {
    let (_instance, _running, address) = started();
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/api/status", "application/json"),
        ("/api/history", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/?x=y", "text/html; charset=utf-8"),
    ] {
        let reply = get(address, path);
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some(content_type)),
            "{path}"
        );
        assert!(!reply.body.is_empty());
        assert_safe(&reply);
    }
    let open =
        ask(address, "GET", "/metrics", &["Accept: application/openmetrics-text; version=1.0.0"]);
    assert!(
        open.header("content-type").unwrap().starts_with("application/openmetrics-text"),
        "{}",
        open.head
    );
    for path in [
        "/nothing",
        "//",
        "/../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/app.js/",
        "/APP.JS",
        "/page/app.js",
        "/%2e%2e/app.js",
        "/metrics/",
        "/api",
        "/app.js%00",
    ] {
        let reply = get(address, path);
        assert_eq!(reply.status, 404, "{path}");
        assert_safe(&reply);
    }
}

#[test]
fn only_get_and_head_are_answered() {
    let (instance, _running, address) = started();
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"] {
        let reply = ask(address, method, "/api/status", &["Content-Length: 0"]);
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method}");
        assert_safe(&reply);
    }
    let reply = raw(
        address,
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(reply.unwrap().status, 405);
    assert_eq!(
        instance.asked.load(Ordering::Relaxed),
        0,
        "nothing was asked for a refused request"
    );
    let (head, whole) = (ask(address, "HEAD", "/app.js", &[]), get(address, "/app.js"));
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), whole.header("content-length"));
    assert_safe(&head);
}

#[test]
fn foreign_hosts_and_sites_are_refused() {
    let (instance, _running, address) = started();
    for headers in [
        &["Host: evil.example"][..],
        &["Host: evil.example:9817"],
        &["Origin: http://evil.example"],
        &["Sec-Fetch-Site: cross-site"],
    ] {
        for path in ["/", "/metrics", "/api/status"] {
            let reply = ask(address, "GET", path, headers);
            assert!(reply.status >= 400, "{headers:?}: {}", reply.head);
            assert_safe(&reply);
        }
    }
    let old = raw(address, b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.status, 400, "no Host");
    let absolute = raw(
        address,
        b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(absolute.unwrap().status, 421);
    assert_eq!(ask(address, "GET", "/", &["Host: localhost:1234"]).status, 200, "a tunnel");
    assert_eq!(instance.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn token_is_needed_where_others_can_ask() {
    let why = Server::bind("0.0.0.0:0".parse().unwrap(), None).unwrap_err().to_string();
    assert!(why.contains("--listen-token-file") && why.contains("127.0.0.1"), "{why}");
    assert!(Server::bind("[::]:0".parse().unwrap(), None).is_err());
    let instance = Instance::start(None);
    let token = "0123456789abcdef0123456789abcdef";
    let (_running, address) = instance.serve("0.0.0.0:0", Some(token));
    let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    for path in ["/", "/app.js", "/metrics", "/api/status", "/api/history", "/nothing"] {
        let reply = get(address, path);
        assert_eq!(
            (reply.status, reply.header("www-authenticate")),
            (401, Some("Bearer")),
            "{path}"
        );
        assert!(!reply.head.contains(token) && !reply.body.contains(token));
        assert_safe(&reply);
    }
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(ask(address, "GET", "/metrics", &[&bearer]).status, 200);
    assert_eq!(ask(address, "GET", "/metrics", &[&bearer, "Host: host.example"]).status, 200);
    assert_eq!(ask(address, "GET", "/metrics", &["Authorization: Bearer x"]).status, 401);
    for path in ["//evil.example/", "/\\evil.example/"] {
        let entry = get(address, &format!("{path}?token={token}"));
        // Browsers treat a backslash as a slash; some servers refuse it in a path.
        let stays = entry.header("location").is_none_or(|location| location == "/evil.example/");
        assert!(stays && [303, 400].contains(&entry.status), "{path} leads elsewhere");
    }
    let entry = get(address, &format!("/?token={token}"));
    assert_eq!((entry.status, entry.header("location")), (303, Some("/")));
    let cookie = entry.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(ask(address, "GET", "/api/status", &[&cookie]).status, 200);
}

#[test]
fn heads_are_short() {
    let (_instance, _running, address) = started();
    let padded = |bytes: usize| {
        let fixed =
            format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX: \r\n\r\n").len();
        let pad = "x".repeat(bytes - fixed);
        raw(
            address,
            format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX: {pad}\r\n\r\n")
                .as_bytes(),
        )
    };
    assert_eq!(padded(MAX_HEAD - 100).unwrap().status, 200);
    // If a server closes the connection while a client still sends, its answer may be cut off.
    assert!(padded(MAX_HEAD + 100).is_none_or(|reply| reply.status == 431));
    assert!(padded(1 << 20).is_none_or(|reply| reply.status == 431));
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01"[..],
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(garbage).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    assert_eq!(get(address, "/").status, 200, "it goes on");
}

/// Clients that send a byte now and then occupy all places. They lose them when the time limit for a request head is
/// over, and the clients that waited are served.
#[test]
fn slow_clients_lose_their_places() {
    let (_instance, _running, address) = started();
    let mut slow: Vec<TcpStream> =
        (0..MAX_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    // The next client is not refused: it waits, and is served once one of these has lost its place.
    let next = std::thread::spawn(move || get(address, "/").status);
    while !next.is_finished() {
        for stream in &mut slow {
            let _ = stream.write(b"x");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(next.join().unwrap(), 200);
    for stream in &mut slow {
        stream.set_nonblocking(false).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408"), "{rest}");
    }
}

#[test]
fn idle_connection_and_one_that_does_not_read_are_closed() {
    let instance = Instance::start(None);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let (running, address) = instance.serve_by(server.with_connection_age(Duration::from_secs(2)));
    let first = instance.status.lock().unwrap().interfaces[0].clone();
    // An answer that does not fit into socket buffers.
    let interfaces = (0..2000).map(|index| rxsteer_status::InterfaceStatus {
        name: format!("veth{index}"),
        why: Some("x".repeat(200)),
        ..first.clone()
    });
    instance.status.lock().unwrap().interfaces = interfaces.collect();
    let request = format!("GET /api/status HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut greedy = TcpStream::connect(address).unwrap();
    for _ in 0..100 {
        greedy.write_all(request.as_bytes()).unwrap();
    }
    let mut idle = TcpStream::connect(address).unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    idle.write_all(format!("GET /app.js HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    idle.read_to_end(&mut answer).expect("the server closes it");
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200"));
    // The other client never reads. When its time is over, a write to it fails.
    let mut written = 0;
    while greedy.write(b"GET / HTTP/1.1\r\n").is_ok() {
        written += 1;
        assert!(written < 600, "it is closed within a minute");
        std::thread::sleep(Duration::from_millis(100));
    }
    running.stop().unwrap();
}

#[test]
fn address_that_is_in_use_is_named() {
    let (_instance, running, address) = started();
    let why = format!("{:#}", Server::bind(address, None).unwrap_err());
    assert!(why.contains(&address.to_string()) && why.contains("in use"), "{why}");
    running.stop().unwrap();
    Server::bind(address, None).expect("it is free again");
}

#[test]
fn status_and_metrics_say_what_the_instance_shows() {
    let (instance, _running, address) = started();
    let shown: serde_json::Value = serde_json::from_str(&get(address, "/api/status").body).unwrap();
    let status = serde_json::to_value(&*instance.status.lock().unwrap()).unwrap();
    for (name, value) in status.as_object().unwrap() {
        assert_eq!(&shown["instances"][0][name], value, "{name}");
    }
    assert_eq!(shown["silent"], serde_json::json!([]));
    let history: serde_json::Value =
        serde_json::from_str(&get(address, "/api/history").body).unwrap();
    assert!(history["instances"].is_array());
    let metrics = get(address, "/metrics").body;
    for name in rxsteer_serve::names() {
        // The sample status has no sampled delays.
        let is_there = metrics.lines().any(|line| line.starts_with(&name));
        assert!(is_there || name.starts_with("rxsteer_delay"), "{name}");
    }
}
