//! Answers calls that take numbers: `next` for one number or a batch, and `blocks`.

use std::time::{Duration, Instant};

use actix_web::HttpResponse;
use odometer_core::block::Block;
use odometer_sequence::{Wants, error::SequenceError, issued::Issued};
use serde::Serialize;
use utoipa::ToSchema;

use super::large_replies::{LargeReplies, Part};
use super::parse::MediaType;
use super::payload::{
    bodies::IssuedNumbers,
    parameters::{AnySequencePath, BlocksQuery, NextQuery, Traceparent},
    values,
};
use super::state::{Call, Http};
use super::{body, evidence, parse, reply};
use crate::access::right::Right;
use crate::calls::evidence::Evidence;
use crate::calls::numbers::{reserve_for, take_for};
use crate::calls::problem::Problem;
use crate::calls::quotas::{self, RequestedShare};
use crate::calls::sources::Taker;
use crate::calls::{size_limit, sources};

/// How long a call for too many numbers waits until it is known what bounds the call.
const BOUNDS_TIMEOUT: Duration = Duration::from_secs(1);

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
    let asked = parse::next_of_any_count(request.uri().query())?;
    let wanted = parse::wanted(request.headers());
    let of = (&name, asked.period.as_ref());
    let evidence = evidence::of(&request);
    let taker = sources::admit_taker(&evidence, &http, Right::Take, of).await?;
    let caller = &taker.caller;
    body::nothing(&request, payload, http.body).await?;
    let share = RequestedShare {
        name: &name,
        source: &taker.source,
        period: asked.period.as_ref(),
        n: asked.count.unwrap_or(1),
        wants: match asked.contiguous {
            true => Wants::Range,
            false => Wants::Numbers,
        },
        is_confirmed: asked.confirm,
    };
    let taken = take(&evidence, &http, (&taker, &share), (&asked, wanted)).await;
    let (issued, room) =
        taken.map_err(|refused| size_limit::lowered(refused, &http, caller, &share))?;
    // A shared name may have got a sequence of its own meanwhile.
    caller.check(Right::Take, &issued.key.sequence)?;
    let (shown, ranges) = (issued.shown(), issued.ranges.as_slice());
    let reply = match (asked.count, ranges) {
        (None, [one]) => reply::one(shown, one.first(), wanted),
        _ => reply::batch(shown, ranges, asked.ids, wanted),
    };
    Ok(LargeReplies::keep(reply, room))
}

/// Takes the numbers of a call, with room for its reply, if the call asks for no more than it may
/// have.
async fn take(
    evidence: &Evidence<'_>,
    http: &Http,
    (taker, share): (&Taker, &RequestedShare<'_>),
    (asked, wanted): (&NextQuery, MediaType),
) -> Result<(Issued, Part), Problem> {
    let (caller, directory) = (&taker.caller, &http.directory);
    let until = Instant::now() + taker.time_left;
    if let Err(refused) = parse::check_count(asked.count) {
        // Without roles, nobody has looked the name up yet. What bounds the call is known of a name
        // in memory, and the refusal says as much as is found out soon.
        let soon = until.min(Instant::now() + BOUNDS_TIMEOUT);
        let left = directory.left(share.source, share.period);
        let loading = async { left.await.map_err(Problem::from) };
        let _left = sources::in_time(soon, loading).await;
        return Err(refused);
    }
    sources::in_time(until, quotas::check_share(http, caller, share)).await?;
    let n_bytes = reply::most_bytes(directory, share.name.as_str(), asked, wanted);
    let room = http.large_replies.take(n_bytes)?;
    let issued = take_for(http, evidence, (taker, share), until).await?;
    Ok((issued, room))
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
    let evidence = evidence::of(&request);
    let taker = sources::admit_taker(&evidence, &http, Right::Block, of).await?;
    let caller = &taker.caller;
    body::nothing(&request, payload, http.body).await?;
    let share = RequestedShare {
        name: &name,
        source: &taker.source,
        period: asked.period.as_ref(),
        n: asked.size,
        wants: Wants::Block,
        is_confirmed: asked.confirm,
    };
    let reserved = reserve_for(&http, &evidence, &taker, &share).await;
    let issued = reserved.map_err(|refused| size_limit::lowered(refused, &http, caller, &share))?;
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
