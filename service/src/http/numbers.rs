//! Answers calls that take numbers: `next` for one number or a batch, and `blocks`.

use std::future::ready;
use std::time::{Duration, Instant};

use actix_web::{HttpRequest, HttpResponse};
use odometer_core::block::Block;
use odometer_sequence::{Wants, audit::Taking, error::SequenceError, issued::Issued};
use serde::Serialize;
use utoipa::ToSchema;

use super::large_replies::{LargeReplies, Part};
use super::parse::MediaType;
use super::payload::{
    bodies::IssuedNumbers,
    parameters::{AnySequencePath, BlocksQuery, NextQuery, Traceparent},
    values,
};
use super::problem::Problem;
use super::quotas::{self, RequestedShare};
use super::sources::Taker;
use super::state::{Call, Http};
use super::{body, parse, reply, size_limit, sources, suggestions};
use crate::access::right::Right;

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
    let taker = sources::admit_taker(&request, &http, Right::Take, of).await?;
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
    let taken = take(&request, &http, (&taker, &share), (&asked, wanted)).await;
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
    request: &HttpRequest,
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
    let charge = quotas::take_numbers(caller, share.n)?;
    let first_use = taker.note_first_use(request, share.period);
    let batch = (share.n, asked.contiguous);
    let taken = directory.take(share.name, share.period, batch, until).await;
    charge.settle(&taken);
    first_use.into_iter().for_each(|note| note.settle(&taken));
    let issued = suggestions::with_suggestions(http, caller, ready(taken)).await?;
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
    let taker = sources::admit_taker(&request, &http, Right::Block, of).await?;
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
    let reserved = reserve(&request, &http, &taker, &share).await;
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

/// Reserves the range of a call, if the call asks for no more than it may have.
async fn reserve(
    request: &HttpRequest,
    http: &Http,
    taker: &Taker,
    share: &RequestedShare<'_>,
) -> Result<Issued, Problem> {
    let caller = &taker.caller;
    let until = Instant::now() + taker.time_left;
    sources::in_time(until, quotas::check_share(http, caller, share)).await?;
    let charge = quotas::take_numbers(caller, share.n)?;
    let has_roles = http.access.has_roles();
    let notes = [
        taker.note_first_use(request, share.period),
        has_roles.then(|| taker.note(request, share.period, Taking::Block)),
    ];
    let reserved = http
        .directory
        .reserve(share.name, share.period, share.n, until);
    let reserved = reserved.await;
    charge.settle(&reserved);
    let notes = notes.into_iter().flatten();
    notes.for_each(|note| note.settle(&reserved));
    suggestions::with_suggestions(http, caller, ready(reserved)).await
}
