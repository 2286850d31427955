//! Holds one store: one or more databases that share each sequence, and perhaps Redis in front of
//! the only one.
//!
//! With one database, the database has every number. With several, each of them has numbers of its
//! own, so one of them is enough to go on; `striped/mod.rs` explains that.

use std::sync::{Arc, Weak, atomic::AtomicUsize};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, select_all};
use odometer_core::{definition::Stripe, period::CounterKey};
use odometer_database::{
    connection::Contact, start_error::StartError, target::Target, tasks::Tasks,
};
use odometer_process::metrics::Metrics;
use tokio::sync::mpsc;

use crate::{
    News, Serving, StoreError, StoreHealth, StoreKind, StoreLimits,
    change::rules::ChangeRules,
    commands,
    database::Database,
    housekeeping,
    outcome::StoreStatus,
    redis::{agreement::Agreement, store::RedisStore},
    settings::{DatabaseSettings, OpenFor, Process},
    striped::{assign_installation, health::Member, memory::CounterMemory},
};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::striped";

/// The most messages of news that may wait until they are read.
const NEWS_AHEAD: usize = 1;

/// One store: its databases, and what this process knows of them together.
pub(crate) struct Store {
    /// The name of the store in the configuration.
    pub(crate) name: Arc<str>,
    /// The databases, in the order of the configuration. There is at least one.
    pub(crate) members: Vec<Arc<Member>>,
    /// Redis, if it counts sequences with strict order. The store has one database then.
    pub(crate) redis: Option<Arc<RedisStore>>,
    pub(crate) memory: CounterMemory,
    /// The lock that a change of a sequence in several databases takes, so that the changes of this
    /// process do not conflict.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// The number of the next lease of a worker id, which decides which member is asked first.
    pub(crate) lease_turn: AtomicUsize,
    pub(crate) bounds: StoreLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// Starts tasks in the runtime of the first database.
    tasks: Tasks,
}

