//! Who is let in: the bound on calls being answered off the warm path, calls that a foreign web
//! page made, and the administrator.

use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, ResponseError, web};
use metrics::Gauge;

use super::Http;
use super::envelope::RequestId;
use super::problem::{Code, Problem};
use crate::config::Secret;
use crate::host::is_this_machine;
use crate::sequence::audit::Author;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Characters of it that are logged.
const MAX_FORWARDED_FOR: usize = 256;

/// Who may change sequences on this listener.
#[derive(Clone, Debug)]
pub(super) enum Administration {
    /// Whoever reaches it: the listener is loopback.
    Open,
    /// Whoever knows the token.
    Token(Secret),
    /// Nobody: the listener can be reached from elsewhere and no token is configured.
    Closed,
}

impl Administration {
    /// Decides for one listener.
    pub(super) fn new(loopback: bool, token: Option<Secret>) -> Self {
        match (loopback, token) {
            (true, _) => Self::Open,
            (false, Some(token)) => Self::Token(token),
            (false, None) => Self::Closed,
        }
    }

    /// Whether nobody has to show a token here.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Lets an administrator pass, and says what is known of them.
    ///
    /// # Errors
    /// 401 without the right token, 403 where there is none that would be right.
    pub(super) fn admit(&self, request: &HttpRequest) -> Result<Author, Problem> {
        match self {
            Self::Open => Ok(author("loopback", request)),
            Self::Token(token)
                if bearer(request.headers()).is_some_and(|given| same(given, token)) =>
            {
                Ok(author("administrator", request))
            }
            Self::Token(_) => Err(Problem::new(
                Code::Unauthenticated,
                "This call needs `Authorization: Bearer` with the administrator's token.",
            )),
            Self::Closed => Err(Problem::new(
                Code::Forbidden,
                "The service listens beyond loopback and has no administrator's token, so nobody \
                 may change sequences here; set `ODOMETER_ADMIN_TOKEN`.",
            )),
        }
    }
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

/// What a proxy, or whoever says to be one, wrote: what addresses are made of, and not for ever.
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

/// Compares without stopping at the first difference, so that the time taken tells nothing of it.
fn same(given: &str, token: &Secret) -> bool {
    let (given, token) = (given.as_bytes(), token.expose().as_bytes());
    let differences = given
        .iter()
        .zip(token)
        .fold(0, |seen, (left, right)| seen | (left ^ right));
    !token.is_empty() && given.len() == token.len() && std::hint::black_box(differences) == 0
}

/// Lets a call into the numbered part of the service, or refuses it at once.
pub(super) async fn admit(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(http) = request.app_data::<web::Data<Http>>().cloned() else {
        let missing = Problem::new(Code::Internal, "The service is not put together.");
        return Ok(request.into_response(missing.error_response()));
    };
    let is_loopback = http.administration.is_open();
    if let Some(detail) = against_page(request.headers(), is_loopback) {
        let problem = Problem::new(Code::Forbidden, detail);
        return Ok(request.into_response(problem.error_response()));
    }
    let Some(_place) = http.in_flight.admit() else {
        http.metrics.http_refused.increment(1);
        let detail = "`limits.in_flight` calls are being answered already; try again.";
        let problem = Problem::new(Code::Overloaded, detail);
        return Ok(request.into_response(problem.error_response()));
    };
    next.call(request).await
}

/// The calls being answered, at most so many.
pub(super) struct InFlight {
    now: AtomicUsize,
    limit: usize,
    gauge: Gauge,
}

impl InFlight {
    /// None yet, at most `limit` at once; `gauge` shows how many.
    pub(super) fn new(limit: usize, gauge: Gauge) -> Self {
        Self {
            now: AtomicUsize::new(0),
            limit,
            gauge,
        }
    }

    fn admit(&self) -> Option<Place<'_>> {
        let before = self.now.fetch_add(1, Ordering::Relaxed);
        self.gauge.increment(1.0);
        let place = Place(self);
        (before < self.limit).then_some(place)
    }
}

