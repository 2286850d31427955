//! The store: blocks that are durably reserved before anybody sees a number of them.
//!
//! The only user of SeaORM and of `entity`. It knows rows and statements; who
//! issues from a block, and to whom, is the `sequence` layer's.

mod answer;
mod backoff;
mod catalogue;
mod change;
mod code;
mod connection;
mod database;
mod error;
mod file_lock;
mod journal;
mod near;
mod removal;
mod reservation;

use std::{future::Future, sync::Arc, time::Duration};

use odometer_core::{name::SequenceName, period::CounterKey};
use sea_orm::DbErr;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use uuid::Uuid;

pub use answer::{Altered, Changed, Condition, JournalBlock, Listed, News, Page, Snapshot};
pub use catalogue::LIVE;
pub use change::Act;
pub use change::direct::DirectStore;
pub use change::recover::{Recovered, recover};
pub use database::Seen;
pub use error::{StartError, StoreError};
pub use journal::trace::{Holder, Trace, Traced};
pub use journal::{Fate, Row};
pub use reservation::{Known, ReserveRequest, Reserved, Unpublished, Want};

use connection::Health;
use connection::session::DatabaseConnection;
use connection::target::Target;
use connection::{
    monitor,
    startup::{self, Verdict},
};
use database::Database;

use crate::metrics::Metrics;

/// What a store is reached and bounded by.
#[derive(Clone)]
pub struct StoreSettings {
    /// Secret: it may hold a password.
    pub url: String,
    /// Connections at most; SQLite always has one.
    pub pool_max: u32,
    /// How long making a connection may take.
    pub acquire: Duration,
    /// How long a statement may take before its outcome counts as unknown.
    pub timeout: Duration,
    /// Tries of one reservation, and the time for all of them.
    pub attempts: u32,
    pub deadline: Duration,
    /// Between two tries: at least, and at most.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub max_sequences: u64,
    /// Keys of one sequence that its callers may give, removed ones included.
    pub keyed_periods: u64,
    /// Rows of the journal that may wait to be written.
    pub journal_queue: usize,
    /// How long a row of the journal is kept once nothing can come of its block any more.
    pub journal_retain: Duration,
    /// Whether PostgreSQL and MySQL are migrated at the start; SQLite always is.
    pub migrate: bool,
    /// How old what is known of definitions may be.
    pub definition_refresh: Duration,
    /// How long a schema that does not fit is waited for.
    pub schema_wait: Duration,
}

/// What is known of the store now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It has not answered since the start.
    None,
    WrongSchema,
    Up,
    /// It answered once and does not now.
    Lost,
}

/// Where sequences live.
pub enum Store {
    /// One ordinary database.
    Database(Arc<Database>),
}

impl Store {
    /// Starts to reach for the database in the background; it may be away.
    ///
    /// # Errors
    /// What waiting cannot mend and can be seen without the database.
    pub async fn connect(
        settings: StoreSettings,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StartError> {
        let database = Database::connect(settings, metrics).await?;
        Ok(Arc::new(Self::Database(database)))
    }

    fn database(&self) -> &Arc<Database> {
        match self {
            Self::Database(database) => database,
        }
    }

    /// Resolves with what the database turned out to be, if waiting does not mend it; else never.
    pub async fn fatal(&self) -> StartError {
        self.database().fatal().await
    }

    pub fn contact(&self) -> Contact {
        match self.database().health() {
            Health::NoContact => Contact::None,
            Health::WrongSchema => Contact::WrongSchema,
            Health::Up => Contact::Up,
            Health::Down => Contact::Lost,
        }
    }

    /// Resolves when the database answers, with a schema that fits.
    pub async fn reached(&self) {
        let mut health = self.database().connection.health_changes();
        // The sending end lives as long as the store.
        let _up = health.wait_for(|health| *health == Health::Up).await;
    }

    /// At most `limit` counters that are in use, those used most recently first; also such of
    /// periods that are over.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn recently_used(&self, limit: usize) -> Result<Vec<CounterKey>, StoreError> {
        self.database().recently_used(limit).await
    }

    /// Reserves in a task that nobody cancels; the outcome arrives at the receiver.
    pub fn reserve(
        &self,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        self.database().reserve(request)
    }

    /// The most reservations that were under way at once since the start.
    pub fn peak_reservations_in_flight(&self) -> usize {
        self.database().peak_in_flight()
    }

    /// Queues what became of a block for the journal.
    pub fn write_journal(&self, row: Row, fate: Fate) {
        self.database().write_journal(row, fate);
    }

    /// Rows of the journal that wait to be written.
    pub fn n_journal_rows_queued(&self) -> usize {
        self.database().journal.n_queued()
    }

    /// Tasks alive in the store's runtime.
    pub fn n_tasks(&self) -> usize {
        self.database().connection.n_tasks()
    }

    /// Numbers that were given back to the journal and are not in the database yet.
    pub fn n_numbers_returning(&self) -> u64 {
        self.database().journal.n_returning()
    }

    /// Waits until the journal has all that was queued.
    pub async fn flush_journal(&self) {
        self.database().journal.flush().await;
    }

