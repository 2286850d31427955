//! Answers what became of one number.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use odometer_sequence::explain::{Explanation, NumberFate, NumberOrigin};
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::{
    parameters::{ExplainQuery, SequencePath},
    values,
};
use super::problem::Problem;
use super::state::Http;
use super::text::rfc_3339;
use super::{parse, suggestions};

/// What is known of one number, never more.
#[derive(Serialize, ToSchema)]
#[schema(as = ExplainedNumber)]
pub(crate) struct ExplainReply {
    #[schema(value_type = values::SequenceName)]
    sequence: String,
    /// The period of the number; null if the sequence counts without periods.
    #[schema(value_type = Option<values::Period>)]
    period: Option<String>,
    /// The bare number.
    #[schema(value_type = values::NumberString, example = "42")]
    value: String,
    fate: FateReply,
    /// The start of the program that reserved the block; null if the journal has no row of it.
    #[schema(example = "host-4711-f27ed21c")]
    holder: Option<String>,
    /// When the block was reserved; null if the journal has no row of it.
    #[schema(value_type = Option<values::Timestamp>)]
    reserved_at: Option<String>,
    block: Option<ExplainedBlock>,
}

/// The block that a number comes from.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExplainedBlock {
    /// The first number.
    #[schema(value_type = values::NumberString, example = "1")]
    first: String,
    /// The last number.
    #[schema(value_type = values::NumberString, example = "100")]
    last: String,
    /// The distance between two numbers.
    #[schema(minimum = 1, example = 1)]
    step: i64,
}

/// What became of a number. `not_reserved`: it is not reserved. `held`: its holder has not said.
/// `issued`: it was certainly given to a caller; no number gets this answer yet. `issued_or_lost`:
/// it left its holder's memory, to a caller or with the holder. `returned`: it was given back and
/// waits to be adopted. `adopted`: it was given back and taken over; no more is known. `abandoned`:
/// it was neither issued nor returned. `no_record`: the journal has no row of it.
#[derive(Serialize, ToSchema)]
#[schema(as = NumberFate, example = "issued_or_lost")]
#[serde(rename_all = "snake_case")]
enum FateReply {
    NotReserved,
    Held,
    Issued,
    IssuedOrLost,
    Returned,
    Adopted,
    Abandoned,
    NoRecord,
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
    let asked = parse::explain(request.uri().query())?;
    let directory = &http.directory;
    let explanation = directory
        .explain(&name, &asked.id, asked.period.as_ref())
        .await;
    let explanation = suggestions::with_suggestions(&http, explanation).await?;
    Ok(HttpResponse::Ok().json(ExplainReply::from(explanation)))
}

impl From<Explanation> for ExplainReply {
    fn from(explanation: Explanation) -> Self {
        let block = explanation.block;
        Self {
            sequence: explanation.key.sequence.to_string(),
            period: explanation.key.period.shown().map(ToOwned::to_owned),
            value: explanation.value.to_string(),
            fate: explanation.fate.into(),
            holder: explanation.holder,
            reserved_at: block.as_ref().and_then(|block| rfc_3339(block.reserved_at)),
            block: block.map(ExplainedBlock::from),
        }
    }
}

impl From<NumberOrigin> for ExplainedBlock {
    fn from(block: NumberOrigin) -> Self {
        Self {
            first: block.first.to_string(),
            last: block.last.to_string(),
            step: block.step,
        }
    }
}

impl From<NumberFate> for FateReply {
    fn from(fate: NumberFate) -> Self {
        match fate {
            NumberFate::NotReserved => Self::NotReserved,
            NumberFate::Held => Self::Held,
            NumberFate::Issued => Self::Issued,
            NumberFate::IssuedOrLost => Self::IssuedOrLost,
            NumberFate::Returned => Self::Returned,
            NumberFate::Adopted => Self::Adopted,
            NumberFate::Abandoned => Self::Abandoned,
            NumberFate::NoRecord => Self::NoRecord,
        }
    }
}
