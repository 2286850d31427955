//! Finds the counters that were used most recently. The journal and the counters show this for
//! sequences with blocks. Snowflake sequences have no blocks, so their worker ids show it.

use std::collections::HashSet;

use entity::{block, counter, sequence, worker_lease};
use odometer_core::{
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_database::session::DatabaseConnection;
use odometer_process::clock::now_ms;
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect, sea_query::ExprTrait,
};

use crate::rows::catalog::LIVE;

/// Bounds the journal rows that are read for this. The youngest rows are read.
const ROWS_READ: u64 = 2_000;
/// Sets the rate below which a counter is rare, in numbers a second: less than one in a quarter of
/// an hour.
const MIN_RATE: f64 = 0.001;

/// Sets how long ago the time of a worker id may have ended. After that, the worker id does not
/// show that its name is in use.
const USED_WITHIN_MS: i64 = 86_400_000;
/// Begins the names of the pools of sequences, and is followed by the sequence's name. Pools of
/// other programs sort at or after [`BEHIND_SEQUENCES`].
const OF_A_SEQUENCE: char = '/';
const BEHIND_SEQUENCES: &str = "0";

/// The name of a sequence, and one of its periods.
type NameAndPeriod = (String, String);

/// Returns at most `limit` live counters that are in use. The most recently used ones of each kind
/// come first.
pub(crate) async fn used(
    database: DatabaseConnection,
    limit: usize,
) -> Result<Vec<CounterKey>, DbErr> {
    let counted = counters(database.clone(), limit).await?;
    let stamped = stamped(database, limit).await?;
    Ok(in_turn(vec![counted, stamped], limit))
}

/// Returns at most `limit` live snowflake sequences. Those whose time is reserved furthest ahead
/// come first.
async fn stamped(database: DatabaseConnection, limit: usize) -> Result<Vec<CounterKey>, DbErr> {
    let reserved_until = || worker_lease::Column::ReservedUntil;
    let pools: Vec<String> = worker_lease::Entity::find()
        .select_only()
        .column(worker_lease::Column::Pool)
        .filter(worker_lease::Column::Pool.lt(BEHIND_SEQUENCES))
        .filter(reserved_until().gt(now_ms().saturating_sub(USED_WITHIN_MS)))
        .group_by(worker_lease::Column::Pool)
        .order_by_desc(reserved_until().into_expr().max())
        .limit(u64::try_from(limit).unwrap_or(u64::MAX))
        .into_tuple()
        .all(&database)
        .await?;
    let names = pools
        .iter()
        .filter_map(|pool| pool.strip_prefix(OF_A_SEQUENCE));
    let names: Vec<&str> = names.collect();
    let live = live(&database, names.iter().copied()).await?;
    let names = names.into_iter().filter(|name| live.contains(*name));
    let names = names.filter_map(|name| SequenceName::parse(name).ok());
    Ok(names.map(CounterKey::whole).collect())
}

/// Returns those of the names that belong to live sequences.
async fn live(
    database: &DatabaseConnection,
    names: impl Iterator<Item = &str>,
) -> Result<HashSet<String>, DbErr> {
    let live: Vec<String> = sequence::Entity::find()
        .select_only()
        .column(sequence::Column::Name)
        .filter(sequence::Column::Name.is_in(names))
        .filter(sequence::Column::State.eq(LIVE))
        .into_tuple()
        .all(database)
        .await?;
    Ok(live.into_iter().collect())
}

/// Returns at most `limit` live counters with a rate. Those with the youngest blocks come first.
async fn counters(database: DatabaseConnection, limit: usize) -> Result<Vec<CounterKey>, DbErr> {
    let rows: Vec<NameAndPeriod> = block::Entity::find()
        .select_only()
        .column(block::Column::Sequence)
        .column(block::Column::Period)
        .order_by_desc(block::Column::ReservedAt)
        .limit(ROWS_READ)
        .into_tuple()
        .all(&database)
        .await?;
    let mut met = HashSet::new();
    let recent: Vec<NameAndPeriod> = rows
        .into_iter()
        .filter(|pair| met.insert(pair.clone()))
        .take(limit)
        .collect();
    if recent.is_empty() {
        return Ok(Vec::new());
    }
    let names: HashSet<&str> = recent.iter().map(|(name, _)| name.as_str()).collect();
    let periods: HashSet<&str> = recent.iter().map(|(_, period)| period.as_str()).collect();
    let live = live(&database, names.iter().copied()).await?;
    let busy: HashSet<NameAndPeriod> = counter::Entity::find()
        .select_only()
        .column(counter::Column::Sequence)
        .column(counter::Column::Period)
        .filter(counter::Column::Sequence.is_in(names))
        .filter(counter::Column::Period.is_in(periods))
        .filter(counter::Column::State.eq(LIVE))
        .filter(counter::Column::Rate.gte(MIN_RATE))
        .into_tuple::<NameAndPeriod>()
        .all(&database)
        .await?
        .into_iter()
        .collect();
    Ok(recent
        .into_iter()
        .filter(|pair| live.contains(&pair.0) && busy.contains(pair))
        .filter_map(|(name, period)| {
            Some(CounterKey {
                sequence: SequenceName::parse(&name).ok()?,
                period: Period::from_stored(&period),
            })
        })
        .collect())
}

/// Merges lists into one of at most `limit` counters, each once. The first counter of each list
/// comes before the second one of any list.
pub(crate) fn in_turn(of_each: Vec<Vec<CounterKey>>, limit: usize) -> Vec<CounterKey> {
    let mut of_each: Vec<_> = of_each.into_iter().map(Vec::into_iter).collect();
    let (mut all, mut met) = (Vec::new(), HashSet::new());
    while all.len() < limit && of_each.iter().any(|left| left.len() > 0) {
        let next = of_each.iter_mut().filter_map(Iterator::next);
        all.extend(next.filter(|key| met.insert(key.clone())));
    }
    all.truncate(limit);
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn stores_take_turns_in_what_is_loaded() {
        let keys = |names: &[&str]| -> Vec<CounterKey> {
            names
                .iter()
                .map(|text| CounterKey::whole(SequenceName::parse(text).unwrap()))
                .collect()
        };
        let of_each = vec![keys(&["a", "b", "c"]), keys(&["x"])];
        let all = in_turn(of_each, 3);
        assert_eq!(all, keys(&["a", "x", "b"]));
        assert_eq!(in_turn(vec![keys(&["a"])], 3), keys(&["a"]));
        assert_eq!(in_turn(Vec::new(), 3), keys(&[]));
    }
}
