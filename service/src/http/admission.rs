//! Lets calls in, or refuses them.
//!
//! It bounds the calls being answered off the warm path, and refuses calls of foreign web pages.

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, ResponseError, web};
use odometer_process::faults::{self, Fault};

use super::hosts::{FOREIGN_HOST, Hosts};
use super::state::Http;
use crate::calls::call_limit::LeavableSlot;
use crate::calls::problem::{Code, Problem};

/// Lets a call into the part of the service below `/v1`, or refuses the call at once.
pub(crate) async fn admit(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(http) = request.app_data::<web::Data<Http>>().cloned() else {
        let missing = Problem::new(Code::Internal, "The service is not put together.");
        return Ok(request.into_response(missing.error_response()));
    };
    if let Some(detail) = page_refusal(request.headers(), &http.hosts)
        && !faults::is(Fault::AnybodyChanges)
    {
        let problem = Problem::new(Code::Forbidden, detail);
        return Ok(request.into_response(problem.error_response()));
    }
    let place = match http.in_flight.admit() {
        Ok(place) => LeavableSlot::new(&http.in_flight, place),
        Err(problem) => return Ok(request.into_response(problem.error_response())),
    };
    request.extensions_mut().insert(place.clone());
    let response = next.call(request).await;
    place.leave();
    response
}

/// Returns why a call that a page in a browser made is refused, or `None` if it is not refused.
/// Calls that no browser made are not refused.
fn page_refusal(headers: &HeaderMap, hosts: &Hosts) -> Option<&'static str> {
    // Libraries that are not browsers send other headers of this family.
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

/// Returns whether a browser says that a page of another site made the call.
///
/// The browser writes `Sec-Fetch-Site`, and a page cannot set it. Only for browsers without that
/// header, `Origin` is compared with the host that the call was sent to, because proxies write
/// another host.
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
        // A proxy before the service wrote another host. The browser knows better.
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
            page_refusal(request.headers(), &hosts).is_some()
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
