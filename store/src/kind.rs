//! Passes each call on to one of the three kinds of stores. Each kind has methods of these names.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};
use odometer_database::tasks::Tasks;
use odometer_process::metrics::Metrics;
use tokio::sync::{mpsc, oneshot};

use crate::{
    Altered, BlockFate, ChangeRequest, JournalBlock, JournalRow, News, NumberTrace, Page,
    ReserveRequest, SeenCounter, SequenceSummary, Serving, StartError, StoreError, StoreKind,
    Unpublished,
    database::Database,
    outcome::{Contact, LocalPlacement},
    redis::{agreement::connect, store::RedisStore},
    reservation::attempt_error::AttemptError,
    settings::{Process, StoresSettings},
    striped::store::Striped,
};

use Databases::{One, Several};

/// A store of one of the three kinds.
pub(crate) enum Store {
    /// One ordinary database.
    Database(Arc<Database>),
    /// Several databases that share each sequence.
    Striped(Arc<Striped>),
    /// One database, and Redis in front of it for strict order.
    Redis(Arc<RedisStore>),
}

/// The databases of a store, for calls in which Redis makes no difference.
pub(crate) enum Databases<'a> {
    One(&'a Arc<Database>),
    Several(&'a Arc<Striped>),
}

impl Store {
    /// Begins to connect to the store at `index` in the background. The store may be away.
    ///
    /// # Errors
    /// A problem that does not pass by waiting, if it can be seen without the store.
    pub(crate) async fn connect(
        settings: &StoresSettings,
        index: usize,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Self, StartError> {
        let mut databases = settings.databases(index);
        if databases.len() > 1 {
            let striped = Striped::connect(databases, process, tell).await?;
            return Ok(Self::Striped(striped));
        }
        let Some(only) = databases.pop() else {
            let problem = "stores: one has no database".to_owned();
            return Err(StartError::Configuration(problem));
        };
        if !only.redis.urls.is_empty() {
            let store = RedisStore::connect(only, process, tell).await?;
            return Ok(Self::Redis(store));
        }
        // The replicas must also agree that no Redis counts for the database.
        let database = connect(only, process, tell).await?;
        Ok(Self::Database(database))
    }

    pub(crate) fn databases(&self) -> Databases<'_> {
        match self {
            Self::Database(database) => One(database),
            Self::Striped(striped) => Several(striped),
            Self::Redis(store) => One(&store.database),
        }
    }

    pub(crate) fn kind(&self) -> StoreKind {
        match self {
            Self::Database(_) => StoreKind::Database,
            Self::Striped(_) => StoreKind::Striped,
            Self::Redis(_) => StoreKind::Redis,
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        match self.databases() {
            One(database) => &database.metrics,
            Several(striped) => striped.metrics(),
        }
    }

    /// Resolves with the problem of the store, if the problem does not pass by waiting. Otherwise
    /// never resolves.
    pub(crate) async fn fatal(&self) -> StartError {
        match self.databases() {
            One(database) => database.fatal().await,
            Several(striped) => striped.fatal().await,
        }
    }

    pub(crate) fn contact(&self) -> Contact {
        match self.databases() {
            One(database) => database.contact(),
            Several(striped) => striped.contact(),
        }
    }

    /// Returns what serves one of the store's counters, with the store's name.
    pub(crate) fn serving(&self, name: &str, key: &CounterKey) -> Serving {
        match self {
            Self::Database(database) => Serving {
                store: name.to_owned(),
                kind: self.kind(),
                databases: vec![database.serving()],
                redis: None,
            },
            Self::Striped(striped) => striped.serving(name),
            Self::Redis(store) => Serving {
                store: name.to_owned(),
                kind: self.kind(),
                databases: vec![store.database.serving()],
                redis: store.serving(key),
            },
        }
    }

    /// Resolves when the store answers.
    pub(crate) async fn reached(&self) {
        match self.databases() {
            One(database) => database.reached().await,
            Several(striped) => striped.reached().await,
        }
    }

    /// Returns what the store says about the placement of a name.
    pub(crate) async fn placement_of(
        &self,
        name: &SequenceName,
    ) -> Result<LocalPlacement, StoreError> {
        match self.databases() {
            One(database) => database.placement_of(name).await,
            Several(striped) => striped.placement_of(name).await,
        }
    }

    /// Notes that a name is to live in the store that its definition names. If the name was claimed
    /// earlier, or lives here, returns that placement instead. Only the default store is asked.
    pub(crate) async fn claim(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
    ) -> Result<LocalPlacement, StoreError> {
        match self.databases() {
            One(database) => database.claim(name, definition).await,
            Several(striped) => striped.claim(name, definition).await,
        }
    }

    /// Checks that one more sequence may be created.
    pub(crate) async fn admit_one_more(&self) -> Result<(), StoreError> {
        let database = match self.databases() {
            One(database) => database,
            Several(striped) => striped.any().ok_or(StoreError::Unavailable)?,
        };
        let until = Instant::now() + database.settings.deadline;
        database
            .admit_one_more(until)
            .await
            .map_err(AttemptError::untried)
    }

    /// Returns whether several databases share each sequence. Such a store has no strict order.
    pub(crate) fn is_striped(&self) -> bool {
        matches!(self, Self::Striped(_))
    }

    pub(crate) async fn recently_used(&self, limit: usize) -> Result<Vec<CounterKey>, StoreError> {
        match self.databases() {
            One(database) => database.recently_used(limit).await,
            Several(striped) => striped.recently_used(limit).await,
        }
    }

    pub(crate) fn reserve(
        &self,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        match self {
            Self::Database(database) => database.reserve(request),
            Self::Striped(striped) => striped.reserve(request),
            Self::Redis(store) => store.reserve(request),
        }
    }

    pub(crate) fn peak_in_flight(&self) -> usize {
        match self.databases() {
            One(database) => database.peak_in_flight(),
            Several(striped) => striped.peak_in_flight(),
        }
    }

    pub(crate) fn write_journal(&self, row: JournalRow, fate: BlockFate) {
        match self.databases() {
            One(database) => database.write_journal(row, fate),
            Several(striped) => striped.write_journal(row, fate),
        }
    }

    pub(crate) fn n_journal_rows_queued(&self) -> usize {
        match self.databases() {
            One(database) => database.n_journal_rows_queued(),
            Several(striped) => striped.n_journal_rows_queued(),
        }
    }

    pub(crate) fn n_tasks(&self) -> usize {
        match self.databases() {
            One(database) => database.n_tasks(),
            Several(striped) => striped.n_tasks(),
        }
    }

    pub(crate) fn n_numbers_returning(&self) -> u64 {
        match self.databases() {
            One(database) => database.n_numbers_returning(),
            Several(striped) => striped.n_numbers_returning(),
        }
    }

    pub(crate) async fn flush_journal(&self) {
        match self.databases() {
            One(database) => database.flush_journal().await,
            Several(striped) => striped.flush_journal().await,
        }
    }

    pub(crate) async fn alter(&self, change: Arc<ChangeRequest>) -> Result<Altered, StoreError> {
        match self {
            Self::Database(database) => database.alter(change).await,
            Self::Striped(striped) => striped.alter(change).await,
            Self::Redis(store) => store.alter(change).await,
        }
    }

    /// Returns what starts work that must not stop half-way when its caller gives up.
    pub(crate) fn tasks(&self) -> &Tasks {
        match self.databases() {
            One(database) => database.tasks(),
            Several(striped) => striped.tasks(),
        }
    }

    pub(crate) async fn names_like(
        &self,
        name: &SequenceName,
        time_limit: Duration,
    ) -> Vec<String> {
        match self.databases() {
            One(database) => database.names_like(name, time_limit).await,
            Several(striped) => striped.names_like(name, time_limit).await,
        }
    }

    pub(crate) async fn look_up(
        &self,
        key: &CounterKey,
    ) -> Result<(SequenceSummary, Option<SeenCounter>), StoreError> {
        match self.databases() {
            One(database) => database.look_up(key).await,
            Several(striped) => striped.look_up(key).await,
        }
    }

    pub(crate) async fn floor_of(&self, key: &CounterKey) -> Result<Option<i64>, StoreError> {
        match self.databases() {
            One(database) => database.floor_of(key).await,
            Several(striped) => striped.floor_of(key).await,
        }
    }

    pub(crate) async fn blocks(
        &self,
        name: &SequenceName,
    ) -> Result<Vec<JournalBlock>, StoreError> {
        match self.databases() {
            One(database) => database.blocks(name).await,
            Several(striped) => striped.blocks(name).await,
        }
    }

    pub(crate) async fn trace(
        &self,
        key: &CounterKey,
        value: i64,
    ) -> Result<NumberTrace, StoreError> {
        match self.databases() {
            One(database) => database.trace(key, value).await,
            Several(striped) => striped.trace(key, value).await,
        }
    }

    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: u64,
    ) -> Result<Page, StoreError> {
        match self.databases() {
            One(database) => database.list(prefix, after, limit).await,
            Several(striped) => striped.list(prefix, after, limit).await,
        }
    }

    pub(crate) async fn close(&self, time_limit: Duration) {
        match self.databases() {
            One(database) => database.close(time_limit).await,
            Several(striped) => striped.close(time_limit).await,
        }
    }
}
