//! Printed numbers, read back.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::sequences::moment;
use super::{Http, body, near, openapi, parse};

/// What a printed number says.
#[derive(Serialize, ToSchema)]
pub(super) struct Parsed {
    /// The name of the sequence.
    #[schema(example = "invoices")]
    sequence: String,
    /// The period it belongs to; null where the sequence counts without periods.
    #[schema(example = "2026")]
    period: Option<String>,
    /// The bare number.
    #[schema(example = "42")]
    value: String,
    /// When it was stamped (RFC 3339), to the layout's unit; there for time-ordered kinds, as the
    /// two below.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-22T11:05:33.119Z")]
    time: Option<String>,
    /// Whose id it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 17)]
    worker: Option<u32>,
    /// Its place among those of this worker and time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 5)]
    counter: Option<u64>,
}

/// Reads a printed number back: its period and the bare number.
///
/// It says how a number of the sequence is printed, not whether this one was ever given out.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/parse",
    tag = "numbers",
    params(("name" = String, Path, description = "The sequence.",
        min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")),
    request_body = openapi::Printed,
    responses((status = 200, description = "What the id says; check digits were right.",
        body = Parsed))
)]
pub(super) async fn parse(
    request: HttpRequest,
    payload: Payload,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    parse::no_query(request.uri().query())?;
    let body = body::json(&request, payload, http.body).await?;
    let id = parse::printed(&body)?;
    let read = http.directory.read(&name, &id).await;
    let (key, value, stamp) = near::or_refused(&http, read).await?;
    Ok(HttpResponse::Ok().json(Parsed {
        sequence: key.sequence.to_string(),
        period: key.period.shown().map(ToOwned::to_owned),
        value: value.to_string(),
        time: stamp.and_then(|stamp| moment(stamp.time_ms)),
        worker: stamp.map(|stamp| stamp.worker),
        counter: stamp.map(|stamp| stamp.counter),
    }))
}