/// A place among the calls being answered, free again when dropped.
struct Place<'a>(&'a InFlight);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.decrement(1.0);
    }
}

/// What is to be said against a call that a page in a browser made; `None` where nothing is, and of
/// calls that no browser made.
fn against_page(headers: &HeaderMap, is_loopback: bool) -> Option<&'static str> {
    // Libraries that are no browser send other headers of this family.
    let is_by_browser =
        headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    if from_foreign_page(headers) {
        Some("The call comes from a web page of another site, which may not make it.")
    } else if is_by_browser && is_loopback && !names_loopback(headers) {
        // Who answers for a name may have it lead to this machine, and its page is then the same
        // site as the service.
        Some(
            "The service listens on loopback and was called by another name than `localhost`, \
             `127.0.0.1` or `[::1]`; open the page by one of these, or have the proxy before it \
             send one as `Host`.",
        )
    } else {
        None
    }
}

/// Whether a browser says that a page of another site made the call.
///
/// `Sec-Fetch-Site` is written by the browser and cannot be set by a page; `Origin` is compared
/// with the host the call was sent to for browsers without it, as proxies write another one there.
fn from_foreign_page(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        if site == "cross-site" {
            return true;
        }
        if site == "same-origin" || site == "none" {
            return false;
        }
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return false;
    };
    let origin = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"));
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    match (origin, host) {
        (Some((_, origin)), Some(host)) => !origin.eq_ignore_ascii_case(host),
        _ => true,
    }
}

