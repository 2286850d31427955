//! The warm path: one number out of memory, answered before any routing.
//!
//! A `POST /v1/sequences/{name}/next` that asks for nothing special and whose sequence has a
//! number in memory is answered here. All else, a name written with percent signs too, goes on to
//! the routes, which decide again from the start: what is done by hand here only ever gives the
//! reply that `numbers::next` would have given.

use std::cell::Cell;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Instant;

use actix_web::body::BoxBody;
use actix_web::dev::{
    RequestHead, Service, ServiceRequest, ServiceResponse, Transform, forward_ready,
};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{Error, HttpResponse};
use futures_util::future::Either;
use metrics::{Counter, Histogram};

use super::{Http, envelope, reply};
use crate::metrics::{Metrics, Route};
use crate::sequence::Directory;

/// One warm call in so many is timed: reading the clock twice costs as much as the number.
const SAMPLE: u32 = 64;

/// Puts the warm path in front of an application.
pub(super) struct Warm {
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
}

impl Warm {
    /// The warm path of this service.
    pub(super) fn new(http: &Http) -> Self {
        Self {
            directory: Arc::clone(&http.directory),
            metrics: Arc::clone(&http.metrics),
        }
    }
}

impl<S> Transform<S, ServiceRequest> for Warm
where
    S: Service<ServiceRequest, Response = ServiceResponse<BoxBody>, Error = Error>,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Transform = WarmFirst<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, rest: S) -> Self::Future {
        ready(Ok(WarmFirst {
            directory: Arc::clone(&self.directory),
            answered: self.metrics.http(Route::Next, 200).clone(),
            duration: self.metrics.http_duration(Route::Next).clone(),
            until_sample: Cell::new(SAMPLE),
            rest,
        }))
    }
}

/// The application behind the warm path, one for each worker.
pub(super) struct WarmFirst<S> {
    directory: Arc<Directory>,
    answered: Counter,
    duration: Histogram,
    until_sample: Cell<u32>,
    rest: S,
}

impl<S> Service<ServiceRequest> for WarmFirst<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<BoxBody>, Error = Error>,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = Either<Ready<Result<Self::Response, Self::Error>>, S::Future>;

    forward_ready!(rest);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        match self.answer(request.head()) {
            Some(response) => Either::Left(ready(Ok(request.into_response(response)))),
            None => Either::Right(self.rest.call(request)),
        }
    }
}

impl<S> WarmFirst<S> {
    fn answer(&self, head: &RequestHead) -> Option<HttpResponse> {
        let plain = Plain::read(head)?;
        let until_sample = self.until_sample.get();
        let started = (until_sample == 0).then(Instant::now);
        let value = self.directory.take_warm(plain.name)?;
        let body = BoxBody::new(reply::one_json(plain.name, value));
        let mut response = HttpResponse::with_body(StatusCode::OK, body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(reply::JSON));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(id) = plain.request_id {
            headers.insert(envelope::REQUEST_ID, id.clone());
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
}

/// A request for one number that asks for nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Plain<'a> {
    /// As it stands in the path. What no name can hold is in no directory either.
    name: &'a str,
    request_id: Option<&'a HeaderValue>,
}

impl<'a> Plain<'a> {
    fn read(head: &'a RequestHead) -> Option<Self> {
        if head.method != Method::POST || head.uri.query().is_some() {
            return None;
        }
        let name = head.uri.path().strip_prefix("/v1/sequences/")?;
        let name = name.strip_suffix("/next")?;
        let mut request_id = None;
        for (header, value) in head.headers() {
            if header.as_str() == envelope::REQUEST_ID && envelope::is_safe(value) {
                request_id = Some(value);
            } else if asks_for_more(header, value) {
                return None;
            }
        }
        Some(Self { name, request_id })
    }
}

/// Whether a header may change what the reply is.
fn asks_for_more(name: &HeaderName, value: &HeaderValue) -> bool {
    match name.as_str() {
        "accept" => names_text(value.as_bytes()),
        "content-length" => value.as_bytes() != b"0",
        "transfer-encoding" | "expect" | "origin" | "sec-fetch-site" | "idempotency-key"
        | "x-request-id" => true,
        _ => false,
    }
}

fn names_text(accept: &[u8]) -> bool {
    const TEXT: &[u8] = b"text/plain";
    accept
        .windows(TEXT.len())
        .any(|part| part.eq_ignore_ascii_case(TEXT))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn name_of(request: &TestRequestHead) -> Option<&str> {
        Plain::read(request.head()).map(|plain| plain.name)
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
            "/v1/sequences/orders/next?",
            "/v1/sequences/orders/next?count=1",
            "/v1/sequences/orders/next/",
            "/v1/sequences/orders/blocks",
            "/v1/sequences/next",
            "/livez",
        ] {
            assert_eq!(name_of(&post(path).to_srv_request()), None, "{path}");
        }
        for header in [
            ("accept", "Text/Plain"),
            ("accept", "application/json, text/plain, */*"),
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
    fn a_request_id_is_kept() {
        let request = post(NEXT)
            .insert_header(("x-request-id", "a-1"))
            .to_srv_request();
        let plain = Plain::read(request.head()).unwrap();
        assert_eq!(plain.request_id.unwrap(), "a-1");
    }
}
