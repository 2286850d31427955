//! Whom a time-ordered sequence serves, and what those need whom it cannot serve yet.
//!
//! Whoever waits is served first from what is there, in the order in which they came, and refused
//! only by what then keeps him from being served. Those who want one unbroken range have an order of
//! their own: they and the others take turns. A caller who finds an id in memory does not wait, and so
//! may get one before those who do.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{AsyncContext, Context};
use odometer_core::snowflake::{High, Layout, Refused};
use odometer_process::{
    clock,
    faults::{self, Fault},
    metrics::AbandonedCause,
};

use crate::{
    actor::{ActorState, SequenceActor},
    command::ReplySender,
    dedicated::DedicatedRequest,
    error::SequenceError,
    queue::Waiter,
    snowflake_issuer::{NoIds, SnowflakeIssuer},
    snowflake_lease::{PACE, Purpose},
};

/// Clocks are looked at again at least so often: they may be set.
const LONGEST_TURN: Duration = Duration::from_secs(1);
const SHORTEST_TURN: Duration = Duration::from_millis(1);

/// What the one who has waited longest needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
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

/// One of those who wait.
struct Caller {
    count: u64,
    /// Of those who want one unbroken range.
    contiguous: bool,
    answer: ReplySender,
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
    pub(crate) fn advance_timed(
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
        if snowflake.needs_renewal() && self.retry.is_none() {
            self.renew(snowflake, context);
            if matches!(need, Need::Nothing | Need::Time) {
                return;
            }
        }
        match need {
            Need::Nothing if !self.loading.is_empty() && !snowflake.is_serving() => {
                self.seek(snowflake, Purpose::First, context);
            }
            Need::Nothing => self.become_idle_timed(snowflake),
            // It is looked at again.
            Need::Turn(_) => {}
            Need::Time => self.reserve_time(snowflake, context),
            Need::Lease => self.seek(snowflake, Purpose::First, context),
            Need::Another(wait) => self.seek(snowflake, Purpose::Instead(wait), context),
        }
    }

    /// Answers those who wait, in order, as far as there are ids.
    fn serve(&mut self, snowflake: &SnowflakeIssuer) -> Need {
        self.queue.forget_gone();
        self.apart.forget_gone();
        self.refuse_blocks();
        while let Some(caller) = self.next_caller() {
            match snowflake.take_batch(caller.count, caller.contiguous) {
                Ok(taken) => {
                    if caller.answer.send(Ok(taken.ids)).is_err() {
                        self.count_gone(caller.count);
                    }
                }
                Err(refused) => match self.unserved(snowflake, refused) {
                    Unserved::Told(error) => {
                        let _gone = caller.answer.send(Err(error));
                    }
                    Unserved::Needs(need) => {
                        self.put_back(caller);
                        return need;
                    }
                },
            }
        }
        Need::Nothing
    }

    /// Tells whoever wants a block that there is none, whoever else waits.
    fn refuse_blocks(&mut self) {
        for caller in self.apart.take_blocks() {
            let name = self.issuer.key.sequence.clone();
            // Whoever gave up does not need to know.
            let _gone = caller.answer.send(Err(SequenceError::TimeOrdered { name }));
        }
    }

    /// Takes out whose turn it is.
    fn next_caller(&mut self) -> Option<Caller> {
        let is_apart = !self.apart.is_empty() && (self.is_turn_of_apart || self.queue.is_empty());
        self.is_turn_of_apart = !is_apart;
        if !is_apart {
            let Waiter { count, answer } = self.queue.pop()?;
            return Some(Caller {
                count,
                contiguous: false,
                answer,
            });
        }
        // Those who want blocks were refused before.
        let DedicatedRequest { count, answer, .. } = self.apart.pop()?;
        Some(Caller {
            count,
            contiguous: true,
            answer,
        })
    }

