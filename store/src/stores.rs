//! All stores, and in which of them a name lives: what the rest of the program holds.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{join_all, select_all, try_join_all};
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
use tracing::Instrument as _;

use crate::{
    Act, Altered, BlockFate, Condition, JournalBlock, JournalRow, NumberTrace, Page,
    ReserveRequest, SeenCounter, SequenceSummary, Serving, Source, StartError, StoreError,
    Unpublished,
    journal::recent,
    kind::Store,
    outcome::{Contact, Following},
    placement::Homes,
    settings::{Process, StoresSettings},
};
use odometer_process::host;
use uuid::Uuid;

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::stores";

/// News that may wait until they are taken notice of.
const NEWS_AHEAD: usize = 1;

/// How much later than the first of them other stores may answer.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(1);

/// The start, beyond the time for which a schema is waited for.
const START: Duration = Duration::from_secs(60);

/// Where all sequences live.
pub struct Stores {
    default: Store,
    /// In the order of the configuration.
    others: Vec<Store>,
    /// What they are called, in the same order.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) placements: Homes,
    /// This process, as the journals call it.
    holder: Arc<str>,
    started: Instant,
    /// For so long an unfit store ends the process.
    start: Duration,
    /// Whoever issues from these stores takes the end at which their news arrive.
    news: Mutex<Option<Following>>,
}

