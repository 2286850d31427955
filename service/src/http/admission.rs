//! Who is let in: the bound on calls being answered off the warm path, and calls that a foreign web
//! page made.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::body::BoxBody;
use actix_web::dev::{RequestHead, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, ResponseError, web};
use metrics::{Counter, Gauge};

use super::Http;
use super::problem::{Code, Problem};
use crate::host::{is_this_machine, without_port};
use crate::sabotage::{self, Fault};

/// Why a call is refused that came by another name.
const FOREIGN_HOST: &str = "The service listens on loopback and was called by another name than \
    `localhost`, `127.0.0.1` or `[::1]`; call it by one of these, have the proxy before it send one as \
    `Host`, or add the name to `http.hosts`.";

/// Lets a call into the numbered part of the service, or refuses it at once.
pub(super) async fn admit(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(http) = request.app_data::<web::Data<Http>>().cloned() else {
        let missing = Problem::new(Code::Internal, "The service is not put together.");
        return Ok(request.into_response(missing.error_response()));
    };
    if let Some(detail) = against_page(request.headers(), &http.hosts)
        && !sabotage::is(Fault::AnybodyChanges)
    {
        let problem = Problem::new(Code::Forbidden, detail);
        return Ok(request.into_response(problem.error_response()));
    }
    let place = match http.in_flight.admit() {
        Ok(place) => CallPlace::new(&http.in_flight, place),
        Err(problem) => return Ok(request.into_response(problem.error_response())),
    };
    request.extensions_mut().insert(place.clone());
    let response = next.call(request).await;
    place.leave();
    response
}

/// The calls being answered, at most so many.
pub(super) struct InFlight {
    now: AtomicUsize,
    limit: usize,
    gauge: Gauge,
    refused: Counter,
}

impl InFlight {
    /// None yet, at most `limit` at once; `gauge` shows how many, `refused` counts those above.
    pub(super) fn new(limit: usize, gauge: Gauge, refused: Counter) -> Self {
        Self {
            now: AtomicUsize::new(0),
            limit,
            gauge,
            refused,
        }
    }

    /// A place for one more.
    ///
    /// # Errors
    /// All are taken.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Place, Problem> {
        let before = self.now.fetch_add(1, Ordering::Relaxed);
        self.gauge.increment(1.0);
        let place = Place(Arc::clone(self));
        if before < self.limit {
            return Ok(place);
        }
        self.refused.increment(1);
        let detail = "`limits.in_flight` calls are being answered already; try again.";
        Err(Problem::new(Code::Overloaded, detail))
    }
}

/// A place among the calls being answered, free again when dropped.
pub(super) struct Place(Arc<InFlight>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.decrement(1.0);
    }
}

/// The place of one call, which it leaves while it only waits.
#[derive(Clone)]
pub(super) struct CallPlace {
    in_flight: Arc<InFlight>,
    place: Rc<Cell<Option<Place>>>,
}

impl CallPlace {
    fn new(in_flight: &Arc<InFlight>, place: Place) -> Self {
        Self {
            in_flight: Arc::clone(in_flight),
            place: Rc::new(Cell::new(Some(place))),
        }
    }

    /// The only place there is.
    #[cfg(test)]
    pub(super) fn alone() -> (Arc<InFlight>, Self) {
        let in_flight = Arc::new(InFlight::new(1, Gauge::noop(), Counter::noop()));
        let place = Cell::new(in_flight.admit().ok());
        let place = Self {
            in_flight: Arc::clone(&in_flight),
            place: Rc::new(place),
        };
        (in_flight, place)
    }

    /// Makes room for another call.
    pub(super) fn leave(&self) {
        self.place.take();
    }

    /// Goes on after a wait.
    ///
    /// # Errors
    /// All places are taken now.
    pub(super) fn take_again(&self) -> Result<(), Problem> {
        self.place.set(Some(self.in_flight.admit()?));
        Ok(())
    }
}

