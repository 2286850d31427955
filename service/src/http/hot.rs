//! Answers calls for numbers from memory before any routing: the warm path.
//!
//! A `POST /v1/sequences/{name}/next` without a body and without special headers is answered here
//! if memory has the numbers. Any other request goes on to the routes, also if its name is written
//! with percent signs. The routes decide again from the start. So the code here only ever gives the
//! reply that `numbers::next` would have given.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::dev::RequestHead;
use actix_web::http::Method;
use actix_web::http::header::HeaderValue;
use metrics::{Counter, Histogram};
use odometer_core::period::Period;
use odometer_process::metrics::Route;
use odometer_sequence::{Directory, warm::Pinned};

use super::state::Http;
use super::trace::{TRACEPARENT, Trace};
use super::{
    large_replies,
    parse::{self, MediaType},
    payload::parameters::NextQuery,
    reply, request_id,
};
use crate::access::{credentials::Credentials, quotas::share::ALWAYS};
use crate::calls::caller_memo::{CallerMemo, MemoTime};
use crate::edge::Watch;

/// One warm call in this many is timed, because reading the clock twice costs as much as the
/// number.
const SAMPLE: u32 = 64;

/// The warm path of one worker.
pub(crate) struct WarmPath {
    directory: Arc<Directory>,
    watch: Rc<Watch>,
    answered: Counter,
    duration: Histogram,
    /// Present if there are roles.
    credentials: Option<Arc<Credentials>>,
    until_sample: Cell<u32>,
}

impl WarmPath {
    /// Returns the warm path of this service for one worker. `watch` watches the worker's
    /// connections.
    pub(crate) fn new(http: &Http, watch: Rc<Watch>) -> Self {
        Self {
            directory: Arc::clone(&http.directory),
            watch,
            answered: http.metrics.http(Route::Next, 200).clone(),
            duration: http.metrics.http_duration(Route::Next).clone(),
            credentials: http.access.of_roles(),
            until_sample: Cell::new(SAMPLE),
        }
    }

    /// Answers a call, or returns `None` for a call that has to go on to the routes.
    pub(crate) fn answer(&self, request: &HttpRequest) -> Option<HttpResponse> {
        // While the service stops, or while connections are scarce, each reply ends its connection.
        // The envelope does that.
        if self.directory.is_draining() || self.watch.is_crowded() {
            return None;
        }
        let plain = PlainRequest::read(request.head())?;
        let until_sample = self.until_sample.get();
        let started = (until_sample == 0).then(Instant::now);
        let mut response = self.take(&plain, request)?;
        if let Some(id) = plain.request_id {
            response
                .headers_mut()
                .insert(request_id::REQUEST_ID, id.clone());
        }
        if let Some(given) = plain.traceparent {
            let trace = Trace::after(given.as_bytes());
            response.headers_mut().insert(TRACEPARENT, trace.header());
        }
        self.answered.increment(1);
        self.until_sample.set(match started {
            Some(started) => {
                self.duration.record(started.elapsed());
                SAMPLE
            }
            None => until_sample - 1,
        });
        Some(response)
    }

    fn take(&self, plain: &PlainRequest<'_>, request: &HttpRequest) -> Option<HttpResponse> {
        let mut pinned = self.directory.pin();
        let Some(credentials) = &self.credentials else {
            return self.take_pinned(&mut pinned, plain);
        };
        let asked = &plain.asked;
        let count = asked.count.unwrap_or(1);
        // What has numbers in memory was used before, so nobody needs the right to create it. A name
        // that shares the numbers of another sequence is never in use itself. The routes judge which
        // share of a sequence a call takes.
        let memo = request.conn_data::<CallerMemo>()?;
        let may_take = count <= ALWAYS
            && !asked.confirm
            && pinned.is_in_use(plain.name)
            && self.may_take(credentials, plain, memo)
            && memo.take_quota(count);
        if !may_take {
            return None;
        }
        let taken = self.take_pinned(&mut pinned, plain);
        if taken.is_none() {
            memo.give_back_quota(count);
        }
        taken
    }

