//! Runs one participant of a change: the part of one member of a store.
//!
//! It is one transaction that waits twice: first for the decision over all members, and then for
//! the signal to commit.

use std::{borrow::Cow, sync::Arc};

use entity::{counter, meta, sequence};
use odometer_core::{
    definition::{Definition, Stripe},
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_database::session::{DatabaseConnection, DatabaseTransaction};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, sea_query::Expr};
use tokio::sync::oneshot;

use super::{act::Act, counters, transaction::ChangeRequest};
use crate::error;
use crate::error::StoreError;
use crate::identity::DatabaseIdentity;
use crate::meta_row;
use crate::outcome::Snapshot;
use crate::rows::{
    catalog::{self, ELSEWHERE, LIVE, NO_PERIOD, RETIRED},
    counter::CounterRow,
    creation_baseline::CreationBaseline,
    new_counter::NewCounter,
    sequence::SequenceRow,
};

/// The state of one member, as far as the change needs it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) stripe: Stripe,
    /// `None` if the database has no such sequence.
    pub(crate) row: Option<PreparedRow>,
    /// The counter of the act's period.
    pub(crate) counter: Option<CounterRow>,
    pub(crate) baseline: CreationBaseline,
    pub(crate) definitions_version: i64,
    pub(crate) n_sequences: u64,
}

/// A sequence as one database has it.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRow {
    pub(crate) model: sequence::Model,
    pub(crate) definition: Arc<Definition>,
    /// The highest high-water mark of its periods; `None` if no period issues.
    pub(crate) highest_of_periods: Option<i64>,
    pub(crate) has_periods_made: bool,
    pub(crate) n_other_periods: u64,
}

/// The values that the change writes, the same in every member.
#[derive(Clone, Debug)]
pub(crate) struct PlannedWrite {
    pub(crate) after: Snapshot,
    pub(crate) removed_through: String,
}

/// The participant's ends of its channels with the change. If the other ends are dropped, the
/// participant rolls back.
pub(crate) struct CommitSignals {
    pub(crate) found: oneshot::Sender<Result<Prepared, StoreError>>,
    pub(crate) plan: oneshot::Receiver<PlannedWrite>,
    pub(crate) written: oneshot::Sender<()>,
    pub(crate) commit: oneshot::Receiver<()>,
}

/// Runs the participant to its end. Returns whether it was committed.
pub(crate) async fn run(
    database: DatabaseConnection,
    change: ChangeRequest,
    identity: DatabaseIdentity,
    word: CommitSignals,
) -> Result<bool, DbErr> {
    let transaction = database.begin().await?;
    let found = find(&transaction, &change, &identity).await?;
    let part = found.as_ref().ok().cloned();
    let is_heard = word.found.send(found).is_ok();
    let (Some(part), true) = (part, is_heard) else {
        transaction.rollback().await?;
        return Ok(false);
    };
    // No plan comes if there is nothing to write, or if another member failed.
    let Ok(plan) = word.plan.await else {
        transaction.rollback().await?;
        return Ok(false);
    };
    let writing = Writing::new(&transaction, &part, &plan);
    Box::pin(writing.write(&change)).await?;
    let is_awaited = word.written.send(()).is_ok();
    if !is_awaited || word.commit.await.is_err() {
        transaction.rollback().await?;
        return Ok(false);
    }
    transaction.commit().await?;
    Ok(true)
}

async fn find(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
    identity: &DatabaseIdentity,
) -> Result<Result<Prepared, StoreError>, DbErr> {
    let is_dry_run = change.act.is_dry_run();
    let mut find = sequence::Entity::find_by_id(change.name.as_str().to_owned());
    if !is_dry_run {
        find = transaction.holding(find);
    }
    let model = find.one(transaction).await?;
    let key = CounterKey {
        sequence: change.name.clone(),
        period: change.act.period(),
    };
    if model.is_some() && !is_dry_run {
        counters::raise(transaction, &key).await?;
    }
    let find = if is_dry_run {
        meta::Entity::find_by_id(1_i16)
    } else {
        meta_row::held_for_change(transaction)
    };
    let meta = find.one(transaction).await?;
    let meta = meta.ok_or_else(|| DbErr::RecordNotFound("meta".to_owned()))?;
    let Some(baseline) = super::transaction::baseline(transaction, change).await? else {
        return Ok(Err(StoreError::WentBack));
    };
    let (row, counter) = match model {
        None => (None, None),
        Some(model) => {
            match found_row(transaction, &key, &identity.label.store, (model, baseline)).await? {
                Ok((row, counter)) => (Some(row), counter),
                Err(error) => return Ok(Err(error)),
            }
        }
    };
    let seen = counter.map(|counter| counter.seen);
    if seen.is_some_and(|seen| change.went_back(seen.next_value, Some(seen.version))) {
        return Ok(Err(StoreError::WentBack));
    }
    Ok(Ok(Prepared {
        stripe: identity.stripe,
        n_sequences: match row {
            Some(_) => 0,
            None => catalog::count_in(transaction).await?,
        },
        row,
        counter,
        baseline,
        definitions_version: meta.definitions_version,
    }))
}

