//! Strict order: an add that the database does itself, guarded by what must still hold.
//!
//! Every write of a strict sequence contends with those of other replicas, so none of them says
//! from which number it goes on: the row's lock queues them, and each reads back what it got.

use entity::counter;
use odometer_core::{block::Block, definition::Order, period::CounterKey, sizing::Why};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter, QueryTrait,
    sea_query::{Expr, ExprTrait, Func, Query},
};

use crate::{
    sabotage::{self, Fault},
    store::{
        catalogue,
        change::beat::Witness,
        connection::session::DatabaseConnection,
        database::{STRIPE_COUNT, Seen},
        error::{Failure, StoreError},
        reservation::{
            Reservation, Stop,
            request::{Known, Reserved, Want},
        },
    },
};

impl Reservation<'_> {
    /// Whether what is left decides, of which others take without telling.
    pub(super) fn must_look_first(&self) -> bool {
        let Some(known) = &self.known else {
            return true;
        };
        if known.definition.order == Order::Relaxed || !self.known_is_old() {
            return false;
        }
        match &self.request.want {
            Want::Handover(_) => true,
            Want::Exactly(count) | Want::Strict { count, .. } => {
                *count > known.definition.left(known.seen.next_value)
            }
            Want::Refill(_) => false,
        }
    }

    /// That the sequence's order is another one than the request was made for.
    pub(super) fn check_order(&self, known: &Known) -> Result<(), Stop> {
        let fits = match &self.request.want {
            Want::Refill(_) => known.definition.order == Order::Relaxed,
            Want::Strict { .. } => known.definition.order == Order::Strict,
            Want::Exactly(_) | Want::Handover(_) => true,
        };
        if fits {
            return Ok(());
        }
        Err(Stop::Told(StoreError::OtherOrder {
            known: Box::new(known.clone()),
            rate: self.stored_rate,
        }))
    }

    /// One guarded add; `None` where what it was guarded by holds no longer.
    pub(super) async fn add(
        &mut self,
        witness: &Witness,
        known: Known,
    ) -> Result<Option<Reserved>, Stop> {
        let definition = &known.definition;
        let left = definition.left(known.seen.next_value);
        let granted = self.granted(definition, left).map_err(Stop::Told)?;
        let count = granted.count;
        let broken = |error: String| Stop::Told(StoreError::Broken(error));
        // Were nobody else to write, it would be this one: all that is computed of it fits.
        let expected = Block::new(known.seen.next_value, count, definition.step)
            .map_err(|error| broken(error.to_string()))?;
        if sabotage::is(Fault::NoConditions) {
            return self.raise(witness, known, expected, Why::Waiting).await;
        }
        let add = Add {
            key: self.request.key.clone(),
            witness: witness.clone(),
            revision: known.revision,
            seen: known.seen,
            length: expected.end().saturating_sub(expected.first()),
            end: definition.end(),
            rate: self.rate(),
        };
        let (length, step) = (add.length, definition.step);
        let run = self
            .database
            .connection
            .run(self.until, |database| add.run(database));
        match run.await {
            Ok(Some(after)) => {
                self.database.metrics.reserved.increment(1);
                let block = Block::new(after.next_value.saturating_sub(length), count, step);
                let block = block.map_err(|error| broken(error.to_string()))?;
                let mut reserved = self.reserved(known, after, block, Some(Why::Waiting));
                // Others have moved the counter on by now, which the next add does not mind.
                reserved.known.trusted = true;
                Ok(Some(reserved))
            }
            Ok(None) => {
                self.database.metrics.conflict.increment(1);
                self.n_conflicts = self.n_conflicts.saturating_add(1);
                self.known = None;
                Ok(None)
            }
            Err(failure) => {
                self.count_failed_write(&failure);
                if matches!(failure, Failure::MayHaveCommitted(_)) {
                    // Among the writes of others an add cannot be told from one that was not done.
                    self.abandon(count);
                }
                self.known = None;
                Err(Stop::Failed(failure))
            }
        }
    }

    fn rate(&self) -> Option<f64> {
        match &self.request.want {
            Want::Strict { rate, .. } if self.request.known.is_some() => Some(*rate),
            Want::Strict { .. } | Want::Refill(_) | Want::Exactly(_) | Want::Handover(_) => None,
        }
    }
}

/// `next_value` rises by `length`, wherever it is.
struct Add {
    key: CounterKey,
    witness: Witness,
    /// Raised by each change: the definition that is known here is the one that counts.
    revision: i64,
    /// The counter was never below.
    seen: Seen,
    length: i64,
    /// The first number that the sequence does not have.
    end: i64,
    rate: Option<f64>,
}

impl Add {
    /// The counter after it; `None` where a guard did not hold.
    async fn run(self, database: DatabaseConnection) -> Result<Option<Seen>, DbErr> {
        if database.get_database_backend() == DbBackend::MySql {
            self.with_last_insert_id(database).await
        } else {
            self.returning(database).await
        }
    }

    /// All rows are waited for, not only the first one: what follows it says whether the commit
    /// held.
    async fn returning(self, database: DatabaseConnection) -> Result<Option<Seen>, DbErr> {
        let raised = Expr::col(counter::Column::NextValue).add(self.length);
        let mut update = self.update(raised).into_query();
        update.returning(
            Query::returning().columns([counter::Column::NextValue, counter::Column::Version]),
        );
        let rows = database.query_all(&update).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(Seen {
            next_value: row.try_get("", "next_value")?,
            version: row.try_get("", "version")?,
        }))
    }

    /// What `LAST_INSERT_ID(expr)` was called with comes with the reply to the statement itself, so
    /// no second one has to find the same connection again.
    async fn with_last_insert_id(
        self,
        database: DatabaseConnection,
    ) -> Result<Option<Seen>, DbErr> {
        let raised = Expr::col(counter::Column::NextValue).add(self.length);
        let remembered = Func::cust("LAST_INSERT_ID").arg(raised).into();
        // One at least: others may have written as well.
        let version = self.seen.version.saturating_add(1);
        let update = self.update(remembered).into_query();
        let done = database.execute(&update).await?;
        if done.rows_affected() != 1 {
            return Ok(None);
        }
        let next_value = i64::try_from(done.last_insert_id())
            .map_err(|_| DbErr::Custom("a counter above 2^63 - 1".to_owned()))?;
        Ok(Some(Seen {
            next_value,
            version,
        }))
    }

    fn update(&self, raised: Expr) -> sea_orm::UpdateMany<counter::Entity> {
        let mut update = counter::Entity::update_many()
            .col_expr(counter::Column::NextValue, raised)
            .col_expr(
                counter::Column::Version,
                catalogue::one_more(counter::Column::Version),
            )
            .filter(counter::Column::Sequence.eq(self.key.sequence.as_str()))
            .filter(counter::Column::Period.eq(self.key.period.as_str()))
            .filter(counter::Column::StripeCount.eq(STRIPE_COUNT))
            .filter(counter::Column::Revision.eq(self.revision))
            .filter(counter::Column::NextValue.lte(self.end.saturating_sub(self.length)))
            .filter(self.witness.holds());
        if let Some(rate) = self.rate {
            update = update.col_expr(counter::Column::Rate, Expr::val(rate));
        }
        if !sabotage::is(Fault::NoWentBackChecks) {
            update = update
                .filter(counter::Column::NextValue.gte(self.seen.next_value))
                .filter(counter::Column::Version.gte(self.seen.version));
        }
        update
    }
}
