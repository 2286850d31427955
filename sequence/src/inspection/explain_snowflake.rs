//! Explains a time-ordered (snowflake) id: its time, its worker id, and what became of it, as far
//! as the lease of the worker id shows.

use std::sync::Arc;

use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::CounterKey,
    snowflake::{Layout, Parts},
};
use odometer_process::clock;
use odometer_store::{LeaseError, LeaseRow, WorkerPool};

use crate::{
    directory::calls::Directory,
    error::SequenceError,
    inspection::explain::{Explanation, NumberFate},
    issuer::snowflake_issuer::{Held, SnowflakeIssuer},
};

/// Bounds how far ahead any clock may be. An id with a later time was not issued. Used if nothing
/// is known of a worker id.
const LONG_AFTER_MS: i64 = 86_400_000;

/// The parts of a time-ordered id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnowflakeParts {
    /// When its tick began, in Unix milliseconds.
    pub time_ms: i64,
    /// The worker id of the process that issued the id.
    pub worker: u32,
    /// The number of the id among the ids of this worker id and tick.
    pub counter: u64,
}

impl SnowflakeParts {
    /// Splits an id into its parts; `None` if its sequence is not time-ordered.
    pub(crate) fn of(definition: &Definition, value: i64) -> Option<Self> {
        let layout = definition.layout.as_ref()?;
        let parts = layout.read(value)?;
        Some(Self {
            time_ms: layout.unix_ms_of(parts.tick),
            worker: parts.worker,
            counter: parts.counter,
        })
    }
}

impl Directory {
    /// Explains a time-ordered id. The store has no row for the id, but it has a row for the time
    /// of the worker id.
    pub(crate) async fn explain_id(
        &self,
        name: SequenceName,
        definition: &Arc<Definition>,
        value: i64,
    ) -> Result<Explanation, SequenceError> {
        let layout = definition.layout.unwrap_or_default();
        let key = CounterKey::whole(name.clone());
        let told = |fate| Explanation::without_block(key.clone(), value, fate);
        let Some(parts) = layout.read(value) else {
            return Ok(told(NumberFate::NotReserved));
        };
        let find = || self.shared.find(&key)?.snowflake().map(Arc::clone);
        let held = |snowflake: Option<Arc<SnowflakeIssuer>>| {
            let held = snowflake.as_deref().and_then(SnowflakeIssuer::held);
            held.filter(|held| held.lease.key.worker == parts.worker && !held.is_lost)
        };
        // Read this before asking the store: while the lease is held, its row can only show more.
        let before = held(find());
        let pool = WorkerPool::Sequence(name);
        let store = &self.shared.store;
        let row = store
            .lease_row(&definition.store, &pool, parts.worker)
            .await;
        let row = row.map_err(|error| not_told(&error))?;
        // Read this after asking the store, because memory is ahead of the store.
        let snowflake = find();
        let next_tick = snowflake
            .as_deref()
            .and_then(|snowflake| next_tick(snowflake, parts.worker));
        // If the lease was given back meanwhile, its row may show less.
        let after = held(snowflake);
        let is_kept = |before: &Held| {
            let token = before.lease.key.token();
            after.is_some_and(|after| after.lease.key.token() == token)
        };
        let is_less = |before: Held| {
            let until_ms = before.lease.until_ms;
            row.as_ref().is_none_or(|row| row.until_ms < until_ms)
        };
        let went_back = before.filter(is_kept).is_some_and(is_less);
        if went_back {
            return Err(SequenceError::StoreWentBack);
        }
        let fate = fate(&layout, &parts, row.as_ref(), next_tick, clock::now_ms());
        let is_told = fate != NumberFate::NotReserved && fate != NumberFate::NoRecord;
        let holder = row.map(|row| row.holder).filter(|_| is_told);
        Ok(Explanation {
            holder,
            ..told(fate)
        })
    }
}

/// Returns the tick of the next id, if this process issues ids with the worker id.
fn next_tick(snowflake: &SnowflakeIssuer, worker: u32) -> Option<u64> {
    let is_its = || snowflake.worker() == Some(worker);
    if !is_its() {
        return None;
    }
    let next_tick = snowflake.next_tick();
    // Check the worker id again: the tick of another worker id says nothing of this one.
    is_its().then_some(next_tick)
}

fn not_told(error: &LeaseError) -> SequenceError {
    if matches!(error, LeaseError::Unavailable) {
        SequenceError::StoreUnavailable
    } else if matches!(error, LeaseError::WentBack) {
        SequenceError::StoreWentBack
    } else {
        SequenceError::RefillTimeout
    }
}

/// Returns what the row of its worker id shows of an id. There is no row if the worker id was never
/// leased, or if a restored database does not know it.
fn fate(
    layout: &Layout,
    parts: &Parts,
    row: Option<&LeaseRow>,
    next_tick: Option<u64>,
    now_ms: i64,
) -> NumberFate {
    let begins_ms = layout.unix_ms_of(parts.tick);
    let ends_ms = begins_ms.saturating_add(layout.unit.ms());
    match row {
        None if begins_ms > now_ms.saturating_add(LONG_AFTER_MS) => NumberFate::NotReserved,
        None => NumberFate::NoRecord,
        // Ids are issued only in ticks that are reserved as a whole.
        Some(row) if ends_ms > row.until_ms => NumberFate::NotReserved,
        // Nothing is kept of the leases before this one.
        Some(row) if begins_ms < row.from_ms => NumberFate::NoRecord,
        Some(_) if next_tick.is_some_and(|next| parts.tick < next) => NumberFate::IssuedOrLost,
        Some(row) if row.is_held => NumberFate::Held,
        Some(_) => NumberFate::IssuedOrLost,
    }
}

#[cfg(test)]
mod tests {
    use crate::inspection::explain_snowflake::*;

    const FROM_MS: i64 = 1_800_000_000_000;
    const UNTIL_MS: i64 = FROM_MS + 10_000;

    fn said(at_ms: i64, is_held: Option<bool>, next_ms: Option<i64>) -> NumberFate {
        let layout = Layout::default();
        let tick = |ms| layout.tick_at(ms).unwrap_or(0);
        let parts = Parts {
            tick: tick(at_ms),
            worker: 3,
            counter: 7,
        };
        let row = is_held.map(|is_held| LeaseRow {
            worker: 3,
            bits: 10,
            holder: "h".to_owned(),
            from_ms: FROM_MS,
            until_ms: UNTIL_MS,
            expires_ms: UNTIL_MS,
            is_held,
        });
        let next_tick = next_ms.map(tick);
        fate(&layout, &parts, row.as_ref(), next_tick, FROM_MS + 5_000)
    }

    #[test]
    fn a_lease_says_no_more_than_it_knows() {
        use NumberFate::{Held, IssuedOrLost, NoRecord, NotReserved};
        for (at_ms, is_held, next_ms, expected) in [
            (UNTIL_MS, Some(true), None, NotReserved),
            (UNTIL_MS - 1, Some(true), None, Held),
            (FROM_MS, Some(true), None, Held),
            (FROM_MS, Some(false), None, IssuedOrLost),
            (FROM_MS - 1, Some(true), None, NoRecord),
            (FROM_MS + 4, Some(true), Some(FROM_MS + 5), IssuedOrLost),
            (FROM_MS + 5, Some(true), Some(FROM_MS + 5), Held),
            (FROM_MS, None, None, NoRecord),
            (FROM_MS + 2 * LONG_AFTER_MS, None, None, NotReserved),
        ] {
            assert_eq!(said(at_ms, is_held, next_ms), expected, "{at_ms}");
        }
    }
}
