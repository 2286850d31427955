//! Which counters were used most recently, as the journal and the counters tell.

use std::collections::HashSet;

use entity::{block, counter, sequence};
use odometer_core::{
    name::SequenceName,
    period::{CounterKey, Period},
};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use crate::store::catalogue::LIVE;
use crate::store::connection::session::DatabaseConnection;

/// Rows of the journal that are read to find them: the youngest.
const ROWS_READ: u64 = 2_000;
/// Numbers a second below which a counter is rare: less than one in a quarter of an hour.
const LEAST_RATE: f64 = 0.001;

/// A sequence and a period of it.
type Pair = (String, String);

/// At most `limit` live counters with a rate, those with the youngest blocks first.
pub(in crate::store) async fn counters(
    database: DatabaseConnection,
    limit: usize,
) -> Result<Vec<CounterKey>, DbErr> {
    let rows: Vec<Pair> = block::Entity::find()
        .select_only()
        .column(block::Column::Sequence)
        .column(block::Column::Period)
        .order_by_desc(block::Column::ReservedAt)
        .limit(ROWS_READ)
        .into_tuple()
        .all(&database)
        .await?;
    let mut met = HashSet::new();
    let recent: Vec<Pair> = rows
        .into_iter()
        .filter(|pair| met.insert(pair.clone()))
        .take(limit)
        .collect();
    if recent.is_empty() {
        return Ok(Vec::new());
    }
    let names: HashSet<&str> = recent.iter().map(|(name, _)| name.as_str()).collect();
    let periods: HashSet<&str> = recent.iter().map(|(_, period)| period.as_str()).collect();
    let live: HashSet<String> = sequence::Entity::find()
        .select_only()
        .column(sequence::Column::Name)
        .filter(sequence::Column::Name.is_in(names.iter().copied()))
        .filter(sequence::Column::State.eq(LIVE))
        .into_tuple::<String>()
        .all(&database)
        .await?
        .into_iter()
        .collect();
    let busy: HashSet<Pair> = counter::Entity::find()
        .select_only()
        .column(counter::Column::Sequence)
        .column(counter::Column::Period)
        .filter(counter::Column::Sequence.is_in(names))
        .filter(counter::Column::Period.is_in(periods))
        .filter(counter::Column::State.eq(LIVE))
        .filter(counter::Column::Rate.gte(LEAST_RATE))
        .into_tuple::<Pair>()
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

/// What each of several has, the first of each before the second of any, at most `limit`.
pub(in crate::store) fn in_turn(of_each: Vec<Vec<CounterKey>>, limit: usize) -> Vec<CounterKey> {
    let mut of_each: Vec<_> = of_each.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    while all.len() < limit {
        let n_before = all.len();
        all.extend(of_each.iter_mut().filter_map(Iterator::next));
        if all.len() == n_before {
            break;
        }
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
