//! Offers all stores to the rest of the program, and finds the store in which a name lives.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::future::{BoxFuture, join_all, select_all, try_join_all};
use odometer_core::{
    definition::{Definition, Order},
    name::SequenceName,
    period::CounterKey,
};
use odometer_process::metrics::Metrics;
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    BlockFate, Contact, JournalBlock, JournalRow, NumberTrace, Page, ReserveRequest, SeenCounter,
    SequenceSummary, Serving, Source, StartError, StoreError, StoreHealth, Unpublished,
    change::fencing::FenceRequest,
    database::Database,
    error::any_answers,
    journal::recent,
    outcome::Following,
    placement::RememberedPlacements,
    settings::{OpenFor, Process, StoresSettings},
    store::Store,
};
use odometer_process::host;
use uuid::Uuid;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::stores";

/// Bounds how many pieces of news wait for their reader.
const NEWS_AHEAD: usize = 1;

/// Bounds how long the start waits for other stores after the first store has answered.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Sets the time for the start, in addition to the wait for a schema.
const START: Duration = Duration::from_secs(60);

/// All stores of this process.
pub struct Stores {
    default: Arc<Store>,
    /// The other stores, in the order of the configuration.
    others: Vec<Arc<Store>>,
    pub(crate) placements: RememberedPlacements,
    /// The name of this process in the journals.
    holder: Arc<str>,
    started: Instant,
    /// The time from `started` in which an unfit store ends the process.
    start: Duration,
    /// The receivers of the stores' news, until their reader takes them.
    news: Mutex<Option<Following>>,
}

impl Stores {
    /// Opens all databases. To serve, it only begins to connect to them in the background, and they
    /// may be away. For a command, all that [`OpenFor`] names must answer now.
    ///
    /// # Errors
    /// A problem that does not pass by waiting. For a command, also that a database is away or not
    /// fit to be changed. The message names the database.
    pub fn open(
        settings: StoresSettings,
        open_for: OpenFor,
        metrics: Arc<Metrics>,
    ) -> BoxFuture<'static, Result<Arc<Self>, StartError>> {
        Box::pin(async move {
            let (tell_recovery, recoveries) = mpsc::unbounded_channel();
            let process = Process {
                open_for,
                holder: holder_name().into(),
                metrics,
                recoveries: tell_recovery,
            };
            let (tell, news) = mpsc::channel(NEWS_AHEAD);
            let places = 0..settings.stores.len();
            let start = settings.bounds.statement.schema_wait + START;
            // All at once, because the start waits a little for each database that is away.
            let connecting =
                places.map(|index| Store::open(settings.databases(index), &process, tell.clone()));
            // All are waited for. So the runtime of a database that is being opened is not dropped
            // here, and if several stores fail, the first one's error is told.
            let stores: Result<Vec<_>, _> = join_all(connecting).await.into_iter().collect();
            let mut stores = stores?.into_iter();
            let Some(default) = stores.next() else {
                let problem = "stores: there is none".to_owned();
                return Err(StartError::Configuration(problem));
            };
            Ok(Arc::new(Self {
                default,
                others: stores.collect(),
                placements: RememberedPlacements::default(),
                holder: process.holder,
                started: Instant::now(),
                start,
                news: Mutex::new(Some(Following { news, recoveries })),
            }))
        })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Store>> {
        std::iter::once(&self.default).chain(&self.others)
    }

    fn databases(&self) -> impl Iterator<Item = &Arc<Database>> {
        self.all().flat_map(|store| store.databases())
    }

    /// Returns whether there is only one store, so that every name lives in it.
    pub(crate) fn has_one(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns the index of a store in the configuration.
    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.all().position(|store| *store.name == *name)
    }

    /// Returns whether a database belongs to the store of this name.
    pub fn has(&self, source: Source, store: &str) -> bool {
        self.index_of(store) == Some(usize::from(source.store))
    }

    /// Returns the store at an index of the configuration.
    pub(crate) fn at(&self, index: usize) -> &Arc<Store> {
        let other = index.checked_sub(1);
        other
            .and_then(|other| self.others.get(other))
            .unwrap_or(&self.default)
    }

