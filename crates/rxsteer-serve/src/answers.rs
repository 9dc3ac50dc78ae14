//! The answer to each path.

use crate::guard::{COOKIE_NAME, Entry, Guard};
use crate::readings::Readings;
use crate::{api, files, metrics};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use std::convert::Infallible;

/// Headers of every answer. A browser may run and load only what comes from this server, must not show it in another
/// page, and must not keep a copy.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers requests.
#[derive(Debug)]
pub(crate) struct Answers {
    guard: Guard,
    readings: Readings,
}

impl Answers {
    pub(crate) fn new(guard: Guard, readings: Readings) -> Answers {
        Answers { guard, readings }
    }

    /// The answer to a request. hyper leaves out the body of an answer to HEAD.
    pub(crate) async fn to(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (request, _) = request.into_parts();
        let mut answer = match self.guard.check(&request) {
            Ok(Entry::Answer) => {
                self.at(request.uri.path(), request.headers.get(header::ACCEPT)).await
            }
            Ok(Entry::Cookie) => self.with_cookie(request.uri.path()),
            Err((status, why)) => refused(status, why),
        };
        for (name, value) in HEADERS {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(answer)
    }

    async fn at(&self, path: &str, accept: Option<&HeaderValue>) -> Response<Full<Bytes>> {
        match path {
            "/metrics" => {
                let reading = self.readings.at_counters().await;
                let format = metrics::Format::accepted(accept);
                let text = metrics::text(&reading, format, self.readings.is_of_several());
                answer(format.content_type(), text.into())
            }
            "/api/status" => answer(JSON, api::status(&*self.readings.at_flows().await)),
            "/api/history" => answer(JSON, self.readings.history().await.into()),
            _ => match files::FILES.iter().find(|file| file.path == path) {
                Some(file) => answer(file.content_type, Bytes::from_static(file.bytes)),
                None => refused(StatusCode::NOT_FOUND, "not found"),
            },
        }
    }

    /// Redirects the client to the same path without the token.
    fn with_cookie(&self, path: &str) -> Response<Full<Bytes>> {
        let secret = self.guard.token.as_ref().map_or("", |token| token.secret());
        let cookie = format!("{COOKIE_NAME}={secret}; Path=/; HttpOnly; SameSite=Strict");
        let mut answer = refused(StatusCode::SEE_OTHER, "redirected to the URL without the token");
        // A path that begins with // would be another host's, and browsers read \\ as /.
        let path = format!("/{}", path.trim_start_matches(['/', '\\']));
        for (name, value) in [(header::SET_COOKIE, cookie), (header::LOCATION, path)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                answer.headers_mut().insert(name, value);
            }
        }
        answer
    }
}

fn answer(content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

/// An answer that is one line of text.
fn refused(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let mut answer = answer(TEXT, format!("{why}\n").into());
    *answer.status_mut() = status;
    let more = match status {
        StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, HEAD")),
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
        _ => None,
    };
    if let Some((name, value)) = more {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