impl Stores {
    /// Starts to reach for all databases in the background; they may be away.
    ///
    /// # Errors
    /// What waiting cannot mend and can be seen without the databases.
    pub async fn connect(
        settings: StoresSettings,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StartError> {
        let (tell_recovery, recoveries) = mpsc::unbounded_channel();
        let process = Process {
            holder: holder_name().into(),
            metrics,
            recoveries: tell_recovery,
        };
        let (tell, news) = mpsc::channel(NEWS_AHEAD);
        let places = 0..settings.stores.len();
        let start = settings.bounds.statement.schema_wait + START;
        // At once: each that is away is waited for a little.
        let connecting =
            places.map(|index| Store::connect(&settings, index, &process, tell.clone()));
        let mut stores = try_join_all(connecting).await?.into_iter();
        let Some(default) = stores.next() else {
            let problem = "stores: there is none".to_owned();
            return Err(StartError::Configuration(problem));
        };
        Ok(Arc::new(Self {
            default,
            others: stores.collect(),
            names: settings.names().into_iter().map(Arc::from).collect(),
            placements: Homes::default(),
            holder: process.holder,
            started: Instant::now(),
            start,
            news: Mutex::new(Some(Following { news, recoveries })),
        }))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(&self.default).chain(&self.others)
    }

    /// Whether every name lives in the same store.
    pub(crate) fn has_one(&self) -> bool {
        self.others.is_empty()
    }

    /// The place of a store in the configuration.
    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| **known == *name)
    }

    /// Whether a database is one of that store.
    pub fn has(&self, source: Source, store: &str) -> bool {
        self.index_of(store) == Some(usize::from(source.store))
    }

    /// The store at a place of the configuration.
    pub(crate) fn at(&self, index: usize) -> &Store {
        let other = index.checked_sub(1);
        other
            .and_then(|other| self.others.get(other))
            .unwrap_or(&self.default)
    }

    /// Resolves with what a database turned out to be, if waiting does not mend it; else never.
    ///
    /// A store that turns out to be unfit when the start is long over takes no other one down.
    pub async fn fatal(&self) -> StartError {
        let mut waiting: Vec<_> = self
            .all()
            .zip(&self.names)
            .map(|(store, name)| Box::pin(async move { (name, store.fatal().await) }))
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
    }

    /// The best of what is known of all stores.
    pub fn contact(&self) -> Contact {
        let best = self.all().map(Store::contact).max();
        best.unwrap_or(Contact::None)
    }

    /// Whether each of the stores answers.
    pub fn is_up(&self) -> bool {
        self.all().all(|store| store.contact() == Contact::Up)
    }

    /// What serves a counter of a sequence that is defined so.
    pub fn serving(&self, key: &CounterKey, definition: &Definition) -> Option<Serving> {
        let index = self.index_of(&definition.store)?;
        let mut serving = self.at(index).serving(&definition.store, key);
        if definition.order != Order::Strict {
            // Redis counts for others.
            serving.redis = None;
        }
        Some(serving)
    }

    /// Resolves when one of the stores answers, and the others do or take longer than a moment.
    pub async fn reached(&self) {
        let all = || self.all().map(|store| Box::pin(store.reached()));
        select_all(all()).await;
        // Whoever is later is done without.
        let _in_time = tokio::time::timeout(OTHERS_TIMEOUT, join_all(all())).await;
    }

    /// At most `limit` counters that are in use, those used most recently first; also such of
    /// periods that are over.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn recently_used(&self, limit: usize) -> Result<Vec<CounterKey>, StoreError> {
        let all = self.all().map(|store| store.recently_used(limit));
        let mut of_each = Vec::new();
        let mut refused = None;
        for found in join_all(all).await {
            match found {
                // Where a name lives is for the default store to say.
                Ok(found) => of_each.push(found),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if of_each.is_empty() => Err(error),
            Some(_) | None => Ok(recent::in_turn(of_each, limit)),
        }
    }

    /// Reserves in a task that nobody cancels; the outcome arrives at the receiver.
    pub fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        if self.has_one() {
            return self.default.reserve(request);
        }
        let (answer, receiver) = oneshot::channel();
        let stores = Arc::clone(self);
        let call = request.progress.call();
        let reserving = async move {
            let outcome = stores.reserve_at_home(request).await;
            // Dropped with a block in it, the outcome counts the block as abandoned.
            let _gone = answer.send(outcome);
        };
        self.default.handle().spawn(reserving.instrument(call));
        receiver
    }

    /// The most reservations of one database that were under way at once since the start.
    pub fn peak_reservations_in_flight(&self) -> usize {
        self.all().map(Store::peak_in_flight).max().unwrap_or(0)
    }

    /// Queues what became of a block for the journal of the database that it is of.
    pub fn write_journal(&self, row: JournalRow, fate: BlockFate) {
        self.at(row.source.store.into()).write_journal(row, fate);
    }

    /// Rows of the journals that wait to be written.
    pub fn n_journal_rows_queued(&self) -> usize {
        self.all().map(Store::n_journal_rows_queued).sum()
    }

    /// Tasks alive in the stores' runtimes.
    pub fn n_tasks(&self) -> usize {
        self.all().map(Store::n_tasks).sum()
    }

    /// Numbers that were given back to the journals and are not in the databases yet.
    pub fn n_numbers_returning(&self) -> u64 {
        self.all().map(Store::n_numbers_returning).sum()
    }

    /// Waits until the journals have all that was queued.
    pub async fn flush_journal(&self) {
        join_all(self.all().map(Store::flush_journal)).await;
    }

    /// The same of the store of this name; of all where there is none.
    pub async fn flush_journal_of(&self, store: &str) {
        match self.index_of(store) {
            Some(index) => self.at(index).flush_journal().await,
            None => self.flush_journal().await,
        }
    }

    /// What is known of the store of this name; of all where there is none.
    pub fn contact_of(&self, store: &str) -> Contact {
        let index = self.index_of(store);
        index.map_or_else(|| self.contact(), |index| self.at(index).contact())
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
        last_seen: Option<SeenCounter>,
    ) -> Result<Altered, StoreError> {
        self.alter_at_home(name, act, condition, last_seen).await
    }

    /// Runs to the end what must not stop half-way when its caller gives up.
    pub fn finish<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.default.handle().spawn(work)
    }

    /// Names of live sequences that a caller of `name` may have meant, at most a few hundred of
    /// each store; none where that takes longer than `time_limit`.
    pub async fn names_like(&self, name: &SequenceName, time_limit: Duration) -> Vec<String> {
        let all = self.all().map(|store| store.names_like(name, time_limit));
        join_all(all).await.concat()
    }

    /// A definition and a counter as they are stored; a period has no counter before its first use.
    ///
    /// # Errors
    /// `NotFound`, `PeriodRemoved`, or why the store did not answer.
    pub async fn look_up(
        &self,
        key: &CounterKey,
    ) -> Result<(SequenceSummary, Option<SeenCounter>), StoreError> {
        let found = self.placement(&key.sequence).await?.look_up(key).await;
        if matches!(found, Err(StoreError::NotFound)) {
            self.placements.forget(&key.sequence);
        }
        found
    }

    /// Below what nothing of a counter is issued: anything where it is not there yet; `None` where
    /// its period is removed.
    ///
    /// # Errors
    /// `NotFound`, or why the store did not answer.
    pub async fn floor_of(&self, key: &CounterKey) -> Result<Option<i64>, StoreError> {
        self.placement(&key.sequence).await?.floor_of(key).await
    }

    /// Rows of a sequence's journal: of the periods that sort last, the highest first.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn blocks(&self, name: &SequenceName) -> Result<Vec<JournalBlock>, StoreError> {
        self.placement(name).await?.blocks(name).await
    }

    /// What is known of one number.
    ///
    /// # Errors
    /// `NotFound`, `HasPeriods`, `NoPeriods`, `PeriodRemoved`, or why the store did not answer.
    pub async fn trace(&self, key: &CounterKey, value: i64) -> Result<NumberTrace, StoreError> {
        self.placement(&key.sequence).await?.trace(key, value).await
    }

    /// This process, as the journals call it.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// A page of definitions.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn list(&self, prefix: &str, after: &str, limit: u64) -> Result<Page, StoreError> {
        let all = self.all().map(|store| store.list(prefix, after, limit));
        let mut pages = try_join_all(all).await?;
        if pages.len() == 1
            && let Some(page) = pages.pop()
        {
            return Ok(page);
        }
        Ok(merged(pages, limit))
    }

    /// What changes in the stores, as this replica learns of it; `None` from the second call on.
    pub fn news(&self) -> Option<Following> {
        self.news.lock().take()
    }

    /// Writes the rest of the journals, closes the connections and ends the stores' runtimes.
    pub async fn close(&self, time_limit: Duration) {
        join_all(self.all().map(|store| store.close(time_limit))).await;
    }
}

/// One page of pages that begin behind the same name.
fn merged(pages: Vec<Page>, limit: u64) -> Page {
    let has_more = pages.iter().any(|page| page.next.is_some());
    let mut sequences: Vec<SequenceSummary> =
        pages.into_iter().flat_map(|page| page.sequences).collect();
    sequences.sort_by(|one, other| one.name.cmp(&other.name));
    sequences.dedup_by(|one, other| one.name == other.name);
    Page::of(sequences, limit, has_more)
}

/// Who this process is to the journal: host, process and start.
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
        let merged_page = merged(vec![page(&["a", "d"], true), page(&["b", "c"], false)], 3);
        assert_eq!(names_of(&merged_page), ["a", "b", "c"]);
        assert_eq!(merged_page.next, Some(name("c")));
        // What one store has more lies behind all that the other one has.
        let whole = merged(vec![page(&["a"], false), page(&["b"], false)], 2);
        assert_eq!((names_of(&whole), &whole.next), (vec!["a", "b"], &None));
        let more = merged(vec![page(&["a", "b"], true), page(&["c"], false)], 2);
        assert_eq!(
            (names_of(&more), &more.next),
            (vec!["a", "b"], &Some(name("b")))
        );
    }
}
