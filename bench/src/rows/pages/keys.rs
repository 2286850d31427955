//! Makes keys in the order in which their rows arrive. There are several writers, and each row is
//! made by one of them. The writer is drawn at random, and each run draws the same writers.

use odometer_core::snowflake::{DEFAULT_EPOCH_MS, High, Layout, Moment, Ticker};
use odometer_tests::Backend;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use uuid::{Builder, ContextV7, Timestamp, Uuid};

/// Rows a second of all writers together, by the clock that stamps ids and UUIDs.
const BUSY: u64 = 10_000;
/// Rows a second if rows of different writers lie further apart than the clocks of the writers.
const CALM: u64 = 100;
/// The numbers of a block.
const BLOCK: i64 = 1_000;
/// The clocks of two writers differ by less than this.
const SKEW_MS: u64 = 2;

/// The time of the first row: 300 days after the epoch of the layout.
const START_MS: i64 = DEFAULT_EPOCH_MS + 300 * 86_400_000;
const SEED: u64 = 7;
const MICROS_A_S: u64 = 1_000_000;

/// How the rows of a table get their keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// By AUTO_INCREMENT in MariaDB, or by an identity column in PostgreSQL.
    Database,
    /// By a sequence with blocks, on this number of replicas.
    Blocks(u32),
    /// By time-ordered ids of this number of workers. The last field is the number of rows a
    /// second.
    Ids(High, u32, u64),
    /// By UUIDs of version 7, made by this number of writers.
    UuidV7(u32),
    /// By random UUIDs.
    UuidV4,
}

/// The key of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Key {
    Number(i64),
    Uuid(Uuid),
}

impl Kind {
    /// All kinds. The reference is the first one.
    pub(crate) const ALL: [Self; 10] = [
        Self::Database,
        Self::Blocks(1),
        Self::Blocks(3),
        Self::Ids(High::Time, 3, CALM),
        Self::Ids(High::Time, 3, BUSY),
        Self::Ids(High::Time, 32, BUSY),
        Self::Ids(High::Worker, 3, BUSY),
        Self::Ids(High::Worker, 32, BUSY),
        Self::UuidV7(3),
        Self::UuidV4,
    ];

    /// Returns the name in tables and pictures.
    pub(crate) fn name(self) -> String {
        let many = |n: u32| if n == 1 { "" } else { "s" };
        match self {
            Self::Database => "AUTO_INCREMENT, identity".to_owned(),
            Self::Blocks(n) => format!("block, {n} replica{}", many(n)),
            Self::Ids(High::Time, n, CALM) => format!("high time, {n} workers, calm"),
            Self::Ids(High::Time, n, _) => format!("high time, {n} workers"),
            Self::Ids(High::Worker, n, _) => format!("high worker, {n} workers"),
            Self::UuidV7(_) => "UUIDv7".to_owned(),
            Self::UuidV4 => "UUIDv4".to_owned(),
        }
    }

    /// Returns whether the keys are UUIDs.
    pub(crate) fn is_uuid(self) -> bool {
        matches!(self, Self::UuidV7(_) | Self::UuidV4)
    }

    /// Returns the keys of `n_rows` rows in the order of arrival, or `None` if the server makes the
    /// keys.
    pub(crate) fn keys(self, n_rows: u64) -> Option<Vec<Key>> {
        let mut writers = StdRng::seed_from_u64(SEED);
        Some(match self {
            Self::Database => return None,
            Self::Blocks(n) => blocks(n, n_rows, &mut writers),
            Self::Ids(high, n, per_s) => ids(high, n, per_s, n_rows, &mut writers),
            Self::UuidV7(n) => time_ordered_uuids(n, n_rows, &mut writers),
            Self::UuidV4 => (0..n_rows)
                .map(|_| Key::Uuid(Builder::from_random_bytes(writers.random()).into_uuid()))
                .collect(),
        })
    }
}

impl Key {
    /// Returns the key as it is written in a statement.
    pub(crate) fn literal(self, backend: Backend) -> String {
        match (self, backend) {
            (Self::Number(number), _) => number.to_string(),
            (Self::Uuid(uuid), Backend::Postgres) => format!("'{uuid}'"),
            (Self::Uuid(uuid), _) => format!("x'{}'", uuid.simple()),
        }
    }
}

/// Returns numbers of blocks. Each replica takes numbers from a block of its own, and reserves the
/// next block when this one is used up.
fn blocks(n_replicas: u32, n_rows: u64, writers: &mut StdRng) -> Vec<Key> {
    let mut reserved = 1;
    let mut held = vec![0..0; n_replicas as usize];
    let mut next = |_| {
        let block = &mut held[writers.random_range(0..n_replicas as usize)];
        if block.start == block.end {
            *block = reserved..reserved + BLOCK;
            reserved = block.end;
        }
        block.start += 1;
        Key::Number(block.start - 1)
    };
    (0..n_rows).map(&mut next).collect()
}