impl Store {
    /// Opens the databases. If the process serves, databases and Redis may be away, and they are
    /// connected to in the background. A command has its databases to itself: nothing watches them,
    /// and it does not use Redis.
    ///
    /// # Errors
    /// A problem that does not pass by waiting. For a command, also that a database is away or not
    /// fit to be changed.
    pub(crate) async fn open(
        mut settings: Vec<DatabaseSettings>,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Arc<Self>, StartError> {
        let Some(first) = settings.first().cloned() else {
            return Err(without_database());
        };
        let is_serving = process.open_for == OpenFor::Serving;
        let is_alone = settings.len() == 1;
        let label = &first.identity.label;
        let addresses = first.redis.addresses().map_err(|error| error.of(label))?;
        let agreement = Agreement::of(&first.redis)?;
        if !is_alone {
            assign_installation::check_count(&settings)?;
        }
        if process.open_for == OpenFor::DryRun {
            settings.truncate(1);
        } else if !is_alone {
            stamp_at_start(&settings, is_serving).await?;
        }
        let (tell_each, news) = mpsc::channel(NEWS_AHEAD);
        let connecting = settings
            .into_iter()
            .map(|settings| Database::open(settings, process, tell_each.clone()));
        // All databases are waited for first. So if several fail, the first one's error is told.
        let databases = join_all(connecting).await.into_iter();
        let databases = databases.collect::<Result<Vec<_>, _>>()?;
        if is_serving {
            databases.iter().for_each(housekeeping::start);
        }
        let mut redis = None;
        if let ([only], true) = (&*databases, is_serving) {
            // The replicas must also agree that no Redis counts for the database.
            agreement.watch(only);
            if !addresses.is_empty() {
                let fallback = first.redis.fallback;
                redis = Some(RedisStore::start(only, addresses, fallback, process));
            }
        }
        let tasks = databases.first().map(|first| first.tasks().clone());
        let heartbeats = databases.iter().map(|it| Arc::clone(&it.heartbeat));
        let memory = CounterMemory::new(heartbeats.collect());
        let starting = databases.into_iter();
        let is_watched = is_serving && !is_alone;
        let members: Vec<_> = starting.map(|it| Member::start(it, is_watched)).collect();
        let store = Arc::new(Self {
            name: Arc::clone(&label.store),
            memory,
            members,
            redis,
            changing: tokio::sync::Mutex::new(()),
            lease_turn: AtomicUsize::new(0),
            bounds: first.bounds.clone(),
            metrics: Arc::clone(&process.metrics),
            tasks: tasks.ok_or_else(without_database)?,
        });
        let hearing = hear(Arc::downgrade(&store), news, tell);
        store.tasks.spawn(hearing);
        Ok(store)
    }

    /// Returns the database of a store that has one. It decides everything alone.
    pub(crate) fn only(&self) -> Option<&Arc<Database>> {
        match &*self.members {
            [only] => Some(&only.database),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> StoreKind {
        if self.redis.is_some() {
            StoreKind::Redis
        } else if self.only().is_some() {
            StoreKind::Database
        } else {
            StoreKind::Striped
        }
    }

    /// Returns what each change of a sequence keeps to.
    pub(crate) fn change_rules(&self) -> ChangeRules {
        let last = self.members.last();
        ChangeRules {
            store: Arc::clone(&self.name),
            last_stripe: last.map_or(Stripe::WHOLE, |it| it.database.identity.stripe),
            max_sequences: self.bounds.max_sequences,
            keyed_periods: self.bounds.keyed_periods,
        }
    }

    /// Returns what serves one of the store's counters.
    pub(crate) fn serving(&self, key: &CounterKey) -> Serving {
        self.status(self.redis.as_ref().and_then(|redis| redis.serving(key)))
    }

    pub(crate) fn health(&self) -> StoreHealth {
        self.status(self.redis.as_ref().map_or_else(Vec::new, |it| it.health()))
    }

    fn status<R>(&self, redis: R) -> StoreStatus<R> {
        StoreStatus {
            store: self.name.to_string(),
            kind: self.kind(),
            databases: self.databases().map(|it| it.health()).collect(),
            redis,
        }
    }

    pub(crate) fn member(&self, k: usize) -> Result<&Arc<Member>, StoreError> {
        self.members.get(k).ok_or(StoreError::Unavailable)
    }

    /// Returns a member that answers.
    pub(crate) fn any(&self) -> Option<&Arc<Database>> {
        self.databases().find(|database| database.is_up())
    }

    pub(crate) fn databases(&self) -> impl Iterator<Item = &Arc<Database>> {
        self.members.iter().map(|member| &member.database)
    }

    /// Resolves with the problem of a database that does not pass by waiting, if no other database
    /// serves. Otherwise never resolves.
    pub(crate) async fn fatal(&self) -> StartError {
        let all = self.databases().map(|database| Box::pin(database.fatal()));
        let mut left: Vec<_> = all.collect();
        while !left.is_empty() {
            let (error, _, others) = select_all(left).await;
            if self.only().is_some() || self.contact() != Contact::Up {
                return error;
            }
            // The database's monitor goes on looking at it.
            tracing::error!(target: TARGET, %error, "a database cannot be used and is passed over; the others give its part");
            left = others;
        }
        std::future::pending().await
    }

    /// Returns the best contact that there is with a database.
    pub(crate) fn contact(&self) -> Contact {
        let best = self.databases().map(|database| database.contact()).max();
        best.unwrap_or(Contact::None)
    }

    /// Resolves when one of the databases answers.
    pub(crate) async fn reached(&self) {
        let all = self
            .databases()
            .map(|database| Box::pin(database.reached()));
        select_all(all).await;
    }

    /// Returns the deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.bounds.deadline
    }

    /// Returns what starts work that must not stop half-way.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Drops news about a definition that is not of the agreed sequence: such a row is left if a
    /// creation of that name stopped half-way. Forgets the windows of each changed sequence.
    fn note_news(&self, heard: &mut News) {
        heard.changed.retain(|changed| {
            let definition = changed.definition.as_ref();
            definition.is_none_or(|it| self.memory.admits(&changed.name, it))
        });
        if let Some(redis) = &self.redis {
            for changed in &heard.changed {
                redis.counters.forget(&changed.name);
            }
        }
    }

    pub(crate) async fn close(&self, time_limit: Duration) {
        // The runtime of the first member has work of the other members, so the first one is closed
        // last.
        let others = self.members.iter().skip(1);
        join_all(others.map(|member| member.database.close(time_limit))).await;
        if let Some(first) = self.members.first() {
            first.database.close(time_limit).await;
        }
    }
}

/// Stamps the members at the start, if each of them may be changed at the start: a SQLite file always
/// may. If it stops because a member is away, the log says so, and the member is waited for as ever.
async fn stamp_at_start(settings: &[DatabaseSettings], is_serving: bool) -> Result<(), StartError> {
    let mut is_wanted = true;
    for database in settings {
        let target = Target::parse(&database.url);
        let target = target.map_err(|error| error.of(&database.identity.label))?;
        is_wanted &= (is_serving && database.bounds.migrate) || target.file.is_some();
    }
    if !is_wanted {
        return Ok(());
    }
    let stamping = async {
        for database in settings {
            let migrated = Box::pin(commands::migrate_one(database)).await;
            migrated.map_err(|error| error.of(&database.identity.label))?;
        }
        Box::pin(assign_installation::stamp(settings)).await
    };
    match stamping.await {
        Err(StartError::Other(reason)) => {
            tracing::warn!(target: TARGET, "the databases cannot be stamped now: {reason}");
            Ok(())
        }
        stamped => stamped.map(|_n_stamped| ()),
    }
}

/// Passes on the news of the databases.
async fn hear(store: Weak<Store>, mut news: mpsc::Receiver<News>, tell: mpsc::Sender<News>) {
    while let Some(mut heard) = news.recv().await {
        let Some(store) = store.upgrade() else {
            return;
        };
        store.note_news(&mut heard);
        drop(store);
        if tell.send(heard).await.is_err() {
            return;
        }
    }
}

fn without_database() -> StartError {
    StartError::Configuration("stores: one has no database".to_owned())
}
