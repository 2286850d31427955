//! Takes numbers: the next one, or a range of which the last is told.

use std::rc::Rc;
use std::time::Instant;

use odometer_core::block::Block;
use odometer_process::faults::{self, Fault};
use odometer_sequence::error::SequenceError;
use odometer_sequence::issued::Issued;
use odometer_sequence::{Wants, warm::Pinned};

use super::error_line::{ErrorLine, UNEVEN_RANGE};
use super::key_rules::{self, KeyTarget};
use super::reply::Replies;
use super::session::Session;
use crate::access::quotas::share::ALWAYS;
use crate::access::right::Right;
use crate::calls::evidence::Evidence;
use crate::calls::numbers::{reserve_for, take_for};
use crate::calls::problem::Problem;
use crate::calls::quotas::{self, RequestedShare};
use crate::calls::readiness::why_not_ready;
use crate::calls::size_limit::{self, MAX_COUNT};
use crate::calls::sources::{self, Taker};
use crate::calls::state::Calls;
use crate::calls::suggestions;

/// Returns how many commands for `n` numbers each may be answered at once.
pub(super) fn max_times(session: &Session, n: u64) -> usize {
    let most = match session.worker.resp.calls.access.asks_who() {
        true => ALWAYS,
        false => MAX_COUNT,
    };
    let times = most.checked_div(n).unwrap_or(0);
    usize::try_from(times).unwrap_or(usize::MAX)
}

/// Takes the numbers of `times` commands for `n` numbers each from memory: the warm path. Replies to
/// each command with the last of its numbers. Returns false, and replies nothing, if the commands
/// have to wait, or to be looked at.
#[inline]
pub(super) fn take_now(
    session: &Session,
    target: &KeyTarget<'_>,
    (n, times): (u64, u64),
    replies: &mut Replies,
) -> bool {
    let calls = &session.worker.resp.calls;
    let total = n.saturating_mul(times);
    // While the service stops, no number is given here.
    if total > MAX_COUNT || calls.directory.is_draining() {
        return false;
    }
    let (name, period) = (&*target.name, target.period.as_deref());
    if n > 1 && !session.is_unbroken(name) {
        return false;
    }
    let mut pinned = calls.directory.pin();
    if !calls.access.asks_who() {
        return take_pinned(&mut pinned, (name, period), (n, times), replies);
    }
    // What has numbers in memory was used before, so nobody needs the right to create it. A name
    // that shares the numbers of another sequence is never in use itself.
    let shown = session.token().map(str::as_bytes);
    let may_take = total <= ALWAYS
        && pinned.is_in_use(name)
        && session.memo.may_take(shown, session.memo_time(), name)
        && session.memo.take_quota(total);
    if !may_take {
        return false;
    }
    let is_taken = take_pinned(&mut pinned, (name, period), (n, times), replies);
    if !is_taken {
        session.memo.give_back_quota(total);
    }
    is_taken
}

#[inline]
fn take_pinned(
    pinned: &mut Pinned<'_>,
    (name, period): (&str, Option<&str>),
    (n, times): (u64, u64),
    replies: &mut Replies,
) -> bool {
    if n == 1 && times == 1 {
        let taken = pinned.take(name, period);
        return taken.is_some_and(|taken| {
            replies.integer(taken.numbers);
            true
        });
    }
    let total = n * times;
    let Some(taken) = pinned.take_batch(name, period, (total, n > 1)) else {
        return false;
    };
    let ranges = taken.numbers.as_slice();
    if n > 1 && last_of(ranges, total).is_err() {
        return false;
    }
    for range in ranges {
        let mut at = n - 1;
        while let Some(last) = range.value_at(at) {
            replies.integer(last);
            at += n;
        }
    }
    true
}

