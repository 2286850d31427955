//! A database with one store on it, and what happens to both.

use std::{sync::Arc, time::Duration};

use odometer_core::{
    block::Block,
    definition::{Definition, DefinitionChange},
    name::SequenceName,
    period::CounterKey,
};
use odometer_process::{metrics::Metrics, secret::Secret};
use odometer_store::{
    Act, Altered, BlockFate, ChangeRequest, Condition, Contact, Durability, FailoverLimits,
    Fallback, LastRecovery, Loss, OpenFor, Recovered, ReservationProgress, ReserveRequest,
    Reserved, Resolved, StartError, StatementBounds, StoreError, StoreLimits, StoreSettings,
    Stores, StoresSettings, Want,
};
use odometer_tests::{Backend, Proxy, Server, TestDatabase, wait};
use tracing::Span;

/// How long anything may take that comes by itself, such as the next poll.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How long a statement may take where its outcome is to be unknown.
const SHORT: Duration = Duration::from_millis(1500);
/// The sequence of the tests.
const ORDERS: &str = "orders";

/// A database, the settings of its store, and the store.
pub(crate) struct Stage {
    pub(crate) database: TestDatabase,
    pub(crate) settings: StoresSettings,
    pub(crate) metrics: Arc<Metrics>,
    /// `None` while another process has the database for itself.
    store: Option<Arc<Stores>>,
}

impl Stage {
    /// A database with the schema, and a store that has reached it.
    pub(crate) async fn new(backend: Backend) -> Self {
        let database = TestDatabase::empty(backend).await;
        let settings = settings(&database.url, LIMIT);
        Self::with(database, settings).await
    }

    /// The same, with a store that waits for no statement for long.
    pub(crate) async fn impatient(backend: Backend) -> Self {
        let database = TestDatabase::empty(backend).await;
        let settings = settings(&database.url, SHORT);
        Self::with(database, settings).await
    }

    /// The same on a server, with a proxy between the store and the server.
    pub(crate) async fn behind_proxy(backend: Backend) -> (Self, Proxy) {
        let database = TestDatabase::empty(backend).await;
        let server = Server::shared(backend).await;
        let proxy = Proxy::to(server.port()).await;
        let settings = settings(&database.url_through(&proxy, server), LIMIT);
        (Self::with(database, settings).await, proxy)
    }

