//! Offers a store of several databases that share each sequence. Each member counts numbers of its
//! own, so one of them is enough to go on.
//!
//! Two members never give the same number, because a member's place decides which numbers it has.
//! That place is stamped into the member. All other files are about three questions. Which member
//! is asked: `health.rs`, `refill.rs`, `leases.rs`. What all members must agree on: `agreement.rs`,
//! `create.rs`, `claims.rs`, `repair.rs`, `change.rs`. What the members know
//! together: `memory.rs`, `queries.rs`. ADR 0016 says why this is safe.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use futures_util::future::{join_all, select_all};
use odometer_database::{
    connection::Health, start_error::StartError, target::Target, tasks::Tasks,
};
use odometer_process::metrics::Metrics;
use tokio::sync::mpsc;

use super::{agreement::Agreements, health::Member, memory::CounterMemory};
use crate::database::Database;
use crate::error::StoreError;
use crate::outcome::Contact;
use crate::settings::{DatabaseSettings, Process};
use crate::striped::assign_installation;
use crate::{BlockFate, JournalRow, News, StoreLimits};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::striped";

/// The most messages of news that may wait until they are read.
const NEWS_AHEAD: usize = 1;

/// Several databases that share their sequences.
pub(crate) struct Striped {
    /// The name of the store in the configuration.
    pub(crate) name: Arc<str>,
    /// The members, in the order of the configuration.
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) memory: CounterMemory,
    pub(crate) agreements: Arc<Agreements>,
    /// The lock that a change of a sequence takes, so that the changes of this process do not
    /// conflict.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// The number of the next lease of a worker id, which decides which member is asked first.
    pub(crate) lease_turn: AtomicUsize,
    pub(crate) bounds: StoreLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// Starts tasks in the runtime of the first member.
    tasks: Tasks,
}

impl Striped {
    /// Starts to connect to the members in the background. They may be away.
    ///
    /// # Errors
    /// A mistake in the settings that no waiting can correct, and that can be seen by now.
    pub(crate) async fn connect(
        settings: Vec<DatabaseSettings>,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Arc<Self>, StartError> {
        assign_installation::check_count(&settings)?;
        stamp_at_start(&settings).await?;
        let first = settings.first();
        let name_and_bounds =
            first.map(|it| (Arc::clone(&it.identity.label.store), it.bounds.clone()));
        let (tell_each, news) = mpsc::channel(NEWS_AHEAD);
        let connecting = settings
            .into_iter()
            .map(|settings| Database::connect(settings, process, tell_each.clone()));
        // All members are waited for first. So if several fail, the error is that of the first one.
        let databases = join_all(connecting).await.into_iter();
        let databases = databases.collect::<Result<Vec<_>, _>>()?;
        let heartbeats = databases
            .iter()
            .map(|it| Arc::clone(&it.heartbeat))
            .collect();
        let agreements = Arc::new(Agreements::new(heartbeats));
        let members: Vec<_> = databases.into_iter().map(Member::start).collect();
        let tasks = members.first().map(|first| first.database.tasks().clone());
        let (Some(tasks), Some((name, bounds))) = (tasks, name_and_bounds) else {
            let problem = "stores: one has no database".to_owned();
            return Err(StartError::Configuration(problem));
        };
        tasks.spawn(hear(news, tell, Arc::clone(&agreements)));
        Ok(Arc::new(Self {
            name,
            memory: CounterMemory::new(members.len()),
            members,
            agreements,
            changing: tokio::sync::Mutex::new(()),
            lease_turn: AtomicUsize::new(0),
            bounds,
            metrics: Arc::clone(&process.metrics),
            tasks,
        }))
    }

    /// Returns the metrics that all members share.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn member(&self, k: usize) -> Result<&Arc<Member>, StoreError> {
        self.members.get(k).ok_or(StoreError::Unavailable)
    }

    /// Returns a member that answers.
    pub(crate) fn any(&self) -> Option<&Arc<Database>> {
        self.databases()
            .find(|database| database.health() == Health::Up)
    }

