//! Counts from time to time how many ids of each pool are taken. The operator must see that a pool
//! runs out before a replica is refused an id.
//!
//! A count reads all rows of its pools. So pools that are too wide to run out are left out, and the
//! other pools are counted a few at a time.

use entity::worker_lease;
use odometer_database::session::DatabaseConnection;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
};

use super::{lease::Share, look};
use crate::database::Database;

/// Pools with wider ids are not counted, because they have enough ids.
const MAX_BITS: i32 = 12;
/// How many pools are counted at one time. Other pools are counted the next time.
const POOLS_A_COUNT: usize = 200;
/// How many pools one statement counts: 40,960 rows at most.
const AT_ONCE: usize = 10;
/// How many looks of a lease watch there are between two counts.
pub(crate) const LOOKS_A_COUNT: u32 = 6;

impl Database {
    /// Shows the greatest share of ids that is taken in a pool which this process leased from. Only
    /// ids of this database count.
    pub(crate) async fn show_fullness(&self) {
        let share = Share::of(self.identity.stripe);
        let mut fullest: f64 = 0.0;
        for pools in self.known.pools(MAX_BITS, POOLS_A_COUNT).chunks(AT_ONCE) {
            let pools = pools.to_vec();
            let counting = self.step(|connection| count_taken(connection, pools));
            let Ok(counts) = counting.await else {
                // What was seen last is still the best guess.
                return;
            };
            for (bits, n_taken) in counts {
                let bits = u32::try_from(bits).unwrap_or(0);
                let n_taken = u32::try_from(n_taken).unwrap_or(u32::MAX);
                let taken = f64::from(n_taken) / f64::from(share.size(bits).max(1));
                fullest = fullest.max(taken);
            }
        }
        self.counted.worker_ids_taken_ratio.set(fullest);
    }
}

/// Returns for each pool the width of its ids, and how many of them are held.
async fn count_taken(
    database: DatabaseConnection,
    pools: Vec<String>,
) -> Result<Vec<(i32, i64)>, DbErr> {
    let free = look::free(database.get_database_backend());
    worker_lease::Entity::find()
        .select_only()
        .column(worker_lease::Column::Bits)
        .column_as(worker_lease::Column::Worker.count(), "n_taken")
        .filter(worker_lease::Column::Pool.is_in(pools))
        .filter(Condition::all().not().add(free))
        .group_by(worker_lease::Column::Pool)
        .group_by(worker_lease::Column::Bits)
        .into_tuple()
        .all(&database)
        .await
}
