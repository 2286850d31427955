//! Gives a member what it lacks of a name that the other members agreed on, before the member
//! serves that name.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::{counter, meta, sequence};
use odometer_core::{
    definition::{Definition, Stripe},
    name::SequenceName,
    period::CounterKey,
};
use odometer_database::session::{DatabaseConnection, DatabaseTransaction};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, sea_query::Expr};

use super::agreement::MemberEntry;
use crate::change::counters;
use crate::error;
use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::reservation::stripe_constraints::counts_alike;
use crate::rows::{
    catalog::{self, NO_PERIOD},
    creation_baseline::CreationBaseline,
    new_counter::NewCounter,
    sequence::SequenceRow,
};
use crate::store::Store;

/// The time limit of one transaction, in a member that is well.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What a member is to have of a name.
struct Repair {
    name: SequenceName,
    stripe: Stripe,
    definition: Arc<Definition>,
    text: String,
    state: String,
    version: i64,
    removed_through: String,
    /// No number below it is issued.
    floor: i64,
    /// The high-water mark that this process has seen in this member. The counter must not begin
    /// below it.
    above: i64,
    /// Whether the definition is decided. If it is, a row with another definition is replaced.
    is_decided: bool,
    guard: HeartbeatGuard,
}

/// The outcome of a repair.
enum Repaired {
    Done,
    /// The member went back.
    Contradicted,
    TooLow,
    MissingCounter,
}

impl Store {
    /// Gives a member what was decided of a name.
    ///
    /// # Errors
    /// The member did not take it.
    pub(crate) async fn repair_decided(
        &self,
        k: usize,
        name: &SequenceName,
        found: &MemberEntry,
        until: Instant,
    ) -> Result<(), StoreError> {
        self.give(k, name, found, true, until).await
    }

    /// Gives a member what was begun of a name, if it has nothing of that name.
    ///
    /// # Errors
    /// The member did not take it.
    pub(crate) async fn repair_begun(
        &self,
        k: usize,
        name: &SequenceName,
        found: &MemberEntry,
        until: Instant,
    ) -> Result<(), StoreError> {
        self.give(k, name, found, false, until).await
    }

    async fn give(
        &self,
        k: usize,
        name: &SequenceName,
        found: &MemberEntry,
        is_decided: bool,
        until: Instant,
    ) -> Result<(), StoreError> {
        let member = self.member(k)?;
        let key = CounterKey::whole(name.clone());
        let seen = self.memory.view(&key, k).seen;
        let counter = found.entry.counter();
        let guard = member.database.heartbeat.guard()?;
        let repair = Repair {
            name: name.clone(),
            stripe: member.database.stripe,
            definition: Arc::clone(&found.definition),
            text: found.entry.definition.clone(),
            state: found.entry.state.clone(),
            version: found.version(),
            removed_through: found.entry.periods_removed_through.clone(),
            floor: counter.map_or(found.definition.start, |counter| counter.floor),
            above: seen.map_or(0, |seen| seen.next_value),
            is_decided,
            guard: guard.clone(),
        };
        let until = until.min(Instant::now() + TIMEOUT);
        let repairing = member
            .database
            .connection
            .run(until, |database| repair.run(database));
        match repairing.await {
            Ok(Repaired::Done) => Ok(()),
            Ok(Repaired::Contradicted) => {
                member.database.heartbeat.contradicted(&guard);
                Err(StoreError::WentBack)
            }
            Ok(Repaired::TooLow) => {
                member.database.heartbeat.note_name_went_back(name);
                Err(StoreError::WentBack)
            }
            Ok(Repaired::MissingCounter) => Err(error::without_counter(name)),
            Err(failure) => Err(error::unexpected(name, &failure)),
        }
    }
}

