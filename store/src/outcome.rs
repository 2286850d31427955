//! Defines what the rest of the program gives to the store and gets from it.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{definition::Definition, name::SequenceName, period::Period};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::recovery::{KeptNumbers, LastRecovery};
use crate::rows::counter::SeenCounter;
use crate::settings::Source;

/// Bounds how many rows of the journal a description shows.
pub(crate) const BLOCKS_SHOWN: u8 = 100;

/// The condition for writing a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// There must be no sequence of this name yet.
    MustNotExist,
    /// The sequence must be at this version.
    Version(i64),
}

/// A sequence and one of its counters, as their rows were in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub is_live: bool,
    pub definition: Arc<Definition>,
    /// The version of the definition.
    pub version: i64,
    /// The period of the counter: the period that was to be changed, or none. If a sequence has
    /// periods, its counter without a period issues nothing.
    pub period: Period,
    /// Whether the period is removed, so that none of its numbers is issued any more.
    pub is_removed: bool,
    /// No number below the floor is issued.
    pub floor: i64,
    /// The high-water mark.
    pub next_value: i64,
    /// Numbers a second, as a refill last stored them.
    pub rate: f64,
}

/// The outcome of a change of a sequence.
#[derive(Clone, Debug)]
pub struct Altered {
    /// The sequence before the change; `None` if it did not exist.
    pub before: Option<Snapshot>,
    pub after: Snapshot,
    /// False if everything was as wanted already, and after a dry run.
    pub is_written: bool,
}

/// One line of a listing.
#[derive(Clone, Debug)]
pub struct SequenceSummary {
    pub name: SequenceName,
    /// `live` or `retired`.
    pub state: String,
    pub definition: Arc<Definition>,
    pub version: i64,
}

/// A page of a listing, in the byte order of names.
#[derive(Clone, Debug)]
pub struct Page {
    pub sequences: Vec<SequenceSummary>,
    /// The last name of this page, if another page follows.
    pub next: Option<SequenceName>,
}

impl Page {
    /// Makes a page of the first `limit` of these definitions, which are in their order. `has_more`
    /// says that others are known to follow.
    pub(crate) fn of(mut sequences: Vec<SequenceSummary>, limit: u64, has_more: bool) -> Self {
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = has_more || sequences.len() > shown;
        sequences.truncate(shown);
        let last = sequences.last().filter(|_| has_more);
        Self {
            next: last.map(|last| last.name.clone()),
            sequences,
        }
    }

    /// Merges pages that begin after the same name into one page. If several of them have a name,
    /// the highest `rank` counts, and then the first page.
    pub(crate) fn merged(
        pages: Vec<Self>,
        limit: u64,
        rank: impl Fn(&SequenceSummary) -> i64,
    ) -> Self {
        let has_more = pages.iter().any(|page| page.next.is_some());
        let sequences = pages.into_iter().flat_map(|page| page.sequences);
        let mut sequences: Vec<SequenceSummary> = sequences.collect();
        sequences.sort_by(|one, other| {
            let by_name = one.name.cmp(&other.name);
            by_name.then_with(|| rank(other).cmp(&rank(one)))
        });
        sequences.dedup_by(|one, other| one.name == other.name);
        Self::of(sequences, limit, has_more)
    }
}

/// One row of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBlock {
    pub period: Period,
    pub first: i64,
    pub last: i64,
    pub step: i64,
    pub holder: String,
    pub reserved_at: SystemTime,
    pub fate: String,
    pub next_unissued: i64,
}

/// A store as it is now, with what `R` tells of its Redis servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus<R> {
    /// The name of the store in the configuration.
    pub store: String,
    pub kind: StoreKind,
    /// The databases of the store, in the order of the configuration.
    pub databases: Vec<DatabaseHealth>,
    pub redis: R,
}

/// What serves a sequence now, with the Redis server that counts for it, if Redis does.
pub type Serving = StoreStatus<Option<ServingRedis>>;

