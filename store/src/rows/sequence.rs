//! Writes the row of a sequence, or of a claim to a name.

use entity::sequence;
use odometer_core::name::SequenceName;
use odometer_database::session::DatabaseTransaction;
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, DbErr, EntityTrait, QueryFilter,
    sea_query::{Expr, OnConflict},
};

/// The values that are written to the row of a sequence.
pub(crate) struct SequenceRow<'a> {
    pub(crate) name: &'a SequenceName,
    /// The definition as it is stored.
    pub(crate) definition: String,
    pub(crate) state: &'a str,
    pub(crate) version: i64,
    /// `None` leaves the value that is there. A new row has an empty value.
    pub(crate) removed_through: Option<&'a str>,
}

impl SequenceRow<'_> {
    /// Inserts the row.
    ///
    /// # Errors
    /// A sequence with this name exists, or the database failed.
    pub(crate) async fn insert(self, transaction: &DatabaseTransaction) -> Result<(), DbErr> {
        let now = now_ms();
        let row = sequence::ActiveModel {
            name: Set(self.name.as_str().to_owned()),
            definition: Set(self.definition),
            state: Set(self.state.to_owned()),
            periods_removed_through: Set(self.removed_through.unwrap_or_default().to_owned()),
            version: Set(self.version),
            created_at: Set(now),
            changed_at: Set(now),
        };
        let mut insert = sequence::Entity::insert(row);
        if faults::is(Fault::CreationOverwrites) {
            let mut again = OnConflict::column(sequence::Column::Name);
            insert = insert.on_conflict(again.update_column(sequence::Column::Version).to_owned());
        }
        insert.exec_without_returning(transaction).await?;
        Ok(())
    }

    /// Writes the values over the row that is there.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn update(self, transaction: &DatabaseTransaction) -> Result<(), DbErr> {
        let mut update = sequence::Entity::update_many()
            .col_expr(sequence::Column::Definition, Expr::val(self.definition))
            .col_expr(sequence::Column::State, Expr::val(self.state))
            .col_expr(sequence::Column::Version, Expr::val(self.version))
            .col_expr(sequence::Column::ChangedAt, Expr::val(now_ms()))
            .filter(sequence::Column::Name.eq(self.name.as_str()));
        if let Some(through) = self.removed_through {
            update = update.col_expr(sequence::Column::PeriodsRemovedThrough, Expr::val(through));
        }
        update.exec(transaction).await?;
        Ok(())
    }
}