/// Whether `Host` is this machine by a name that nobody else answers for.
fn names_loopback(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(host) = host else {
        return false;
    };
    // The port follows the last colon, unless that is within the brackets of an address.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    is_this_machine(name)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn code_of(administration: &Administration, authorization: Option<&str>) -> Option<Code> {
        let mut request = TestRequest::put();
        if let Some(given) = authorization {
            request = request.insert_header((header::AUTHORIZATION, given));
        }
        let admitted = administration.admit(&request.to_http_request());
        admitted.err().map(|problem| problem.code())
    }

    fn foreign(headers: &[(&str, &str)]) -> bool {
        let mut request = TestRequest::post();
        for header in headers {
            request = request.insert_header(*header);
        }
        from_foreign_page(request.to_http_request().headers())
    }

    #[test]
    fn loopback_needs_no_token() {
        let token = Some(Secret::new("s3cret"));
        assert_eq!(code_of(&Administration::new(true, None), None), None);
        assert_eq!(code_of(&Administration::new(true, token), None), None);
    }

    #[test]
    fn without_a_token_nobody_is_administrator_elsewhere() {
        let closed = Administration::new(false, None);
        assert_eq!(code_of(&closed, None), Some(Code::Forbidden));
        assert_eq!(code_of(&closed, Some("Bearer ")), Some(Code::Forbidden));
    }

    #[test]
    fn elsewhere_the_token_has_to_be_right() {
        let token = Administration::new(false, Some(Secret::new("s3cret")));
        assert_eq!(code_of(&token, Some("Bearer s3cret")), None);
        assert_eq!(code_of(&token, Some("bearer s3cret")), None);
        for wrong in [
            "Bearer s3cre",
            "Bearer s3crets",
            "Bearer S3cret",
            "Basic s3cret",
            "Bearer",
            "",
        ] {
            assert_eq!(
                code_of(&token, Some(wrong)),
                Some(Code::Unauthenticated),
                "{wrong}"
            );
        }
        assert_eq!(code_of(&token, None), Some(Code::Unauthenticated));
        let empty = Administration::new(false, Some(Secret::new("")));
        assert_eq!(
            code_of(&empty, Some("Bearer ")),
            Some(Code::Unauthenticated)
        );
    }

    #[test]
    fn an_author_is_told_without_the_token() {
        let token = Administration::new(false, Some(Secret::new("s3cret")));
        let request = TestRequest::delete()
            .peer_addr(([192, 0, 2, 7], 5000).into())
            .insert_header((header::AUTHORIZATION, "Bearer s3cret"))
            .insert_header(("x-forwarded-for", "198.51.100.1, [2001:db8::1]\t\"x\""))
            .to_http_request();
        let id = HeaderValue::from_static("a-1");
        request.extensions_mut().insert(RequestId(id));
        let Ok(author) = token.admit(&request) else {
            unreachable!("the token is right")
        };
        assert_eq!(author.who, "administrator");
        assert_eq!(author.peer, "192.0.2.7:5000");
        assert_eq!(author.request_id, "a-1");
        let forwarded_for = author.forwarded_for.as_deref();
        assert_eq!(forwarded_for, Some("198.51.100.1, [2001:db8::1]x"));
        assert!(!format!("{author:?}").contains("s3cret"));
        let open = Administration::new(true, None);
        let who = open.admit(&request).map(|author| author.who);
        assert_eq!(who.ok(), Some("loopback"));
        let long = HeaderValue::from_str(&"1".repeat(1000));
        assert_eq!(long.map(|long| printable(&long).len()).ok(), Some(256));
    }

    #[test]
    fn no_more_than_the_limit_are_answered_at_once() {
        let in_flight = InFlight::new(2, Gauge::noop());
        let first = in_flight.admit();
        let second = in_flight.admit();
        assert!(first.is_some() && second.is_some());
        assert!(in_flight.admit().is_none());
        assert!(in_flight.admit().is_none());
        drop(first);
        assert!(in_flight.admit().is_some());
    }

    #[test]
    fn foreign_pages_are_known_by_what_browsers_send() {
        assert!(foreign(&[("sec-fetch-site", "cross-site")]));
        assert!(foreign(&[
            ("host", "localhost:8080"),
            ("origin", "https://evil.example")
        ]));
        assert!(foreign(&[("host", "localhost:8080"), ("origin", "null")]));
        assert!(foreign(&[
            ("host", "localhost:8080"),
            ("origin", "http://localhost:3000")
        ]));
        assert!(!foreign(&[
            ("host", "localhost:8080"),
            ("origin", "http://localhost:8080")
        ]));
        assert!(!foreign(&[
            ("host", "localhost:8080"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(!foreign(&[("host", "localhost:8080")]));
        // A proxy before the service wrote the host; the browser knows better.
        for (site, is_foreign) in [
            ("same-origin", false),
            ("none", false),
            ("same-site", true),
            ("cross-site", true),
        ] {
            let headers = [
                ("host", "127.0.0.1:8080"),
                ("origin", "https://numbers.example"),
                ("sec-fetch-site", site),
            ];
            assert_eq!(foreign(&headers), is_foreign, "{site}");
        }
    }

    #[test]
    fn on_loopback_a_page_has_to_call_it_by_its_own_name() {
        let is_refused = |host: &str, by: (&str, &str), is_loopback: bool| {
            let request = TestRequest::get()
                .insert_header(("host", host))
                .insert_header(by)
                .to_http_request();
            against_page(request.headers(), is_loopback).is_some()
        };
        let same = ("sec-fetch-site", "same-origin");
        for own in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.9.9.9:8080",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(!is_refused(own, same, true), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.0.2.1:8080",
            "[2001:db8::1]:8080",
            "::1",
            "[::1",
            "",
        ] {
            assert!(is_refused(other, same, true), "{other}");
            assert!(!is_refused(other, same, false), "{other}");
            assert!(!is_refused(other, ("accept", "*/*"), true), "{other}");
            let mode = ("sec-fetch-mode", "cors");
            assert!(!is_refused(other, mode, true), "{other}");
        }
        let origin = ("origin", "http://evil.example");
        assert!(is_refused("evil.example", origin, true));
        assert!(!is_refused("evil.example", origin, false));
    }
}