impl Repair {
    async fn run(self, database: DatabaseConnection) -> Result<Repaired, DbErr> {
        let transaction = database.begin().await?;
        let outcome = self.within(&transaction).await?;
        if matches!(outcome, Repaired::Done) {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        Ok(outcome)
    }

    async fn within(&self, transaction: &DatabaseTransaction) -> Result<Repaired, DbErr> {
        let find = sequence::Entity::find_by_id(self.name.as_str().to_owned());
        let row = transaction.holding(find).one(transaction).await?;
        if self.version > 0 {
            self.announce(transaction).await?;
        }
        let Some(baseline) = CreationBaseline::hold(transaction, &self.guard).await? else {
            return Ok(Repaired::Contradicted);
        };
        match row {
            None => self.insert(transaction, baseline).await,
            Some(row) if self.is_decided => self.update(transaction, row).await,
            Some(_) => Ok(Repaired::Done),
        }
    }

    /// Raises the version that replicas poll in this member, so that they learn of a change that it
    /// missed.
    async fn announce(&self, transaction: &DatabaseTransaction) -> Result<(), DbErr> {
        meta::Entity::update_many()
            .col_expr(meta::Column::DefinitionsVersion, Expr::val(self.version))
            .filter(meta::Column::Id.eq(1))
            .filter(meta::Column::DefinitionsVersion.lt(self.version))
            .exec(transaction)
            .await?;
        Ok(())
    }

    async fn insert(
        &self,
        transaction: &DatabaseTransaction,
        baseline: CreationBaseline,
    ) -> Result<Repaired, DbErr> {
        let counted = self.stripe.view(&self.definition);
        let first = baseline.first(&counted);
        if first < self.above {
            return Ok(Repaired::TooLow);
        }
        self.row(self.version, &self.removed_through)
            .insert(transaction)
            .await?;
        let mut new_counter = NewCounter::at(first, &self.definition, self.stripe, baseline);
        new_counter.floor = new_counter.floor.max(self.floor);
        let from_floor = counted.first_from(new_counter.floor).unwrap_or(first);
        new_counter.next_value = new_counter.next_value.max(from_floor);
        new_counter
            .insert(transaction, &CounterKey::whole(self.name.clone()))
            .await?;
        Ok(Repaired::Done)
    }

    /// Replaces the row of a name, unless it is newer.
    ///
    /// No number was reserved here under a definition that was not decided. So the counter may move
    /// to the grid of the decided definition. The counter never falls.
    async fn update(
        &self,
        transaction: &DatabaseTransaction,
        row: sequence::Model,
    ) -> Result<Repaired, DbErr> {
        let is_alike = catalog::read_definition(&row.definition, &self.definition.store)
            .is_ok_and(|definition| counts_alike(&definition, &self.definition));
        if is_alike && row.version > self.version {
            return Ok(Repaired::Done);
        }
        let head = (self.name.as_str().to_owned(), NO_PERIOD.to_owned());
        let find = transaction.holding(counter::Entity::find_by_id(head));
        let Some(counter) = find.one(transaction).await? else {
            return Ok(Repaired::MissingCounter);
        };
        let whole = CounterKey::whole(self.name.clone());
        counters::raise(transaction, &whole).await?;
        let version = self.version.max(row.version);
        let removed_through = self
            .removed_through
            .as_str()
            .max(&row.periods_removed_through);
        self.row(version, removed_through)
            .update(transaction)
            .await?;
        let counted = self.stripe.view(&self.definition);
        let floor = self.floor.max(counter.floor);
        let reached = counter.next_value.max(floor);
        let Some(next_value) = counted.on_grid(reached) else {
            return Ok(Repaired::MissingCounter);
        };
        counters::update(&whole)
            .col_expr(counter::Column::Floor, Expr::val(floor))
            .col_expr(counter::Column::NextValue, Expr::val(next_value))
            .exec(transaction)
            .await?;
        Ok(Repaired::Done)
    }

    fn row<'a>(&'a self, version: i64, removed_through: &'a str) -> SequenceRow<'a> {
        SequenceRow {
            name: &self.name,
            kind: self.definition.kind,
            definition: self.text.clone(),
            state: &self.state,
            version,
            removed_through: Some(removed_through),
        }
    }
}
