//! Decides who may change sequences: the administrator, by a token, or a caller on the same
//! machine.

use std::time::{Duration, Instant};

use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpMessage, HttpRequest};
use metrics::Counter;
use odometer_process::faults::{self, Fault};
use odometer_sequence::audit::Author;
use subtle::ConstantTimeEq as _;

use super::call_limit::LeavableSlot;
use super::problem::{Code, Problem};
use super::request_id::RequestId;
use super::wrong_tokens::{ComparisonTime, WrongTokens};
use crate::config::Secret;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most characters of `X-Forwarded-For` that are logged.
const MAX_FORWARDED_FOR: usize = 256;

/// How long a token waits if many wrong tokens came from its address.
const DELAY: Duration = Duration::from_secs(1);

/// Decides who may change sequences on one listener.
pub(crate) struct Administration {
    /// Whether only this machine reaches the listener.
    is_loopback: bool,
    /// What an administrator has to show. If no token is configured, callers on this machine need
    /// none, and the service refuses changes to all other callers.
    token: Option<Secret>,
    wrong: WrongTokens,
}

impl Administration {
    /// Makes the administration of one listener. `refused` counts wrong tokens.
    pub(crate) fn new(is_loopback: bool, token: Option<Secret>, refused: Counter) -> Self {
        Self {
            is_loopback,
            token,
            wrong: WrongTokens::new(refused),
        }
    }

    /// Returns whether callers need no token here.
    pub(crate) fn is_open(&self) -> bool {
        self.is_loopback && self.token.is_none()
    }

    /// Writes a line to the log about a minute with wrong tokens, if that minute is over at the time
    /// `now`.
    pub(crate) fn tell(&self, now: Instant) {
        self.wrong.tell(now);
    }

    /// Lets an administrator pass, and returns what is known of them.
    ///
    /// After many wrong tokens from one address, each further token waits before it is compared,
    /// whether it is right or wrong.
    ///
    /// # Errors
    /// 401 without the right token. 403 if no token would be right, or if callers need no token and
    /// the call came through a proxy. 503 if too many tokens of the address wait, or if too many
    /// calls are being answered after the wait.
    pub(crate) async fn admit(&self, request: &HttpRequest) -> Result<Author, Problem> {
        let given = request.headers().get(header::AUTHORIZATION);
        match (&self.token, self.is_loopback) {
            _ if faults::is(Fault::AnybodyChanges) => Ok(author("anybody", request)),
            (None, true) if is_forwarded(request.headers()) => Err(Problem::new(
                Code::Forbidden,
                "The call came through a proxy to a service that takes changes from its own machine \
                 alone; set `ODOMETER_ADMIN_TOKEN` and send that token.",
            )),
            (None, true) => Ok(author("loopback", request)),
            (Some(_), _) if given.is_none() => Err(unauthenticated()),
            (Some(token), _) => self.compare(token, request).await,
            (None, false) => Err(Problem::new(
                Code::Forbidden,
                "The service listens beyond loopback and has no administrator's token, so nobody \
                 may change sequences here; set `ODOMETER_ADMIN_TOKEN`.",
            )),
        }
    }

    /// Compares the token of a call, after a delay if many wrong tokens came from its address.
    async fn compare(&self, token: &Secret, request: &HttpRequest) -> Result<Author, Problem> {
        let peer = request.peer_addr().map(|peer| peer.ip());
        match self.wrong.turn(peer, Instant::now()) {
            ComparisonTime::Now => {}
            ComparisonTime::Later(_waiting) => wait(request).await?,
            ComparisonTime::Never => return Err(too_many_wait().closing()),
        }
        if bearer(request.headers()).is_some_and(|given| same(given, token)) {
            return Ok(author("administrator", request));
        }
        self.wrong.note(peer, Instant::now());
        Err(unauthenticated())
    }
}

/// Waits, and leaves the call's slot to other calls meanwhile.
async fn wait(request: &HttpRequest) -> Result<(), Problem> {
    let place = request.extensions().get::<LeavableSlot>().cloned();
    if let Some(place) = &place {
        place.leave();
    }
    tokio::time::sleep(DELAY).await;
    place.map_or(Ok(()), |place| place.take_again())
}