    /// Resolves with the problem of a store, if the problem does not pass by waiting. Otherwise
    /// never resolves.
    ///
    /// A store that turns out to be unfit long after the start is only logged, if another store
    /// answers.
    pub fn fatal<'a>(&'a self) -> BoxFuture<'a, StartError> {
        Box::pin(async move {
            let mut waiting: Vec<_> = self
                .all()
                .map(|store| Box::pin(async move { (&store.name, store.fatal().await) }))
                .collect();
            while !waiting.is_empty() {
                let ((name, error), _, others) = select_all(waiting).await;
                let is_alone = self.all().all(|store| store.contact() != Contact::Up);
                if is_alone || self.started.elapsed() < self.start {
                    return error;
                }
                tracing::error!(
                    target: TARGET,
                    store = &**name,
                    error = %error,
                    "the store is not fit to be used: its sequences are refused until a restart"
                );
                waiting = others;
            }
            std::future::pending().await
        })
    }

    /// Returns the best contact that is known of any store.
    pub fn contact(&self) -> Contact {
        let best = self.all().map(|store| store.contact()).max();
        best.unwrap_or(Contact::None)
    }

    /// Returns whether every store answers.
    pub fn is_up(&self) -> bool {
        self.all().all(|store| store.contact() == Contact::Up)
    }

    /// Returns the state of each store, in the order of the configuration, as this process knows it
    /// now. No server is asked.
    pub fn health(&self) -> Vec<StoreHealth> {
        self.all().map(|store| store.health()).collect()
    }

    /// Returns the wish of this replica to fence the database of its first store, for tests.
    #[doc(hidden)]
    pub fn fence_request(&self, cluster_id: &str, within: Duration) -> Option<FenceRequest> {
        let member = self.at(0).members.first()?;
        let heartbeat = &member.database.heartbeat;
        Some(FenceRequest::of(heartbeat, cluster_id, within))
    }

    /// Returns what serves a counter of a sequence with this definition. `None` if there is no such
    /// store.
    pub fn serving(&self, key: &CounterKey, definition: &Definition) -> Option<Serving> {
        let index = self.index_of(&definition.store)?;
        let mut serving = self.at(index).serving(key);
        if definition.order != Order::Strict {
            // Redis counts only for strict order.
            serving.redis = None;
        }
        Some(serving)
    }

    /// Resolves when one store answers, and the others answer too or take longer than
    /// `OTHERS_TIMEOUT`.
    pub fn reached<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let all = || self.all().map(|store| Box::pin(store.reached()));
            select_all(all()).await;
            // The start goes on without the stores that are later.
            let _in_time = tokio::time::timeout(OTHERS_TIMEOUT, join_all(all())).await;
        })
    }

    /// Returns at most `limit` counters that are in use, from each store the most recently used
    /// first. Counters of periods that are over may be among them.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub fn recently_used<'a>(
        &'a self,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<CounterKey>, StoreError>> {
        Box::pin(async move {
            // The default store decides in which store a name lives, so nothing is checked here.
            let all = self.all().map(|store| store.recently_used(limit));
            Ok(recent::in_turn(any_answers(join_all(all).await)?, limit))
        })
    }

    /// Reserves in a task that runs to its end. The outcome arrives at the receiver.
    pub fn reserve(
        &self,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        let counted_by = request.counted_by.as_ref();
        let index = counted_by.and_then(|definition| self.index_of(&definition.store));
        self.at(index.unwrap_or(0)).reserve(request)
    }

    /// Returns the highest number of reservations that one database had under way at once.
    pub fn peak_reservations_in_flight(&self) -> usize {
        let peaks = self.databases().map(|it| &it.peak_in_flight);
        let peaks = peaks.map(|peak| peak.load(Ordering::Relaxed));
        peaks.max().unwrap_or(0)
    }

    /// Returns how many databases share the sequences of the store of this name: 1 or more.
    pub fn n_databases(&self, store: &str) -> usize {
        let index = self.index_of(store);
        index.map_or(1, |index| self.at(index).members.len().max(1))
    }

    /// Queues the fate of a block for the journal of the block's database.
    pub fn write_journal(&self, row: JournalRow, fate: BlockFate) {
        let store = self.at(row.source.store.into());
        if let Some(member) = store.members.get(usize::from(row.source.database)) {
            member.database.journal.write(row, fate);
        }
    }

    /// Returns how many rows of the journals wait to be written.
    pub fn n_journal_rows_queued(&self) -> usize {
        self.databases().map(|it| it.journal.n_queued()).sum()
    }

    /// Returns how many tasks are alive in the stores' runtimes.
    pub fn n_tasks(&self) -> usize {
        self.databases().map(|it| it.connection.n_tasks()).sum()
    }

    /// Returns how many numbers were given back to the journals and are not in the databases yet.
    pub fn n_numbers_returning(&self) -> u64 {
        self.databases().map(|it| it.journal.n_returning()).sum()
    }

    /// Waits until the journals have all rows that were queued.
    pub fn flush_journal<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            join_all(self.databases().map(|it| it.journal.flush())).await;
        })
    }

    /// Waits until the journal of one store has all queued rows. If there is no store of this name,
    /// waits for all journals.
    pub fn flush_journal_of<'a>(&'a self, store: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(index) = self.index_of(store) else {
                return self.flush_journal().await;
            };
            let databases = self.at(index).databases();
            join_all(databases.map(|it| it.journal.flush())).await;
        })
    }

    /// Returns the contact of the store of this name, or the best contact if there is no such
    /// store.
    pub fn contact_of(&self, store: &str) -> Contact {
        let index = self.index_of(store);
        index.map_or_else(|| self.contact(), |index| self.at(index).contact())
    }

    /// Returns whether the store of this name could reserve a block now, as far as this process
    /// knows. No server is asked.
    pub fn can_reserve(&self, store: &str) -> bool {
        let store = self.index_of(store).map(|index| self.at(index));
        store.is_some_and(|it| it.databases().any(|database| database.can_reserve()))
    }

    /// Returns the cause of a statement that failed, in a sentence, and forgets all causes. If there
    /// are several databases, the sentence names the database. `None` if no statement failed since
    /// the last call.
    pub fn take_last_failure(&self) -> Option<String> {
        let failures: Vec<_> = self.databases().map(|it| it.take_last_failure()).collect();
        failures.into_iter().flatten().next()
    }

    /// Runs work to its end that must not stop half-way when its caller gives up.
    pub fn finish<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.default.tasks().spawn(work)
    }

    /// Returns names of live sequences that a caller of `name` may have meant, at most a few
    /// hundred of each store. A store that takes longer than `time_limit` adds none.
    pub fn names_like<'a>(
        &'a self,
        name: &'a SequenceName,
        time_limit: Duration,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            let all = self.all().map(|store| store.names_like(name, time_limit));
            join_all(all).await.concat()
        })
    }

    /// Returns a definition and a counter as they are stored. A period has no counter before its
    /// first use.
    ///
    /// # Errors
    /// `NotFound`, `PeriodRemoved`, or why the store did not answer.
    pub fn look_up<'a>(
        &'a self,
        key: &'a CounterKey,
    ) -> BoxFuture<'a, Result<(SequenceSummary, Option<SeenCounter>), StoreError>> {
        Box::pin(async move {
            let found = self.placement(&key.sequence).await?.look_up(key).await;
            if matches!(found, Err(StoreError::NotFound)) {
                self.placements.forget(&key.sequence);
            }
            found
        })
    }

    /// Returns the floor of a counter: no number below it is issued. The floor is `i64::MIN` if
    /// there is no counter yet, and `None` if the period is removed.
    ///
    /// # Errors
    /// `NotFound`, or why the store did not answer.
    pub fn floor_of<'a>(
        &'a self,
        key: &'a CounterKey,
    ) -> BoxFuture<'a, Result<Option<i64>, StoreError>> {
        Box::pin(async move { self.placement(&key.sequence).await?.floor_of(key).await })
    }

    /// Returns rows of a sequence's journal. Periods that sort last come first, and in each period
    /// the highest block comes first.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub fn blocks<'a>(
        &'a self,
        name: &'a SequenceName,
    ) -> BoxFuture<'a, Result<Vec<JournalBlock>, StoreError>> {
        Box::pin(async move { self.placement(name).await?.blocks(name).await })
    }

    /// Returns what is known of one number.
    ///
    /// # Errors
    /// `NotFound`, `Changed`, `PeriodRemoved`, or why the store did not answer.
    pub fn trace<'a>(
        &'a self,
        key: &'a CounterKey,
        value: i64,
    ) -> BoxFuture<'a, Result<NumberTrace, StoreError>> {
        Box::pin(async move { self.placement(&key.sequence).await?.trace(key, value).await })
    }

    /// Returns the name of this process in the journals.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns one page of definitions, in the order of names.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            let all = self.all().map(|store| store.list(prefix, after, limit));
            Ok(Page::merged(try_join_all(all).await?, limit, |_| 0))
        })
    }

    /// Returns live sequences whose names begin with `prefix` and come after `after`, with the number
    /// of keys that their callers have used, at most `limit` in the order of names.
    ///
    /// Stores that are away create nothing, and are left out.
    ///
    /// # Errors
    /// Why a store did not answer.
    pub fn count_keys<'a>(
        &'a self,
        prefix: &'a str,
        after: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<(SequenceName, u64)>, StoreError>> {
        Box::pin(async move {
            let asked = self.all().filter(|store| store.contact() == Contact::Up);
            let counting = asked.map(|store| store.count_keys(prefix, after, limit));
            let mut counted = try_join_all(counting).await?.concat();
            counted.sort_unstable();
            counted.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(counted)
        })
    }

    /// Returns the receivers of the stores' news. Returns `None` from the second call on.
    pub fn news(&self) -> Option<Following> {
        self.news.lock().take()
    }

    /// Writes the rest of the journals, closes the connections, and ends the stores' runtimes.
    pub fn close<'a>(&'a self, time_limit: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            join_all(self.all().map(|store| store.close(time_limit))).await;
        })
    }
}