/// What is to be said against a call that a page in a browser made; `None` where nothing is, and of
/// calls that no browser made.
fn against_page(headers: &HeaderMap, hosts: &Hosts) -> Option<&'static str> {
    // Libraries that are no browser send other headers of this family.
    let is_by_browser =
        headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    if from_foreign_page(headers) {
        Some("The call comes from a web page of another site, which may not make it.")
    } else if is_by_browser && !hosts.has(headers) {
        Some(FOREIGN_HOST)
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

/// By which names this listener may be called.
#[derive(Clone, Debug)]
pub(super) enum Hosts {
    /// The listener can be reached from elsewhere, by whatever name.
    Any,
    /// The listener is loopback: the names of this machine that nobody else answers for, and these.
    ///
    /// Somebody who answers for a name may have it lead to this machine, and their page is then the
    /// same site as the service.
    Own(Vec<String>),
}

impl Hosts {
    /// Of one listener; `configured` are further names, whatever port stands behind them.
    pub(super) fn new(loopback: bool, configured: &[String]) -> Self {
        if loopback {
            let names = configured.iter().map(|host| without_port(host).to_owned());
            Self::Own(names.collect())
        } else {
            Self::Any
        }
    }

    /// Whether a call came by such a name.
    fn has(&self, headers: &HeaderMap) -> bool {
        let Self::Own(configured) = self else {
            return true;
        };
        let host = headers.get(header::HOST);
        let Some(name) = host.and_then(|host| host.to_str().ok()).map(without_port) else {
            return false;
        };
        let is_configured = |own: &String| own.eq_ignore_ascii_case(name);
        is_this_machine(name) || configured.iter().any(is_configured)
    }

    /// What is to be said against a call that only reads; `None` if nothing is. Programs may call
    /// without a name, browsers never do.
    pub(super) fn against_reading(&self, head: &RequestHead) -> Option<Problem> {
        let is_reading = matches!(head.method, Method::GET | Method::HEAD);
        let is_probe = matches!(head.uri.path(), "/livez" | "/readyz");
        let has_host = head.headers().contains_key(header::HOST);
        let is_foreign = is_reading && !is_probe && has_host && !self.has(head.headers());
        let is_refused = is_foreign && !sabotage::is(Fault::AnyHost);
        is_refused.then(|| Problem::new(Code::Forbidden, FOREIGN_HOST))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn foreign(headers: &[(&str, &str)]) -> bool {
        let mut request = TestRequest::post();
        for header in headers {
            request = request.insert_header(*header);
        }
        from_foreign_page(request.to_http_request().headers())
    }

    #[test]
    fn no_more_than_the_limit_are_answered_at_once() {
        let in_flight = Arc::new(InFlight::new(2, Gauge::noop(), Counter::noop()));
        let first = in_flight.admit();
        let second = in_flight.admit();
        assert!(first.is_ok() && second.is_ok());
        assert!(in_flight.admit().is_err());
        assert!(in_flight.admit().is_err());
        drop(first);
        assert!(in_flight.admit().is_ok());
    }

    #[test]
    fn a_call_that_waits_leaves_its_place_to_others() {
        let (in_flight, waiting) = CallPlace::alone();
        assert!(in_flight.admit().is_err());
        waiting.leave();
        let other = in_flight.admit();
        assert!(other.is_ok());
        assert!(waiting.take_again().is_err());
        drop(other);
        assert!(waiting.take_again().is_ok());
        assert!(in_flight.admit().is_err());
        drop(waiting);
        assert!(in_flight.admit().is_ok());
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
            let configured = ["numbers.example:8443", "others.example"].map(ToOwned::to_owned);
            let hosts = Hosts::new(is_loopback, &configured);
            against_page(request.headers(), &hosts).is_some()
        };
        let same = ("sec-fetch-site", "same-origin");
        for own in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.9.9.9:8080",
            "[::1]",
            "[::1]:8080",
            "Numbers.example:8080",
            "numbers.example",
            "others.example:8443",
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
