//! Takes numbers for callers who may have them.

use std::future::ready;
use std::time::Instant;

use odometer_sequence::{Wants, audit::Taking, issued::Issued};

use super::evidence::Evidence;
use super::problem::Problem;
use super::quotas::{self, RequestedShare};
use super::sources::{self, Taker};
use super::state::Calls;
use super::suggestions;

/// Takes the numbers of a call, which asks for no larger share than it may have. Waits at most until
/// `until`.
///
/// # Errors
/// The quota of the role is used up, or the call gave no number.
pub(crate) async fn take_for(
    calls: &Calls,
    evidence: &Evidence<'_>,
    (taker, share): (&Taker, &RequestedShare<'_>),
    until: Instant,
) -> Result<Issued, Problem> {
    let caller = &taker.caller;
    let charge = quotas::take_numbers(caller, share.n)?;
    let first_use = taker.note_first_use(evidence, share.period);
    let batch = (share.n, share.wants == Wants::Range);
    let directory = &calls.directory;
    let taken = directory.take(share.name, share.period, batch, until).await;
    charge.settle(&taken);
    first_use.into_iter().for_each(|note| note.settle(&taken));
    suggestions::with_suggestions(calls, caller, ready(taken)).await
}

/// Reserves the range of a call, if the call asks for no more than it may have.
///
/// # Errors
/// The call may not have so many, or gave no range.
pub(crate) async fn reserve_for(
    calls: &Calls,
    evidence: &Evidence<'_>,
    taker: &Taker,
    share: &RequestedShare<'_>,
) -> Result<Issued, Problem> {
    let caller = &taker.caller;
    let until = Instant::now() + taker.time_left;
    sources::in_time(until, quotas::check_share(calls, caller, share)).await?;
    let charge = quotas::take_numbers(caller, share.n)?;
    let has_roles = calls.access.has_roles();
    let notes = [
        taker.note_first_use(evidence, share.period),
        has_roles.then(|| taker.note(evidence, share.period, Taking::Block)),
    ];
    let directory = &calls.directory;
    let reserved = directory.reserve(share.name, share.period, share.n, until);
    let reserved = reserved.await;
    charge.settle(&reserved);
    let notes = notes.into_iter().flatten();
    notes.for_each(|note| note.settle(&reserved));
    suggestions::with_suggestions(calls, caller, ready(reserved)).await
}