/// Takes `n` numbers, which memory may not have. Returns the last one.
///
/// # Errors
/// The call gave no number. Or numbers are not next to each other, which was not known before: they
/// are a gap then.
pub(super) async fn take(session: &mut Session, key: &[u8], n: u64) -> Result<i64, ErrorLine> {
    let worker = Rc::clone(&session.worker);
    let (resp, calls) = (&worker.resp, &worker.resp.calls);
    if let Some(why) = why_not_ready(calls.directory.takes_calls()) {
        return Err(ErrorLine::not_ready(why));
    }
    let (name, period) = key_rules::target(&resp.rules, key).checked()?;
    let is_block = n > MAX_COUNT;
    let right = if is_block { Right::Block } else { Right::Take };
    if n > 1 {
        session.forget_unbroken();
    }
    let evidence = session.evidence()?;
    let of = (&name, period.as_ref());
    let mut taker = sources::admit_taker(&evidence, calls, right, of).await?;
    if n > 1 {
        let until = Instant::now() + taker.time_left;
        check_unbroken(calls, &taker, until).await?;
        taker.time_left = until.saturating_duration_since(Instant::now());
    }
    let share = RequestedShare {
        name: &name,
        source: &taker.source,
        period: period.as_ref(),
        n,
        wants: match n {
            1 => Wants::Numbers,
            _ if is_block => Wants::Block,
            _ => Wants::Range,
        },
        is_confirmed: false,
    };
    let issued = issue(calls, &evidence, &taker, &share).await;
    let caller = &taker.caller;
    let issued = issued.map_err(|refused| size_limit::lowered(refused, calls, caller, &share))?;
    // A shared name may have got a sequence of its own meanwhile.
    caller.check(right, &issued.key.sequence)?;
    let last = last_of(&issued.ranges, n)?;
    drop(evidence);
    if n > 1 {
        session.note_unbroken(&name);
    }
    Ok(last)
}

async fn issue(
    calls: &Calls,
    evidence: &Evidence<'_>,
    taker: &Taker,
    share: &RequestedShare<'_>,
) -> Result<Issued, Problem> {
    if share.wants == Wants::Block {
        return reserve_for(calls, evidence, taker, share).await;
    }
    let until = Instant::now() + taker.time_left;
    sources::in_time(until, quotas::check_share(calls, &taker.caller, share)).await?;
    take_for(calls, evidence, (taker, share), until).await
}

/// Checks that ranges of a sequence are unbroken, before any number is taken.
async fn check_unbroken(calls: &Calls, taker: &Taker, until: Instant) -> Result<(), ErrorLine> {
    let stride = calls.directory.stride(&taker.source);
    let stride = suggestions::with_suggestions(calls, &taker.caller, stride);
    match sources::in_time(until, stride)
        .await?
        .is_none_or(is_unbroken)
    {
        true => Ok(()),
        false => Err(UNEVEN_RANGE),
    }
}

/// Returns the last of `n` numbers, which are next to each other.
fn last_of(ranges: &[Block], n: u64) -> Result<i64, ErrorLine> {
    match ranges {
        [range] if range.count() == n && (n == 1 || is_unbroken(range.step())) => Ok(range.last()),
        [_, ..] => Err(UNEVEN_RANGE),
        [] => Err(Problem::from(SequenceError::Internal).into()),
    }
}

/// Returns whether the last of several numbers tells the others, if they are so far apart.
fn is_unbroken(stride: i64) -> bool {
    stride == 1 || faults::is(Fault::UnevenRanges)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn only_one_unbroken_range_has_a_last_number_that_tells_the_others() {
        let block = |first, count, step| Block::new(first, count, step).unwrap();
        assert_eq!(last_of(&[block(7, 1, 5)], 1), Ok(7));
        assert_eq!(last_of(&[block(7, 3, 1)], 3), Ok(9));
        assert_eq!(last_of(&[block(7, 3, 2)], 3), Err(UNEVEN_RANGE));
        let two = [block(7, 2, 1), block(20, 1, 1)];
        assert_eq!(last_of(&two, 3), Err(UNEVEN_RANGE));
        assert!(last_of(&[], 1).is_err());
    }
}
