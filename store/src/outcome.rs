//! What the store is asked and tells of definitions and of the journal.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{definition::Definition, name::SequenceName, period::Period};
use tokio::sync::mpsc;

use crate::rows::counter::SeenCounter;
use crate::settings::Source;

/// Rows of the journal that a description shows.
pub(crate) const BLOCKS_SHOWN: u8 = 100;

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
    /// The last name of this page, where another page follows.
    pub next: Option<SequenceName>,
}

impl Page {
    /// The first `limit` of these definitions, which are in their order; `has_more` where others
    /// are known to follow them.
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

/// A sequence as this process last saw it in the store.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub definition: Arc<Definition>,
    pub definition_version: i64,
    /// With strict order the least that it can be: others add to it.
    pub seen: SeenCounter,
    /// The counter's count of changes, at which the definition was read.
    pub revision: i64,
    /// Nothing below it is issued.
    pub floor: i64,
    /// Whether `seen` is worth trying: the last reservation held, and the counter had not been written
    /// since the one before it.
    pub trusted: bool,
}

/// What one store says of a name.
#[derive(Clone, Debug)]
pub(crate) enum LocalPlacement {
    /// It lives there, or did and is retired; as its row says, which may name a store that it lived
    /// in before this was one of several.
    Here(Arc<Definition>),
    /// It is claimed for the store that this definition names.
    Elsewhere(Arc<Definition>),
    /// It is claimed for a store whose database was another one then.
    Astray,
    Nowhere,
}

/// How a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// Its name in the configuration.
    pub store: String,
    pub kind: StoreKind,
    /// In the order of the configuration.
    pub databases: Vec<DatabaseHealth>,
    /// The same; none but where Redis counts.
    pub redis: Vec<RedisHealth>,
}

/// How a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHealth {
    /// Its URL without user, password and parameters.
    pub database: String,
    /// Whether it answers.
    pub is_up: bool,
    /// Whether it was found to have gone back to an earlier state, and not to have been recovered.
    pub went_back: bool,
}

/// How a Redis server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisHealth {
    /// Its URL without user, password and parameters.
    pub server: String,
    /// Whether it answers.
    pub is_up: bool,
}

/// What is known of the store now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contact {
    /// It has not answered since the start.
    None,
    WrongSchema,
    /// It answered once and does not now.
    Lost,
    Up,
}
