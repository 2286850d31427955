//! Reads what one database has of a sequence, and locks what a change of it may write.

use std::sync::Arc;

use entity::sequence;
use odometer_core::{
    definition::{Definition, Stripe},
    period::{CounterKey, Period},
};
use odometer_database::session::DatabaseTransaction;
use sea_orm::EntityTrait;

use super::{
    counters, decision,
    request::{Act, ChangeRequest, ChangeScope, went_back},
    transaction::TransactionError,
};
use crate::{
    error::{self, StoreError},
    meta_row,
    rows::{
        catalog::{self, ELSEWHERE},
        counter::{CounterRow, SeenCounter},
        creation_baseline::CreationBaseline,
        new_counter,
        row_count::RowCount,
    },
};

/// The state of one database, as far as the change needs it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) stripe: Stripe,
    /// `None` if the database has no such sequence.
    pub(crate) row: Option<PreparedRow>,
    /// The counter of the act's period.
    pub(crate) counter: Option<CounterRow>,
    pub(crate) baseline: CreationBaseline,
    pub(crate) definitions_version: i64,
    pub(crate) sequences: RowCount,
    /// The counter of the act's period as this process last saw it here.
    pub(crate) last_seen: Option<SeenCounter>,
    /// Whether the counters and the row of `meta` are locked, so that the change may be written.
    pub(crate) is_held: bool,
}

impl Prepared {
    /// Returns what an empty database has.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self {
            stripe: Stripe::WHOLE,
            row: None,
            counter: None,
            baseline: CreationBaseline::default(),
            definitions_version: 0,
            sequences: RowCount::default(),
            last_seen: None,
            is_held: false,
        }
    }

    /// Returns whether the database has forgotten what this process has seen of the counter.
    fn has_forgotten(&self, period: &Period) -> bool {
        let Some(row) = &self.row else {
            // The decision compares what does not exist here with what it would create.
            return false;
        };
        match self.counter {
            Some(counter) => {
                let seen = counter.seen;
                went_back(self.last_seen, seen.next_value, Some(seen.version))
            }
            // A period that was removed by age has no counter.
            None if catalog::is_removed_by_age(period, &row.model.periods_removed_through) => false,
            None => self.would_fall(&row.definition, period, row.definition.start),
        }
    }

    /// Returns whether a counter that is created now, and that has this floor in other databases,
    /// would begin below what this process has seen of it.
    pub(crate) fn would_fall(&self, definition: &Definition, period: &Period, floor: i64) -> bool {
        let counted = self.stripe.view(definition);
        let first = self.baseline.first_in_from(&counted, period, floor);
        let is_unknown = self.baseline.is_unknown_in(&counted, period);
        is_unknown || went_back(self.last_seen, first, None)
    }

    /// Returns whether the sequence was seen in the database and is not there any more.
    pub(crate) fn has_lost_it(&self) -> bool {
        self.row.is_none() && self.last_seen.is_some()
    }
}

/// A sequence as one database has it.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRow {
    pub(crate) model: sequence::Model,
    pub(crate) definition: Arc<Definition>,
    /// The highest high-water mark of its periods; `None` if no period issues.
    pub(crate) highest_of_periods: Option<i64>,
    pub(crate) has_periods_made: bool,
    pub(crate) other_periods: RowCount,
}