    async fn with(database: TestDatabase, settings: StoresSettings) -> Self {
        let migrated = odometer_store::migrate(&settings, None, &mut |_line| {}, &|_step| {}).await;
        migrated.expect("the schema is made");
        let (store, metrics) = connect(&settings).await;
        Self {
            database,
            settings,
            metrics,
            store: Some(store),
        }
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<Stores> {
        self.store.as_ref().expect("the store is not stopped")
    }

    /// What the store tells of the last recovery of its database.
    pub(crate) fn last_recovery(&self) -> Option<LastRecovery> {
        let mut stores = self.store().health().into_iter();
        let mut databases = stores.next()?.databases.into_iter();
        databases.next()?.last_recovery
    }

    /// Stops the store in order.
    pub(crate) async fn stop(&mut self) {
        if let Some(store) = self.store.take() {
            store.close(LIMIT).await;
        }
    }

    /// Drops the store and closes nothing.
    pub(crate) fn abandon(&mut self) {
        self.store = None;
    }

    /// Starts another store.
    pub(crate) async fn start(&mut self) {
        let (store, metrics) = connect(&self.settings).await;
        (self.store, self.metrics) = (Some(store), metrics);
    }

    /// Recovers the database while the store runs, or where one process has the database for itself,
    /// while it is stopped.
    pub(crate) async fn recover(&mut self, n_steps: u64) -> Recovered {
        let is_alone = self.database.backend == Backend::Sqlite;
        if is_alone {
            self.stop().await;
        }
        let recovered = recover(&self.settings, n_steps).await;
        if is_alone {
            self.start().await;
        }
        recovered
    }

    /// What the sequence of the tests resolves to. It is created if it does not exist.
    pub(crate) async fn resolve_or_create(&self) -> Result<Resolved, StoreError> {
        resolve_or_create(self.store()).await
    }

    /// Reserves `count` numbers, with what the caller remembers of the counter.
    pub(crate) async fn reserve(
        &self,
        count: u64,
        known: Option<&Resolved>,
    ) -> Result<Reserved, StoreError> {
        self.reserve_or_adopt(count, known, None).await
    }

    /// The same; a returned block that lies at `adopt_from` or above is taken over instead.
    pub(crate) async fn reserve_or_adopt(
        &self,
        count: u64,
        known: Option<&Resolved>,
        adopt_from: Option<i64>,
    ) -> Result<Reserved, StoreError> {
        reserve_by(self.store(), count, known, adopt_from).await
    }

    /// Returns what was not issued of a block, and waits until the journal has it.
    pub(crate) async fn give_back(&self, reserved: &Reserved, next_unissued: i64) {
        self.store()
            .write_journal(reserved.row(), BlockFate::Returned { next_unissued });
        self.store().flush_journal().await;
    }

    /// Waits until the store has its database again.
    pub(crate) async fn until_up(&self) {
        until_up(self.store()).await;
    }

    /// Makes a change.
    pub(crate) async fn alter(
        &self,
        act: Act,
        condition: Condition,
    ) -> Result<Altered, StoreError> {
        let change = ChangeRequest {
            name: name(),
            act,
            condition,
            last_seen: None,
            n_created: 0,
        };
        self.store().alter(change).await
    }

    /// Another process reserves `count` numbers.
    pub(crate) async fn another_reserves(&self, count: i64) {
        let raise = format!(
            "UPDATE counter SET next_value = next_value + {count}, version = version + 1 \
             WHERE sequence = '{ORDERS}'"
        );
        self.database.execute(&raise).await;
    }

    /// The database forgets commits: the heartbeat of this process, and what the counters reserved.
    pub(crate) async fn go_back(&self) {
        self.database.execute("DELETE FROM replica").await;
        self.database
            .execute("UPDATE counter SET next_value = 1, version = 0")
            .await;
    }

    /// The high-water mark as the database has it.
    pub(crate) async fn next_value(&self) -> i64 {
        let mark = self.database.next_value(ORDERS).await;
        mark.expect("the sequence has a counter")
    }

    /// Numbers that count as lost because the outcome of their write was not known.
    pub(crate) fn n_abandoned(&self) -> u64 {
        self.counted("odometer_abandoned_numbers_total{cause=\"uncertain\"} ")
    }

    /// Writes of blocks that have no known outcome.
    pub(crate) fn n_uncertain(&self) -> u64 {
        self.counted("odometer_reservations_total{outcome=\"uncertain\"} ")
    }

    /// Reservations that the speed limit held back.
    pub(crate) fn n_limited(&self) -> u64 {
        self.counted("odometer_reservations_total{outcome=\"limited\"} ")
    }

    /// Writes that came after another write of the counter.
    pub(crate) fn n_conflicts(&self) -> u64 {
        self.counted("odometer_reservations_total{outcome=\"conflict\"} ")
    }

    /// Starts of the server that this store trusted.
    pub(crate) fn n_vouched(&self) -> u64 {
        let labels = "{store=\"default\",database=\"0\"} ";
        self.counted(&format!("odometer_store_vouched_total{labels}"))
    }

    /// 1 while this store knows of something that was lost.
    pub(crate) fn went_back(&self) -> u64 {
        self.counted("odometer_store_went_back{store=\"default\",database=\"0\"} ")
    }

    fn counted(&self, name: &str) -> u64 {
        let scrape = self.metrics.render();
        let value = scrape.lines().find_map(|line| line.strip_prefix(name));
        value.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Does something while the database locks what the statement writes, so that the statement gets
    /// no answer in time. Afterwards the database works through what it has received.
    pub(crate) async fn unheard<T>(&self, lock: Lock, work: impl Future<Output = T>) -> T {
        let frozen = match (self.database.backend, lock) {
            // Its whole file is locked.
            (Backend::Sqlite, _) | (_, Lock::Counters) => self.database.freeze().await,
            (_, Lock::Creations) => self.database.freeze_creations("%").await,
            (_, Lock::Blocks) => self.database.freeze_blocks().await,
            (_, Lock::Leases) => self.database.freeze_leases().await,
        };
        let outcome = work.await;
        frozen.thaw().await;
        outcome
    }

    /// The same with a reservation, until one was sent and has no known outcome. A statement of the
    /// store's own may have SQLite's one connection before it. Then the reservation is not sent.
    pub(crate) async fn unknown<T>(&self, lock: Lock, reserving: impl AsyncFn() -> T) -> T {
        let before = self.n_uncertain();
        wait::until("a reservation has no known outcome", LIMIT, async || {
            // What waits for the connection goes first.
            let _waited = self.resolve_or_create().await;
            let outcome = self.unheard(lock, reserving()).await;
            (self.n_uncertain() > before).then_some(outcome)
        })
        .await
    }
}

/// What a database locks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock {
    Counters,
    /// The creation of counters, in the middle of its transaction.
    Creations,
    /// The rows of the journal; they can be read.
    Blocks,
    Leases,
}

/// Reserves by a store, as [`Stage::reserve_or_adopt`].
pub(crate) async fn reserve_by(
    store: &Arc<Stores>,
    count: u64,
    known: Option<&Resolved>,
    adopt_from: Option<i64>,
) -> Result<Reserved, StoreError> {
    let (known, is_first) = match known {
        Some(known) => (known.clone(), false),
        None => (resolve_or_create(store).await?, true),
    };
    let request = ReserveRequest {
        key: key(),
        counted_by: Some(Arc::clone(&known.definition)),
        last_seen: Some(known.seen),
        known: Some(known),
        is_fresh: is_first,
        is_first,
        want: Want::Exactly(count),
        adopt_from,
        urgency: Arc::default(),
        progress: Arc::new(ReservationProgress::of(Span::current())),
    };
    let outcome = store.reserve(request).await;
    let block = outcome.expect("a reservation is answered")?;
    // A recovery that was seen since the reservation drops the block.
    block.publish_for(true).ok_or(StoreError::WentBack)
}

/// What the sequence of the tests resolves to. It is created if it does not exist.
async fn resolve_or_create(store: &Arc<Stores>) -> Result<Resolved, StoreError> {
    let found = match store.resolve(&name(), None).await {
        Err(StoreError::NotFound) => store.create(&name(), &Arc::default(), None).await,
        found => found,
    };
    Ok(found?.known)
}

/// A recovery of every store of `settings`.
pub(crate) async fn recover(settings: &StoresSettings, n_steps: u64) -> Recovered {
    let recovered = recover_by(settings, Loss::Steps(n_steps)).await;
    recovered.expect("the database is recovered")
}

/// The same, whatever was lost.
pub(crate) async fn recover_by(
    settings: &StoresSettings,
    loss: Loss,
) -> Result<Recovered, StartError> {
    let outcomes = odometer_store::recover(settings, None, loss, false, &|_step| {}).await;
    let mut outcomes = outcomes.expect("there is such a store");
    let (_name, outcome) = outcomes.pop().expect("there is one database");
    outcome
}

/// What an operator says of one sequence.
pub(crate) fn of_sequence(name: &str, n_steps: u64) -> Loss {
    Loss::OfSequence {
        name: name.to_owned(),
        n_steps,
    }
}

/// Connects a store and waits until it has reached its database.
pub(crate) async fn connect(settings: &StoresSettings) -> (Arc<Stores>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    let store = Stores::open(settings.clone(), OpenFor::Serving, Arc::clone(&metrics)).await;
    let store = store.expect("the store starts");
    until_up(&store).await;
    (store, metrics)
}

async fn until_up(store: &Stores) {
    wait::until("the database answers", LIMIT, async || {
        (store.contact() == Contact::Up).then_some(())
    })
    .await;
}

/// Settings in which a statement may take so long, and an operation three times as long.
pub(crate) fn settings(url: &str, statement: Duration) -> StoresSettings {
    StoresSettings {
        stores: vec![StoreSettings {
            name: "default".to_owned(),
            key: "database_url".to_owned(),
            origin: "the test".to_owned(),
            databases: vec![Secret::new(url)],
            redis: Vec::new(),
            fallback: Fallback::None,
            durability: None,
        }],
        bounds: StoreLimits {
            statement: StatementBounds {
                pool_max: 4,
                acquire: Duration::from_secs(30),
                timeout: statement,
                backoff_min: Duration::from_millis(5),
                backoff_max: Duration::from_millis(50),
                schema_wait: LIMIT,
            },
            attempts: 4,
            deadline: 3 * statement,
            max_sequences: 1000,
            keyed_periods: 1000,
            journal_queue: 1000,
            journal_retain: Duration::from_secs(86_400),
            durability: Durability::Full,
            failover: FailoverLimits {
                is_lossless: false,
                within: Duration::from_secs(900),
                clock_margin: Duration::from_secs(2),
            },
            migrate: false,
            definition_refresh: Duration::from_secs(1),
        },
        installations: Arc::default(),
    }
}

/// The sequence of the tests.
pub(crate) fn name() -> SequenceName {
    SequenceName::parse(ORDERS).expect("it is a name")
}

/// Its one counter.
pub(crate) fn key() -> CounterKey {
    CounterKey::whole(name())
}

/// A definition from its JSON.
pub(crate) fn define(fields: &str) -> Act {
    let change = DefinitionChange::from_json(fields.as_bytes()).expect("it is a change");
    Act::Define {
        change: Box::new(change),
        template: Arc::new(Definition::default()),
        dry_run: false,
    }
}

/// Whether no number is in two of these blocks.
pub(crate) fn are_apart(blocks: &[Block]) -> bool {
    let mut ranges: Vec<(i64, i64)> = blocks.iter().map(|it| (it.first(), it.last())).collect();
    ranges.sort_unstable();
    ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}
