//! Writes what was decided of a sequence in one database, within the transaction that prepared it.

use std::borrow::Cow;

use entity::{counter, meta};
use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_database::session::DatabaseTransaction;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, sea_query::Expr};

use super::{
    counters,
    decision::Decision,
    prepared::Prepared,
    request::{Act, ChangeRequest},
};
use crate::creation::warn_if_exhausted;
use crate::rows::{
    catalog::{LIVE, RETIRED},
    counter as counter_row,
    new_counter::NewCounter,
    payment::Payment,
    sequence::SequenceRow,
};

/// Writes a decision in one database.
pub(crate) async fn write(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
    part: &Prepared,
    decision: &Decision,
) -> Result<(), DbErr> {
    let writing = Writing {
        transaction,
        part,
        decision,
        counted: part.stripe.view(&decision.altered.after.definition),
    };
    writing.write(change).await
}

/// A write in this database: the decision, and the state that it replaces.
struct Writing<'a> {
    transaction: &'a DatabaseTransaction,
    part: &'a Prepared,
    decision: &'a Decision,
    /// The definition as this database counts it.
    counted: Cow<'a, Definition>,
}

impl Writing<'_> {
    async fn write(&self, change: &ChangeRequest) -> Result<(), DbErr> {
        let (part, after) = (self.part, &self.decision.altered.after);
        meta::Entity::update_many()
            .col_expr(meta::Column::DefinitionsVersion, Expr::val(after.version))
            .filter(meta::Column::Id.eq(1))
            .exec(self.transaction)
            .await?;
        self.write_row(&change.name).await?;
        let whole = CounterKey::whole(change.name.clone());
        let had = part.row.as_ref().map(|row| &row.definition);
        if let Some(had) = had {
            // Before the payment, because the counters pay for what the act skips by the next limit.
            let definitions = (&**had, &*after.definition);
            counters::keep_debts(self.transaction, &change.name, definitions).await?;
        }
        if part.row.is_none() {
            if self.decision.altered.before.is_none() {
                let first = part.baseline.first(&self.counted);
                warn_if_exhausted(&change.name, &after.definition, &self.counted, first);
            }
            self.create(&whole).await?;
        }
        let key = change.key();
        if !key.period.is_none() && part.counter.is_none() {
            self.create(&key).await?;
        }
        let is_raised = after.floor > after.definition.start;
        let is_counted = part.counter.is_some() || !key.period.is_none() || is_raised;
        let payment = match is_counted {
            true => self.write_counter(&key).await?,
            false => None,
        };
        if had.is_some_and(|had| **had != *after.definition) && !key.period.is_none() {
            // Another definition replaced the one of this database. The act has written only the
            // counter of its period, so the counter without period is moved here.
            self.realign(&whole).await?;
        }
        if matches!(change.act, Act::Restore) {
            counters::close(self.transaction, &change.name).await?;
        }
        if let Some(payment) = payment {
            counters::pay(self.transaction, &key, payment).await?;
        }
        Ok(())
    }

    async fn write_row(&self, name: &SequenceName) -> Result<(), DbErr> {
        let after = &self.decision.altered.after;
        let row = SequenceRow {
            name,
            definition: after.definition.to_stored(),
            state: if after.is_live { LIVE } else { RETIRED },
            version: after.version,
            removed_through: Some(&self.decision.removed_through),
        };
        if self.part.row.is_none() {
            row.insert(self.transaction).await
        } else {
            row.update(self.transaction).await
        }
    }

    /// Creates a counter that this database does not have yet.
    async fn create(&self, key: &CounterKey) -> Result<(), DbErr> {
        let (part, after) = (self.part, &self.decision.altered.after);
        let first = self.first_in(&key.period);
        let mut new_counter = NewCounter::at(first, &after.definition, part.stripe, &part.baseline);
        if key.period == after.period {
            new_counter.floor = new_counter.floor.max(after.floor);
            new_counter.next_value = self.at_or_above(first.max(after.floor))?;
        }
        new_counter.insert(self.transaction, key).await
    }

    /// Returns where a counter begins that this database does not have, but others may have.
    fn first_in(&self, period: &Period) -> i64 {
        let altered = &self.decision.altered;
        let before = altered.before.as_ref();
        let floor = before.filter(|before| before.period == *period);
        let floor = floor.map_or(self.counted.start, |before| before.floor);
        (self.part.baseline).first_in_from(&self.counted, period, floor)
    }

    /// Sets the act's counter to this database's first number at or above both the floor and the
    /// present value. Returns the payment for what it skips.
    async fn write_counter(&self, key: &CounterKey) -> Result<Option<Payment>, DbErr> {
        let after = &self.decision.altered.after;
        let (now, least) = match self.part.counter {
            Some(counter) => (counter.seen.next_value, counter.seen.next_value),
            None => (
                (self.part.baseline).first_in(&self.counted, &key.period),
                self.first_in(&key.period),
            ),
        };
        let next_value = self.at_or_above(least.max(after.floor))?;
        let n_skipped = self.counted.left(now) - self.counted.left(next_value);
        let payment = Payment::of(&after.definition, n_skipped).filter(|_| n_skipped > 0);
        counters::set(self.transaction, key, next_value, after).await?;
        Ok(payment)
    }

    /// Moves the counter without period to the grid of the definition that is written.
    async fn realign(&self, whole: &CounterKey) -> Result<(), DbErr> {
        let Some(counter) = counter_row::find(whole).one(self.transaction).await? else {
            return Ok(());
        };
        let next_value = self.at_or_above(counter.next_value)?;
        counter_row::update(whole)
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
