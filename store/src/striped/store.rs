//! A store of several databases that share each sequence: each counts numbers of its own, so that
//! one of them is enough to go on.
//!
//! What makes a number of a block, a number that nobody else has, is the place of the database that
//! gave it, and that is stamped into it. All else here is about which database is asked
//! (`health.rs`, `refill.rs`), what all of them have to agree on (`agreement.rs`,
//! `birth.rs`, `mend.rs`, `change.rs`, `decision.rs`) and how they look together (`reading.rs`). ADR 0016 says why it is safe.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use futures_util::future::{join_all, select_all};
use odometer_database::{connection::Health, start_error::StartError, target::Target};
use odometer_process::metrics::Metrics;
use tokio::{runtime::Handle, sync::mpsc};

use super::{agreement::Agreements, health::Member, memory::CounterMemory};
use crate::database::Database;
use crate::error::StoreError;
use crate::outcome::Contact;
use crate::settings::{DatabaseSettings, Process};
use crate::striped::assign_installation;
use crate::{BlockFate, JournalRow, News, StoreLimits};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::striped";

/// News of one database that may wait until they were looked through.
const NEWS_AHEAD: usize = 1;

/// Several databases that share their sequences.
pub(crate) struct Striped {
    /// As the configuration calls it.
    pub(crate) name: Arc<str>,
    /// In their order.
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) memory: CounterMemory,
    pub(crate) agreements: Arc<Agreements>,
    /// Held by whoever changes a sequence.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// At which database the next lease of a worker id begins.
    pub(crate) lease_turn: AtomicUsize,
    pub(crate) bounds: StoreLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// The first database's runtime.
    handle: Handle,
}

impl Striped {
    /// Starts to reach for the databases in the background; they may be away.
    ///
    /// # Errors
    /// What waiting cannot mend and can be seen by now.
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
        // All are looked at, so that it is the first of several that is complained of.
        let databases = join_all(connecting).await.into_iter();
        let databases = databases.collect::<Result<Vec<_>, _>>()?;
        let beats = databases
            .iter()
            .map(|it| Arc::clone(&it.heartbeat))
            .collect();
        let agreements = Arc::new(Agreements::new(beats));
        let members: Vec<_> = databases.into_iter().map(Member::start).collect();
        let handle = members.first().map(|first| first.database.handle().clone());
        let (Some(handle), Some((name, bounds))) = (handle, name_and_bounds) else {
            let problem = "stores: one has no database".to_owned();
            return Err(StartError::Configuration(problem));
        };
        handle.spawn(hear(news, tell, Arc::clone(&agreements)));
        Ok(Arc::new(Self {
            name,
            memory: CounterMemory::new(members.len()),
            members,
            agreements,
            changing: tokio::sync::Mutex::new(()),
            lease_turn: AtomicUsize::new(0),
            bounds,
            metrics: Arc::clone(&process.metrics),
            handle,
        }))
    }

    /// What all of them count.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn member(&self, k: usize) -> Result<&Arc<Member>, StoreError> {
        self.members.get(k).ok_or(StoreError::Unavailable)
    }

    /// A database that answers.
    pub(crate) fn any(&self) -> Option<&Arc<Database>> {
        self.databases()
            .find(|database| database.health() == Health::Up)
    }

    pub(crate) fn databases(&self) -> impl Iterator<Item = &Arc<Database>> {
        self.members.iter().map(|member| &member.database)
    }

    /// Resolves with what a database turned out to be, if waiting does not mend it and no other one
    /// serves; else never.
    pub(crate) async fn fatal(&self) -> StartError {
        let all = self.databases().map(|database| Box::pin(database.fatal()));
        let mut left: Vec<_> = all.collect();
        while !left.is_empty() {
            let (error, _, others) = select_all(left).await;
            if self.contact() != Contact::Up {
                return error;
            }
            // Its monitor goes on looking at it.
            tracing::error!(target: TARGET, %error, "a database cannot be used and is passed over; the others give its part");
            left = others;
        }
        std::future::pending().await
    }

    /// The best of what is known of the databases.
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

    /// The runtime of what must not stop half-way.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) async fn close(&self, time_limit: Duration) {
        // The first one's runtime has work of the others.
        let others = self.members.iter().skip(1);
        join_all(others.map(|member| member.database.close(time_limit))).await;
        if let Some(first) = self.members.first() {
            first.database.close(time_limit).await;
        }
    }
}

/// Stamps databases that may be changed at the start; what is away then is waited for like any.
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

/// Passes on what the databases tell, but for what one of them has of another sequence than was
/// agreed on: what it was left with when a creation of that name stopped half-way.
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
