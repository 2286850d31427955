//! Whom a time-ordered sequence serves, and what those need whom it cannot serve yet.
//!
//! Whoever waits is served first from what is there, in the order in which they came, and refused
//! only by what then keeps him from being served.

use std::{sync::Arc, time::Duration};

use actix::{AsyncContext, Context};
use odometer_core::{
    block::Block,
    snowflake::{High, Layout, Refused},
};

use super::{
    actor::{Apart, SequenceActor, State},
    error::SequenceError,
    leasing::{PACE, Purpose},
    queue::Waiter,
    timed::{NotTaken, Timed},
};
use crate::{metrics::AbandonedCause, store::Want};

/// Clocks are looked at again at least so often.
const LONGEST_TURN: Duration = Duration::from_millis(100);
const SHORTEST_TURN: Duration = Duration::from_millis(1);

/// What the one who has waited longest needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Nobody waits.
    Nothing,
    /// That the clock goes on for so long.
    Turn(Duration),
    /// More time reserved.
    Time,
    /// A worker id.
    Lease,
    /// Another worker id, or that the clock goes on for so long.
    Another(Duration),
}

/// Why a waiter was not served.
enum Unserved {
    /// He waits on, for this.
    Needs(Need),
    /// Waiting does not help.
    Told(SequenceError),
}

impl SequenceActor {
    /// Serves who waits, and does the next step for those that it cannot serve.
    pub(super) fn advance_timed(&mut self, timed: &Arc<Timed>, context: &mut Context<Self>) {
        let need = self.serve(timed);
        if let Need::Turn(pause) = need {
            self.look_again(pause, context);
        }
        if self.in_flight.is_some() {
            return;
        }
        if timed.is_due() && self.retry.is_none() {
            self.renew(timed, context);
            if matches!(need, Need::Nothing | Need::Time) {
                return;
            }
        }
        match need {
            Need::Nothing if !self.loading.is_empty() && !timed.is_serving() => {
                self.seek(timed, Purpose::First, context);
            }
            Need::Nothing => self.rest_timed(timed),
            // It is looked at again.
            Need::Turn(_) => {}
            Need::Time => self.reserve_time(timed, context),
            Need::Lease => self.seek(timed, Purpose::First, context),
            Need::Another(wait) => self.seek(timed, Purpose::Instead(wait), context),
        }
    }

    /// Answers those who wait, in order, as far as there are ids.
    fn serve(&mut self, timed: &Timed) -> Need {
        self.queue.forget_gone();
        self.apart.retain(|caller| !caller.answer.is_closed());
        while let Some(waiter) = self.queue.pop() {
            match self.answer(timed, waiter.count, false) {
                Ok(ranges) => {
                    if waiter.answer.send(Ok(ranges)).is_err() {
                        self.count_gone(waiter.count);
                    }
                }
                Err(Unserved::Told(error)) => {
                    let _gone = waiter.answer.send(Err(error));
                }
                Err(Unserved::Needs(need)) => {
                    self.queue.put_back(vec![waiter]);
                    return need;
                }
            }
        }
        while let Some(caller) = self.first_apart() {
            let Want::Exactly(count) = caller.want else {
                let name = self.issuer.key.sequence.clone();
                let refused = SequenceError::TimeOrdered { name };
                let _gone = caller.answer.send(Err(refused));
                continue;
            };
            match self.answer(timed, count, true) {
                Ok(ranges) => {
                    if caller.answer.send(Ok(ranges)).is_err() {
                        self.count_gone(count);
                    }
                }
                Err(Unserved::Told(error)) => {
                    let _gone = caller.answer.send(Err(error));
                }
                Err(Unserved::Needs(need)) => {
                    self.apart.insert(0, caller);
                    return need;
                }
            }
        }
        Need::Nothing
    }

    fn first_apart(&mut self) -> Option<Apart> {
        (!self.apart.is_empty()).then(|| self.apart.remove(0))
    }