    pub(crate) fn databases(&self) -> impl Iterator<Item = &Arc<Database>> {
        self.members.iter().map(|member| &member.database)
    }

    /// Resolves with the error of a member that no waiting can correct, if no other member serves.
    /// Else this never resolves.
    pub(crate) async fn fatal(&self) -> StartError {
        let all = self.databases().map(|database| Box::pin(database.fatal()));
        let mut left: Vec<_> = all.collect();
        while !left.is_empty() {
            let (error, _, others) = select_all(left).await;
            if self.contact() != Contact::Up {
                return error;
            }
            // The member's monitor goes on looking at it.
            tracing::error!(target: TARGET, %error, "a database cannot be used and is passed over; the others give its part");
            left = others;
        }
        std::future::pending().await
    }

    /// Returns the best contact that there is with a member.
    pub(crate) fn contact(&self) -> Contact {
        let best = self.databases().map(|database| database.contact()).max();
        best.unwrap_or(Contact::None)
    }

    /// Resolves when one of the members answers.
    pub(crate) async fn reached(&self) {
        let all = self
            .databases()
            .map(|database| Box::pin(database.reached()));
        select_all(all).await;
    }

    pub(crate) fn peak_in_flight(&self) -> usize {
        let peaks = self.databases().map(|database| database.peak_in_flight());
        peaks.max().unwrap_or(0)
    }

    pub(crate) fn write_journal(&self, row: JournalRow, fate: BlockFate) {
        let k = usize::from(row.source.database);
        if let Some(member) = self.members.get(k) {
            member.database.write_journal(row, fate);
        }
    }

    pub(crate) fn n_journal_rows_queued(&self) -> usize {
        let all = self.databases();
        all.map(|database| database.n_journal_rows_queued()).sum()
    }

    pub(crate) fn n_tasks(&self) -> usize {
        self.databases().map(|database| database.n_tasks()).sum()
    }

    pub(crate) fn n_numbers_returning(&self) -> u64 {
        let all = self.databases();
        all.map(|database| database.n_numbers_returning()).sum()
    }

    pub(crate) async fn flush_journal(&self) {
        join_all(self.databases().map(|database| database.flush_journal())).await;
    }

    /// Returns what starts work that must not stop half-way.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
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

/// Stamps the members at the start, if the settings allow changes at the start. If it stops because
/// a member is away, the log says so, and the member is waited for as ever.
async fn stamp_at_start(settings: &[DatabaseSettings]) -> Result<(), StartError> {
    let mut is_wanted = true;
    for database in settings {
        let target =
            Target::parse(&database.url).map_err(|error| error.of(&database.identity.label))?;
        is_wanted &= database.bounds.migrate || target.file.is_some();
    }
    if !is_wanted {
        return Ok(());
    }
    for database in settings {
        let migrating = crate::commands::migrate_one(database);
        match Box::pin(migrating)
            .await
            .map_err(|error| error.of(&database.identity.label))
        {
            Ok(_migrated) => {}
            Err(StartError::Other(reason)) => {
                tracing::warn!(target: TARGET, "the databases cannot be stamped now: {reason}");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    match Box::pin(assign_installation::stamp(settings)).await {
        Ok(_) => Ok(()),
        Err(StartError::Other(reason)) => {
            tracing::warn!(target: TARGET, "the databases cannot be stamped now: {reason}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Passes on the news of the members. It drops news about a definition that is not of the agreed
/// sequence. Such a row is left if a creation of that name stopped half-way.
async fn hear(
    mut news: mpsc::Receiver<News>,
    tell: mpsc::Sender<News>,
    agreements: Arc<Agreements>,
) {
    while let Some(mut heard) = news.recv().await {
        heard.changed.retain(|changed| {
            let definition = changed.definition.as_ref();
            definition.is_none_or(|it| agreements.admits(&changed.name, it))
        });
        if tell.send(heard).await.is_err() {
            return;
        }
    }
}
