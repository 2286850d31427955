//! Makes one reservation: adopts a returned block, or else raises the high-water mark.
//!
//! The first attempt uses the remembered counter, which needs one round trip. If others wrote
//! between this process's last two writes, each refill reads the counter first and needs two round
//! trips. After a conflict the counter is read again. A reservation makes at most `attempts`
//! attempts within `deadline`, with full jitter between them.

use std::{sync::Arc, time::Instant};

use odometer_core::{
    block::Block,
    definition::{Definition, Order},
    name::SequenceName,
    period::CounterKey,
    sizing::SizeReason,
};
use odometer_database::{
    backoff::Backoff,
    connection::Health,
    failure::{Cause, StatementFailure},
};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use uuid::Uuid;

use crate::ReserveRequest;
use crate::Reserved;
use crate::Resolved;
use crate::Want;
use crate::database::Database;
use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::reservation::{
    attempt_error::{AttemptError, survive},
    counter_read::{self, ReadCounter, StrictIn},
    one_row,
    stripe_constraints::StripeConstraints,
    uncertain_writes::UncertainCounter,
};
use crate::rows::{
    catalog::{self, LIVE},
    counter::{self, CounterRow, SeenCounter},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reservation";

pub(crate) struct Reservation<'a> {
    pub(crate) database: &'a Database,
    pub(crate) request: ReserveRequest,
    pub(crate) constraints: StripeConstraints,
    /// The counter that the reservation counts in.
    pub(crate) counter: CounterKey,
    pub(crate) until: Instant,
    backoff: Backoff,
    /// The definition and the counter as they are known now.
    pub(crate) known: Option<Resolved>,
    pub(crate) stored_rate: Option<f64>,
    pub(crate) adopt_from: Option<i64>,
    pub(crate) n_conflicts: u32,
    /// Whether the counter was written since this process last saw it. Then another replica will
    /// probably write before this process's next refill. An update from the counter that is
    /// remembered until then would only meet a conflict.
    is_shared: bool,
    /// Writes with an unknown outcome, of this reservation or of an earlier one.
    pub(crate) uncertain: UncertainCounter,
    pub(crate) strict: StrictIn,
    /// The counter's window as it was last read.
    pub(crate) window: counter::WindowRow,
    /// The last recovery that this process had seen when the present attempt began.
    recovered_at: Option<i64>,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(database: &'a Database, request: ReserveRequest) -> Self {
        Self {
            until: Instant::now() + database.settings.deadline,
            backoff: Backoff::new(&database.settings.statement),
            known: request.known.clone().filter(|known| known.trusted),
            stored_rate: None,
            adopt_from: request.adopt_from,
            n_conflicts: 0,
            is_shared: false,
            uncertain: database.uncertain_writes.take(&request.key),
            counter: one_row::counter_of(&request.key),
            constraints: StripeConstraints::default(),
            strict: StrictIn::Row,
            window: counter::WindowRow::default(),
            recovered_at: None,
            database,
            request,
        }
    }

    /// Sets which place counts sequences with strict order.
    pub(crate) fn with_strict_in(mut self, strict: StrictIn) -> Self {
        self.strict = strict;
        self
    }

    /// Prepares to read a sequence and its counter without a period, whatever its definition is.
    pub(crate) fn reading(
        database: &'a Database,
        name: &SequenceName,
        last_seen: Option<SeenCounter>,
    ) -> Self {
        let request = ReserveRequest {
            key: CounterKey::whole(name.clone()),
            counted_by: None,
            known: None,
            is_fresh: false,
            is_first: true,
            last_seen,
            want: Want::Exactly(0),
            adopt_from: None,
            urgency: Arc::default(),
            progress: Arc::default(),
        };
        Self::new(database, request)
    }

    /// Reads the definition and the counter, and reserves nothing. Creates the counter of a period
    /// that has none yet.
    pub(crate) async fn look(mut self) -> Result<ReadCounter, StoreError> {
        let outcome = self.look_attempts().await;
        // The next reservation of this counter settles the writes with an unknown outcome.
        let uncertain = std::mem::take(&mut self.uncertain);
        let lost = self
            .database
            .uncertain_writes
            .keep(&self.request.key, uncertain);
        self.abandon(lost.most());
        outcome
    }

    async fn look_attempts(&mut self) -> Result<ReadCounter, StoreError> {
        for _attempt in 0..self.database.settings.attempts.max(1) {
            if self.database.health() != Health::Up {
                return Err(StoreError::Unavailable);
            }
            let guard = self.database.heartbeat.guard()?;
            self.known = None;
            match self.read(&guard).await {
                Ok(()) => {}
                Err(AttemptError::Final(error)) => return Err(error),
                Err(AttemptError::Failed(failure)) => self.survive(&failure)?,
            }
            if let Some(known) = self.known.take() {
                return Ok(ReadCounter {
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

    /// Adds the constraints of a store of several databases. The earlier of the two deadlines
    /// holds.
    pub(crate) fn constrained_by(mut self, constraints: StripeConstraints) -> Self {
        self.until = constraints
            .until
            .map_or(self.until, |until| until.min(self.until));
        self.constraints = constraints;
        self
    }

    /// Tries until there is a block, or a reason why there is none.
    pub(crate) async fn run(mut self) -> Result<Reserved, StoreError> {
        let outcome = self.attempts().await;
        // The next read of the counter settles the writes with an unknown outcome.
        let uncertain = std::mem::take(&mut self.uncertain);
        let lost = if matches!(outcome, Err(StoreError::PeriodRemoved)) {
            // Nobody reads this counter again, so the numbers count as abandoned now.
            uncertain
        } else {
            self.database
                .uncertain_writes
                .keep(&self.request.key, uncertain)
        };
        self.abandon(lost.most());
        outcome
    }

    async fn attempts(&mut self) -> Result<Reserved, StoreError> {
        for _attempt in 0..self.database.settings.attempts.max(1) {
            if self.database.health() != Health::Up {
                return Err(StoreError::Unavailable);
            }
            let guard = self.database.heartbeat.guard()?;
            self.recovered_at = guard.recovered_at();
            self.request.progress.count_attempt();
            match self.attempt(&guard).await {
                Ok(Some(reserved)) => return Ok(reserved),
                Ok(None) => {}
                Err(AttemptError::Final(error)) => return Err(error),
                Err(AttemptError::Failed(failure)) => self.survive(&failure)?,
            }
            if Instant::now() >= self.until {
                break;
            }
            self.database.metrics.reservation_retries.increment(1);
            self.backoff.wait(self.until).await;
        }
        Err(StoreError::Deadline)
    }

    /// Makes one attempt: a read if one is needed, then one write. Returns `None` if another
    /// attempt is needed, for example because another write came first.
    async fn attempt(&mut self, guard: &HeartbeatGuard) -> Result<Option<Reserved>, AttemptError> {
        self.reset_one_row().await?;
        // A remembered counter is no basis for an adoption, so the counter is read first.
        if self.must_look_first() || (self.adopt_from.is_some() && self.is_only_remembered()) {
            self.known = None;
            self.read(guard).await?;
        }
        let Some(known) = self.known.clone() else {
            return Ok(None);
        };
        if known.definition.order == Order::Strict {
            self.check_window(&known)?;
            return Box::pin(self.add(guard, known)).await;
        }
        if let Some(adopted) = self.adopt(&known, guard).await? {
            return Ok(Some(adopted));
        }
        let (first, left, step) = self.place(&known);
        let granted = match self.granted(&known.definition, left) {
            Ok(granted) => granted,
            Err(StoreError::Exhausted { .. } | StoreError::TooLarge { .. })
                if self.is_only_remembered() =>
            {
                // Another replica may have raised `max`, so the next attempt reads before it
                // refuses.
                self.known = None;
                return Ok(None);
            }
            Err(error) => return Err(AttemptError::Final(error)),
        };
        let block = Block::new(first, granted.count, step)
            .map_err(|error| AttemptError::Final(StoreError::Broken(error.to_string())))?;
        self.raise(guard, known, block, granted.why).await
    }

    /// Returns whether the counter is only remembered: it was read neither for this reservation nor
    /// just before it.
    pub(crate) fn is_only_remembered(&self) -> bool {
        self.stored_rate.is_none() && !self.request.is_fresh
    }

    /// Reads the definition and the counter. Creates the counter if the period has none.
    pub(crate) async fn read(&mut self, guard: &HeartbeatGuard) -> Result<(), AttemptError> {
        let (key, guard_copy) = (self.counter.clone(), guard.clone());
        let look = self
            .database
            .connection
            .run(self.until, |database| {
                counter_read::look(database, guard_copy, key)
            })
            .await
            .map_err(AttemptError::Failed)?;
        if !guard.is_satisfied_by(look.heartbeat) {
            return Err(AttemptError::Final(self.database.contradicted_by(guard)));
        }
        let Some(entry) = look.entry else {
            return Err(AttemptError::Final(self.missing()));
        };
        entry.check_here().map_err(AttemptError::Final)?;
        if let Some(agreed) = &self.constraints.agreed {
            agreed.check(&entry).map_err(AttemptError::Final)?;
        }
        if entry.state != LIVE {
            return Err(AttemptError::Final(StoreError::Retired));
        }
        // A removed period may have no counter, which does not mean that the store went back. So
        // this check comes before those for a store that went back.
        if entry.has_removed(&self.request.key.period) {
            return Err(AttemptError::Final(StoreError::PeriodRemoved));
        }
        let definition = self.definition(&entry)?;
        let (version, counter) = (entry.definition_version, entry.counter());
        if let Some(counter) = counter {
            self.check_forward(counter)?;
        }
        self.check_issuer(&definition)?;
        let Some(counter) = counter else {
            return self.create_counter(guard, &definition).await;
        };
        self.stored_rate = Some(counter.rate);
        self.window = counter.window;
        let remembered = self.request.known.as_ref();
        self.is_shared = remembered.is_some_and(|known| known.seen != counter.seen);
        self.known = Some(Resolved {
            definition,
            definition_version: version,
            seen: counter.seen,
            revision: counter.revision,
            floor: counter.floor,
            trusted: true,
        });
        self.settle_uncertain_write(counter.seen);
        Ok(())
    }

    /// Returns why there is no sequence. If this process has seen it, the store went back. After a
    /// recovery the name may be created again, above everything that was seen.
    fn missing(&self) -> StoreError {
        if self.constraints.agreed.is_some() {
            // The other members have the sequence, so it is copied from them.
            return StoreError::Behind;
        }
        match self.may_be_created() {
            true => StoreError::NotFound,
            false => self.went_back(),
        }
    }

    /// Refuses a sequence that needs another issuer than the one that asks.
    fn check_issuer(&self, definition: &Arc<Definition>) -> Result<(), AttemptError> {
        let counted_by = self.request.counted_by.as_ref();
        let fits = counted_by.is_none_or(|counted_by| counted_by.has_same_issuer(definition));
        if fits || faults::is(Fault::RefusalBelieved) {
            return Ok(());
        }
        let definition = Arc::clone(definition);
        Err(AttemptError::Final(StoreError::Changed(definition)))
    }

    /// Refuses a counter that is below what this process has seen: the store went back.
    fn check_forward(&self, counter: CounterRow) -> Result<(), AttemptError> {
        match self.request.last_seen {
            Some(seen)
                if (counter.seen.version < seen.version
                    || counter.seen.next_value < seen.next_value)
                    && !faults::is(Fault::NoWentBackChecks) =>
            {
                Err(AttemptError::Final(self.went_back()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Notes that the store went back for this name, and returns the error. Other names may be
    /// unaffected.
    pub(crate) fn went_back(&self) -> StoreError {
        self.database
            .heartbeat
            .note_name_went_back(&self.request.key.sequence);
        StoreError::WentBack
    }

    fn definition(&self, entry: &catalog::CatalogEntry) -> Result<Arc<Definition>, AttemptError> {
        if let Some(known) = &self.request.known
            && known.definition_version == entry.definition_version
        {
            return Ok(Arc::clone(&known.definition));
        }
        let store = &self.database.identity.label.store;
        let read = catalog::read_definition(&entry.definition, store).map_err(|error| {
            tracing::error!(target: TARGET, sequence = self.request.key.sequence.as_str(), error = %error, "a stored definition cannot be read");
            AttemptError::Final(StoreError::Broken(error.to_string()))
        })?;
        // All periods of a sequence share one copy of the definition.
        Ok(match &self.request.counted_by {
            Some(counted_by) if **counted_by == read => Arc::clone(counted_by),
            _ => Arc::new(read),
        })
    }

    pub(crate) fn reserved(
        &self,
        known: Resolved,
        seen: SeenCounter,
        block: Block,
        why: Option<SizeReason>,
    ) -> Reserved {
        Reserved {
            key: self.request.key.clone(),
            id: Uuid::now_v7(),
            block,
            adopted: why.is_none(),
            known: Resolved {
                seen,
                // After a conflict the next refill reads first. It also reads first as long as
                // others write between two writes of this process.
                trusted: (self.n_conflicts == 0 && !self.is_shared)
                    || faults::is(Fault::NoConditions),
                ..known
            },
            stored_rate: self.stored_rate,
            n_conflicts: self.n_conflicts,
            source: self.database.identity.source,
            why,
            reserved_at: now_ms(),
            recovered_at: self.recovered_at,
            more_to_adopt: self.adopt_from.is_some(),
        }
    }

    pub(crate) fn count_reserved(&self) {
        self.database.metrics.reserved.increment(1);
        self.database.counted.reservations.increment(1);
    }

    pub(crate) fn count_failed_write(&self, failure: &StatementFailure) {
        let metrics = &self.database.metrics;
        match failure {
            StatementFailure::NotCommitted(_) => metrics.not_committed.increment(1),
            StatementFailure::MayHaveCommitted(_) => metrics.uncertain.increment(1),
        }
    }

    /// Decides whether another attempt can help after this failure.
    ///
    /// # Errors
    /// The error for the caller, if another attempt cannot help. `Unavailable` if the connection
    /// broke and another database can be asked.
    fn survive(&self, failure: &StatementFailure) -> Result<(), StoreError> {
        let is_lost = matches!(
            failure.cause(),
            Cause::Broken(_) | Cause::Internal(_) | Cause::Silent
        );
        if self.constraints.fails_fast && is_lost {
            return Err(StoreError::Unavailable);
        }
        survive(&self.request.key.sequence, failure)
    }
}