    /// It is still his turn.
    fn put_back(&mut self, caller: Caller) {
        let Caller {
            count,
            contiguous,
            answer,
        } = caller;
        self.is_turn_of_apart = contiguous;
        if contiguous {
            self.apart
                .put_back(vec![DedicatedRequest::new(count, false, answer)]);
        } else {
            self.queue.put_back(vec![Waiter { count, answer }]);
        }
    }

    fn unserved(&self, snowflake: &SnowflakeIssuer, refused: NoIds) -> Unserved {
        let told = |error| Unserved::Told(error);
        match refused {
            NoIds::NoLease | NoIds::Refused(Refused::Closed) => Unserved::Needs(Need::Lease),
            NoIds::BeforeEpoch(wait) => told(clock_behind(wait)),
            NoIds::Refused(Refused::Limit) => Unserved::Needs(Need::Time),
            NoIds::Refused(Refused::Ahead { ticks }) => {
                let wait = until_later(snowflake.layout(), ticks);
                if faults::is(Fault::ClockNotWaitedFor) {
                    return told(clock_behind(wait));
                }
                let is_short =
                    snowflake.is_within_a_batch(ticks) || wait <= self.shared.settings.clock_wait;
                Unserved::Needs(if is_short {
                    Need::Turn(wait)
                } else {
                    Need::Another(wait)
                })
            }
            NoIds::Refused(Refused::TimeEnds) => told(self.time_ended()),
            NoIds::Refused(Refused::TooMany { most }) => {
                told(SequenceError::BatchTooLarge { most })
            }
        }
    }

    pub(crate) fn time_ended(&self) -> SequenceError {
        SequenceError::TimeEnded {
            name: self.issuer.key.sequence.clone(),
        }
    }

    fn count_gone(&self, count: u64) {
        let gone = self.shared.metrics.abandoned(AbandonedCause::CallerGone);
        gone.increment(count);
    }

    fn become_idle_timed(&mut self, snowflake: &SnowflakeIssuer) {
        self.tell_loading();
        self.state = match snowflake.is_serving() {
            true => ActorState::Serving,
            false => ActorState::Empty,
        };
    }

    pub(crate) fn tell_loading(&mut self) {
        for done in self.loading.drain(..) {
            // Whoever waits no longer does not need to know.
            let _gone = done.send(());
        }
    }

    /// Serves again when the clock has gone on.
    pub(crate) fn look_again(&mut self, pause: Duration, context: &mut Context<Self>) {
        let pause = pause.clamp(SHORTEST_TURN, LONGEST_TURN);
        let at = Instant::now() + pause;
        let earlier = self.leasing.awaited.take();
        if let Some((earlier_at, earlier)) = earlier {
            if earlier_at <= at {
                self.leasing.awaited = Some((earlier_at, earlier));
                return;
            }
            context.cancel_future(earlier);
        }
        let turn = context.run_later(pause, |actor, context| {
            actor.leasing.awaited = None;
            actor.advance(context);
        });
        self.leasing.awaited = Some((at, turn));
    }

    /// Tells whom nothing is left for why that is so; whoever needs only the clock waits on.
    pub(crate) fn refuse_unserved(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        told: &SequenceError,
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
                // Its time goes on with the clock.
                Need::Time
                    if snowflake.layout().high == High::Worker
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
        if let Some(caller) = self.next_caller() {
            // A name that is asked for in vain does not rest.
            self.issuer.note_asked();
            // Whoever gave up does not need to know.
            let _gone = caller.answer.send(Err(told.clone()));
        }
    }
}

/// What whoever waits for the clock is told.
pub(crate) fn clock_behind(wait: Duration) -> SequenceError {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    SequenceError::ClockBehind { wait_ms }
}

/// How long it is until the clock has gone on by so many ticks.
fn until_later(layout: &Layout, ticks: u64) -> Duration {
    let now_ms = clock::now_ms();
    let then = layout.tick_at(now_ms).unwrap_or(0).saturating_add(ticks);
    let ms = layout.unix_ms_of(then).saturating_sub(now_ms);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
