//! One reservation: adopt what was returned, else raise the high-water mark.
//!
//! The remembered counter is tried first, unless others wrote between this
//! process's last two writes: then each refill reads the counter before it
//! writes, two round trips. After a conflict the counter is read again. At most
//! `attempts` tries within `deadline`, with full jitter between.

pub(in crate::store) mod adoption;
mod birth;
mod course;
pub(in crate::store) mod guide;
pub(in crate::store) mod look;
mod one_row;
pub(in crate::store) mod period;
mod raise;
mod request;
mod strict;
pub(in crate::store) mod suspect;

use std::{sync::Arc, time::Instant};

use odometer_core::{
    block::Block,
    definition::{Definition, Order},
    name::SequenceName,
    period::CounterKey,
    sizing::Why,
};
use uuid::Uuid;

use crate::store::{
    backoff::Backoff,
    catalogue::{self, Counter, LIVE},
    change::beat::Witness,
    connection::Health,
    database::{Database, Seen},
    error::{Cause, Failure, StoreError},
    reservation::guide::Guide,
    reservation::suspect::Doubt,
};
pub use course::Course;
pub use request::{Known, ReserveRequest, Reserved, Unpublished, Want};
pub(in crate::store) use strict::{add_and_read, leases_are_over};

use crate::{
    clock::now_ms,
    sabotage::{self, Fault},
};

pub(in crate::store) struct Reservation<'a> {
    pub(in crate::store) database: &'a Database,
    pub(in crate::store) request: ReserveRequest,
    guide: Guide,
    /// The counter that is asked for.
    pub(in crate::store) counter: CounterKey,
    pub(in crate::store) until: Instant,
    backoff: Backoff,
    /// Definition and counter, as far as they are known now.
    known: Option<Known>,
    stored_rate: Option<f64>,
    pub(in crate::store) adopt_from: Option<i64>,
    n_conflicts: u32,
    /// Whether others have written since this process did last: then they will again before its
    /// next refill, and what is remembered until then would only meet a conflict.
    is_shared: bool,
    /// Writes whose outcome was not told, of this reservation or of an earlier one.
    pub(in crate::store) doubt: Doubt,
    pub(in crate::store) strict: StrictIn,
    /// The counter's window as it was last read.
    window: catalogue::Window,
    /// The last recovery that was seen before the present attempt.
    recovered_at: Option<i64>,
}

/// Where sequences with strict order count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum StrictIn {
    /// In their row.
    Row,
    /// In their row for now, where no window of Redis is open and no lease of one is left.
    RowBesideRedis,
    /// Not here.
    Redis,
}

/// What is known of a sequence and a counter that were just read.
pub(in crate::store) struct Looked {
    pub(in crate::store) known: Known,
    pub(in crate::store) rate: Option<f64>,
    pub(in crate::store) window: catalogue::Window,
}

impl<'a> Reservation<'a> {
    pub(in crate::store) fn new(database: &'a Database, request: ReserveRequest) -> Self {
        Self {
            until: Instant::now() + database.settings.deadline,
            backoff: Backoff::new(&database.settings),
            known: request.known.clone().filter(|known| known.trusted),
            stored_rate: None,
            adopt_from: request.adopt_from,
            n_conflicts: 0,
            is_shared: false,
            doubt: database.doubts.take(&request.key),
            counter: one_row::counter_of(&request.key),
            guide: Guide::default(),
            strict: StrictIn::Row,
            window: catalogue::Window::default(),
            recovered_at: None,
            database,
            request,
        }
    }

    /// Sets where sequences with strict order count.
    pub(in crate::store) fn with_strict_in(mut self, strict: StrictIn) -> Self {
        self.strict = strict;
        self
    }

    /// Reads definition and counter, creating what is not there, and reserves nothing.
    pub(in crate::store) async fn look(mut self) -> Result<Looked, StoreError> {
        let outcome = self.looks().await;
        // It is for the next reservation to find out.
        let doubt = std::mem::take(&mut self.doubt);
        let lost = self.database.doubts.keep(&self.request.key, doubt);
        self.abandon(lost.most());
        outcome
    }

    async fn looks(&mut self) -> Result<Looked, StoreError> {
        for _attempt in 0..self.database.settings.attempts.max(1) {
            if self.database.health() != Health::Up {
                return Err(StoreError::Unavailable);
            }
            let witness = self.database.beat.witness()?;
            self.known = None;
            match self.read(&witness).await {
                Ok(()) => {}
                Err(Stop::Told(error)) => return Err(error),
                Err(Stop::Failed(failure)) => self.survive(&failure)?,
            }
            if let Some(known) = self.known.take() {
                return Ok(Looked {
                    known,
                    rate: self.stored_rate,
                    window: self.window,
                });
            }
            if Instant::now() >= self.until {
                break;
            }
            self.backoff.wait(self.until).await;
        }
        Err(StoreError::Deadline)
    }

