//! Answers what became of one number.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use odometer_sequence::explain::NumberFate;
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::{
    parameters::{ExplainQuery, SequencePath},
    values,
};
use super::state::Http;
use super::text::rfc_3339;
use super::{evidence, parse};
use crate::access::right::Right;
use crate::calls::problem::Problem;
use crate::calls::{sources, suggestions};

/// What is known of one number, never more.
#[derive(Serialize, ToSchema)]
#[schema(as = ExplainedNumber)]
pub(crate) struct ExplainReply {
    sequence: values::SequenceName,
    /// The period of the number; null if the sequence counts without periods.
    period: Option<values::Period>,
    /// The bare number.
    #[schema(example = "42")]
    value: values::NumberString,
    #[schema(value_type = values::NumberFate)]
    fate: NumberFate,
    /// The start of the program that reserved the block; null if the journal has no row of it.
    #[schema(example = "host-4711-f27ed21c")]
    holder: Option<String>,
    /// When the block was reserved; null if the journal has no row of it.
    reserved_at: Option<values::Timestamp>,
    block: Option<ExplainedBlock>,
}

/// The block that a number comes from.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExplainedBlock {
    /// The first number.
    #[schema(example = "1")]
    first: values::NumberString,
    /// The last number.
    #[schema(example = "100")]
    last: values::NumberString,
    /// The distance between two numbers.
    #[schema(minimum = 1, example = 1)]
    step: i64,
}

/// Says what became of a number: who reserved it, when, in which block.
#[utoipa::path(
    get,
    path = "/v1/sequences/{name}/explain",
    operation_id = "explainNumber",
    tag = "sequences",
    params(SequencePath, ExplainQuery),
    responses((status = 200, description = "What is known of the number.", body = ExplainReply))
)]
pub(crate) async fn explain(
    request: HttpRequest,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let caller = sources::admit(&evidence::of(&request), &http, Right::Look, &name).await?;
    let asked = parse::explain(request.uri().query())?;
    let explained = http
        .directory
        .explain(&name, &asked.id, asked.period.as_ref());
    let explanation = suggestions::with_suggestions(&http, &caller, explained).await?;
    let (key, block) = (explanation.key, explanation.block);
    // A shared name may have got a sequence of its own meanwhile.
    caller.check(Right::Look, &key.sequence)?;
    Ok(HttpResponse::Ok().json(ExplainReply {
        sequence: key.sequence.into(),
        period: key.period.shown().map(Into::into),
        value: explanation.value.into(),
        fate: explanation.fate,
        holder: explanation.holder,
        reserved_at: block.as_ref().and_then(|block| rfc_3339(block.reserved_at)),
        block: block.map(|block| ExplainedBlock {
            first: block.first.into(),
            last: block.last.into(),
            step: block.step,
        }),
    }))
}
