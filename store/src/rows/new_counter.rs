//! Creates the rows of counters.

use entity::{counter, sequence};
use odometer_core::{
    definition::{Definition, Stripe},
    period::CounterKey,
};
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel,
    QueryFilter, QuerySelect,
    sea_query::{OnConflict, Query},
};

use crate::rows::{
    catalog::{LIVE, NO_PERIOD},
    conditional_insert::insert_if,
    creation_baseline::CreationBaseline,
    row_count::RowCount,
};

/// The values with which a counter begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCounter {
    pub(crate) next_value: i64,
    pub(crate) floor: i64,
    pub(crate) version: i64,
    stripe_count: i32,
    paced_until_us: i64,
    window_leased_until: i64,
}

impl NewCounter {
    pub(crate) fn at(
        first: i64,
        definition: &Definition,
        stripe: Stripe,
        baseline: &CreationBaseline,
    ) -> Self {
        Self {
            next_value: first,
            floor: definition.start,
            version: baseline.version(),
            stripe_count: i32::from(stripe.n()),
            paced_until_us: baseline.paced_until_us(definition),
            window_leased_until: baseline.window_leased_until(),
        }
    }

    /// Inserts the counter's row. Its sequence may be live or retired.
    ///
    /// # Errors
    /// The counter exists already, or the database failed.
    pub(crate) async fn insert(
        self,
        transaction: &DatabaseTransaction,
        key: &CounterKey,
    ) -> Result<(), DbErr> {
        let row = self.row(key).into_active_model().reset_all();
        let mut insert = counter::Entity::insert(row);
        if faults::is(Fault::CreationOverwrites) {
            let mut again =
                OnConflict::columns([counter::Column::Sequence, counter::Column::Period]);
            let next_value = [counter::Column::NextValue, counter::Column::Version];
            insert = insert.on_conflict(again.update_columns(next_value).to_owned());
        }
        insert.exec_without_returning(transaction).await?;
        Ok(())
    }

    fn row(self, key: &CounterKey) -> counter::Model {
        counter::Model {
            sequence: key.sequence.as_str().to_owned(),
            period: key.period.as_str().to_owned(),
            next_value: self.next_value,
            floor: self.floor,
            state: LIVE.to_owned(),
            rate: 0.0,
            stripe_count: self.stripe_count,
            // No window that stood in Redis before a recovery has this number.
            window: self.version,
            window_open: false,
            window_leased_until: self.window_leased_until,
            // Nobody remembers this revision of an earlier counter with this name.
            revision: self.version,
            version: self.version,
            paced_until_us: self.paced_until_us,
            must_recover: false,
        }
    }
}

/// Counts the other periods of the sequence that have a row.
pub(crate) async fn count_others(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
) -> Result<RowCount, DbErr> {
    let states = counter::Entity::find()
        .select_only()
        .column(counter::Column::State)
        .column_as(counter::Column::Period.count(), "n_rows")
        .filter(counter::Column::Sequence.eq(key.sequence.as_str()))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        // Another replica may just have created the counter of this period.
        .filter(counter::Column::Period.ne(key.period.as_str()))
        .group_by(counter::Column::State)
        .into_tuple()
        .all(transaction)
        .await?;
    Ok(RowCount::of(states))
}

/// Inserts the counter of a period if the sequence is live and has not removed the period. Returns
/// whether it was inserted.
///
/// If two processes insert at the same time, they conflict at the primary key. One of them gets
/// `Duplicate` and then reads the row.
pub(crate) async fn insert(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    new_counter: NewCounter,
) -> Result<bool, DbErr> {
    let is_live = Query::select()
        .from(sequence::Entity)
        .and_where(sequence::Column::Name.eq(key.sequence.as_str()))
        .and_where(sequence::Column::State.eq(LIVE))
        .and_where(sequence::Column::PeriodsRemovedThrough.lt(key.period.as_str()))
        .to_owned();
    let insert = insert_if(&new_counter.row(key), is_live)?;
    Ok(transaction.execute(&insert).await?.rows_affected() == 1)
}