impl Drop for Stores {
    /// Ends the tasks of stores that were not closed. The tasks keep one another alive, and would go
    /// on to the end of the process.
    fn drop(&mut self) {
        for database in self.databases() {
            database.connection.abandon();
        }
    }
}

/// Returns the name of this process in the journal: host name, process id, and a random part for
/// each start.
pub(crate) fn holder_name() -> String {
    let start = Uuid::new_v4().simple().to_string();
    let start = start.get(..8).unwrap_or_default();
    format!("{}-{start}", host::process())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn name(text: &str) -> SequenceName {
        SequenceName::parse(text).unwrap()
    }

    fn page(names: &[&str], more: bool) -> Page {
        let listed = |text: &&str| SequenceSummary {
            name: name(text),
            state: "live".to_owned(),
            definition: Arc::default(),
            version: 0,
        };
        Page::of(names.iter().map(listed).collect(), u64::MAX, more)
    }

    fn names_of(page: &Page) -> Vec<&str> {
        let names = page.sequences.iter().map(|listed| listed.name.as_str());
        names.collect()
    }

    #[test]
    fn pages_of_several_stores_are_one() {
        let merged = |pages, limit| Page::merged(pages, limit, |_| 0);
        let merged_page = merged(vec![page(&["a", "d"], true), page(&["b", "c"], false)], 3);
        assert_eq!(names_of(&merged_page), ["a", "b", "c"]);
        assert_eq!(merged_page.next, Some(name("c")));
        // The merged page is the last one only if no store has more names.
        let whole = merged(vec![page(&["a"], false), page(&["b"], false)], 2);
        assert_eq!((names_of(&whole), &whole.next), (vec!["a", "b"], &None));
        let more = merged(vec![page(&["a", "b"], true), page(&["c"], false)], 2);
        assert_eq!(
            (names_of(&more), &more.next),
            (vec!["a", "b"], &Some(name("b")))
        );
    }
}
