//! Makes one reservation: adopts a returned block, or else raises the high-water mark.
//!
//! The first attempt uses the remembered counter, which needs one round trip. If others wrote
//! between this process's last two writes, each refill reads the counter first and needs two round
//! trips. After a conflict the counter is read again, and after three conflicts the reservation
//! adds to the counter (ADR 37). A reservation makes at most `attempts` attempts within `deadline`,
//! with full jitter between them.

use std::{sync::Arc, time::Instant};

use odometer_core::{
    block::Block,
    definition::{Definition, Order},
    name::SequenceName,
    period::CounterKey,
    sizing::SizeReason,
};
use odometer_database::{
    failure::{Cause, StatementFailure},
    retry::{AttemptError, Retry},
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
use crate::error::{self, Attempted, StoreError};
use crate::guard::HeartbeatGuard;
use crate::reservation::{
    counter_read::{self, ReadCounter, StrictIn},
    one_row,
    pace::{Bucket, RefusedUpdate, late},
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
    /// The limits of the attempts that are left.
    pub(crate) retry: Retry,
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
    /// The last recovery of the sequence that this process had seen when the present attempt began.
    recovered_at: Option<i64>,
    /// How far the speed limit of the counter had been used when it was last read.
    pub(crate) bucket: Option<Bucket>,
    /// Whether an attempt has waited until the limit allows enough.
    pub(crate) is_limited: bool,
    /// Whether the next refill reads the bucket first.
    pub(crate) reads_next: bool,
    /// An update that changed no row, until it is known why.
    pub(crate) refused_update: Option<RefusedUpdate>,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(database: &'a Database, request: ReserveRequest) -> Self {
        Self {
            retry: database.retry(),
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
            bucket: None,
            is_limited: false,
            reads_next: false,
            refused_update: None,
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

    /// Adds the constraints and the deadline of a store of several databases. The earlier of the
    /// two deadlines holds.
    pub(crate) fn constrained_by(mut self, constraints: StripeConstraints, until: Instant) -> Self {
        self.retry.until = until.min(self.retry.until);
        self.constraints = constraints;
        self
    }

    /// Reads the definition and the counter, and reserves nothing. Creates the counter of a period
    /// that has none yet.
    pub(crate) async fn look(mut self) -> Result<ReadCounter, StoreError> {
        loop {
            let outcome = self.try_to_look().await;
            if let Some(read) = self.after(outcome).await? {
                return Ok(read);
            }
        }
    }

    async fn try_to_look(&mut self) -> Attempted<ReadCounter> {
        let guard = self.begin().await?;
        self.known = None;
        self.read(&guard).await?;
        let known = self.known.take().ok_or(AttemptError::Conflict)?;
        Ok(ReadCounter {
            known,
            rate: self.stored_rate,
            window: self.window,
            bucket: self.bucket,
        })
    }

    /// Tries until there is a block, or a reason why there is none.
    pub(crate) async fn run(mut self) -> Result<Reserved, StoreError> {
        loop {
            let outcome = self.attempt().await;
            if let Some(reserved) = self.after(outcome).await? {
                return Ok(reserved);
            }
            self.database.metrics.reservation_retries.increment(1);
        }
    }

    /// Checks that an attempt may begin, and returns the guard of its statements.
    async fn begin(&self) -> Result<HeartbeatGuard, StoreError> {
        if !self.database.is_up() {
            return Err(StoreError::Unavailable);
        }
        self.database.guard_by(self.retry.until).await
    }

    /// Ends the reservation with what an attempt gave, or waits before another attempt.
    ///
    /// # Errors
    /// The error for the caller, if no other attempt is made.
    async fn after<T>(&mut self, outcome: Attempted<T>) -> Result<Option<T>, StoreError> {
        let fails_fast = self.constraints.fails_fast;
        let name = &self.request.key.sequence;
        let judge = |failure: &StatementFailure| survive(name, failure, fails_fast);
        let given = self.retry.after(outcome, judge, late(self.is_limited));
        let given = given.await;
        if !matches!(given, Ok(None)) {
            self.keep_uncertain(matches!(given, Err(StoreError::PeriodRemoved)));
        }
        given
    }

    /// Keeps the writes with an unknown outcome when the reservation ends: the next read of the
    /// counter settles them. What cannot be kept counts as abandoned.
    fn keep_uncertain(&mut self, is_removed: bool) {
        let uncertain = std::mem::take(&mut self.uncertain);
        let lost = if is_removed {
            // Nobody reads this counter again, so the numbers count as abandoned now.
            uncertain
        } else {
            self.database
                .uncertain_writes
                .keep(&self.request.key, uncertain)
        };
        self.abandon(lost.most());
    }

    /// Makes one attempt: a read if one is needed, then one write.
    ///
    /// # Errors
    /// A conflict if another attempt is needed, for example because another write came first.
    async fn attempt(&mut self) -> Attempted<Reserved> {
        let guard = &self.begin().await?;
        self.recovered_at = guard.recovered_at(&self.request.key.sequence);
        self.request.progress.count_attempt();
        self.reset_one_row().await?;
        // A remembered counter is no basis for an adoption, so the counter is read first.
        if self.must_look_first() || (self.adopt_from.is_some() && self.is_only_remembered()) {
            self.known = None;
            self.read(guard).await?;
        }
        let known = self.known.clone().ok_or(AttemptError::Conflict)?;
        if known.definition.order == Order::Strict {
            self.check_window(&known).await?;
            return Box::pin(self.add_in_order(guard, known)).await;
        }
        if let Some(adopted) = self.adopt(&known, guard).await? {
            return Ok(adopted);
        }
        let place = self.place(&known);
        let granted = match self.granted(&known.definition, place.left) {
            Ok(granted) => granted,
            Err(StoreError::Exhausted { .. } | StoreError::TooLarge { .. })
                if self.is_only_remembered() =>
            {
                // Another replica may have raised `max`, so the next attempt reads before it
                // refuses.
                self.known = None;
                return Err(AttemptError::Conflict);
            }
            Err(error) => return Err(error.into()),
        };
        let granted = self.within_limit(&known.definition, granted).await?;
        let place = self.paid(&known.definition, place, granted.count);
        let block = Block::new(place.first, granted.count, place.step)
            .map_err(|error| StoreError::Broken(error.to_string()))?;
        if self.is_outrun(&place) {
            return Box::pin(self.add(guard, known, block, granted.why)).await;
        }
        let reserving = (block, place.n_paid);
        self.raise(guard, known, reserving, granted.why).await
    }

    /// Returns whether the counter is only remembered: it was read neither for this reservation nor
    /// just before it.
    pub(crate) fn is_only_remembered(&self) -> bool {
        self.stored_rate.is_none() && !self.request.is_fresh
    }

    /// Reads the definition and the counter. Creates the counter if the period has none.
    pub(crate) async fn read(&mut self, guard: &HeartbeatGuard) -> Attempted<()> {
        let (key, guard_copy) = (self.counter.clone(), guard.clone());
        let look = self
            .database
            .connection
            .run(self.retry.until, |database| {
                counter_read::look(database, guard_copy, key)
            })
            .await?;
        self.database.check(guard, look.guard)?;
        let Some(entry) = look.entry else {
            return Err(self.missing().into());
        };
        entry.check_here()?;
        if let Some(agreed) = &self.constraints.agreed {
            agreed.check(&entry)?;
        }
        if entry.state != LIVE {
            return Err(StoreError::Retired.into());
        }
        // A removed period may have no counter, which does not mean that the store went back. So
        // this check comes before those for a store that went back.
        if entry.has_removed(&self.request.key.period) {
            return Err(StoreError::PeriodRemoved.into());
        }
        let definition = self.definition(&entry)?;
        let (version, counter) = (entry.definition_version, entry.counter());
        if let Some(counter) = counter {
            if counter.must_recover {
                let heartbeat = &self.database.heartbeat;
                return Err(heartbeat.name_waits(&self.request.key.sequence).into());
            }
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
        self.bucket = Some(Bucket::read(counter.paced_until_us, look.now_us));
        let known = Resolved {
            definition,
            definition_version: version,
            seen: counter.seen,
            revision: counter.revision,
            floor: counter.floor,
            trusted: true,
        };
        self.settle_refused_update(&known);
        self.known = Some(known);
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
    fn check_issuer(&self, definition: &Arc<Definition>) -> Result<(), StoreError> {
        let counted_by = self.request.counted_by.as_ref();
        let fits = counted_by.is_none_or(|counted_by| counted_by.has_same_issuer(definition));
        if fits || faults::is(Fault::RefusalBelieved) {
            return Ok(());
        }
        Err(StoreError::Changed(Arc::clone(definition)))
    }

    /// Refuses a counter that is below what this process has seen: the store went back.
    fn check_forward(&self, counter: CounterRow) -> Result<(), StoreError> {
        match self.request.last_seen {
            Some(seen)
                if (counter.seen.version < seen.version
                    || counter.seen.next_value < seen.next_value)
                    && !faults::is(Fault::NoWentBackChecks) =>
            {
                Err(self.went_back())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Notes that the store went back for this name, and returns the error. Other names may be
    /// unaffected.
    pub(crate) fn went_back(&self) -> StoreError {
        let heartbeat = &self.database.heartbeat;
        heartbeat.name_went_back(&self.request.key.sequence)
    }

    fn definition(&self, entry: &catalog::CatalogEntry) -> Result<Arc<Definition>, StoreError> {
        if let Some(known) = &self.request.known
            && known.definition_version == entry.definition_version
        {
            return Ok(Arc::clone(&known.definition));
        }
        let store = &self.database.identity.label.store;
        let read = catalog::read_definition(&entry.definition, store).inspect_err(|error| {
            tracing::error!(target: TARGET, sequence = self.request.key.sequence.as_str(), error = %error, "a stored definition cannot be read");
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
                // others write between two writes of this process, or the limit holds it back.
                trusted: (self.n_conflicts == 0 && !self.is_shared && !self.reads_next)
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

    /// Counts a write that failed. Returns whether it may have committed.
    pub(crate) fn count_failed_write(&self, failure: &StatementFailure) -> bool {
        let metrics = &self.database.metrics;
        let is_uncertain = matches!(failure, StatementFailure::MayHaveCommitted(_));
        let counter = match is_uncertain {
            false => &metrics.not_committed,
            true => &metrics.uncertain,
        };
        counter.increment(1);
        is_uncertain
    }
}

/// Decides whether another attempt can help after this failure.
///
/// # Errors
/// The error for the caller, if another attempt cannot help. `Unavailable` if the connection broke,
/// and the reservation `fails_fast` because another database can be asked.
fn survive(
    name: &SequenceName,
    failure: &StatementFailure,
    fails_fast: bool,
) -> Result<(), StoreError> {
    let is_lost = matches!(
        failure.cause(),
        Cause::Broken(_) | Cause::Internal(_) | Cause::Silent
    );
    if fails_fast && is_lost {
        return Err(StoreError::Unavailable);
    }
    error::survive(name, failure)
}