    fn answer(&self, timed: &Timed, count: u64, contiguous: bool) -> Result<Vec<Block>, Unserved> {
        match timed.take_batch(count, contiguous) {
            Ok(taken) => Ok(taken.ids),
            Err(refused) => Err(self.unserved(timed, refused)),
        }
    }

    fn unserved(&self, timed: &Timed, refused: NotTaken) -> Unserved {
        let told = |error| Unserved::Told(error);
        match refused {
            NotTaken::NoLease | NotTaken::Refused(Refused::Closed) => Unserved::Needs(Need::Lease),
            NotTaken::BeforeEpoch(wait) => told(clock_behind(wait)),
            NotTaken::Refused(Refused::Limit) => Unserved::Needs(Need::Time),
            NotTaken::Refused(Refused::Ahead { ticks }) => {
                let wait = time_of(timed.layout(), ticks);
                let is_short =
                    timed.is_within_a_batch(ticks) || wait <= self.shared.settings.clock_wait;
                Unserved::Needs(if is_short {
                    Need::Turn(wait)
                } else {
                    Need::Another(wait)
                })
            }
            NotTaken::Refused(Refused::TimeEnds) => told(self.time_ended()),
            NotTaken::Refused(Refused::TooMany { most }) => {
                told(SequenceError::BatchTooLarge { most })
            }
        }
    }

    pub(super) fn time_ended(&self) -> SequenceError {
        SequenceError::TimeEnded {
            name: self.issuer.key.sequence.clone(),
        }
    }

    fn count_gone(&self, count: u64) {
        let gone = self.shared.metrics.abandoned(AbandonedCause::CallerGone);
        gone.increment(count);
    }

    fn rest_timed(&mut self, timed: &Timed) {
        self.tell_loading();
        self.state = match timed.is_serving() {
            true => State::Serving,
            false => State::Empty,
        };
    }

    pub(super) fn tell_loading(&mut self) {
        for done in self.loading.drain(..) {
            // Whoever waits no longer does not need to know.
            let _gone = done.send(());
        }
    }

    /// Serves again when the clock has gone on.
    pub(super) fn look_again(&mut self, pause: Duration, context: &mut Context<Self>) {
        if std::mem::replace(&mut self.leasing.is_awaited, true) {
            return;
        }
        let pause = pause.clamp(SHORTEST_TURN, LONGEST_TURN);
        context.run_later(pause, |actor, context| {
            actor.leasing.is_awaited = false;
            actor.advance(context);
        });
    }

    /// Tells whom nothing is left for why that is so; whoever needs only the clock waits on.
    pub(super) fn refuse_unserved(
        &mut self,
        timed: &Arc<Timed>,
        told: &SequenceError,
        context: &mut Context<Self>,
    ) {
        loop {
            let need = self.serve(timed);
            match need {
                Need::Nothing => return,
                Need::Turn(pause) => {
                    self.look_again(pause, context);
                    return;
                }
                // Its time goes on with the clock.
                Need::Time
                    if timed.layout().high == High::Worker
                        && matches!(told, SequenceError::ClockBehind { .. }) =>
                {
                    self.look_again(PACE, context);
                    return;
                }
                // All others are taken, and the one there is comes back by itself.
                Need::Another(wait) if matches!(told, SequenceError::NoWorkerId { .. }) => {
                    self.refuse_first(&clock_behind(wait));
                }
                Need::Another(_) => self.refuse_first(told),
                Need::Time | Need::Lease => self.refuse_first(told),
            }
        }
    }

    fn refuse_first(&mut self, told: &SequenceError) {
        let answer = match self.queue.pop() {
            Some(Waiter { answer, .. }) => Some(answer),
            None => self.first_apart().map(|caller| caller.answer),
        };
        if let Some(answer) = answer {
            // Whoever gave up does not need to know.
            let _gone = answer.send(Err(told.clone()));
        }
    }
}

/// What whoever waits for the clock is told.
pub(super) fn clock_behind(wait: Duration) -> SequenceError {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    SequenceError::ClockBehind { wait_ms }
}

fn time_of(layout: &Layout, ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(layout.unit.ms().unsigned_abs()))
}