    /// The same, as one of several databases.
    pub(in crate::store) fn guided(mut self, guide: Guide) -> Self {
        self.until = guide
            .until
            .map_or(self.until, |until| until.min(self.until));
        self.guide = guide;
        self
    }

    /// Tries until there is a block or a reason why there is none.
    pub(in crate::store) async fn run(mut self) -> Result<Reserved, StoreError> {
        let outcome = self.attempts().await;
        // Who reads the counter next will know.
        let doubt = std::mem::take(&mut self.doubt);
        let lost = if matches!(outcome, Err(StoreError::PeriodRemoved)) {
            // Nobody reads that counter again.
            doubt
        } else {
            self.database.doubts.keep(&self.request.key, doubt)
        };
        self.abandon(lost.most());
        outcome
    }

    async fn attempts(&mut self) -> Result<Reserved, StoreError> {
        for _attempt in 0..self.database.settings.attempts.max(1) {
            if self.database.health() != Health::Up {
                return Err(StoreError::Unavailable);
            }
            let witness = self.database.beat.witness()?;
            self.recovered_at = witness.recovered_at();
            self.request.course.count_attempt();
            match self.attempt(&witness).await {
                Ok(Some(reserved)) => return Ok(reserved),
                Ok(None) => {}
                Err(Stop::Told(error)) => return Err(error),
                Err(Stop::Failed(failure)) => self.survive(&failure)?,
            }
            if Instant::now() >= self.until {
                break;
            }
            self.database.metrics.reservation_retries.increment(1);
            self.backoff.wait(self.until).await;
        }
        Err(StoreError::Deadline)
    }

    /// One look and one write; `None` when another one was faster.
    async fn attempt(&mut self, witness: &Witness) -> Result<Option<Reserved>, Stop> {
        self.reset_one_row().await?;
        // Nothing is adopted on the strength of what is only remembered.
        if self.must_look_first() || (self.adopt_from.is_some() && self.known_is_old()) {
            self.known = None;
            self.read(witness).await?;
        }
        let Some(known) = self.known.clone() else {
            return Ok(None);
        };
        self.check_order(&known)?;
        if known.definition.order == Order::Strict {
            self.check_window(&known)?;
            return Box::pin(self.add(witness, known)).await;
        }
        if let Some(adopted) = self.adopt(&known, witness).await? {
            return Ok(Some(adopted));
        }
        let (first, left, step) = self.place(&known);
        let granted = match self.granted(&known.definition, left) {
            Ok(granted) => granted,
            Err(StoreError::Exhausted { .. } | StoreError::TooLarge { .. })
                if self.known_is_old() =>
            {
                // `max` may have been raised elsewhere: look before refusing.
                self.known = None;
                return Ok(None);
            }
            Err(error) => return Err(Stop::Told(error)),
        };
        let block = Block::new(first, granted.count, step)
            .map_err(|error| Stop::Told(StoreError::Broken(error.to_string())))?;
        self.raise(witness, known, block, granted.why).await
    }

    /// Whether what is known was remembered, not read in this reservation.
    fn known_is_old(&self) -> bool {
        self.stored_rate.is_none()
    }

    /// Reads definition and counter, creating both for a name never seen, and the counter for a
    /// period never seen.
    pub(in crate::store) async fn read(&mut self, witness: &Witness) -> Result<(), Stop> {
        let (key, borne_out) = (self.counter.clone(), witness.clone());
        let look = self
            .database
            .connection
            .run(self.until, |database| look::look(database, borne_out, key))
            .await
            .map_err(Stop::Failed)?;
        if !witness.is_borne_out_by(look.beat) {
            return Err(Stop::Told(self.contradicted(witness)));
        }
        let Some(standing) = look.standing else {
            return self.create(witness).await;
        };
        standing.check_here().map_err(Stop::Told)?;
        if let Some(agreed) = &self.guide.agreed {
            agreed.check(&standing).map_err(Stop::Told)?;
        }
        if standing.state != LIVE {
            return Err(Stop::Told(StoreError::Retired));
        }
        // What is seen of a removed period, or not, says nothing of the store.
        if standing.has_removed(&self.request.key.period) {
            return Err(Stop::Told(StoreError::PeriodRemoved));
        }
        let definition = self.definition(&standing)?;
        let (version, counter) = (standing.definition_version, standing.counter());
        if let Some(counter) = counter {
            self.check_forward(counter)?;
        }
        period::check(&self.request.key.period, &definition, version, counter)
            .map_err(Stop::Told)?;
        if let Some(counted_by) = &self.request.counted_by
            && !counted_by.counts_like(&definition)
        {
            let known = period::known(&definition, version, counter);
            return Err(Stop::Told(StoreError::HasPeriods(Box::new(known))));
        }
        let Some(counter) = counter else {
            return self.create_counter(witness, &definition).await;
        };
        self.stored_rate = Some(counter.rate);
        self.window = counter.window;
        let remembered = self.request.known.as_ref();
        self.is_shared = remembered.is_some_and(|known| known.seen != counter.seen);
        self.known = Some(Known {
            definition,
            definition_version: version,
            seen: counter.seen,
            revision: counter.revision,
            floor: counter.floor,
            trusted: true,
        });
        self.settle_suspect(counter.seen);
        Ok(())
    }

