use super::*;
use hyper::Request;

fn guard(address: &str, token: Option<&str>) -> Guard {
    let token = token.map(|text| Token::new(text).unwrap());
    Guard { address: address.parse().unwrap(), token }
}

/// The status of a request for `uri` with these headers: 200 if it may be answered, 303 if it gets a cookie.
fn status(guard: &Guard, uri: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    match guard.check(&request.body(()).unwrap().into_parts().0) {
        Ok(Entry::Answer) => 200,
        Ok(Entry::Cookie) => 303,
        Err((status, _)) => status.as_u16(),
    }
}

#[test]
fn host_is_an_address_or_name_of_this_server() {
    let loopback = guard("127.0.0.1:9817", None);
    let of = |guard: &Guard, host| status(guard, "/", &[("host", host)]);
    for host in
        ["127.0.0.1:9817", "127.0.0.1", "localhost", "LocalHost:8000", "[::1]:9817", "127.9.9.9"]
    {
        assert_eq!(of(&loopback, host), 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:9817",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        ":9817",
        "localhost:x",
        "localhost:99999",
        "[::1",
        "[::1]x",
        "[127.0.0.1]",
        "2130706433",
        "a@localhost",
    ] {
        assert_eq!(of(&loopback, host), 421, "{host}");
    }
    let outside = guard("10.1.2.3:9817", Some("0123456789abcdef"));
    assert_eq!((of(&outside, "10.1.2.3:9817"), of(&outside, "10.1.2.4")), (401, 421));
    assert_eq!(of(&outside, "localhost"), 421);
    let any = guard("0.0.0.0:9817", Some("0123456789abcdef"));
    assert_eq!(
        (of(&any, "10.1.2.3"), of(&any, "localhost"), of(&any, "evil.example")),
        (401, 401, 421)
    );
    let any = guard("[::]:9817", Some("0123456789abcdef"));
    assert_eq!((of(&any, "10.1.2.3"), of(&any, "[fe80::1]:9817")), (401, 401));
}

#[test]
fn one_host_header_and_a_target_of_the_same() {
    let guard = guard("127.0.0.1:9817", None);
    assert_eq!(status(&guard, "/", &[]), 400);
    assert_eq!(status(&guard, "/", &[("host", "localhost"), ("host", "localhost")]), 400);
    assert_eq!(status(&guard, "http://evil.example/", &[("host", "localhost")]), 421);
    assert_eq!(status(&guard, "http://localhost/", &[("host", "localhost")]), 200);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let guard = guard("127.0.0.1:9817", None);
    let of = |more: &[(&str, &str)]| {
        status(&guard, "/api/status", &[&[("host", "localhost:9817")], more].concat())
    };
    for (more, expected) in [
        (&[("origin", "http://localhost:9817")][..], 200),
        (&[("origin", "http://localhost:80")], 403),
        (&[("origin", "https://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("sec-fetch-site", "same-origin")], 200),
        (&[("sec-fetch-site", "none")], 200),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "no-cors"),
                ("sec-fetch-dest", "image"),
            ],
            403,
        ),
        (
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ],
            403,
        ),
        (
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ],
            200,
        ),
    ] {
        assert_eq!(of(more), expected, "{more:?}");
    }
}

#[test]
fn token_is_asked_for_and_taken_in_three_ways() {
    let guard = guard("0.0.0.0:9817", Some("0123456789abcdef"));
    let of = |uri: &str, more: &[(&str, &str)]| {
        status(&guard, uri, &[&[("host", "10.0.0.1:9817")], more].concat())
    };
    assert_eq!(of("/", &[]), 401);
    assert_eq!(of("/", &[("authorization", "Bearer 0123456789abcdef")]), 200);
    assert_eq!(of("/", &[("authorization", "bearer 0123456789abcdef")]), 200);
    assert_eq!(of("/", &[("authorization", "Bearer 0123456789abcdeg")]), 401);
    assert_eq!(of("/", &[("authorization", "Basic 0123456789abcdef")]), 401);
    assert_eq!(of("/", &[("cookie", "a=b; rxsteer_token=0123456789abcdef")]), 200);
    assert_eq!(of("/", &[("cookie", "xrxsteer_token=0123456789abcdef")]), 401);
    assert_eq!(of("/?token=0123456789abcdef", &[]), 303);
    assert_eq!(of("/?token=0123456789abcde", &[]), 401);
    let by_name = [("host", "host.example"), ("authorization", "Bearer 0123456789abcdef")];
    assert_eq!(status(&guard, "/metrics", &by_name), 200, "no browser was led here");
    let by_name = [("host", "host.example"), ("cookie", "rxsteer_token=0123456789abcdef")];
    assert_eq!(status(&guard, "/", &by_name), 421, "one may have been");
}
