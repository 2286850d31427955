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
use super::problem::Problem;
use super::state::Http;
use super::text::rfc_3339;
use super::{parse, suggestions};

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
    fate: FateReply,
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
    let (key, block) = (explanation.key, explanation.block);
    Ok(HttpResponse::Ok().json(ExplainReply {
        sequence: key.sequence.into(),
        period: key.period.shown().map(Into::into),
        value: explanation.value.into(),
        fate: explanation.fate.into(),
        holder: explanation.holder,
        reserved_at: block.as_ref().and_then(|block| rfc_3339(block.reserved_at)),
        block: block.map(|block| ExplainedBlock {
            first: block.first.into(),
            last: block.last.into(),
            step: block.step,
        }),
    }))
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
