//! Tests who may call, by what requests show of their callers.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::ResponseError;
use actix_web::http::ConnectionType;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::test::TestRequest;
use actix_web::{HttpMessage as _, HttpRequest};
use futures_util::FutureExt;
use odometer_core::name::SequenceName;
use odometer_process::metrics::Metrics;
use proptest::prelude::*;

use super::evidence::{self, FORWARDED_FOR, bearer};
use super::request_id::RequestId;
use crate::access::credentials::Credentials;
use crate::access::right::Right;
use crate::calls::access::{Access, same};
use crate::calls::call_limit::LeavableSlot;
use crate::calls::caller::{Caller, printable};
use crate::calls::problem::{Code, Problem};
use crate::calls::wrong_tokens::{MAX_AT_ONCE, MAX_WAITING};
use crate::config::{Config, Secret};

fn access(loopback: bool, token: Option<&str>) -> Access {
    let config = Config {
        admin_token: token.map(Secret::new),
        ..Config::default()
    };
    of_config(loopback, &config)
}

fn of_config(loopback: bool, config: &Config) -> Access {
    let metrics = Arc::new(Metrics::new());
    let credentials = Credentials::new(config, metrics.access_stale.clone());
    Access::new(loopback, Arc::new(credentials.expect("no file")), metrics)
}

/// Asks whether a call may change a sequence.
async fn change(access: &Access, request: &HttpRequest) -> Result<Caller, Problem> {
    let name = SequenceName::parse("orders").expect("a name");
    let evidence = evidence::of(request);
    access.admit(&evidence, Right::Define, &name).await
}

async fn code_of(access: &Access, authorization: Option<&str>) -> Option<Code> {
    let mut request = TestRequest::put();
    if let Some(given) = authorization {
        request = request.insert_header((header::AUTHORIZATION, given));
    }
    let admitted = change(access, &request.to_http_request()).await;
    admitted.err().map(|problem| problem.code())
}

#[actix_web::test]
async fn loopback_needs_no_token_if_none_is_configured() {
    assert_eq!(code_of(&access(true, None), None).await, None);
    let proxied = TestRequest::put()
        .insert_header((FORWARDED_FOR, "192.0.2.7"))
        .to_http_request();
    let admitted = change(&access(true, None), &proxied).await;
    let code = admitted.err().map(|problem| problem.code());
    assert_eq!(code, Some(Code::Forbidden));
}

#[actix_web::test]
async fn without_a_token_nobody_is_administrator_elsewhere() {
    let closed = access(false, None);
    assert_eq!(code_of(&closed, None).await, Some(Code::Forbidden));
    let empty = code_of(&closed, Some("Bearer ")).await;
    assert_eq!(empty, Some(Code::Forbidden));
}

#[actix_web::test]
async fn a_configured_token_has_to_be_right_on_loopback_too() {
    for loopback in [false, true] {
        let token = access(loopback, Some("s3cret"));
        assert_eq!(code_of(&token, Some("Bearer s3cret")).await, None);
        assert_eq!(code_of(&token, Some("bearer s3cret")).await, None);
        for wrong in [
            "Bearer s3cre",
            "Bearer s3crets",
            "Bearer S3cret",
            "Basic s3cret",
            "Bearer",
            "",
        ] {
            let code = code_of(&token, Some(wrong)).await;
            assert_eq!(code, Some(Code::Unauthenticated), "{wrong}");
        }
        let code = code_of(&token, None).await;
        assert_eq!(code, Some(Code::Unauthenticated));
        let empty = access(loopback, Some(""));
        let code = code_of(&empty, Some("Bearer ")).await;
        assert_eq!(code, Some(Code::Unauthenticated));
    }
}

#[actix_web::test]
async fn an_author_is_told_without_the_token() {
    let token = access(false, Some("s3cret"));
    let request = TestRequest::delete()
        .peer_addr(([192, 0, 2, 7], 5000).into())
        .insert_header((header::AUTHORIZATION, "Bearer s3cret"))
        .insert_header(("x-forwarded-for", "198.51.100.1, [2001:db8::1]\t\"x\""))
        .to_http_request();
    let id = HeaderValue::from_static("a-1");
    request.extensions_mut().insert(RequestId(id));
    let Ok(caller) = change(&token, &request).await else {
        unreachable!("the token is right")
    };
    let author = caller.author(&evidence::of(&request));
    assert_eq!(
        (&*author.who, author.how, author.role.as_deref()),
        ("administrator", Some("token"), None)
    );
    assert_eq!(author.peer, "192.0.2.7:5000");
    assert_eq!(author.request_id, "a-1");
    let forwarded_for = author.forwarded_for.as_deref();
    assert_eq!(forwarded_for, Some("198.51.100.1, [2001:db8::1]x"));
    assert!(!format!("{author:?}").contains("s3cret"));
    let direct = TestRequest::delete().to_http_request();
    let who = change(&access(true, None), &direct).await;
    let how = who
        .as_ref()
        .map(|caller| caller.author(&evidence::of(&direct)).how);
    assert_eq!(how.ok(), Some(Some("nothing")));
    assert_eq!(name_of(who).as_deref(), Some("loopback"));
    let long = "1".repeat(1000);
    assert_eq!(printable(long.as_bytes()).len(), 256);
}

