//! Reads bodies of requests, up to a bound and within a deadline, and checks their media type.

use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use actix_http::h1;
use actix_web::dev::{self, RequestHead, ServiceRequest};
use actix_web::error::PayloadError;
use actix_web::http::header;
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, ResponseError};
use futures_util::{Stream, StreamExt};
use odometer_core::duration::exact;
use odometer_process::faults::{self, Fault};
use serde_json::Value;

use super::retain_until_written::retain_until_written;
use crate::calls::problem::{Code, Problem};
use crate::edge::{Body, ConnectionProgress};

/// How much of a body is read, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// The most bytes of a body.
    pub(crate) limit: usize,
    /// The time from the head of the request to the end of its body.
    pub(crate) timeout: Duration,
}

/// Reads a body that has to be JSON.
///
/// # Errors
/// 415 if another media type or none is given, 413 above the bound, 400 if the body does not
/// arrive.
pub(crate) async fn json(
    request: &HttpRequest,
    payload: Payload,
    bounds: BodyLimits,
) -> Result<Bytes, Problem> {
    if !is_json(request) {
        return Err(not_json());
    }
    read(request, payload, bounds).await
}

/// Reads the body of a call that takes no fields: nothing, or `{}`.
///
/// # Errors
/// 415 for a body of another media type, 413 above the bound, 400 for anything but `{}`.
pub(crate) async fn nothing(
    request: &HttpRequest,
    payload: Payload,
    bounds: BodyLimits,
) -> Result<(), Problem> {
    let body = json_or_nothing(request, payload, bounds).await?;
    if body.is_empty() {
        return Ok(());
    }
    no_fields(&body)
}

/// Reads a body that may be left out. If there is one, it has to be JSON.
///
/// # Errors
/// 415 for a body of another media type, 413 above the bound, 400 if the body does not arrive.
pub(crate) async fn json_or_nothing(
    request: &HttpRequest,
    payload: Payload,
    bounds: BodyLimits,
) -> Result<Bytes, Problem> {
    let foreign = request.headers().contains_key(header::CONTENT_TYPE) && !is_json(request);
    if foreign && announced(request)?.is_some_and(|length| length > 0) {
        return Err(not_json());
    }
    let body = read(request, payload, bounds).await?;
    if foreign && !body.is_empty() {
        return Err(not_json());
    }
    Ok(body)
}

fn no_fields(body: &[u8]) -> Result<(), Problem> {
    let detail = match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => match fields.keys().next() {
            None => return Ok(()),
            Some(field) => {
                let field: String = field.chars().take(64).collect();
                format!(
                    "The body has the field {field:?}; this call takes no field, only parameters \
                     after `?` in the URL. Send no body, or {{}}."
                )
            }
        },
        Ok(_) => "The body is JSON, but no object; send no body, or {}.".to_owned(),
        Err(_) => "The body is not JSON; send no body, or {}.".to_owned(),
    };
    Err(Problem::new(Code::InvalidBody, detail))
}

/// Returns the body that a request has after its head.
pub(crate) fn behind(head: &RequestHead) -> Body {
    if head.headers().contains_key(header::TRANSFER_ENCODING) {
        return Body::Chunked;
    }
    let length = head.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    Body::Announced(length.unwrap_or(0))
}

/// Reads a chunked body whole, before any route sees the request.
///
/// The length of a chunked body is known only at its end. After this, a route finds the whole body,
/// or need not read it.
///
/// # Errors
/// The reply to a body that is too large, ends early, or does not end in time. That reply keeps the
/// rest of the body. Otherwise the connection would go on reading that rest without end.
pub(crate) async fn read_chunked(
    request: &mut ServiceRequest,
    bounds: BodyLimits,
) -> Result<(), HttpResponse> {
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    if !is_chunked || faults::is(Fault::NoConnectionGuard) {
        return Ok(());
    }
    let progress = request.conn_data::<Rc<ConnectionProgress>>().cloned();
    // The framing of chunks may have a sixteenth of the limit. Framing beyond that counts as body.
    let n_raw = bounds.limit.saturating_add(bounds.limit / 16);
    let mut payload = request.take_payload();
    // Extensions of chunks and trailers show only in the bytes that were read from the connection.
    let chunks = futures_util::stream::poll_fn(|context| {
        match progress.as_ref().map(|progress| progress.unread()) {
            Some(unread) if unread > n_raw => Poll::Ready(Some(Err(PayloadError::Overflow))),
            Some(_) | None => Pin::new(&mut payload).poll_next(context),
        }
    });
    match within(bounds, chunks).await {
        Ok(body) => {
            let (_sender, mut whole) = h1::Payload::create(true);
            whole.unread_data(body);
            request.set_payload(dev::Payload::from(whole));
            Ok(())
        }
        Err(problem) => Err(retain_until_written(problem.error_response(), payload)),
    }
}

async fn read(
    request: &HttpRequest,
    payload: Payload,
    bounds: BodyLimits,
) -> Result<Bytes, Problem> {
    if announced(request)?.is_some_and(|length| length > bounds.limit) {
        return Err(too_large(bounds.limit));
    }
    within(bounds, payload).await
}

