//! Reads printed numbers back.

use actix_web::HttpResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::{bodies::ParseRequest, parameters::SequencePath, values};
use super::state::Call;
use super::text::moment;
use super::{body, evidence, parse};
use crate::access::right::Right;
use crate::calls::problem::Problem;
use crate::calls::{sources, suggestions};

/// What a printed number says.
#[derive(Serialize, ToSchema)]
#[schema(as = ParsedNumber)]
pub(crate) struct ParsedReply {
    sequence: values::SequenceName,
    /// The period of the number; null if the sequence counts without periods.
    period: Option<values::Period>,
    /// The bare number.
    #[schema(example = "42")]
    value: values::NumberString,
    /// When the id was made, to the layout's unit. Present for kind `snowflake` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Timestamp, required = false)]
    time: Option<values::Timestamp>,
    /// Which worker made the id. Present for kind `snowflake` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::WorkerId, required = false)]
    worker: Option<u32>,
    /// The place of the id among those of the same worker and time. Present for kind `snowflake`
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, example = 5)]
    counter: Option<u64>,
}

/// Reads a printed number back: its period and the bare number.
///
/// It says how a number of the sequence is printed, not whether this one was ever given out.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/parse",
    operation_id = "parseNumber",
    tag = "numbers",
    params(SequencePath),
    request_body = ParseRequest,
    responses((status = 200, description = "What the id says. Its check digits are right.",
        body = ParsedReply))
)]
pub(crate) async fn parse((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let caller = sources::admit(&evidence::of(&request), &http, Right::Look, &name).await?;
    parse::no_query(request.uri().query())?;
    let body = body::json(&request, payload, http.body).await?;
    let id = parse::printed(&body)?;
    let read = http.directory.read(&name, &id);
    let (key, value, stamp) = suggestions::with_suggestions(&http, &caller, read).await?;
    // A shared name may have got a sequence of its own meanwhile.
    caller.check(Right::Look, &key.sequence)?;
    Ok(HttpResponse::Ok().json(ParsedReply {
        sequence: key.sequence.into(),
        period: key.period.shown().map(Into::into),
        value: value.into(),
        time: stamp.and_then(|stamp| moment(stamp.time_ms)),
        worker: stamp.map(|stamp| stamp.worker),
        counter: stamp.map(|stamp| stamp.counter),
    }))
}
