//! Inserts the rows of a table over several connections, in the order in which the rows arrive.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use odometer_tests::Backend;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sea_orm::{ConnectionTrait, DatabaseConnection};

use super::{Condition, keys::Key, table::TABLE};

/// Of a hundred inserted rows, this many are deleted if the condition has deletes.
const DELETED_OF_HUNDRED: u64 = 30;
const ANSWERS: &str = "the server of the study answers";
const SEED: u64 = 30;

/// The rows that are sent to a table.
pub(crate) struct Rows {
    backend: Backend,
    /// The keys in the order of arrival, or `None` if the server makes the keys.
    keys: Option<Vec<Key>>,
    condition: Condition,
    n_sent: u64,
    n_arrived: u64,
    /// The keys of the rows that are in the table.
    present: Vec<Key>,
    chance: StdRng,
    pub(crate) n_deleted: u64,
}

/// One INSERT.
struct Batch {
    statement: String,
    keys: Vec<Key>,
}

impl Rows {
    pub(crate) fn new(backend: Backend, keys: Option<Vec<Key>>, condition: Condition) -> Self {
        Self {
            backend,
            keys,
            condition,
            n_sent: 0,
            n_arrived: 0,
            present: Vec::new(),
            chance: StdRng::seed_from_u64(SEED),
            n_deleted: 0,
        }
    }

    /// Returns the next rows, if fewer than `until` rows were sent.
    fn next(&mut self, until: u64) -> Option<Batch> {
        if self.n_sent >= until {
            return None;
        }
        let end = self.n_sent + self.condition.batch;
        let places = self.n_sent as usize..end as usize;
        self.n_sent = end;
        let keys = match &self.keys {
            Some(keys) => keys[places].to_vec(),
            None => vec![],
        };
        let values: Vec<String> = match keys.is_empty() {
            true => vec!["(DEFAULT)".to_owned(); self.condition.batch as usize],
            false => keys.iter().map(|key| self.in_brackets(*key)).collect(),
        };
        let statement = format!("INSERT INTO {TABLE} (id) VALUES {}", values.join(","));
        Some(Batch { statement, keys })
    }

    fn in_brackets(&self, key: Key) -> String {
        format!("({})", key.literal(self.backend))
    }

    /// Notes that the rows of `batch` are in the table. Returns the DELETE that must follow, if
    /// any.
    fn arrived(&mut self, batch: Batch) -> Option<String> {
        let first = self.n_arrived;
        self.n_arrived += self.condition.batch;
        if !self.condition.has_deletes {
            return None;
        }
        match batch.keys.is_empty() {
            // The server counts from 1 without a gap.
            true => self
                .present
                .extend((first + 1..=self.n_arrived).map(|at| Key::Number(at.cast_signed()))),
            false => self.present.extend(batch.keys),
        }
        let n_victims = self.condition.batch * DELETED_OF_HUNDRED / 100;
        let victims: Vec<String> = (0..n_victims)
            .map(|_| {
                let at = self.chance.random_range(0..self.present.len());
                self.present.swap_remove(at).literal(self.backend)
            })
            .collect();
        Some(format!(
            "DELETE FROM {TABLE} WHERE id IN ({})",
            victims.join(",")
        ))
    }
}

/// Sends rows over all connections at once, until `until` rows were sent in total. Returns how long
/// this took.
pub(crate) async fn send(
    connections: &[DatabaseConnection],
    rows: &RefCell<Rows>,
    until: u64,
) -> Duration {
    let started = Instant::now();
    join_all(
        connections
            .iter()
            .map(|connection| send_over(connection, rows, until)),
    )
    .await;
    started.elapsed()
}

async fn send_over(connection: &DatabaseConnection, rows: &RefCell<Rows>, until: u64) {
    loop {
        let next = rows.borrow_mut().next(until);
        let Some(batch) = next else {
            return;
        };
        let inserted = connection.execute_unprepared(&batch.statement).await;
        inserted.expect(ANSWERS);
        let delete = rows.borrow_mut().arrived(batch);
        if let Some(delete) = delete {
            let deleted = connection.execute_unprepared(&delete).await;
            rows.borrow_mut().n_deleted += deleted.expect(ANSWERS).rows_affected();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::CONDITIONS, *};

    #[test]
    fn each_row_is_sent_once_and_deleted_at_most_once() {
        let keys: Vec<Key> = (1..=1_000).map(Key::Number).collect();
        for keys in [Some(keys), None] {
            let condition = CONDITIONS[3];
            assert!(condition.has_deletes);
            let mut rows = Rows::new(Backend::Postgres, keys, condition);
            let (mut n_batches, mut deleted) = (0, Vec::new());
            while let Some(batch) = rows.next(1_000) {
                let delete = rows.arrived(batch).expect("some are deleted");
                let (_, list) = delete.split_once('(').expect("a list");
                let list = list.trim_end_matches(')').split(',');
                deleted.extend(list.map(|key| key.parse::<i64>().expect("a number")));
                n_batches += 1;
                assert!(deleted.iter().all(|key| *key <= n_batches * 100));
            }
            assert_eq!((n_batches, deleted.len()), (10, 300));
            deleted.sort_unstable();
            deleted.dedup();
            assert_eq!(deleted.len(), 300);
        }
    }
}