/// Returns ids. Each worker has a clock of its own, and uses the program's ticker with default
/// widths.
fn ids(high: High, n_workers: u32, per_s: u64, n_rows: u64, writers: &mut StdRng) -> Vec<Key> {
    let layout = Layout {
        high,
        ..Layout::default()
    };
    let clocks = clocks(n_workers, per_s, writers);
    let tick_of = |clock: &Clock, row: u64| {
        let ms = i64::try_from(clock.micros(row) / 1_000).expect("a run is not that long");
        layout.tick_at(START_MS + ms).expect("after the epoch")
    };
    let tickers: Vec<Ticker> = (0..n_workers).map(|_| Ticker::new(&layout)).collect();
    for ((worker, ticker), clock) in (0..).zip(&tickers).zip(&clocks) {
        let opened = ticker.open(worker, 0, layout.end_tick(), tick_of(clock, 0));
        opened.expect("a layout has so many workers");
    }
    let next = |row| {
        let writer = writers.random_range(0..tickers.len());
        let moment = || Moment {
            tick: tick_of(&clocks[writer], row),
            ahead: 1_000,
            batch_ahead: 1_000,
        };
        let id = tickers[writer].take(moment);
        Key::Number(id.expect("no tick has so many rows"))
    };
    (0..n_rows).map(next).collect()
}

/// Returns UUIDs. Each writer counts within a millisecond, as the library does for one process.
fn time_ordered_uuids(n_writers: u32, n_rows: u64, writers: &mut StdRng) -> Vec<Key> {
    let clocks = clocks(n_writers, BUSY, writers);
    let contexts: Vec<ContextV7> = clocks.iter().map(|_| ContextV7::new()).collect();
    let start_s = START_MS.unsigned_abs() / 1_000;
    let next = |row| {
        let writer = writers.random_range(0..contexts.len());
        let micros = clocks[writer].micros(row);
        let nanos = u32::try_from(micros % MICROS_A_S).expect("less than 10^6") * 1_000;
        let seconds = start_s + micros / MICROS_A_S;
        let stamp = Timestamp::from_unix(&contexts[writer], seconds, nanos);
        Key::Uuid(Uuid::new_v7(stamp))
    };
    (0..n_rows).map(next).collect()
}

/// The clock of one writer.
struct Clock {
    per_s: u64,
    ahead_micros: u64,
}

fn clocks(n_writers: u32, per_s: u64, chance: &mut StdRng) -> Vec<Clock> {
    (0..n_writers)
        .map(|_| Clock {
            per_s,
            ahead_micros: chance.random_range(0..SKEW_MS * 1_000),
        })
        .collect()
}

impl Clock {
    /// Returns the time of this clock when a row arrives, in microseconds since the first row.
    fn micros(&self, row: u64) -> u64 {
        row * MICROS_A_S / self.per_s + self.ahead_micros
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const N_ROWS: u64 = 20_000;

    fn numbers(kind: Kind) -> Vec<i64> {
        let number = |key| match key {
            Key::Number(number) => number,
            Key::Uuid(uuid) => panic!("{uuid} is no number"),
        };
        let keys = kind.keys(N_ROWS).expect("the server does not make them");
        keys.into_iter().map(number).collect()
    }

    /// Returns how many rows in a thousand arrive with a key below the highest key so far.
    fn n_late_in_a_thousand<K: Ord + Copy>(keys: &[K]) -> usize {
        let mut highest = keys[0];
        let late = keys.iter().filter(|key| {
            let is_late = **key < highest;
            highest = highest.max(**key);
            is_late
        });
        late.count() * 1_000 / keys.len()
    }

    #[test]
    fn no_two_rows_have_the_same_key() {
        for kind in Kind::ALL {
            let Some(keys) = kind.keys(N_ROWS) else {
                continue;
            };
            assert_eq!(keys.len() as u64, N_ROWS);
            let n_different = keys.iter().collect::<HashSet<_>>().len();
            assert_eq!(n_different as u64, N_ROWS, "{kind:?}");
        }
    }

    #[test]
    fn the_ids_of_each_worker_ascend_and_all_workers_have_some() {
        for (high, n_workers) in [(High::Time, 3), (High::Worker, 3), (High::Worker, 32)] {
            let layout = Layout {
                high,
                ..Layout::default()
            };
            let mut last = vec![None; n_workers as usize];
            for id in numbers(Kind::Ids(high, n_workers, BUSY)) {
                let parts = layout.read(id).expect("an id of the layout");
                let last = &mut last[parts.worker as usize];
                assert!(last.is_none_or(|last| last < id), "{high:?}");
                *last = Some(id);
            }
            assert!(last.iter().all(Option::is_some), "{high:?}");
        }
    }

    #[test]
    fn kinds_differ_in_how_often_a_row_comes_late() {
        let late = |kind: Kind| n_late_in_a_thousand(&kind.keys(N_ROWS).expect("made here"));
        assert_eq!(late(Kind::Blocks(1)), 0);
        assert!((300..700).contains(&late(Kind::Blocks(3))));
        assert_eq!(late(Kind::Ids(High::Time, 3, CALM)), 0);
        assert!(late(Kind::Ids(High::Time, 3, BUSY)) > 300);
        assert!((600..700).contains(&late(Kind::Ids(High::Worker, 3, BUSY))));
        assert!(late(Kind::Ids(High::Worker, 32, BUSY)) > 900);
        assert!(late(Kind::UuidV4) > 990);
    }

    #[test]
    fn ids_keep_to_the_pace_of_the_clock() {
        let ids = numbers(Kind::Ids(High::Time, 32, BUSY));
        let layout = Layout::default();
        let tick = |id: &i64| layout.read(*id).expect("an id of the layout").tick;
        let ticks = ids.iter().map(tick).max().zip(ids.iter().map(tick).min());
        let (last, first) = ticks.expect("there are some");
        let ms = N_ROWS * 1_000 / BUSY;
        assert!((ms - SKEW_MS..=ms + SKEW_MS).contains(&(last - first)));
    }
}
