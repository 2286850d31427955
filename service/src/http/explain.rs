//! What became of one number.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::sequences::rfc_3339;
use super::{Http, near, parse};
use crate::sequence::explain::{Explanation, NumberFate, Origin};

/// What is known of one number, never more.
#[derive(Serialize, ToSchema)]
pub(super) struct Explained {
    /// The name of the sequence.
    #[schema(example = "orders")]
    sequence: String,
    /// The period it belongs to; null where the sequence counts without periods.
    period: Option<String>,
    /// The number.
    #[schema(example = "42")]
    value: String,
    fate: Fate,
    /// The start of the program that reserved its block; null where no row of the journal has it.
    holder: Option<String>,
    /// When it did (RFC 3339).
    reserved_at: Option<String>,
    block: Option<ExplainedBlock>,
}

/// The block that a number comes from.
#[derive(Serialize, ToSchema)]
pub(super) struct ExplainedBlock {
    #[schema(example = "1")]
    first: String,
    #[schema(example = "100")]
    last: String,
    /// From one number to the next.
    #[schema(example = 1)]
    step: i64,
}

/// `not_reserved`: nobody has reserved it. `held`: its holder has not told what became of it.
/// `issued`: certainly given to a caller; not answered for any number yet. `issued_or_lost`: it left
/// its holder's memory, to a caller or with the holder. `returned`: given back, waiting to be
/// adopted. `adopted`: given back and taken over, no more is known. `abandoned`: neither issued nor
/// returned. `no_record`: the journal has no row of it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Fate {
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
    tag = "sequences",
    params(
        ("name" = String, Path, description = "The sequence.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("id" = String, Query, description = "The number, as a reply has it.", example = "42"),
        ("period" = Option<String>, Query,
            description = "The period it belongs to, for sequences that have periods."),
    ),
    responses((status = 200, description = "What is known of the number.", body = Explained))
)]
pub(super) async fn explain(
    request: HttpRequest,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let asked = parse::explain(request.uri().query())?;
    let directory = &http.directory;
    let explanation = directory
        .explain(&name, &asked.id, asked.period.as_ref())
        .await;
    let explanation = near::or_refused(&http, explanation).await?;
    Ok(HttpResponse::Ok().json(Explained::from(explanation)))
}

impl From<Explanation> for Explained {
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

impl From<Origin> for ExplainedBlock {
    fn from(block: Origin) -> Self {
        Self {
            first: block.first.to_string(),
            last: block.last.to_string(),
            step: block.step,
        }
    }
}

impl From<NumberFate> for Fate {
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