    /// Changes a sequence: its definition, its floor, its life, or that of one of its periods.
    ///
    /// `last_seen` is the counter of the act's period as this process last saw it.
    ///
    /// # Errors
    /// Why it was not changed, or that it may have been.
    pub async fn alter(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        last_seen: Option<Seen>,
    ) -> Result<Altered, StoreError> {
        let database = self.database();
        database.alter(name, act, condition, last_seen).await
    }

    /// Runs to the end what must not stop half-way when its caller gives up.
    pub fn finish<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.database().connection.handle().spawn(work)
    }

    /// Names of live sequences that a caller of `name` may have meant, at most a few hundred; none
    /// where that takes longer than `patience`.
    pub async fn names_like(&self, name: &SequenceName, patience: Duration) -> Vec<String> {
        self.database().names_like(name, patience).await
    }

    /// A definition and a counter as they are stored; a period has no counter before its first use.
    ///
    /// # Errors
    /// `NotFound`, `PeriodRemoved`, or why the store did not answer.
    pub async fn look_up(&self, key: &CounterKey) -> Result<(Listed, Option<Seen>), StoreError> {
        self.database().look_up(key).await
    }

    /// Below what nothing of a counter is issued: anything where it is not there yet; `None` where
    /// its period is removed.
    ///
    /// # Errors
    /// `NotFound`, or why the store did not answer.
    pub async fn floor_of(&self, key: &CounterKey) -> Result<Option<i64>, StoreError> {
        self.database().floor_of(key).await
    }

    /// Rows of a sequence's journal: of the periods that sort last, the highest first.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn blocks(&self, name: &SequenceName) -> Result<Vec<JournalBlock>, StoreError> {
        self.database().blocks(name).await
    }

    /// What is known of one number.
    ///
    /// # Errors
    /// `NotFound`, `HasPeriods`, `NoPeriods`, `PeriodRemoved`, or why the store did not answer.
    pub async fn trace(&self, key: &CounterKey, value: i64) -> Result<Trace, StoreError> {
        self.database().trace(key, value).await
    }

    /// This process, as the journal calls it.
    pub fn holder(&self) -> &str {
        &self.database().holder
    }

    /// A page of definitions.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn list(&self, prefix: &str, after: &str, limit: u64) -> Result<Page, StoreError> {
        self.database().list(prefix, after, limit).await
    }

    /// What changes in the store, as this replica learns of it; `None` from the second call on.
    pub fn news(&self) -> Option<mpsc::Receiver<News>> {
        self.database().news.lock().take()
    }

    /// Writes the rest of the journal, closes the connections and ends the store's runtime.
    pub async fn close(&self, patience: Duration) {
        self.database().close(patience).await;
    }
}

/// Brings the schema of the database up to this program.
///
/// # Errors
/// Why it could not be.
pub async fn migrate(settings: &StoreSettings) -> Result<(), StartError> {
    let target = Target::parse(&settings.url)?;
    let _lock = target
        .file
        .as_deref()
        .map(file_lock::FileLock::take)
        .transpose()?;
    monitor::migrate(&target, settings.acquire).await
}

/// Looks at the database and changes nothing; the lines say what was found.
///
/// # Errors
/// Why numbers could not be issued from it.
pub async fn check(settings: &StoreSettings) -> Result<Vec<String>, StartError> {
    let target = Target::parse(&settings.url)?;
    if let Some(file) = target.file.as_deref().filter(|file| !file.exists()) {
        return Ok(vec![format!(
            "database: the SQLite file {} will be created by `odometer serve`",
            file.display()
        )]);
    }
    let (acquire, longest) = (settings.acquire, Some(settings.timeout));
    let looking = |target: &Target| target.looking(acquire);
    let verdict = match DatabaseConnection::reach(&target, acquire, longest, looking).await {
        Ok(database) => {
            let verdict = startup::inspect(database.clone()).await;
            // Nothing was left on the connection that closing could lose.
            let _closed = database.close().await;
            verdict.unwrap_or_else(|error| startup::verdict_of(&error.into()))
        }
        Err(verdict) => verdict,
    };
    match verdict {
        Verdict::Good { warnings } => {
            let mut lines = vec![
                "database: reached, with a schema that fits and settings that last".to_owned(),
            ];
            let warnings = target.warnings.into_iter().chain(warnings);
            lines.extend(warnings.map(|text| format!("warning: {text}")));
            Ok(lines)
        }
        Verdict::Wrong(reason) | Verdict::Schema(reason) => Err(StartError::Configuration(reason)),
        Verdict::Away(reason) => Err(StartError::Other(reason)),
    }
}

/// Options that the driver cannot read; its message may repeat parts of the URL, so it is not shown.
fn unreadable(_error: &DbErr) -> StartError {
    StartError::Configuration(
        "ODOMETER_DATABASE_URL: the database driver cannot read its host, port or parameters"
            .to_owned(),
    )
}

/// Who this process is to the journal: host, process and start.
fn holder_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host
        .trim()
        .chars()
        .filter(char::is_ascii_graphic)
        .take(40)
        .collect();
    let start = Uuid::new_v4().simple().to_string();
    let start = start.get(..8).unwrap_or_default();
    format!("{host}-{}-{start}", std::process::id())
}