async fn within(
    bounds: BodyLimits,
    chunks: impl Stream<Item = Result<Bytes, PayloadError>> + Unpin,
) -> Result<Bytes, Problem> {
    match tokio::time::timeout(bounds.timeout, collect(chunks, bounds.limit)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Problem::new(
            Code::InvalidBody,
            format!("The body did not arrive within {}.", exact(bounds.timeout)),
        )),
    }
}

async fn collect(
    mut payload: impl Stream<Item = Result<Bytes, PayloadError>> + Unpin,
    limit: usize,
) -> Result<Bytes, Problem> {
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| {
            if matches!(error, PayloadError::Overflow) {
                return too_large(limit);
            }
            Problem::new(
                Code::InvalidBody,
                "The body ended early or is badly encoded.",
            )
        })?;
        if chunk.len() > limit.saturating_sub(body.len()) {
            return Err(too_large(limit));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Returns the length that the caller announced, if there is one.
fn announced(request: &HttpRequest) -> Result<Option<usize>, Problem> {
    let Some(value) = request.headers().get(header::CONTENT_LENGTH) else {
        return Ok(None);
    };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| {
        let detail = "`Content-Length` is not a length.";
        Problem::new(Code::InvalidBody, detail)
    })
}

fn is_json(request: &HttpRequest) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let Some(text) = content_type.and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn too_large(limit: usize) -> Problem {
    let detail = format!("The body is larger than the {limit} bytes that are read.");
    Problem::new(Code::BodyTooLarge, detail)
}

fn not_json() -> Problem {
    let detail = "The body has to be JSON, sent with `Content-Type: application/json`.";
    Problem::new(Code::UnsupportedMediaType, detail)
}

#[cfg(test)]
mod tests {
    use actix_web::FromRequest;
    use actix_web::test::TestRequest;

    use super::*;

    const BOUNDS: BodyLimits = BodyLimits {
        limit: 64,
        timeout: Duration::from_secs(5),
    };

    async fn parts(
        media_type: Option<&str>,
        body: &'static [u8],
    ) -> Option<(HttpRequest, Payload)> {
        let mut request = TestRequest::post().set_payload(body);
        if let Some(media_type) = media_type {
            request = request.insert_header((header::CONTENT_TYPE, media_type));
        }
        let (request, mut payload) = request.to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.ok()?;
        Some((request, payload))
    }

    async fn nothing_of(media_type: Option<&str>, body: &'static [u8]) -> Option<Code> {
        let (request, payload) = parts(media_type, body).await?;
        let read = nothing(&request, payload, BOUNDS).await;
        read.err().map(|problem| problem.code())
    }

    const JSON: Option<&str> = Some("application/json");
    const LONG: &[u8] = &[b' '; 65];

    #[actix_web::test]
    async fn an_empty_body_and_an_empty_object_are_nothing() {
        for media_type in [None, JSON, Some("application/JSON; charset=utf-8")] {
            assert_eq!(nothing_of(media_type, b"").await, None, "{media_type:?}");
            assert_eq!(nothing_of(media_type, b"{}").await, None, "{media_type:?}");
            assert_eq!(
                nothing_of(media_type, b" { } \n").await,
                None,
                "{media_type:?}"
            );
        }
        assert_eq!(nothing_of(Some("text/plain"), b"").await, None);
    }

    #[actix_web::test]
    async fn a_body_of_another_media_type_is_refused() {
        for media_type in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "json",
            "",
        ] {
            let refused = nothing_of(Some(media_type), b"{}").await;
            assert_eq!(refused, Some(Code::UnsupportedMediaType), "{media_type}");
        }
    }

    #[actix_web::test]
    async fn a_body_that_says_something_is_refused() {
        for body in [
            &b"{\"count\":5}"[..],
            b"[]",
            b"null",
            b"5",
            b"\"{}\"",
            b"{",
            b"{}{}",
            b"nonsense",
            b" ",
            b"\xff",
        ] {
            assert_eq!(
                nothing_of(JSON, body).await,
                Some(Code::InvalidBody),
                "{body:?}"
            );
            assert_eq!(
                nothing_of(None, body).await,
                Some(Code::InvalidBody),
                "{body:?}"
            );
        }
        let named = no_fields(b"{\"count\":5}")
            .err()
            .map(|problem| problem.to_string());
        assert!(named.is_some_and(|detail| detail.contains("\"count\"")));
    }

    #[actix_web::test]
    async fn a_body_beyond_the_bound_is_refused() {
        assert_eq!(nothing_of(JSON, LONG).await, Some(Code::BodyTooLarge));
        assert_eq!(nothing_of(None, LONG).await, Some(Code::BodyTooLarge));
    }

    #[actix_web::test]
    async fn a_definition_has_to_come_as_json() {
        for media_type in [None, Some("text/plain"), Some("application/xml")] {
            let read = match parts(media_type, b"{}").await {
                Some((request, payload)) => json(&request, payload, BOUNDS).await,
                None => Ok(Bytes::new()),
            };
            let code = read.err().map(|problem| problem.code());
            assert_eq!(code, Some(Code::UnsupportedMediaType), "{media_type:?}");
        }
        for media_type in [JSON, Some("application/merge-patch+json")] {
            let read = match parts(media_type, b"{}").await {
                Some((request, payload)) => json(&request, payload, BOUNDS).await.ok(),
                None => None,
            };
            assert_eq!(read.as_deref(), Some(&b"{}"[..]), "{media_type:?}");
        }
    }
}
