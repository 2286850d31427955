//! Serves the waiters of a time-ordered sequence, and finds out what the others need.
//!
//! Waiters are served first from the ids that are there, in the order in which they came. Those who
//! want one unbroken range take turns with the others. A waiter is refused only for a reason that
//! then keeps this waiter from being served. A caller who finds an id in memory does not wait, and
//! so may get an id before the waiters do.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{AsyncContext, Context};
use odometer_core::snowflake::{High, Layout, Refused};
use odometer_process::{
    clock,
    faults::{self, Fault},
};

use crate::{
    actor::queue::Wants,
    actor::sequence_actor::SequenceActor,
    actor::snowflake_lease::{Purpose, RENEWAL_PAUSE},
    error::SequenceError,
    issuer::snowflake_issuer::{NoIds, SnowflakeIssuer, time_between},
};

/// Bounds the pause until the clock is read again, because clocks may be set.
const MAX_CLOCK_PAUSE: Duration = Duration::from_secs(1);
const MIN_CLOCK_PAUSE: Duration = Duration::from_millis(1);

/// What the caller who has waited longest needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// No caller waits.
    Nothing,
    /// A clock that has advanced by this much.
    Turn(Duration),
    /// More reserved time.
    Time,
    /// A worker id.
    Lease,
    /// Another worker id, or a clock that has advanced by this much.
    Another(Duration),
}

impl SequenceActor {
    /// Serves the waiters, and takes the next step for those that it cannot serve.
    pub(crate) fn advance_snowflake(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        context: &mut Context<Self>,
    ) {
        let need = self.serve(snowflake);
        if let Need::Turn(pause) = need {
            self.look_again(pause, context);
        }
        if self.in_flight.is_some() {
            return;
        }
        if snowflake.needs_renewal() && !self.will_retry {
            self.renew(snowflake, context);
            if matches!(need, Need::Nothing | Need::Time) {
                return;
            }
        }
        match need {
            Need::Nothing if !self.loading.is_empty() && !snowflake.is_serving() => {
                self.seek(snowflake, Purpose::First, context);
            }
            Need::Nothing => self.tell_loading(),
            // `look_again` serves these callers later.
            Need::Turn(_) => {}
            Need::Time => self.reserve_time(snowflake, context),
            Need::Lease => self.seek(snowflake, Purpose::First, context),
            Need::Another(wait) => self.seek(snowflake, Purpose::Instead(wait), context),
        }
    }

    /// Answers the waiters in order, as long as there are ids. Returns what the next waiter needs.
    fn serve(&mut self, snowflake: &SnowflakeIssuer) -> Need {
        self.queue.forget_gone();
        while let Some(waiter) = self.queue.pop() {
            let count = waiter.count;
            match snowflake.take_batch(count, waiter.wants == Wants::Range) {
                Ok(taken) => {
                    if !waiter.give(taken.ids) {
                        self.count_gone(count);
                    }
                }
                Err(refused) => match self.need_of(snowflake, refused) {
                    Err(error) => waiter.refuse(error),
                    Ok(need) => {
                        self.queue.put_back_first(waiter);
                        return need;
                    }
                },
            }
        }
        Need::Nothing
    }

    /// Returns what a waiter needs that was not served.
    ///
    /// # Errors
    /// Waiting does not help: the waiter gets this refusal.
    fn need_of(&self, snowflake: &SnowflakeIssuer, refused: NoIds) -> Result<Need, SequenceError> {
        match refused {
            NoIds::NoLease | NoIds::Refused(Refused::Closed) => Ok(Need::Lease),
            NoIds::BeforeEpoch(wait) => Err(clock_behind(wait)),
            NoIds::Refused(Refused::Limit) => Ok(Need::Time),
            NoIds::Refused(Refused::Ahead { ticks }) => {
                let wait = until_later(snowflake.layout(), ticks);
                if faults::is(Fault::ClockNotWaitedFor) {
                    return Err(clock_behind(wait));
                }
                let is_short =
                    snowflake.is_within_a_batch(ticks) || wait <= self.shared.settings.clock_wait;
                Ok(match is_short {
                    true => Need::Turn(wait),
                    false => Need::Another(wait),
                })
            }
            NoIds::Refused(Refused::TimeEnds) => Err(self.time_ended()),
            NoIds::Refused(Refused::TooMany { most }) => Err(SequenceError::BatchTooLarge { most }),
        }
    }

    pub(crate) fn time_ended(&self) -> SequenceError {
        SequenceError::TimeEnded {
            name: self.issuer.key.sequence.clone(),
        }
    }

    /// Serves the waiters again after a pause, in which the clock advances.
    pub(crate) fn look_again(&mut self, pause: Duration, context: &mut Context<Self>) {
        let pause = pause.clamp(MIN_CLOCK_PAUSE, MAX_CLOCK_PAUSE);
        let at = Instant::now() + pause;
        let earlier = self.leasing().awaited.take();
        if let Some((earlier_at, earlier)) = earlier {
            if earlier_at <= at {
                self.leasing().awaited = Some((earlier_at, earlier));
                return;
            }
            context.cancel_future(earlier);
        }
        let turn = context.run_later(pause, |actor, context| {
            actor.leasing().awaited = None;
            actor.advance(context);
        });
        self.leasing().awaited = Some((at, turn));
    }

    /// Refuses the waiters that cannot be served, and gives them the reason. Waiters that need only
    /// the clock wait on.
    pub(crate) fn refuse_unserved(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        refused: &SequenceError,
        context: &mut Context<Self>,
    ) {
        loop {
            let need = self.serve(snowflake);
            match need {
                Need::Nothing => return,
                Need::Turn(pause) => {
                    self.look_again(pause, context);
                    return;
                }
                // As the clock advances, this worker id gets more time.
                Need::Time
                    if snowflake.layout().high == High::Worker
                        && matches!(refused, SequenceError::ClockBehind { .. }) =>
                {
                    self.look_again(RENEWAL_PAUSE, context);
                    return;
                }
                // All other worker ids are held, and the present one can be used again after the
                // wait.
                Need::Another(wait) if matches!(refused, SequenceError::NoWorkerId { .. }) => {
                    self.refuse_first(&clock_behind(wait));
                }
                Need::Another(_) => self.refuse_first(refused),
                Need::Time | Need::Lease => self.refuse_first(refused),
            }
        }
    }

    fn refuse_first(&mut self, refused: &SequenceError) {
        if let Some(waiter) = self.queue.pop() {
            // A name whose callers are refused is in use: it must not be parked.
            self.issuer.note_asked();
            waiter.refuse(refused.clone());
        }
    }
}

/// Returns the refusal for a caller who would have to wait until the clock shows this time (Unix
/// ms).
pub(crate) fn clock_behind_until(unix_ms: i64) -> SequenceError {
    clock_behind(time_between(clock::now_ms(), unix_ms))
}

/// Returns the refusal for a caller who would have to wait for the clock.
pub(crate) fn clock_behind(wait: Duration) -> SequenceError {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    SequenceError::ClockBehind { wait_ms }
}

/// Returns how long it is until the clock has advanced by this many ticks.
fn until_later(layout: &Layout, ticks: u64) -> Duration {
    let now_ms = clock::now_ms();
    let then = layout.tick_at(now_ms).unwrap_or(0).saturating_add(ticks);
    time_between(now_ms, layout.unix_ms_of(then))
}
