//! Answers calls that take numbers: `next` for one number or a batch, and `blocks`.

use std::future::ready;

use actix_web::HttpResponse;
use odometer_core::block::Block;
use odometer_sequence::{audit::Taking, error::SequenceError};
use serde::Serialize;
use utoipa::ToSchema;

use super::large_replies::LargeReplies;
use super::payload::{
    bodies::IssuedNumbers,
    parameters::{AnySequencePath, BlocksQuery, NextQuery, Traceparent},
    values,
};
use super::problem::Problem;
use super::quotas::{self, RequestedShare};
use super::state::Call;
use super::{body, parse, reply, sources, suggestions};
use crate::access::right::Right;

/// A range reserved for a caller who counts by itself.
#[derive(Serialize, ToSchema)]
#[schema(as = ReservedBlock)]
pub(crate) struct ReservedReply {
    sequence: values::SequenceName,
    /// The period of the numbers; null if the sequence counts without periods.
    period: Option<values::Period>,
    /// The first number.
    first: values::NumberString,
    /// The last number.
    #[schema(example = "2000")]
    last: values::NumberString,
    /// How many numbers.
    #[schema(minimum = 1, example = 1000)]
    count: u64,
    /// The distance between two numbers.
    #[schema(minimum = 1, example = 1)]
    step: i64,
}

/// Takes the next number of a sequence, or the next batch.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/next",
    operation_id = "takeNumbers",
    tag = "numbers",
    params(AnySequencePath, NextQuery, Traceparent),
    responses((status = 200, description = "Numbers that nobody else gets.", content(
        (IssuedNumbers = "application/json"),
        (String = "text/plain", example = "1001\n"),
    ), headers(
        ("Odometer-Period" = values::Period,
            description = "With `text/plain`, the period, if the sequence has periods."),
        ("traceparent" = values::TraceContext,
            description = "If the call had one: its trace, with a span of the service. If it could \
                not be read: a new trace."),
    )))
)]
pub(crate) async fn next((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    parse::no_idempotency_key(request.headers())?;
    let asked = parse::next(request.uri().query())?;
    let wanted = parse::wanted(request.headers());
    let of = (&name, asked.period.as_ref());
    let taker = sources::admit_taker(&request, &http, Right::Take, of).await?;
    let caller = &taker.caller;
    body::nothing(&request, payload, http.body).await?;
    let count = asked.count.unwrap_or(1);
    let period = asked.period.as_ref();
    let share = RequestedShare {
        name: &name,
        source: &taker.source,
        period,
        n: count,
        is_block: false,
        is_confirmed: asked.confirm,
    };
    quotas::check_share(&http, caller, &share).await?;
    let directory = &http.directory;
    let n_bytes = reply::most_bytes(directory, name.as_str(), &asked, wanted);
    let room = http.large_replies.take(n_bytes)?;
    let charge = quotas::take_numbers(caller, count)?;
    let first_use = taker.note_first_use(&request, period);
    let taken = directory.take(&name, period, count, asked.contiguous).await;
    charge.settle(&taken);
    first_use.into_iter().for_each(|note| note.settle(&taken));
    let issued = suggestions::with_suggestions(&http, caller, ready(taken)).await?;
    // A shared name may have got a sequence of its own meanwhile.
    caller.check(Right::Take, &issued.key.sequence)?;
    let (shown, ranges) = (issued.shown(), issued.ranges.as_slice());
    let reply = match (asked.count, ranges) {
        (None, [one]) => reply::one(shown, one.first(), wanted),
        _ => reply::batch(shown, ranges, asked.ids, wanted),
    };
    Ok(LargeReplies::keep(reply, room))
}

/// Reserves a range for a caller who counts by itself, straight from the store.
#[utoipa::path(
    post,
    path = "/v1/sequences/{name}/blocks",
    operation_id = "reserveBlock",
    tag = "numbers",
    params(AnySequencePath, BlocksQuery),
    responses((status = 200, description = "A range that nobody else gets.", body = ReservedReply))
)]
pub(crate) async fn blocks((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    let name = parse::name(request.uri().path())?;
    parse::no_idempotency_key(request.headers())?;
    let asked = parse::blocks(request.uri().query())?;
    let of = (&name, asked.period.as_ref());
    let taker = sources::admit_taker(&request, &http, Right::Block, of).await?;
    let caller = &taker.caller;
    body::nothing(&request, payload, http.body).await?;
    let period = asked.period.as_ref();
    let share = RequestedShare {
        name: &name,
        source: &taker.source,
        period,
        n: asked.size,
        is_block: true,
        is_confirmed: asked.confirm,
    };
    quotas::check_share(&http, caller, &share).await?;
    let charge = quotas::take_numbers(caller, asked.size)?;
    let has_roles = http.access.has_roles();
    let notes = [
        taker.note_first_use(&request, period),
        has_roles.then(|| taker.note(&request, period, Taking::Block)),
    ];
    let reserved = http.directory.reserve(&name, period, asked.size).await;
    charge.settle(&reserved);
    notes
        .into_iter()
        .flatten()
        .for_each(|note| note.settle(&reserved));
    let issued = suggestions::with_suggestions(&http, caller, ready(reserved)).await?;
    caller.check(Right::Block, &issued.key.sequence)?;
    let block: Block = *issued.ranges.first().ok_or(SequenceError::Internal)?;
    let key = issued.key;
    Ok(HttpResponse::Ok().json(ReservedReply {
        sequence: key.sequence.into(),
        period: key.period.shown().map(Into::into),
        first: block.first().into(),
        last: block.last().into(),
        count: block.count(),
        step: block.step(),
    }))
}