/// Prepares a change in one database, within its transaction.
///
/// It locks the sequence's row, raises its counters, so that remembered values conflict everywhere,
/// and locks the row of `meta`, which decides where new counters begin and which version is next. A
/// dry run locks nothing, so that nobody waits for it.
///
/// In the only database of a store, the sequence's row may say that the act is refused or changes
/// nothing. Then neither the counters nor `meta` are locked. A sequence may have very many
/// counters, and other processes reserve from them meanwhile.
pub(crate) async fn prepare(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
    scope: &ChangeScope,
) -> Result<Prepared, TransactionError<StoreError>> {
    let is_dry_run = change.act.is_dry_run();
    let key = change.key();
    let mut find = sequence::Entity::find_by_id(change.name.as_str().to_owned());
    if !is_dry_run {
        find = transaction.holding(find);
    }
    let model = find.one(transaction).await?;
    let is_idle = is_idle(transaction, change, scope, model.as_ref()).await?;
    let sequences = match model {
        Some(_) => RowCount::default(),
        // The count may take long, so it comes before the row of `meta` is locked.
        None => catalog::count(transaction).await?,
    };
    let is_held = !is_dry_run && !is_idle;
    if model.is_some() && is_held {
        counters::raise(transaction, &key).await?;
    }
    let find = if is_held {
        meta_row::held_for_change(transaction)
    } else {
        meta_row::plain()
    };
    let meta = meta_row::read(find, transaction).await?;
    // If the change is held, no recovery can happen between this read and the end.
    let baseline = if is_held {
        CreationBaseline::hold(transaction, &scope.guard, &change.name).await?
    } else {
        Some(CreationBaseline::of(transaction, &meta, &change.name).await?)
    };
    let baseline = baseline.ok_or(StoreError::Unguarded)?;
    let (row, counter) = match model {
        None => (None, None),
        Some(model) => {
            let is_definition = matches!(change.act, Act::Define { .. });
            let needs_all = !scope.is_alone() || (is_definition && !is_idle);
            let found = found_row(transaction, &key, scope, (model, &baseline), needs_all);
            let (row, counter) = found.await?;
            (Some(row), counter)
        }
    };
    let part = Prepared {
        stripe: scope.stripe,
        sequences,
        row,
        counter,
        baseline,
        definitions_version: meta.definitions_version,
        last_seen: scope.last_seen,
        is_held,
    };
    if part.has_forgotten(&key.period) {
        return Err(StoreError::WentBack.into());
    }
    Ok(part)
}

/// Returns whether the act is known to change nothing in the only database of a store.
///
/// # Errors
/// Why the act is refused by the sequence's row.
async fn is_idle(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
    scope: &ChangeScope,
    model: Option<&sequence::Model>,
) -> Result<bool, TransactionError<StoreError>> {
    if !scope.is_alone() {
        // What changes nothing here may change another database.
        return Ok(false);
    }
    let Some(model) = model else {
        let is_idle = change.may_create().then_some(false);
        return Ok(is_idle.ok_or(StoreError::NotFound)?);
    };
    decision::admit(&change.act, change.condition, model)?;
    let definition = catalog::definition_in(&scope.store, &model.state, &model.definition)?;
    if decision::changes_nothing(&change.act, model, &definition) {
        return Ok(true);
    }
    Ok(counters::is_tombstone(transaction, &change.act, &change.key()).await?)
}

/// Reads what a change must know of a sequence and the counter of its act. Only if `needs_all`, it
/// looks at the counters of all periods.
async fn found_row(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    scope: &ChangeScope,
    (model, baseline): (sequence::Model, &CreationBaseline),
    needs_all: bool,
) -> Result<(PreparedRow, Option<CounterRow>), TransactionError<StoreError>> {
    let mut definition = catalog::definition_in(&scope.store, &model.state, &model.definition)?;
    if model.state != ELSEWHERE {
        baseline.note_forgotten_formats(Arc::make_mut(&mut definition), model.version);
    }
    let entry = catalog::read(transaction, key).await?;
    let counter = entry.and_then(|entry| entry.counter());
    if counter.is_none() && key.period.is_none() && model.state != ELSEWHERE {
        return Err(error::without_counter(&key.sequence).into());
    }
    let has_periods = catalog::has_periods(&definition);
    let mut row = PreparedRow {
        highest_of_periods: None,
        has_periods_made: !model.periods_removed_through.is_empty(),
        other_periods: RowCount::default(),
        model,
        definition,
    };
    if has_periods {
        if needs_all {
            row.highest_of_periods =
                counters::highest_of_periods(transaction, &key.sequence).await?;
            row.has_periods_made |= counters::is_any_made(transaction, &key.sequence).await?;
        }
        if !key.period.is_none() && counter.is_none() {
            row.other_periods = new_counter::count_others(transaction, key).await?;
        }
    }
    Ok((row, counter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_that_was_removed_by_age_does_not_count_as_lost() {
        let definition = Definition::default();
        let part = Prepared {
            row: Some(PreparedRow {
                model: sequence::Model {
                    name: "days".to_owned(),
                    definition: definition.to_stored(),
                    state: "live".to_owned(),
                    periods_removed_through: "20261120".to_owned(),
                    version: 7,
                    created_at: 0,
                    changed_at: 0,
                },
                definition: Arc::new(definition),
                highest_of_periods: None,
                has_periods_made: true,
                other_periods: RowCount::default(),
            }),
            last_seen: Some(SeenCounter {
                next_value: 500,
                version: 3,
            }),
            ..Prepared::empty()
        };
        assert!(!part.has_forgotten(&Period::from_stored("20261120")));
        assert!(part.has_forgotten(&Period::from_stored("20261121")));
    }
}
