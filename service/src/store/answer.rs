//! What the store is asked and tells of definitions and of the journal.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{definition::Definition, name::SequenceName, period::Period};
use tokio::sync::mpsc;

use super::settings::Source;

/// Rows of the journal that a description shows.
pub(super) const BLOCKS_SHOWN: u8 = 100;

/// What must hold for a definition to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// There must be no sequence of that name yet.
    MustNotExist,
    /// The sequence must be at this version.
    Version(i64),
}

/// A sequence and one of its counters as their rows say, in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub is_live: bool,
    pub definition: Arc<Definition>,
    /// The version of the definition.
    pub version: i64,
    /// Whose counter it is: that of the period which was to be changed, else the one without period,
    /// which issues nothing where the sequence counts in periods.
    pub period: Period,
    /// Whether nothing is issued of the period any more.
    pub is_removed: bool,
    /// Nothing below it is issued.
    pub floor: i64,
    /// The high-water mark.
    pub next_value: i64,
    /// Numbers a second, as a refill last stored them.
    pub rate: f64,
}

/// What became of a sequence that was to be changed.
#[derive(Clone, Debug)]
pub struct Altered {
    /// `None` where it did not exist.
    pub before: Option<Snapshot>,
    pub after: Snapshot,
    /// False where all was as wanted already, and after a dry run.
    pub is_written: bool,
}

/// One line of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: SequenceName,
    /// `live` or `retired`.
    pub state: String,
    pub definition: Arc<Definition>,
    pub version: i64,
}

/// A page of a listing, in the byte order of names.
#[derive(Clone, Debug)]
pub struct Page {
    pub sequences: Vec<Listed>,
    /// The last name of this page, where another page follows.
    pub next: Option<SequenceName>,
}

impl Page {
    /// The first `limit` of these definitions, which are in their order; `has_more` where others
    /// are known to follow them.
    pub(super) fn of(mut sequences: Vec<Listed>, limit: u64, has_more: bool) -> Self {
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = has_more || sequences.len() > shown;
        sequences.truncate(shown);
        let last = sequences.last().filter(|_| has_more);
        Self {
            next: last.map(|last| last.name.clone()),
            sequences,
        }
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

/// What serves a sequence, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// The name of its store.
    pub store: String,
    pub kind: StoreKind,
    /// In the order of the configuration.
    pub databases: Vec<ServingDatabase>,
    /// What counts, where Redis does.
    pub redis: Option<ServingRedis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// One ordinary database.
    Database,
    /// Several databases share each sequence.
    Striped,
    /// Redis counts where order is strict.
    Redis,
}

/// One database of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingDatabase {
    /// Its URL without user, password and parameters.
    pub database: String,
    pub is_up: bool,
}

/// The Redis server that counts for one counter of a sequence with strict order.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingRedis {
    /// Its URL without user, password and parameters.
    pub server: String,
    pub is_up: bool,
    /// The window it issues from, where this process knows of one.
    pub window: Option<i64>,
    /// Nothing at or above it is issued before the database has raised it.
    pub ceiling: Option<i64>,
    /// How long the numbers below the ceiling last at the present rate, in seconds.
    pub lasts_seconds: Option<f64>,
}

/// A sequence as it stands after a change of its definition, its floor or its life.
#[derive(Clone, Debug)]
pub struct Changed {
    pub name: SequenceName,
    /// False once it is retired.
    pub is_live: bool,
    /// `None` where this version cannot read it.
    pub definition: Option<Arc<Definition>>,
    /// The version of the definition; it only grows.
    pub version: i64,
    /// Nothing below it is issued any more; says nothing of a sequence that counts in periods, each
    /// of which has a floor of its own.
    pub floor: i64,
}

/// Sequences that were changed, here or at another replica, as one database says.
#[derive(Clone, Debug)]
pub struct News {
    pub source: Source,
    /// How many recoveries of that database this process had seen when it was read.
    pub n_recoveries: u64,
    pub changed: Vec<Changed>,
}

/// `odometer recover` ran on a database: nothing that is remembered of a counter is worth a try,
/// nothing that the database gave before is issued, and earlier news of it do not count.
#[derive(Clone, Copy, Debug)]
pub struct SeenRecovery {
    pub source: Source,
    /// How many of that database this process has seen, with this one.
    pub n_recoveries: u64,
}

/// Where the news of a process's databases arrive.
pub struct Following {
    /// As many as their reader takes.
    pub news: mpsc::Receiver<News>,
    /// These wait for no news.
    pub recoveries: mpsc::UnboundedReceiver<SeenRecovery>,
}