async fn found_row(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    store: &str,
    (model, baseline): (sequence::Model, CreationBaseline),
) -> Result<Result<(PreparedRow, Option<CounterRow>), StoreError>, DbErr> {
    let mut definition = match catalog::definition_in(store, &model.state, &model.definition) {
        Ok(definition) => definition,
        Err(error) => return Ok(Err(error)),
    };
    if model.state != ELSEWHERE {
        baseline.note_forgotten_formats(Arc::make_mut(&mut definition), model.version);
    }
    let entry = catalog::read(transaction, key.sequence.as_str(), &key.period).await?;
    let counter = entry.and_then(|entry| entry.counter());
    if counter.is_none() && key.period.is_none() && model.state != ELSEWHERE {
        return Ok(Err(error::without_counter(&key.sequence)));
    }
    let has_periods = catalog::has_periods(&definition);
    let mut row = PreparedRow {
        highest_of_periods: None,
        has_periods_made: !model.periods_removed_through.is_empty(),
        n_other_periods: 0,
        model,
        definition,
    };
    if has_periods {
        row.highest_of_periods = counters::highest_of_periods(transaction, &key.sequence).await?;
        row.has_periods_made |= counters::is_any_made(transaction, &key.sequence).await?;
        if !key.period.is_none() && counter.is_none() {
            row.n_other_periods = crate::rows::new_counter::n_others(transaction, key).await?;
        }
    }
    Ok(Ok((row, counter)))
}

/// A write in this database: the plan, and the state that it replaces.
struct Writing<'a> {
    transaction: &'a DatabaseTransaction,
    part: &'a Prepared,
    plan: &'a PlannedWrite,
    /// The definition as this database counts it.
    counted: Cow<'a, Definition>,
}

impl<'a> Writing<'a> {
    fn new(
        transaction: &'a DatabaseTransaction,
        part: &'a Prepared,
        plan: &'a PlannedWrite,
    ) -> Self {
        Self {
            transaction,
            part,
            plan,
            counted: part.stripe.view(&plan.after.definition),
        }
    }

    async fn write(&self, change: &ChangeRequest) -> Result<(), DbErr> {
        let (part, after) = (self.part, &self.plan.after);
        meta::Entity::update_many()
            .col_expr(meta::Column::DefinitionsVersion, Expr::val(after.version))
            .filter(meta::Column::Id.eq(1))
            .exec(self.transaction)
            .await?;
        self.write_row(&change.name).await?;
        let head = CounterKey::whole(change.name.clone());
        if part.row.is_none() {
            self.create(&head).await?;
        }
        let key = CounterKey {
            sequence: change.name.clone(),
            period: after.period.clone(),
        };
        if !key.period.is_none() && part.counter.is_none() {
            self.create(&key).await?;
        }
        if part.counter.is_some() || !key.period.is_none() {
            self.write_counter(&key).await?;
        }
        let had = part.row.as_ref().map(|row| &row.definition);
        if had.is_some_and(|had| **had != *after.definition) && !key.period.is_none() {
            // Another definition replaced the one of this database. The act has written only the
            // counter of its period, so the counter without period is moved here.
            self.realign(&head).await?;
        }
        if matches!(change.act, Act::Restore) {
            counters::close(self.transaction, &change.name).await?;
        }
        Ok(())
    }

    async fn write_row(&self, name: &SequenceName) -> Result<(), DbErr> {
        let after = &self.plan.after;
        let row = SequenceRow {
            name,
            kind: after.definition.kind,
            definition: after.definition.to_stored(),
            state: if after.is_live { LIVE } else { RETIRED },
            version: after.version,
            removed_through: Some(&self.plan.removed_through),
        };
        if self.part.row.is_none() {
            row.insert(self.transaction).await
        } else {
            row.update(self.transaction).await
        }
    }

    /// Creates a counter that this database does not have yet.
    async fn create(&self, key: &CounterKey) -> Result<(), DbErr> {
        let (part, after) = (self.part, &self.plan.after);
        let first = first_in(part, &self.counted, &key.period);
        let mut new_counter = NewCounter::at(first, &after.definition, part.stripe, part.baseline);
        if key.period == after.period {
            new_counter.floor = new_counter.floor.max(after.floor);
            new_counter.next_value = self.at_or_above(first.max(after.floor))?;
        }
        new_counter.insert(self.transaction, key).await
    }

    /// Sets the act's counter to this database's first number at or above both the floor and the
    /// present value.
    async fn write_counter(&self, key: &CounterKey) -> Result<(), DbErr> {
        let after = &self.plan.after;
        let now = match self.part.counter {
            Some(counter) => counter.seen.next_value,
            None => first_in(self.part, &self.counted, &key.period),
        };
        let next_value = self.at_or_above(now.max(after.floor))?;
        counters::set(self.transaction, key, next_value, after).await
    }

    /// Moves the counter without period to the grid of the definition that is written.
    async fn realign(&self, head: &CounterKey) -> Result<(), DbErr> {
        let row = (head.sequence.as_str().to_owned(), NO_PERIOD.to_owned());
        let find = counter::Entity::find_by_id(row);
        let Some(counter) = find.one(self.transaction).await? else {
            return Ok(());
        };
        let next_value = self.at_or_above(counter.next_value)?;
        counters::update(head)
            .col_expr(counter::Column::NextValue, Expr::val(next_value))
            .exec(self.transaction)
            .await?;
        Ok(())
    }

    /// Returns the first number of this database that is at or above `value`.
    fn at_or_above(&self, value: i64) -> Result<i64, DbErr> {
        let first = self.counted.on_grid(value);
        first.ok_or_else(|| DbErr::Custom("a counter above 2^63 - 1".to_owned()))
    }
}

/// Returns where a counter begins that is created now.
pub(crate) fn first_in(part: &Prepared, counted: &Definition, period: &Period) -> i64 {
    if period.is_none() {
        part.baseline.first(counted)
    } else {
        part.baseline.first_in(counted, period)
    }
}