    fn take_pinned(
        &self,
        pinned: &mut Pinned<'_>,
        plain: &PlainRequest<'_>,
    ) -> Option<HttpResponse> {
        let (directory, asked, wanted) = (&self.directory, &plain.asked, plain.wanted);
        let period = asked.period.as_ref().map(Period::as_str);
        let Some(count) = asked.count else {
            let taken = pinned.take(plain.name, period)?;
            return Some(reply::one(taken.shown(), taken.numbers, wanted));
        };
        if large_replies::is_large(reply::most_bytes(directory, plain.name, asked, wanted)) {
            return None;
        }
        let batch = (count, asked.contiguous);
        let taken = pinned.take_batch(plain.name, period, batch)?;
        let ranges = taken.numbers.as_slice();
        Some(reply::batch(taken.shown(), ranges, asked.ids, wanted))
    }
}

impl WarmPath {
    /// Returns whether the connection remembers a caller who may take the numbers.
    fn may_take(
        &self,
        credentials: &Credentials,
        plain: &PlainRequest<'_>,
        memo: &CallerMemo,
    ) -> bool {
        let at = MemoTime {
            generation: credentials.generation(),
            tick: self.watch.now(),
        };
        let shown = plain.authorization.map(HeaderValue::as_bytes);
        memo.may_take(shown, at, plain.name)
    }
}

/// A request that asks for numbers, and for nothing special besides.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PlainRequest<'a> {
    /// The name as it stands in the path. A text that cannot be a name is in no directory, either.
    name: &'a str,
    asked: NextQuery,
    wanted: MediaType,
    request_id: Option<&'a HeaderValue>,
    traceparent: Option<&'a HeaderValue>,
    authorization: Option<&'a HeaderValue>,
}

impl<'a> PlainRequest<'a> {
    fn read(head: &'a RequestHead) -> Option<Self> {
        if head.method != Method::POST {
            return None;
        }
        let name = head.uri.path().strip_prefix("/v1/sequences/")?;
        let name = name.strip_suffix("/next")?;
        let mut wanted = MediaType::Json;
        let mut request_id = None;
        let mut traceparent = None;
        let mut authorization = None;
        for (header, value) in head.headers() {
            match header.as_str() {
                "accept" if names_text(value.as_bytes()) => wanted = parse::wanted(head.headers()),
                "content-length" if value.as_bytes() != b"0" => return None,
                "x-request-id" if !request_id::is_safe(value) => return None,
                "x-request-id" => request_id = Some(value),
                // The routes judge a header that comes twice.
                "traceparent" if traceparent.is_some() => return None,
                "traceparent" => traceparent = Some(value),
                "authorization" if authorization.is_some() => return None,
                "authorization" => authorization = Some(value),
                "transfer-encoding" | "expect" | "origin" | "sec-fetch-site"
                | "idempotency-key" => return None,
                _ => {}
            }
        }
        // The routes say what is wrong with a query.
        let asked = parse::next(head.uri.query()).ok()?;
        Some(Self {
            name,
            asked,
            wanted,
            request_id,
            traceparent,
            authorization,
        })
    }
}

fn names_text(accept: &[u8]) -> bool {
    const TEXT: &[u8] = b"text/plain";
    accept
        .windows(TEXT.len())
        .any(|part| part.eq_ignore_ascii_case(TEXT))
}

#[cfg(test)]
#[allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]
mod tests {
    use actix_web::http::header;
    use actix_web::test::TestRequest;
    use odometer_core::name::SequenceName;
    use odometer_tests::fuzz::{check, edit};
    use proptest::{
        collection::{btree_set, vec},
        prelude::*,
    };

    use super::*;
    use crate::calls::size_limit::MAX_COUNT;

    fn name_of(request: &TestRequestHead) -> Option<&str> {
        PlainRequest::read(request.head()).map(|plain| plain.name)
    }

    type TestRequestHead = actix_web::dev::ServiceRequest;

    fn post(path: &str) -> TestRequest {
        TestRequest::post().uri(path)
    }

    const NEXT: &str = "/v1/sequences/orders/next";

    #[test]
    fn one_number_without_wishes_is_plain() {
        assert_eq!(name_of(&post(NEXT).to_srv_request()), Some("orders"));
        let usual = post(NEXT)
            .insert_header(("host", "localhost"))
            .insert_header(("user-agent", "curl/8"))
            .insert_header(("accept", "*/*"))
            .insert_header(("content-length", "0"))
            .insert_header(("content-type", "application/json"));
        assert_eq!(name_of(&usual.to_srv_request()), Some("orders"));
    }

