//! The checks that a request must pass before the server answers it.
//!
//! A page of another site can make a browser on this host send requests here. The page can't set `Host` or `Origin`, and
//! with DNS rebinding `Host` has the other site's name. So the server requires that `Host` is one of its addresses or
//! names, and refuses requests that another site's page made. Such a page does not have the token, so a request with the
//! token as `Authorization: Bearer` may use any name for this host.

use crate::token::Token;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use std::net::{IpAddr, SocketAddr};

/// The cookie that has the token.
pub(crate) const COOKIE_NAME: &str = "rxsteer_token";

/// The address and token that every request is checked against.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The address on which the server listens.
    pub(crate) address: SocketAddr,
    /// The token, if one is required.
    pub(crate) token: Option<Token>,
}

/// A request that passes the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Answer it.
    Answer,
    /// The token was in its URL: answer with a cookie, and redirect to the URL without the token.
    Cookie,
}

/// Why a request is refused.
pub(crate) type Refusal = (StatusCode, &'static str);

impl Guard {
    /// Whether a request may be answered.
    pub(crate) fn check(&self, request: &Parts) -> Result<Entry, Refusal> {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed"));
        }
        let bearer = one(&request.headers, &AUTHORIZATION)?.and_then(|value| {
            let (scheme, secret) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
        });
        let is = |secret: &str| self.token.as_ref().is_some_and(|token| token.is(secret));
        let has_bearer = bearer.is_some_and(is);
        let host = one(&request.headers, &HOST)?;
        let Some(host) = host else {
            return Err((StatusCode::BAD_REQUEST, "a request must have a Host header"));
        };
        let target = request.uri.authority().map_or(host, |authority| authority.as_str());
        let is_here = self.is_here(host) && self.is_here(target);
        if !(has_bearer || is_here) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "the Host header names another host; use the address that rxsteer listens at, or localhost",
            ));
        }
        if is_cross_site(&request.headers, host)? {
            return Err((StatusCode::FORBIDDEN, "requests from pages of other sites are refused"));
        }
        if self.token.is_none() || has_bearer || cookies(&request.headers).any(is) {
            return Ok(Entry::Answer);
        }
        let query = request.uri.query().unwrap_or_default();
        let in_url = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        match in_url.is_some_and(is) {
            true => Ok(Entry::Cookie),
            false => Err((
                StatusCode::UNAUTHORIZED,
                "a token is required: send Authorization: Bearer TOKEN, or open /?token=TOKEN once in a browser",
            )),
        }
    }

    /// Whether a `Host` header names this server. Its port may differ, for example through a tunnel.
    fn is_here(&self, host: &str) -> bool {
        let own = self.address.ip();
        match ip_of(host) {
            Some(ip) if own.is_unspecified() => ip.is_ipv4() == own.is_ipv4() || own.is_ipv6(),
            Some(ip) => ip == own || (own.is_loopback() && ip.is_loopback()),
            None => {
                (own.is_loopback() || own.is_unspecified())
                    && name_of(host).eq_ignore_ascii_case("localhost")
            }
        }
    }
}

/// A header's only value; a request with several is refused.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    let text = first.map(|value| value.to_str()).transpose();
    match (text, second) {
        (Ok(text), None) => Ok(text),
        _ => Err((StatusCode::BAD_REQUEST, "a header is repeated, or its value is not text")),
    }
}

/// The address in a `Host` header, which may have a port.
fn ip_of(host: &str) -> Option<IpAddr> {
    if let Some(rest) = host.strip_prefix('[') {
        let (ip, port) = rest.split_once(']')?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return is_port.then(|| ip.parse().ok().map(IpAddr::V6)).flatten();
    }
    name_of(host).parse().ok().map(IpAddr::V4)
}

/// A `Host` header without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// Whether a page of another site made the request; a link that a user followed there does not count.
fn is_cross_site(headers: &HeaderMap, host: &str) -> Result<bool, Refusal> {
    let get = |name: &'static str| one(headers, &HeaderName::from_static(name));
    let origin = one(headers, &ORIGIN)?;
    let is_foreign = origin.is_some_and(|origin| {
        !origin.strip_prefix("http://").is_some_and(|of| of.eq_ignore_ascii_case(host))
    });
    let site = get("sec-fetch-site")?.unwrap_or("none");
    let is_link =
        get("sec-fetch-mode")? == Some("navigate") && get("sec-fetch-dest")? == Some("document");
    Ok(is_foreign || !(matches!(site, "same-origin" | "none") || is_link))
}

/// The values of the token cookies.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';'));
    pairs.filter_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