fn unauthenticated() -> Problem {
    Problem::new(
        Code::Unauthenticated,
        "This call needs `Authorization: Bearer` with the administrator's token.",
    )
}

/// Returns a refusal that is the same for a right token and a wrong one.
fn too_many_wait() -> Problem {
    Problem::new(
        Code::Overloaded,
        "Many wrong tokens came from this address, so its tokens wait before they are compared, and \
         too many wait already; try again, or from another address.",
    )
}

/// Returns whether a proxy says that it passed the call on.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED_FOR) || headers.contains_key(header::FORWARDED)
}

fn author(who: &'static str, request: &HttpRequest) -> Author {
    let peer = request.peer_addr();
    let forwarded_for = request.headers().get(FORWARDED_FOR);
    let id = request.extensions().get::<RequestId>().cloned();
    let id = id.as_ref().and_then(|RequestId(id)| id.to_str().ok());
    Author {
        who,
        peer: peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string()),
        forwarded_for: forwarded_for.map(printable),
        request_id: id.unwrap_or_default().to_owned(),
    }
}

/// Returns what the log shows of a header that a proxy wrote, or a caller who poses as one.
///
/// The text has only characters of addresses, and is not longer than the bound.
fn printable(forwarded_for: &HeaderValue) -> String {
    let written = forwarded_for
        .as_bytes()
        .iter()
        .map(|byte| char::from(*byte));
    written
        .filter(|found| found.is_ascii_alphanumeric() || ".:,[]-_ ".contains(*found))
        .take(MAX_FORWARDED_FOR)
        .collect()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Compares without a stop at the first difference, so that the time taken reveals nothing.
fn same(given: &str, token: &Secret) -> bool {
    let (given, token) = (given.as_bytes(), token.expose().as_bytes());
    !token.is_empty() && given.ct_eq(token).into()
}

#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use actix_web::ResponseError;
    use actix_web::http::ConnectionType;
    use actix_web::test::TestRequest;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::super::wrong_tokens::{MAX_AT_ONCE, MAX_WAITING};
    use super::*;

    fn administration(loopback: bool, token: Option<&str>) -> Administration {
        Administration::new(loopback, token.map(Secret::new), Counter::noop())
    }

    async fn code_of(administration: &Administration, authorization: Option<&str>) -> Option<Code> {
        let mut request = TestRequest::put();
        if let Some(given) = authorization {
            request = request.insert_header((header::AUTHORIZATION, given));
        }
        let admitted = administration.admit(&request.to_http_request()).await;
        admitted.err().map(|problem| problem.code())
    }

    #[actix_web::test]
    async fn loopback_needs_no_token_if_none_is_configured() {
        assert_eq!(code_of(&administration(true, None), None).await, None);
        let proxied = TestRequest::put()
            .insert_header((FORWARDED_FOR, "192.0.2.7"))
            .to_http_request();
        let admitted = administration(true, None).admit(&proxied).await;
        let code = admitted.err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Forbidden));
    }

    #[actix_web::test]
    async fn without_a_token_nobody_is_administrator_elsewhere() {
        let closed = administration(false, None);
        assert_eq!(code_of(&closed, None).await, Some(Code::Forbidden));
        let empty = code_of(&closed, Some("Bearer ")).await;
        assert_eq!(empty, Some(Code::Forbidden));
    }

    #[actix_web::test]
    async fn a_configured_token_has_to_be_right_on_loopback_too() {
        for loopback in [false, true] {
            let token = administration(loopback, Some("s3cret"));
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
            let empty = administration(loopback, Some(""));
            let code = code_of(&empty, Some("Bearer ")).await;
            assert_eq!(code, Some(Code::Unauthenticated));
        }
    }

    #[actix_web::test]
    async fn an_author_is_told_without_the_token() {
        let token = administration(false, Some("s3cret"));
        let request = TestRequest::delete()
            .peer_addr(([192, 0, 2, 7], 5000).into())
            .insert_header((header::AUTHORIZATION, "Bearer s3cret"))
            .insert_header(("x-forwarded-for", "198.51.100.1, [2001:db8::1]\t\"x\""))
            .to_http_request();
        let id = HeaderValue::from_static("a-1");
        request.extensions_mut().insert(RequestId(id));
        let Ok(author) = token.admit(&request).await else {
            unreachable!("the token is right")
        };
        assert_eq!(author.who, "administrator");
        assert_eq!(author.peer, "192.0.2.7:5000");
        assert_eq!(author.request_id, "a-1");
        let forwarded_for = author.forwarded_for.as_deref();
        assert_eq!(forwarded_for, Some("198.51.100.1, [2001:db8::1]x"));
        assert!(!format!("{author:?}").contains("s3cret"));
        let direct = TestRequest::delete().to_http_request();
        let who = administration(true, None).admit(&direct).await;
        assert_eq!(who.map(|author| author.who).ok(), Some("loopback"));
        let long = HeaderValue::from_str(&"1".repeat(1000));
        assert_eq!(long.map(|long| printable(&long).len()).ok(), Some(256));
    }

    fn shows(token: &str, last: u8) -> HttpRequest {
        TestRequest::put()
            .peer_addr(([192, 0, 2, last], 5000).into())
            .insert_header((header::AUTHORIZATION, format!("Bearer {token}")))
            .to_http_request()
    }

    /// Returns an administration that got many wrong tokens from 192.0.2.1, so its next ones wait.
    fn guessed() -> Administration {
        let administration = administration(false, Some("s3cret"));
        for n in 0..MAX_AT_ONCE {
            let request = shows("guess", 1);
            let answer = administration.admit(&request).now_or_never();
            let code = answer.map(|answer| answer.err().map(|problem| problem.code()));
            assert_eq!(code, Some(Some(Code::Unauthenticated)), "{n}");
        }
        administration
    }

    #[actix_web::test]
    async fn after_many_wrong_tokens_a_right_one_waits_as_long_as_a_wrong_one() {
        let administration = guessed();
        for token in ["guess", "s3cret"] {
            let answer = administration.admit(&shows(token, 1)).now_or_never();
            assert!(answer.is_none(), "{token} tells by its time");
            let other = administration.admit(&shows(token, 2)).now_or_never();
            assert!(other.is_some(), "{token} from another address");
        }
        // Both get their answers in the end.
        let started = Instant::now();
        let right = administration.admit(&shows("s3cret", 1)).await;
        assert!(started.elapsed() >= Duration::from_secs(1));
        assert_eq!(right.map(|author| author.who).ok(), Some("administrator"));
        let wrong = administration.admit(&shows("guess", 1)).await;
        let code = wrong.err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Unauthenticated));
    }

    #[actix_web::test]
    async fn of_many_tokens_at_once_a_few_wait_and_the_others_are_not_compared() {
        let administration = guessed();
        let requests: Vec<_> = (0..=MAX_WAITING).map(|_| shows("s3cret", 1)).collect();
        let mut waiting = Vec::new();
        for request in &requests[..MAX_WAITING] {
            let mut answer = Box::pin(administration.admit(request));
            assert!(answer.as_mut().now_or_never().is_none());
            waiting.push(answer);
        }
        let last = &requests[MAX_WAITING];
        let Some(Err(problem)) = administration.admit(last).now_or_never() else {
            unreachable!("it is one too many")
        };
        assert_eq!(problem.code(), Code::Overloaded);
        let response = problem.error_response();
        let connection = response.head().connection_type();
        assert_eq!(connection, ConnectionType::Close);
        // If a waiting caller hangs up, another token may wait.
        waiting.pop();
        assert!(administration.admit(last).now_or_never().is_none());
    }

    #[actix_web::test]
    async fn what_waits_holds_no_place_among_the_calls_being_answered() {
        let administration = guessed();
        let (in_flight, place) = LeavableSlot::alone();
        let request = shows("s3cret", 1);
        request.extensions_mut().insert(place.clone());
        let mut answer = Box::pin(administration.admit(&request));
        assert!(answer.as_mut().now_or_never().is_none());
        let other = in_flight.admit().ok();
        assert!(other.is_some(), "a place is held");
        let code = answer.await.err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Overloaded));
        drop(other);
        assert!(administration.admit(&request).await.is_ok());
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
}
