//! Wraps every call off the warm path.
//!
//! A call gets a request id, a place in its caller's trace, and a place in the metrics. Its reply
//! gets `Cache-Control: no-store` if the route set nothing else.

use std::rc::Rc;
use std::time::Instant;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage, HttpResponse, ResponseError};
use odometer_core::name::SequenceName;
use odometer_process::metrics::Route;
use tracing::Instrument as _;

use super::request_id::{REQUEST_ID, RequestId};
use super::state::Http;
use super::trace::{self, TRACEPARENT};
use super::{body, parse, request_id};
use crate::calls::problem::Code;
use crate::edge::{Answering, ConnectionProgress, Watch};
#[cfg(feature = "otlp")]
use odometer_process::log;

/// Answers one call.
pub(crate) async fn envelope(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let (mut request, started) = (request, Instant::now());
    let progress = request.conn_data::<Rc<ConnectionProgress>>().cloned();
    let answering = progress.map(|progress| progress.answer(body::behind(request.head())));
    let id = request_id::of(request.headers().get(REQUEST_ID));
    let (span, trace) = trace::enter(request.headers(), id.to_str().unwrap_or_default());
    let http = request.app_data::<Data<Http>>().cloned();
    request.extensions_mut().insert(RequestId(id.clone()));
    let refusal = match &http {
        Some(http) => refusal(&mut request, http, answering.as_ref()).await,
        None => None,
    };
    let is_crowded = request
        .app_data::<Rc<Watch>>()
        .is_some_and(|watch| watch.is_crowded());
    let mut response = match refusal {
        None => next.call(request).instrument(span.clone()).await?,
        Some(refusal) => request.into_response(refusal),
    };
    if let Some(http) = &http {
        response = http.large_replies.fit(response);
    }
    let route = route_of(response.request().match_pattern().as_deref());
    let status = response.status();
    if status.is_server_error() {
        span.in_scope(|| log(&response, http.as_ref()));
    }
    #[cfg(feature = "otlp")]
    note_answer(&span, &response);
    let headers = response.headers_mut();
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(REQUEST_ID, id);
    if let Some(trace) = trace {
        headers.insert(TRACEPARENT, trace.header());
    }
    if let Some(http) = http {
        if http.directory.is_draining() || is_crowded {
            // The server would cut a kept connection between two requests. A request sent at that
            // time would be lost.
            response
                .response_mut()
                .head_mut()
                .set_connection_type(ConnectionType::Close);
        }
        http.metrics.http(route, status.as_u16()).increment(1);
        http.metrics.http_duration(route).record(started.elapsed());
    }
    Ok(response)
}

/// Returns the reply to a call that no route is to see, or `None`.
async fn refusal(
    request: &mut ServiceRequest,
    http: &Http,
    answering: Option<&Answering>,
) -> Option<HttpResponse> {
    if let Err(refusal) = body::read_chunked(request, http.body).await {
        return Some(refusal);
    }
    answering.inspect(|answering| answering.note_chunks_read());
    let problem = http.hosts.read_refusal(request.head())?;
    Some(problem.error_response())
}

/// Logs a call that failed. The store logs its reason itself; this line ties the reason to the
/// call.
///
/// An outage refuses thousands of calls a second. So a line for each sequence says now and then how
/// many calls were refused.
fn log(response: &ServiceResponse, http: Option<&Data<Http>>) {
    let code = response.response().extensions().get::<Code>().copied();
    let code = code.map_or("unknown", Code::as_str);
    let path = response.request().uri().path();
    let of_sequence = path.starts_with("/v1/sequences/");
    let name = of_sequence.then(|| parse::name(path)).and_then(Result::ok);
    let sequence = name.as_ref().map(SequenceName::as_str);
    match http {
        Some(http) if response.status() == StatusCode::SERVICE_UNAVAILABLE => {
            http.repeated_lines.note_refused(name, code);
        }
        Some(_) | None => tracing::error!(sequence, error = code, "a call failed"),
    }
}

/// Adds what a collector wants to know of a call to the call's span.
#[cfg(feature = "otlp")]
fn note_answer(span: &tracing::Span, response: &ServiceResponse) {
    let (request, status) = (response.request(), response.status());
    log::note(span, "http.request.method", request.method().to_string());
    if let Some(pattern) = request.match_pattern() {
        log::note(span, "http.route", pattern);
    }
    log::note(
        span,
        "http.response.status_code",
        i64::from(status.as_u16()),
    );
    if status.is_server_error() {
        log::note_failure(span, status.to_string());
    }
}

fn route_of(pattern: Option<&str>) -> Route {
    match pattern {
        Some("/v1/sequences/{name}/next") => Route::Next,
        Some("/v1/sequences/{name}/blocks") => Route::Blocks,
        Some("/v1/sequences/{name}") => Route::Sequence,
        Some("/v1/sequences/{name}/advance") => Route::Advance,
        Some("/v1/sequences/{name}/restore") => Route::Restore,
        Some("/v1/sequences/{name}/periods/{key}") => Route::Period,
        Some("/v1/sequences/{name}/parse") => Route::Parse,
        Some("/v1/sequences/{name}/explain") => Route::Explain,
        Some("/v1/sequences") => Route::Sequences,
        Some("/v1/replica" | "/v1/replica/sequences" | "/v1/replica/sequences/{name}") => {
            Route::Replica
        }
        Some("/v1/me") => Route::Me,
        Some("/v1/workers") => Route::Lease,
        Some("/v1/workers/{pool}") => Route::Workers,
        Some("/v1/workers/{pool}/{worker}") => Route::Worker,
        Some("/v1/workers/{pool}/{worker}/renew") => Route::Renew,
        Some("/livez") => Route::Livez,
        Some("/readyz") => Route::Readyz,
        Some("/metrics") => Route::Metrics,
        Some("/openapi.json") => Route::OpenApi,
        Some("/" | "/page/{file}" | "/docs/" | "/docs/errors" | "/docs/errors/{code}") => {
            Route::Page
        }
        _ => Route::Other,
    }
}