fn name_of(admitted: Result<Caller, Problem>) -> Option<String> {
    admitted.ok().map(|caller| caller.name().to_owned())
}

fn shows(token: &str, last: u8) -> HttpRequest {
    TestRequest::put()
        .peer_addr(([192, 0, 2, last], 5000).into())
        .insert_header((header::AUTHORIZATION, format!("Bearer {token}")))
        .to_http_request()
}

/// Returns what decides that got many wrong tokens from 192.0.2.1, so its next ones wait.
fn guessed() -> Access {
    let access = access(false, Some("s3cret"));
    for n in 0..MAX_AT_ONCE {
        let request = shows("guess", 1);
        let answer = change(&access, &request).now_or_never();
        let code = answer.map(|answer| answer.err().map(|problem| problem.code()));
        assert_eq!(code, Some(Some(Code::Unauthenticated)), "{n}");
    }
    access
}

#[actix_web::test]
async fn after_many_wrong_tokens_a_right_one_waits_as_long_as_a_wrong_one() {
    let access = guessed();
    for token in ["guess", "s3cret"] {
        let answer = change(&access, &shows(token, 1)).now_or_never();
        assert!(answer.is_none(), "{token} tells by its time");
        let other = change(&access, &shows(token, 2)).now_or_never();
        assert!(other.is_some(), "{token} from another address");
    }
    // Both get their answers in the end.
    let started = Instant::now();
    let right = change(&access, &shows("s3cret", 1)).await;
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(name_of(right).as_deref(), Some("administrator"));
    let wrong = change(&access, &shows("guess", 1)).await;
    let code = wrong.err().map(|problem| problem.code());
    assert_eq!(code, Some(Code::Unauthenticated));
}

#[actix_web::test]
async fn of_many_tokens_at_once_a_few_wait_and_the_others_are_not_compared() {
    let access = guessed();
    let requests: Vec<_> = (0..=MAX_WAITING).map(|_| shows("s3cret", 1)).collect();
    let mut waiting = Vec::new();
    for request in &requests[..MAX_WAITING] {
        let mut answer = Box::pin(change(&access, request));
        assert!(answer.as_mut().now_or_never().is_none());
        waiting.push(answer);
    }
    let last = &requests[MAX_WAITING];
    let Some(Err(problem)) = change(&access, last).now_or_never() else {
        unreachable!("it is one too many")
    };
    assert_eq!(problem.code(), Code::Overloaded);
    let response = problem.error_response();
    let connection = response.head().connection_type();
    assert_eq!(connection, ConnectionType::Close);
    // If a waiting caller hangs up, another token may wait.
    waiting.pop();
    assert!(change(&access, last).now_or_never().is_none());
}

#[actix_web::test]
async fn what_waits_holds_no_place_among_the_calls_being_answered() {
    let access = guessed();
    let (in_flight, place) = LeavableSlot::alone();
    let request = shows("s3cret", 1);
    request.extensions_mut().insert(place.clone());
    let mut answer = Box::pin(change(&access, &request));
    assert!(answer.as_mut().now_or_never().is_none());
    let other = in_flight.admit().ok();
    assert!(other.is_some(), "a place is held");
    let code = answer.await.err().map(|problem| problem.code());
    assert_eq!(code, Some(Code::Overloaded));
    drop(other);
    assert!(change(&access, &request).await.is_ok());
    assert!(
        in_flight.admit().ok().is_none(),
        "it goes on without a place"
    );
}

proptest! {
    #![proptest_config(odometer_tests::settings::properties())]

    #[test]
    fn fuzz_only_the_token_is_admitted(
        scheme in prop_oneof![Just("Bearer"), Just("bearer"), Just("BEARER"), Just("Basic")],
        blanks in " {1,3}",
        token in prop_oneof!["s3cret", "s3cre[a-z]", "[ -~]{0,7}"],
        tail in " {0,2}",
    ) {
        let text = format!("{scheme}{blanks}{token}{tail}");
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&text);
        headers.insert(header::AUTHORIZATION, value.expect("it can be sent"));
        let secret = Secret::new("s3cret");
        let is_admitted = bearer(&headers).is_some_and(|given| same(given, &secret));
        let is_right = scheme != "Basic" && token.trim() == "s3cret";
        assert_eq!(is_admitted, is_right, "{text:?}");
    }
}
