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
use crate::error::{self, StoreError};
use crate::guard::HeartbeatGuard;
use crate::reservation::stripe_constraints::counts_alike;
use crate::rows::{
    catalog::{self, CatalogEntry},
    counter::{find, update},
    creation_baseline::CreationBaseline,
    payment::Payment,
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

impl Store {
    /// Gives a member what another member has of a name: all of it if the definition is decided,
    /// else only if the member has nothing of that name.
    ///
    /// # Errors
    /// The member did not take it.
    pub(crate) async fn repair(
        &self,
        k: usize,
        name: &SequenceName,
        (found, is_decided): (&MemberEntry, bool),
        until: Instant,
    ) -> Result<(), StoreError> {
        let member = self.member(k)?;
        let key = CounterKey::whole(name.clone());
        let seen = self.memory.view(&key, k).seen;
        let guard = member.database.guard_by(until).await?;
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
        let repaired = repairing.await;
        let creation = repaired.map_err(|failure| error::unexpected(name, &failure))?;
        let checked = member.database.check_created(name, &guard, creation);
        let checked = checked.map(|_created| ());
        checked.map_err(|error| error.untried(StoreError::Unavailable))
    }
}

impl Repair {
    async fn run(self, database: DatabaseConnection) -> Result<Creation, DbErr> {
        let transaction = database.begin().await?;
        let creation = self.within(&transaction).await?;
        creation.end(transaction).await
    }

    async fn within(&self, transaction: &DatabaseTransaction) -> Result<Creation, DbErr> {
        let find = sequence::Entity::find_by_id(self.new.name.as_str().to_owned());
        let row = transaction.holding(find).one(transaction).await?;
        if self.of.definition_version > 0 {
            self.announce(transaction).await?;
        }
        let name = &self.new.name;
        let Some(baseline) = CreationBaseline::hold(transaction, &self.guard, name).await? else {
            return Ok(Creation::Contradicted);
        };
        match row {
            None => creation::insert(transaction, &self.new, self.stripe, &baseline).await,
            Some(row) if self.is_decided => self.update(transaction, row).await,
            Some(_) => Ok(Creation::Exists),
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
    ) -> Result<Creation, DbErr> {
        let NewName {
            name, definition, ..
        } = &self.new;
        let before = catalog::read_definition(&row.definition, &definition.store).ok();
        let is_alike = before
            .as_ref()
            .is_some_and(|before| counts_alike(before, definition));
        if is_alike && row.version > self.of.definition_version {
            return Ok(Creation::Exists);
        }
        let whole = CounterKey::whole(name.clone());
        let find = transaction.holding(find(&whole));
        let Some(counter) = find.one(transaction).await? else {
            return Ok(Creation::MissingCounter);
        };
        counters::raise(transaction, &whole).await?;
        if let Some(before) = &before {
            counters::keep_debts(transaction, name, (before, definition)).await?;
        }
        let removed_through = &self.of.periods_removed_through;
        let replacing = SequenceRow {
            name,
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
            return Ok(Creation::MissingCounter);
        };
        update(&whole)
            .col_expr(counter::Column::Floor, Expr::val(floor))
            .col_expr(counter::Column::NextValue, Expr::val(next_value))
            .exec(transaction)
            .await?;
        let n_left = |next_value| counted.left(next_value);
        let n_skipped = n_left(counter.next_value).saturating_sub(n_left(next_value));
        if let Some(payment) = Payment::of(definition, n_skipped).filter(|_| n_skipped > 0) {
            counters::pay(transaction, &whole, payment).await?;
        }
        Ok(Creation::Exists)
    }
}