/// The state of a store, with all Redis servers in the order of the configuration. There are none
/// if Redis does not count.
pub type StoreHealth = StoreStatus<Vec<RedisHealth>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// One ordinary database.
    Database,
    /// Several databases that share each sequence.
    Striped,
    /// One database, and Redis counts for strict order.
    Redis,
}

/// The Redis server that counts for one counter of a sequence with strict order.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingRedis {
    /// The URL without user, password and parameters.
    pub server: String,
    pub is_up: bool,
    /// The window that the server issues from, if this process knows of one.
    pub window: Option<i64>,
    /// No number at or above the ceiling is issued before the database has raised the ceiling.
    pub ceiling: Option<i64>,
    /// How long the numbers below the ceiling last at the present rate, in seconds.
    pub lasts_seconds: Option<f64>,
}

/// A sequence after a change of its definition, its floor or its state.
#[derive(Clone, Debug)]
pub struct Changed {
    pub name: SequenceName,
    /// False once the sequence is retired.
    pub is_live: bool,
    /// `None` if this version of Odometer cannot read the definition.
    pub definition: Option<Arc<Definition>>,
    /// The version of the definition; it only grows.
    pub version: i64,
    /// No number below the floor is issued any more. If the sequence has periods, this floor says
    /// nothing: each period has its own.
    pub floor: i64,
}

/// Sequences that were changed, by this replica or by another one, as one database reports.
#[derive(Clone, Debug)]
pub struct News {
    pub source: Source,
    /// How many recoveries of that database this process had seen when it read the changes.
    pub n_recoveries: u64,
    pub changed: Vec<Changed>,
}

/// A recovery that was seen: all counters of a database were raised.
///
/// What is remembered of its counters is not worth a try any more. Earlier news from the database do
/// not count.
#[derive(Clone, Debug)]
pub struct SeenRecovery {
    pub source: Source,
    /// How many recoveries of that database this process has seen, this one included.
    pub n_recoveries: u64,
    /// The numbers that the database gave before and that are still issued.
    pub kept: KeptNumbers,
}

/// The receivers of the news from the databases of a process.
pub struct Following {
    /// The changed sequences, as fast as their reader takes them.
    pub news: mpsc::Receiver<News>,
    /// The recoveries. They do not wait for the reader of `news`.
    pub recoveries: mpsc::UnboundedReceiver<SeenRecovery>,
}

/// A sequence as this process last saw it in the store.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    pub definition: Arc<Definition>,
    pub definition_version: i64,
    /// The counter. With strict order it is a lower bound, because others add to the counter.
    pub seen: SeenCounter,
    /// The revision of the counter when the definition was read.
    pub revision: i64,
    /// No number below the floor is issued.
    pub floor: i64,
    /// Whether `seen` is worth trying: the last reservation succeeded, and nothing else wrote the
    /// counter between that reservation and the one before.
    pub trusted: bool,
}

/// What one store says about a name.
#[derive(Clone, Debug)]
pub(crate) enum LocalPlacement {
    /// The name lives in this store, or did and is retired. The definition is as the row says. It
    /// may name a store that the name lived in before this store was one of several.
    Here(Arc<Definition>),
    /// The name is claimed for the store that this definition names.
    Elsewhere(Arc<Definition>),
    /// The name is claimed for a store whose database was another one then.
    WrongInstallation,
    Nowhere,
}

/// The state of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHealth {
    /// The URL without user, password and parameters.
    pub database: String,
    /// Whether the database answers.
    pub is_up: bool,
    /// Whether the database was found to have gone back, and no recovery was seen since.
    pub went_back: bool,
    /// The last recovery of the database that this process has seen.
    pub last_recovery: Option<LastRecovery>,
}

/// The state of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisHealth {
    /// The URL without user, password and parameters.
    pub server: String,
    /// Whether the server answers.
    pub is_up: bool,
}