    /// A counter below what this process has seen means that the store went back.
    fn check_forward(&self, counter: Counter) -> Result<(), Stop> {
        match self.request.last_seen {
            Some(seen)
                if (counter.seen.version < seen.version
                    || counter.seen.next_value < seen.next_value)
                    && !sabotage::is(Fault::NoWentBackChecks) =>
            {
                Err(Stop::Told(self.went_back()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// This name went back, as far as can be told from here.
    pub(in crate::store) fn went_back(&self) -> StoreError {
        self.database
            .beat
            .note_name_went_back(&self.request.key.sequence);
        StoreError::WentBack
    }

    /// All names went back.
    pub(in crate::store) fn contradicted(&self, witness: &Witness) -> StoreError {
        self.database.beat.contradicted(witness);
        // It may be recovered already.
        self.database.connection.refresh.notify_one();
        StoreError::WentBack
    }

    fn definition(&self, standing: &catalogue::Standing) -> Result<Arc<Definition>, Stop> {
        if let Some(known) = &self.request.known
            && known.definition_version == standing.definition_version
        {
            return Ok(Arc::clone(&known.definition));
        }
        let store = &self.database.place.store;
        let read = catalogue::read_definition(&standing.definition, store).map_err(|error| {
            tracing::error!(sequence = self.request.key.sequence.as_str(), error = %error, "a stored definition cannot be read");
            Stop::Told(StoreError::Broken(error.to_string()))
        })?;
        // Most names are born from the template: they share one copy of it.
        Ok(match &self.request.template {
            Some(template) if **template == read => Arc::clone(template),
            _ => Arc::new(read),
        })
    }

    pub(in crate::store) fn reserved(
        &self,
        known: Known,
        seen: Seen,
        block: Block,
        why: Option<Why>,
    ) -> Reserved {
        Reserved {
            key: self.request.key.clone(),
            id: Uuid::now_v7(),
            block,
            adopted: why.is_none(),
            known: Known {
                seen,
                // After a conflict the next refill reads first, and as long as others write meanwhile.
                trusted: (self.n_conflicts == 0 && !self.is_shared)
                    || sabotage::is(Fault::NoConditions),
                ..known
            },
            stored_rate: self.stored_rate,
            n_conflicts: self.n_conflicts,
            source: self.database.place.source,
            why,
            reserved_at: now_ms(),
            recovered_at: self.recovered_at,
            more_to_adopt: self.adopt_from.is_some(),
        }
    }

    pub(in crate::store) fn count_reserved(&self) {
        self.database.metrics.reserved.increment(1);
        self.database.counted.reservations.increment(1);
    }

    pub(in crate::store) fn count_failed_write(&self, failure: &Failure) {
        let metrics = &self.database.metrics;
        match failure {
            Failure::NotCommitted(_) => metrics.not_committed.increment(1),
            Failure::MayHaveCommitted(_) => metrics.uncertain.increment(1),
        }
    }

    /// Whether trying again can help.
    fn survive(&self, failure: &Failure) -> Result<(), StoreError> {
        let is_lost = matches!(
            failure.cause(),
            Cause::Broken(_) | Cause::Internal(_) | Cause::Silent
        );
        if self.guide.gives_way && is_lost {
            return Err(StoreError::Unavailable);
        }
        survive(&self.request.key.sequence, failure)
    }
}

/// Whether trying again can help after such a failure.
///
/// # Errors
/// What to say where it cannot.
pub(in crate::store) fn survive(name: &SequenceName, failure: &Failure) -> Result<(), StoreError> {
    match failure.cause() {
        Cause::Contention
        | Cause::Interrupted
        | Cause::Duplicate
        | Cause::Broken(_)
        | Cause::Internal(_)
        | Cause::Silent => Ok(()),
        Cause::Busy
        | Cause::DiskFull(_)
        | Cause::Denied(_)
        | Cause::NoConnection(_)
        | Cause::Away(_)
        | Cause::Refused(_)
        | Cause::ReadOnly(_)
        | Cause::WentBack
        | Cause::Server(_) => Err(catalogue::unexpected(name, failure)),
    }
}

/// Why an attempt ended without a block.
pub(in crate::store) enum Stop {
    /// Trying again gives the same answer.
    Told(StoreError),
    Failed(Failure),
}

impl Stop {
    /// What to say where it is not tried again.
    pub(in crate::store) fn untried(self) -> StoreError {
        match self {
            Stop::Told(error) => error,
            Stop::Failed(_) => StoreError::Unavailable,
        }
    }
}
