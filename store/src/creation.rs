//! Creates the rows of a name in one transaction: a new sequence, a copy of one that another member
//! has, or a claim.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use odometer_core::{
    definition::{Definition, Stripe},
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_database::{
    failure::{Cause, StatementFailure},
    session::{DatabaseConnection, DatabaseTransaction},
};
use odometer_process::faults::{self, Fault};
use sea_orm::DbErr;

use crate::{
    database::Database,
    error::{self, Attempted, StoreError, survive},
    guard::HeartbeatGuard,
    outcome::Resolved,
    rows::{
        catalog::{self, CatalogEntry, ELSEWHERE, LIVE, has_periods},
        counter::SeenCounter,
        creation_baseline::CreationBaseline,
        new_counter::NewCounter,
        row_count,
        sequence::SequenceRow,
    },
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::catalogue";

/// Sets how many sequences this process creates between two exact counts of all sequences.
const RECOUNT_EVERY: u64 = 1024;

/// A name that is to be created in one database.
#[derive(Clone, Debug)]
pub(crate) struct NewName {
    pub(crate) name: SequenceName,
    pub(crate) definition: Arc<Definition>,
    pub(crate) row: NewRow,
}

/// What is written of a new name.
///
/// `above` is the high-water mark of this name that this process has seen here, from before a
/// recovery. If the sequence would begin below this mark, it is not created.
#[derive(Clone, Debug)]
pub(crate) enum NewRow {
    /// A new sequence.
    Sequence { above: i64 },
    /// A sequence that another member of the store has. No number below its floor is issued.
    Copy { of: CatalogEntry, above: i64 },
    /// A claim: the name lives in the store that its definition names, of this installation.
    Claim { installation: Option<String> },
}

/// The outcome of a creation.
#[derive(Clone, Debug)]
pub(crate) enum Creation {
    /// The counter is as it was written; `None` for a claim, which has no counter, and for a
    /// period.
    Created(Option<Resolved>),
    /// There is such a row already, perhaps of an earlier attempt, or it must be looked at again. A
    /// repair has brought it up to the other members.
    Exists,
    /// The store went back.
    Contradicted,
    /// The sequence would begin below what was seen of its name.
    TooLow,
    /// The name may be one that the database has lost. Nobody knows where it begins until an operator
    /// says so.
    Waits,
    /// There is a row of this name, whose counter is gone.
    MissingCounter,
    Refused(StoreError),
}

impl Creation {
    /// Ends the transaction of a creation: commits what is there now, and nothing else.
    ///
    /// # Errors
    /// The failure of the transaction.
    pub(crate) async fn end(self, transaction: DatabaseTransaction) -> Result<Self, DbErr> {
        match &self {
            Self::Created(_) | Self::Exists => transaction.commit().await?,
            Self::Contradicted
            | Self::TooLow
            | Self::Waits
            | Self::MissingCounter
            | Self::Refused(_) => {
                transaction.rollback().await?;
            }
        }
        Ok(self)
    }
}

impl Database {
    /// Creates a name, or finds that it exists.
    ///
    /// # Errors
    /// `TooMany`, `WentBack`, or why the database did not answer.
    pub(crate) async fn create(&self, new: &NewName) -> Result<Creation, StoreError> {
        let mut retry = self.retry();
        let mut is_admitted = false;
        loop {
            let outcome = self.try_to_create(new, &mut is_admitted, retry.until);
            let judge = |failure: &StatementFailure| survive(&new.name, failure);
            let creation = retry.after(outcome.await, judge, StoreError::Deadline);
            if let Some(creation) = creation.await? {
                return Ok(creation);
            }
        }
    }

    /// Counts the name against its limit once: a later attempt may count what this call created.
    async fn try_to_create(
        &self,
        new: &NewName,
        is_admitted: &mut bool,
        until: Instant,
    ) -> Attempted<Creation> {
        if !self.is_up() {
            return Err(StoreError::Unavailable.into());
        }
        let guard = self.guard_by(until).await?;
        if !*is_admitted {
            self.admit_name(new, until).await?;
            *is_admitted = true;
        }
        let creating = self.create_once(new.clone(), guard.clone(), until);
        self.check_created(&new.name, &guard, creating.await?)
    }

    /// Refuses a creation that left nothing, and notes what this says of the database.
    ///
    /// # Errors
    /// `WentBack`, `Broken` if the counter is gone, or why it was refused. Another attempt if the
    /// guard did not hold, and it is not known yet why.
    pub(crate) fn check_created(
        &self,
        name: &SequenceName,
        guard: &HeartbeatGuard,
        creation: Creation,
    ) -> Attempted<Creation> {
        match creation {
            Creation::Created(_) | Creation::Exists => Ok(creation),
            Creation::Contradicted => Err(self.failed(guard)),
            Creation::TooLow => Err(self.heartbeat.name_went_back(name).into()),
            Creation::Waits => Err(self.heartbeat.name_waits(name).into()),
            Creation::MissingCounter => Err(error::without_counter(name).into()),
            Creation::Refused(error) => Err(error.into()),
        }
    }

    /// Creates a name once, in one transaction.
    ///
    /// If two processes create it at once, they meet at the primary key, and it exists for one of
    /// them.
    pub(crate) async fn create_once(
        &self,
        new: NewName,
        guard: HeartbeatGuard,
        until: Instant,
    ) -> Result<Creation, StatementFailure> {
        let stripe = self.stripe;
        let creating = self
            .connection
            .run(until, |database| create(database, new, stripe, guard));
        match creating.await {
            Err(StatementFailure::NotCommitted(Cause::Duplicate)) => Ok(Creation::Exists),
            created => created,
        }
    }

    async fn admit_name(&self, new: &NewName, until: Instant) -> Attempted<()> {
        match new.row {
            NewRow::Claim { .. } => self.admit_claim(until).await,
            NewRow::Sequence { .. } | NewRow::Copy { .. } => self.admit_sequence(until).await,
        }
    }

    /// Checks that one more sequence may be created.
    ///
    /// # Errors
    /// `TooMany` if the limit is reached, or `Unavailable` if the count failed.
    pub(crate) async fn admit_one_more(&self, until: Instant) -> Result<(), StoreError> {
        let admitted = self.admit_sequence(until).await;
        admitted.map_err(|error| error.untried(StoreError::Unavailable))
    }

    async fn admit_sequence(&self, until: Instant) -> Attempted<()> {
        let limit = self.settings.max_sequences;
        let counting = |database: DatabaseConnection| async move {
            let count = catalog::count(&database).await?;
            Ok(count.left(limit))
        };
        self.admit(&self.sequences_left, until, counting).await
    }

    async fn admit_claim(&self, until: Instant) -> Attempted<()> {
        let limit = self.settings.max_sequences;
        let most = limit.saturating_mul(row_count::CLAIMS_FOR_EACH);
        let counting = |database: DatabaseConnection| async move {
            let n_claims = catalog::count_claims(&database).await?;
            Ok(most.saturating_sub(n_claims))
        };
        self.admit(&self.claims_left, until, counting).await
    }

    /// Checks that one more row may be created. The estimate of how many more may be knows only the
    /// rows that this process created. So `count_left` replaces it from time to time, and near the
    /// limit each time.
    async fn admit<F, Fut>(
        &self,
        estimate: &AtomicU64,
        until: Instant,
        count_left: F,
    ) -> Attempted<()>
    where
        F: FnOnce(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<u64, DbErr>> + Send + 'static,
    {
        let limit = self.settings.max_sequences;
        let one_less = |left: u64| Some(left.saturating_sub(1));
        let order = Ordering::Relaxed;
        let estimated = estimate.fetch_update(order, order, one_less).unwrap_or(0);
        if estimated > RECOUNT_EVERY && !estimated.is_multiple_of(RECOUNT_EVERY) {
            return Ok(());
        }
        let left = self.connection.run(until, count_left).await?;
        estimate.store(left.saturating_sub(1), order);
        if left == 0 {
            return Err(StoreError::TooMany { limit }.into());
        }
        Ok(())
    }
}

/// Inserts the rows of a name in one transaction.
async fn create(
    database: DatabaseConnection,
    new: NewName,
    stripe: Stripe,
    guard: HeartbeatGuard,
) -> Result<Creation, DbErr> {
    let transaction = database.begin().await?;
    let creation = match CreationBaseline::hold(&transaction, &guard, &new.name).await? {
        Some(baseline) => insert(&transaction, &new, stripe, &baseline).await?,
        None => Creation::Contradicted,
    };
    creation.end(transaction).await
}

/// Inserts the rows of a name, in a transaction that holds the baseline.
pub(crate) async fn insert(
    transaction: &DatabaseTransaction,
    new: &NewName,
    stripe: Stripe,
    baseline: &CreationBaseline,
) -> Result<Creation, DbErr> {
    let NewName {
        name,
        definition,
        row,
    } = new;
    // If a sequence has periods, this counter issues nothing. Changes of the sequence are counted
    // on it.
    let counted = stripe.view(definition);
    let mut counter = NewCounter::at(baseline.first(&counted), definition, stripe, baseline);
    if let NewRow::Sequence { above } | NewRow::Copy { above, .. } = row
        && !faults::is(Fault::NoWentBackChecks)
    {
        if baseline.is_unknown(&counted) {
            return Ok(Creation::Waits);
        }
        if counter.next_value < *above {
            return Ok(Creation::TooLow);
        }
    }
    let mut stored = None;
    let (state, version, removed_through) = match row {
        NewRow::Sequence { .. } => {
            warn_if_exhausted(name, definition, &counted, counter.next_value);
            // Nothing of the new sequence is older than the last recovery.
            (LIVE, baseline.version(), None)
        }
        NewRow::Copy { of, .. } => {
            let floor = of.counter().map_or(definition.start, |it| it.floor);
            counter.floor = counter.floor.max(floor);
            let from_floor = baseline.first_in_from(&counted, &Period::none(), counter.floor);
            counter.next_value = counter.next_value.max(from_floor);
            let removed_through = Some(of.periods_removed_through.as_str());
            stored = Some(of.definition.clone());
            (of.state.as_str(), of.definition_version, removed_through)
        }
        // A claim is no change, so other replicas are not told of it.
        NewRow::Claim { installation } => (ELSEWHERE, 0, installation.as_deref()),
    };
    let sequence = SequenceRow {
        name,
        definition: stored.unwrap_or_else(|| definition.to_stored()),
        state,
        version,
        removed_through,
    };
    sequence.insert(transaction).await?;
    if matches!(row, NewRow::Claim { .. }) {
        return Ok(Creation::Created(None));
    }
    counter
        .insert(transaction, &CounterKey::whole(name.clone()))
        .await?;
    Ok(Creation::Created(Some(Resolved {
        definition: Arc::clone(definition),
        definition_version: version,
        seen: SeenCounter {
            next_value: counter.next_value,
            version: counter.version,
        },
        revision: counter.version,
        floor: counter.floor,
        trusted: true,
    })))
}

/// Warns that a sequence has no number from the start.
pub(crate) fn warn_if_exhausted(
    name: &SequenceName,
    definition: &Definition,
    counted: &Definition,
    next_value: i64,
) {
    if definition.exhausted(next_value) && !has_periods(definition) && !counted.is_empty() {
        tracing::warn!(
            target: TARGET,
            sequence = name.as_str(),
            "a sequence is created exhausted: what `odometer recover` skipped is more than all of it"
        );
    }
}