    #[test]
    fn what_asks_for_more_goes_on_to_the_routes() {
        for path in [
            "/v1/sequences/orders/next?count=0",
            "/v1/sequences/orders/next?period=+",
            "/v1/sequences/orders/next?x=1",
            "/v1/sequences/orders/next/",
            "/v1/sequences/orders/blocks",
            "/v1/sequences/next",
            "/livez",
        ] {
            assert_eq!(name_of(&post(path).to_srv_request()), None, "{path}");
        }
        for header in [
            ("content-length", "2"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("origin", "http://localhost"),
            ("sec-fetch-site", "cross-site"),
            ("idempotency-key", "a"),
            ("x-request-id", "not safe\u{1}"),
        ] {
            let Ok(value) = HeaderValue::from_bytes(header.1.as_bytes()) else {
                continue;
            };
            let request = post(NEXT).insert_header((header.0, value));
            assert_eq!(name_of(&request.to_srv_request()), None, "{header:?}");
        }
        assert_eq!(
            name_of(&TestRequest::get().uri(NEXT).to_srv_request()),
            None
        );
    }

    #[test]
    fn batches_and_text_are_plain_too() {
        let request = post("/v1/sequences/orders/next?count=7&ids=false")
            .insert_header(("accept", "Text/Plain"))
            .to_srv_request();
        let plain = PlainRequest::read(request.head()).unwrap();
        assert_eq!(plain.asked.count, Some(7));
        assert!(!plain.asked.ids && !plain.asked.contiguous);
        assert_eq!(plain.wanted, MediaType::Text);
        let browser = post(NEXT).insert_header(("accept", "application/json, text/plain, */*"));
        let browser = browser.to_srv_request();
        let plain = PlainRequest::read(browser.head()).unwrap();
        assert_eq!((plain.asked.count, plain.wanted), (None, MediaType::Json));
    }

    #[test]
    fn a_trace_is_read_once_and_what_comes_twice_goes_on_to_the_routes() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let once = || post(NEXT).append_header(("traceparent", given));
        let request = once().to_srv_request();
        let plain = PlainRequest::read(request.head()).unwrap();
        assert_eq!(plain.traceparent.unwrap(), given);
        let twice = once().append_header(("traceparent", given));
        assert_eq!(name_of(&twice.to_srv_request()), None);
    }

    #[test]
    fn a_request_id_is_kept() {
        let request = post(NEXT)
            .insert_header(("x-request-id", "a-1"))
            .to_srv_request();
        let plain = PlainRequest::read(request.head()).unwrap();
        assert_eq!(plain.request_id.unwrap(), "a-1");
    }

    const PIECES: &[&str] = &[
        "orders",
        "%6Frders",
        "%2F",
        "%ff",
        "/next",
        "?",
        "&",
        "count=",
        "count=7",
        "ids=false",
        "contiguous=true",
        "period=2026",
        "x=1",
        "+",
        "0",
        "10001",
        ":",
        "-",
        "/",
        "#",
        "=",
    ];

