//! Taking numbers: `next`, one or a batch, and `blocks`.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use odometer_core::block::Block;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Http, body, near, parse, reply};
use crate::sequence::error::SequenceError;

/// A range reserved for a caller who counts by itself.
#[derive(Serialize, ToSchema)]
pub(super) struct Reserved {
    /// The name of the sequence.
    #[schema(example = "orders")]
    sequence: String,
    /// The period the numbers belong to; null where the sequence counts without periods.
    period: Option<String>,
    /// The first number.
    #[schema(example = "1001")]
    first: String,
    /// The last number.
    #[schema(example = "2000")]
    last: String,
    /// How many numbers.
    #[schema(example = 1000)]
    count: u64,
    /// From one number to the next.
    #[schema(example = 1)]
    step: i64,
}

/// Takes the next number of a sequence, or the next batch.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/next",
    tag = "numbers",
    params(
        ("name" = String, Path, description = "The sequence; one never seen is created.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("count" = Option<u64>, Query, minimum = 1, maximum = 10_000,
            description = "How many numbers; with it the reply is the batch form."),
        ("period" = Option<String>, Query,
            description = "The period to count in, for sequences that have periods."),
        ("contiguous" = Option<bool>, Query, description = "Only one unbroken range will do."),
        ("ids" = Option<bool>, Query, description = "`false` leaves the printed ids out of a batch."),
        ("Idempotency-Key" = Option<String>, Header,
            description = "Refused until it is honoured."),
        ("traceparent" = Option<String>, Header,
            description = "The trace that the call is part of; one that is broken is passed over."),
    ),
    request_body(content = inline(super::openapi::Nothing), content_type = "application/json",
        description = "Nothing, or an object without fields."),
    responses((status = 200, description = "Numbers that nobody else gets.", content(
        (super::openapi::Numbers = "application/json"),
        (String = "text/plain", example = "1001\n"),
    ), headers(
        ("Odometer-Period" = String,
            description = "With `text/plain`, the period, where the sequence has periods."),
        ("traceparent" = String,
            description = "Where the call had one: its trace, with a span of the service; a new \
                trace where it could not be read."),
    )))
)]
pub(super) async fn next(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    parse::no_idempotency_key(request.headers())?;
    let asked = parse::next(request.uri().query())?;
    let wanted = parse::wanted(request.headers());
    body::nothing(&request, payload, http.body).await?;
    let count = asked.count.map_or(1, parse::Count::get);
    let directory = &http.directory;
    let issued = directory
        .take(&name, asked.period.as_ref(), count, asked.contiguous)
        .await;
    let issued = near::or_refused(&http, issued).await?;
    let (shown, ranges) = (issued.shown(), issued.ranges.as_slice());
    Ok(match (asked.count, ranges) {
        (None, [one]) => reply::one(shown, one.first(), wanted),
        _ => reply::batch(shown, ranges, asked.ids, wanted),
    })
}

/// Reserves a range for a caller who counts by itself, straight from the store.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/blocks",
    tag = "numbers",
    params(
        ("name" = String, Path, description = "The sequence; one never seen is created.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("size" = u64, Query, minimum = 1,
            description = "How many numbers; at most 1/4096 of what is left."),
        ("period" = Option<String>, Query,
            description = "The period to count in, for sequences that have periods."),
        ("Idempotency-Key" = Option<String>, Header,
            description = "Refused until it is honoured."),
    ),
    request_body(content = inline(super::openapi::Nothing), content_type = "application/json",
        description = "Nothing, or an object without fields."),
    responses((status = 200, description = "A range that nobody else gets.", body = Reserved))
)]
pub(super) async fn blocks(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    parse::no_idempotency_key(request.headers())?;
    let asked = parse::blocks(request.uri().query())?;
    body::nothing(&request, payload, http.body).await?;
    let directory = &http.directory;
    let issued = directory
        .reserve(&name, asked.period.as_ref(), asked.size.get())
        .await;
    let issued = near::or_refused(&http, issued).await?;
    let block: Block = *issued.ranges.first().ok_or(SequenceError::Internal)?;
    let key = issued.key;
    Ok(HttpResponse::Ok().json(Reserved {
        sequence: key.sequence.to_string(),
        period: key.period.shown().map(ToOwned::to_owned),
        first: block.first().to_string(),
        last: block.last().to_string(),
        count: block.count(),
        step: block.step(),
    }))
}
