//! Answers calls that change the life of a sequence: advance, retire, restore, and remove a period.

use std::time::SystemTime;

use actix_web::HttpResponse;
use actix_web::http::header;
use odometer_sequence::description::Act;
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::{
    bodies::AdvanceRequest,
    parameters::{IfMatch, PeriodPath, SequencePath},
    values,
};
use super::state::{Call, Http};
use super::text::{entity_tag, rfc_3339};
use super::{body, evidence, parse};
use crate::access::right::Right;
use crate::calls::problem::Problem;
use crate::calls::{quotas, suggestions};

/// What a floor has become.
#[derive(Serialize, ToSchema)]
#[schema(as = AdvancedSequence)]
pub(crate) struct AdvancedReply {
    sequence: values::SequenceName,
    /// Nothing below this number of the sequence is issued any more.
    #[schema(example = "5001")]
    floor: values::NumberString,
    /// Whether the floor has risen; it never falls.
    advanced: bool,
    /// The first number that is not reserved.
    #[schema(example = "5001")]
    high_water_mark: values::NumberString,
    /// By this time it holds at every replica that reaches the database; here it holds now.
    everywhere_by: values::Timestamp,
}

/// A sequence that goes on.
#[derive(Serialize, ToSchema)]
#[schema(as = RestoredSequence)]
pub(crate) struct RestoredReply {
    sequence: values::SequenceName,
    /// `false` if the sequence was not retired.
    restored: bool,
    /// The first number that is not reserved.
    #[schema(example = "5001")]
    high_water_mark: values::NumberString,
    /// By this time it holds at every replica that reaches the database; here it holds now.
    everywhere_by: values::Timestamp,
}

/// Raises the floor of a sequence: nothing below it is issued any more.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/advance",
    operation_id = "advanceSequence",
    tag = "sequences",
    params(SequencePath, IfMatch),
    request_body = AdvanceRequest,
    responses((status = 200, description = "Advanced, or already as high.", body = AdvancedReply,
        headers(("ETag" = values::EntityTag, description = "The version of the definition."))))
)]
pub(crate) async fn advance((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let evidence = evidence::of(&request);
    let caller = http.access.admit(&evidence, Right::Define, &name).await?;
    let author = caller.author(&evidence);
    parse::no_idempotency_key(request.headers())?;
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    let body = body::json(&request, payload, http.body).await?;
    let act = parse::advance(&body)?;
    let _creation = quotas::creation_of_key(&http, &caller, &name, &act.period()).await?;
    let advanced = http.directory.act(&name, act, condition, author);
    let stands = suggestions::with_suggestions(&http, &caller, advanced).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::ETAG, entity_tag(stands.version)))
        .json(AdvancedReply {
            sequence: name.into(),
            floor: stands.floor.into(),
            advanced: stands.changed,
            high_water_mark: stands.high_water_mark.into(),
            everywhere_by: everywhere_by(&http),
        }))
}

/// Retires a sequence: nothing is issued any more, until it is restored.
#[utoipa::path(
    delete,
    path = "/v1/sequences/{name}",
    operation_id = "retireSequence",
    tag = "sequences",
    params(SequencePath, IfMatch),
    responses((status = 204, description = "Retired, now or before. Here it holds at once, at the \
        other replicas within `definition_refresh`."))
)]
pub(crate) async fn retire((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let evidence = evidence::of(&request);
    let caller = http.access.admit(&evidence, Right::Define, &name).await?;
    let author = caller.author(&evidence);
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    body::nothing(&request, payload, http.body).await?;
    let retired = http.directory.act(&name, Act::Retire, condition, author);
    suggestions::with_suggestions(&http, &caller, retired).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Lets a retired sequence go on, above everything that was ever reserved of it.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/restore",
    operation_id = "restoreSequence",
    tag = "sequences",
    params(SequencePath, IfMatch),
    responses((status = 200, description = "Restored, or not retired at all.", body = RestoredReply,
        headers(("ETag" = values::EntityTag, description = "The version of the definition."))))
)]
pub(crate) async fn restore((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let evidence = evidence::of(&request);
    let caller = http.access.admit(&evidence, Right::Define, &name).await?;
    let author = caller.author(&evidence);
    parse::no_idempotency_key(request.headers())?;
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    body::nothing(&request, payload, http.body).await?;
    let _creation = quotas::creation_of_name(&http, &caller, &name).await?;
    let restored = http.directory.act(&name, Act::Restore, condition, author);
    let stands = suggestions::with_suggestions(&http, &caller, restored).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::ETAG, entity_tag(stands.version)))
        .json(RestoredReply {
            sequence: name.into(),
            restored: stands.changed,
            high_water_mark: stands.high_water_mark.into(),
            everywhere_by: everywhere_by(&http),
        }))
}

/// Removes a period of a sequence that counts by callers' keys: nothing is issued of it any more.
#[utoipa::path(
    delete,
    path = "/v1/sequences/{name}/periods/{key}",
    operation_id = "removePeriod",
    tag = "sequences",
    params(SequencePath, PeriodPath, IfMatch),
    responses((status = 204, description = "Removed, now or before.",
        headers(("ETag" = values::EntityTag, description = "The version of the definition."))))
)]
pub(crate) async fn remove_period((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    let evidence = evidence::of(&request);
    let caller = http.access.admit(&evidence, Right::Define, &name).await?;
    let author = caller.author(&evidence);
    let key = parse::key(request.uri().path())?;
    parse::no_query(request.uri().query())?;
    let condition = parse::matching(request.headers())?;
    body::nothing(&request, payload, http.body).await?;
    let _creation = quotas::creation_of_key(&http, &caller, &name, &key).await?;
    let act = Act::RemovePeriod { period: key };
    let removed = http.directory.act(&name, act, condition, author);
    let stands = suggestions::with_suggestions(&http, &caller, removed).await?;
    Ok(HttpResponse::NoContent()
        .insert_header((header::ETAG, entity_tag(stands.version)))
        .finish())
}

/// Returns the time by which a change that is in the store now holds everywhere.
fn everywhere_by(http: &Http) -> values::Timestamp {
    let by = SystemTime::now().checked_add(http.definition_refresh);
    by.and_then(rfc_3339).unwrap_or_default()
}
