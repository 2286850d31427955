//! Gives a member what it lacks of a name that the other members agreed on, before the member
//! serves that name.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::{counter, meta, sequence};
use odometer_core::{definition::Stripe, name::SequenceName, period::CounterKey};
use odometer_database::session::{DatabaseConnection, DatabaseTransaction};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, sea_query::Expr};

use super::agreement::MemberEntry;
use crate::change::counters;
use crate::creation::{self, Creation, NewName, NewRow};
use crate::error;
use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::reservation::stripe_constraints::counts_alike;
use crate::rows::{
    catalog::{self, CatalogEntry, NO_PERIOD},
    creation_baseline::CreationBaseline,
    sequence::SequenceRow,
};
use crate::store::Store;

/// The time limit of one transaction, in a member that is well.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What a member is to have of a name.
struct Repair {
    new: NewName,
    /// What another member has of the name.
    of: CatalogEntry,
    stripe: Stripe,
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
        let guard = member.database.heartbeat.guard()?;
        let repair = Repair {
            new: NewName {
                name: name.clone(),
                definition: Arc::clone(&found.definition),
                row: NewRow::Copy {
                    of: found.entry.clone(),
                    // The counter must not begin below what this process has seen in this member.
                    above: seen.map_or(0, |seen| seen.next_value),
                },
            },
            of: found.entry.clone(),
            stripe: member.database.stripe,
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
        let find = sequence::Entity::find_by_id(self.new.name.as_str().to_owned());
        let row = transaction.holding(find).one(transaction).await?;
        if self.of.definition_version > 0 {
            self.announce(transaction).await?;
        }
        let Some(baseline) = CreationBaseline::hold(transaction, &self.guard).await? else {
            return Ok(Repaired::Contradicted);
        };
        match row {
            None => {
                let inserting = creation::insert(transaction, &self.new, self.stripe, baseline);
                Ok(match inserting.await? {
                    Creation::Created(_) | Creation::Exists => Repaired::Done,
                    Creation::Contradicted => Repaired::Contradicted,
                    Creation::TooLow => Repaired::TooLow,
                })
            }
            Some(row) if self.is_decided => self.update(transaction, row).await,
            Some(_) => Ok(Repaired::Done),
        }
    }

    /// Raises the version that replicas poll in this member, so that they learn of a change that it
    /// missed.
    async fn announce(&self, transaction: &DatabaseTransaction) -> Result<(), DbErr> {
        let version = self.of.definition_version;
        meta::Entity::update_many()
            .col_expr(meta::Column::DefinitionsVersion, Expr::val(version))
            .filter(meta::Column::Id.eq(1))
            .filter(meta::Column::DefinitionsVersion.lt(version))
            .exec(transaction)
            .await?;
        Ok(())
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
        let NewName {
            name, definition, ..
        } = &self.new;
        let is_alike = catalog::read_definition(&row.definition, &definition.store)
            .is_ok_and(|read| counts_alike(&read, definition));
        if is_alike && row.version > self.of.definition_version {
            return Ok(Repaired::Done);
        }
        let head = (name.as_str().to_owned(), NO_PERIOD.to_owned());
        let find = transaction.holding(counter::Entity::find_by_id(head));
        let Some(counter) = find.one(transaction).await? else {
            return Ok(Repaired::MissingCounter);
        };
        let whole = CounterKey::whole(name.clone());
        counters::raise(transaction, &whole).await?;
        let removed_through = &self.of.periods_removed_through;
        let replacing = SequenceRow {
            name,
            kind: definition.kind,
            definition: self.of.definition.clone(),
            state: &self.of.state,
            version: self.of.definition_version.max(row.version),
            removed_through: Some(removed_through.max(&row.periods_removed_through)),
        };
        replacing.update(transaction).await?;
        let counted = self.stripe.view(definition);
        let decided = self.of.counter();
        let floor = decided.map_or(definition.start, |decided| decided.floor);
        let floor = floor.max(counter.floor);
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
}