    /// Headers that a plain request may have, each once.
    const PLAIN: [(&str, &[u8]); 17] = [
        ("host", b"localhost"),
        ("accept", b"text/plain"),
        ("accept", b"*/*"),
        ("accept", b"text/plain;q=0"),
        ("accept", b"application/json, text/plain"),
        ("accept", b"text/plain, application/json;q=0.5"),
        ("content-length", b"0"),
        ("content-type", b"application/json"),
        ("x-request-id", b"a-1"),
        (
            "traceparent",
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        // Those from here on show who calls.
        ("authorization", b"Bearer odo_a"),
        ("Authorization", b"Bearer odo_a"),
        ("AUTHORIZATION", b"bearer  odo_b "),
        ("authorization", b"Bearer odo_a, Bearer odo_b"),
        ("authorization", b"Basic \xff\x80"),
        ("authorization", b"Bearer"),
        ("authorization", b""),
    ];

    /// Other headers.
    const OTHERS: [(&str, &[u8]); 9] = [
        ("content-length", b"2"),
        ("transfer-encoding", b"chunked"),
        ("x-request-id", b"a b"),
        ("traceparent", b"x"),
        ("expect", b"100-continue"),
        ("origin", b"http://localhost"),
        ("sec-fetch-site", b"same-origin"),
        ("idempotency-key", b"a"),
        ("x-forwarded-for", b"192.0.2.7"),
    ];

    /// The first header of [`PLAIN`] that shows who calls.
    const FIRST_SHOWN: usize = 10;

    type Chosen = (
        Option<u64>,
        Option<&'static str>,
        Option<bool>,
        Option<bool>,
    );

    /// Makes a query that must be taken.
    fn chosen() -> impl Strategy<Value = Chosen> {
        let period = prop::sample::select(&["2026", "eod-7"][..]);
        (
            prop::option::of(1..=MAX_COUNT),
            prop::option::of(period),
            any::<Option<bool>>(),
            any::<Option<bool>>(),
        )
    }

    fn query_of((count, period, contiguous, ids): Chosen) -> String {
        let parts = [
            count.map(|count| format!("count={count}")),
            period.map(|period| format!("period={period}")),
            contiguous.map(|flag| format!("contiguous={flag}")),
            ids.map(|flag| format!("ids={flag}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("&")
    }

    fn with_headers(path: &str, headers: &[(&str, &[u8])]) -> TestRequestHead {
        let mut request = post(path);
        for (name, value) in headers {
            request = request.append_header((*name, HeaderValue::from_bytes(value).unwrap()));
        }
        request.to_srv_request()
    }

    /// Checks that the routes read the same of a request, if it is plain. Returns whether it is.
    fn is_read_in_the_same_way(path: &str, headers: &[(&str, &[u8])]) -> bool {
        let request = with_headers(path, headers);
        let head = request.head();
        let shown: Vec<&HeaderValue> = head.headers().get_all(header::AUTHORIZATION).collect();
        let Some(plain) = PlainRequest::read(head) else {
            return false;
        };
        // A text that is no name is in no directory.
        let named = parse::name(head.uri.path());
        let is_same = named.is_ok_and(|name| name.as_str() == plain.name);
        assert!(
            is_same || SequenceName::parse(plain.name).is_err(),
            "{path}"
        );
        assert_eq!(parse::next(head.uri.query()).ok(), Some(plain.asked));
        assert_eq!(parse::wanted(head.headers()), plain.wanted);
        assert!(parse::no_idempotency_key(head.headers()).is_ok());
        assert!(shown.len() < 2, "the routes judge two");
        assert_eq!(plain.authorization, shown.first().copied());
        true
    }

    /// What the warm path takes for a plain request, the routes read in the same way.
    #[test]
    fn fuzz_the_routes_read_a_plain_request_in_the_same_way() {
        let inputs = (
            chosen(),
            (
                btree_set(0..FIRST_SHOWN, 0..4),
                vec(FIRST_SHOWN..PLAIN.len(), 0..3),
            ),
            vec(0..OTHERS.len(), 0..2),
            (prop::option::of(edit(PIECES)), vec(0..PIECES.len(), 0..5)),
        );
        check(
            &inputs,
            10,
            |(chosen, (plain, shown), others, (edit, pieces))| {
                let whole = format!("{NEXT}?{}", query_of(chosen));
                let mut headers: Vec<_> = plain.into_iter().map(|header| PLAIN[header]).collect();
                assert!(
                    is_read_in_the_same_way(&whole, &headers),
                    "{whole} {headers:?}"
                );
                let shown: Vec<_> = shown.into_iter().map(|header| PLAIN[header]).collect();
                headers.extend(&shown);
                let is_plain = is_read_in_the_same_way(&whole, &headers);
                assert_eq!(is_plain, shown.len() < 2, "{whole} {headers:?}");
                if let ([(_, value)], true) = (&shown[..], is_plain) {
                    let request = with_headers(&whole, &headers);
                    let given = PlainRequest::read(request.head()).unwrap().authorization;
                    assert_eq!(given.map(HeaderValue::as_bytes), Some(*value));
                }

                headers.extend(others.into_iter().map(|header| OTHERS[header]));
                let pieces: String = pieces.into_iter().map(|choice| PIECES[choice]).collect();
                let edited = edit.map_or(whole.clone(), |edit| edit.of(&whole));
                let mut n_plain = 0;
                for path in [edited, format!("/v1/sequences/{pieces}")] {
                    if path.starts_with('/') && path.parse::<actix_web::http::Uri>().is_ok() {
                        n_plain += u32::from(is_read_in_the_same_way(&path, &headers));
                    }
                }
                n_plain > 0
            },
        );
    }
}
