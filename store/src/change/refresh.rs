//! Polls one database: raises this replica's heartbeat, and reads what was changed since the last
//! poll, for all names at once.
//!
//! The poll runs twice in `definition_refresh`. It also runs when the database comes back, and when
//! another task asks for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::{counter, meta, sequence};
use odometer_core::name::SequenceName;
use odometer_database::{
    complaint::Complaint,
    connection::{Connection, Contact},
    failure::{Cause, StatementFailure},
    monitor::Refresh,
    session::DatabaseConnection,
};
use odometer_process::metrics::DatabaseMetrics;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, FromQueryResult, Iterable, JoinType, Order,
    sea_query::{Expr, ExprTrait, Query},
};
use tokio::sync::mpsc;

use crate::{
    database::Database,
    heartbeat::{Heartbeat, ROW_GONE},
    lineage::StampVerdict,
    outcome::{Changed, News, SeenRecovery},
    rows::catalog,
    set_aside,
    settings::Source,
    stamp_check::{COPIED, PROMOTED, StampCheck, StoreRead},
    worker_lease::baseline::SentAt,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::change::refresh";

/// Bounds the sequences of one statement, and of one piece of news.
const PAGE: usize = 1000;
/// Bounds how long the reader of the news may take to accept the next piece.
const NEWS_TIMEOUT: Duration = Duration::from_secs(1);
/// Reports a recovery that this replica does not accept.
const OLDER_RECOVERY: &str = "the last recovery of the store is older than one that this replica \
                              has seen, so the replica goes on refusing. If `odometer recover` ran \
                              since the store went back, its clock was behind: run it once more";
/// Sets the least and the longest time between two looks while the database is doubted again and
/// again. Each look doubles it.
const WHILE_DOUBTED: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Sets the time between two removals of the rows that ended processes left.
const BETWEEN_DELETIONS: Duration = Duration::from_secs(3600);

/// Reads what other replicas changed, and passes it on as news.
pub(crate) struct Refresher {
    connection: Arc<Connection>,
    heartbeat: Arc<Heartbeat>,
    tell: mpsc::Sender<News>,
    recoveries: mpsc::UnboundedSender<SeenRecovery>,
    /// The name of the store.
    store: Arc<str>,
    source: Source,
    /// The time between two polls.
    interval: Duration,
    time_limit: Duration,
    /// Every change up to this `definitions_version` was passed on, or was made before the first
    /// contact.
    told_up_to: i64,
    /// The installation of this database; empty before the first contact.
    cluster_id: String,
    deleted_old_at: Option<Instant>,
    has_complained: bool,
    older_recovery: Complaint,
    stamp: StampCheck,
    counted: DatabaseMetrics,
}

impl Refresher {
    pub(crate) fn new(
        database: &Database,
        tell: mpsc::Sender<News>,
        recoveries: mpsc::UnboundedSender<SeenRecovery>,
    ) -> Self {
        let settings = &database.settings;
        Self {
            connection: Arc::clone(&database.connection),
            heartbeat: Arc::clone(&database.heartbeat),
            tell,
            recoveries,
            store: Arc::clone(&database.identity.label.store),
            source: database.identity.source,
            // Half of it, so that every replica knows a change within the whole of it.
            interval: settings.definition_refresh / 2,
            time_limit: settings.statement.timeout + settings.statement.acquire,
            told_up_to: 0,
            cluster_id: String::new(),
            deleted_old_at: None,
            has_complained: false,
            older_recovery: Complaint::default(),
            stamp: StampCheck::of(database),
            counted: database.counted.clone(),
        }
    }

    /// Returns the failure of a look on a connection that gives no marks. It was made to a standby,
    /// which may be promoted by now, or a proxy loses them. If `renews`, all connections are replaced
    /// by new ones.
    fn unmarked(&self, renews: bool) -> StatementFailure {
        if renews {
            self.connection.renew();
        }
        let text = "the connection keeps no marks of the server: it was made to a standby, or a \
                    proxy loses them";
        StatementFailure::NotCommitted(Cause::Away(text.to_owned()))
    }

    async fn poll(&mut self) -> Result<(), StatementFailure> {
        let was_doubted = self.heartbeat.is_doubted();
        if was_doubted {
            // A connection that outlived the promotion of its standby gives no marks.
            self.connection.renew();
        }
        let (read, verdict) = self.look().await?;
        let meta = &read.meta;
        match verdict {
            None => self.judge(&read, None).await?,
            Some(StampVerdict::Fits(branch)) => self.judge(&read, Some(branch)).await?,
            Some(StampVerdict::Copied) => self.heartbeat.is_a_copy(COPIED),
            Some(StampVerdict::Promoted) => self.heartbeat.is_a_copy(PROMOTED),
            // Something is gone that this process has seen, or the stamp would have been written.
            Some(StampVerdict::Restarted | StampVerdict::Unstamped) => {
                let n_recoveries = self.heartbeat.n_recoveries();
                self.heartbeat.note_went_back(n_recoveries, ROW_GONE);
            }
            Some(StampVerdict::Unmarked) => return Err(self.unmarked(!was_doubted)),
        }
        let raised = self
            .heartbeat
            .raise(&self.connection, self.time_limit)
            .await;
        self.heartbeat
            .tell_last_recovery(&self.connection, self.time_limit)
            .await?;
        if !self.heartbeat.has_gone_back() && meta.definitions_version > self.told_up_to {
            self.tell_changes(meta.definitions_version).await?;
        }
        raised?;
        self.delete_old().await
    }

    /// Decides what the database is whose stamp fits, on `branch`.
    async fn judge(
        &mut self,
        read: &StoreRead,
        branch: Option<i64>,
    ) -> Result<(), StatementFailure> {
        let meta = &read.meta;
        if meta.recovered_at > self.heartbeat.recovered_at() {
            return self.recover(meta, branch).await;
        }
        if let Some(how) = self.what_went_back(read, branch) {
            let n_recoveries = self.heartbeat.n_recoveries();
            self.heartbeat.note_went_back(n_recoveries, how);
            self.complain_of_older_recovery(meta);
            return Ok(());
        }
        if self.heartbeat.last_confirmed().is_none() {
            // At the first contact the database was a copy, and it counts as whole since.
            let (connection, time_limit) = (&self.connection, self.time_limit);
            let establishing = self.heartbeat.establish(branch, connection, time_limit);
            establishing.await?;
        }
        self.heartbeat.fits(branch);
        Ok(())
    }

    fn what_went_back(&self, read: &StoreRead, branch: Option<i64>) -> Option<&'static str> {
        let meta = &read.meta;
        let known = self.heartbeat.branch();
        if meta.cluster_id != self.cluster_id {
            Some("it is another installation's than before")
        } else if meta.recovered_at < self.heartbeat.recovered_at() {
            Some("it does not know of its last recovery")
        } else if self.heartbeat.has_fallen(read.beat) {
            Some(ROW_GONE)
        } else if branch.is_some() && known.is_some() && branch != known {
            Some("it is on another branch of its history, and no recovery began that branch")
        } else if meta.definitions_version < self.told_up_to {
            Some("it does not know of changes that were made in it")
        } else {
            None
        }
    }

    /// Logs that the last recovery is older than one that this replica has seen. A machine with a
    /// slower clock may have run the recovery that was to end the refusal.
    fn complain_of_older_recovery(&mut self, meta: &meta::Model) {
        let is_older =
            meta.recovered_at.is_some() && meta.recovered_at < self.heartbeat.recovered_at();
        if is_older
            && self.heartbeat.has_gone_back()
            && self.older_recovery.is_due(OLDER_RECOVERY, Instant::now())
        {
            tracing::error!(target: TARGET, store = &*self.store, "{OLDER_RECOVERY}");
        }
    }

    /// Notes that `odometer recover` ran. From here on this replica trusts the store again.
    async fn recover(
        &mut self,
        meta: &meta::Model,
        branch: Option<i64>,
    ) -> Result<(), StatementFailure> {
        let (connection, time_limit) = (&self.connection, self.time_limit);
        let establishing = self.heartbeat.establish(branch, connection, time_limit);
        establishing.await?;
        // Some sequences may have been changed since, or while this replica refused. So all changes
        // are passed on again.
        self.told_up_to = 0;
        self.cluster_id.clone_from(&meta.cluster_id);
        self.heartbeat.recovered(meta.recovered_at, branch);
        // This message does not wait behind news. News that was sent before it does not count after
        // it.
        let seen = SeenRecovery {
            source: self.source,
            n_recoveries: self.heartbeat.n_recoveries(),
        };
        // If the receiver is gone, nothing is issued any more.
        let _is_heard = self.recoveries.send(seen);
        tracing::info!(
            target: TARGET,
            skipped = meta.recovered_skip,
            "the store was recovered, and is reserved from again"
        );
        Ok(())
    }

    async fn delete_old(&mut self) -> Result<(), StatementFailure> {
        let is_due = self
            .deleted_old_at
            .is_none_or(|deleted| deleted.elapsed() >= BETWEEN_DELETIONS);
        if is_due {
            let until = Instant::now() + self.time_limit;
            self.connection.run(until, set_aside::clear_old).await?;
            self.deleted_old_at = Some(Instant::now());
        }
        Ok(())
    }

    async fn look(&self) -> Result<(StoreRead, Option<StampVerdict>), StatementFailure> {
        let sent = SentAt::read();
        let (read, verdict) = self.stamp.look().await?;
        self.counted.note_skew(sent.skew_ms(read.now_ms));
        Ok((read, verdict))
    }

    /// Passes on every sequence whose last change is above `told_up_to`.
    ///
    /// Changes are numbered under the lock of `meta`'s row. So a poll that sees `up_to` there also
    /// sees every change below it. Changes above `up_to` are passed on as soon as they are seen,
    /// and again by the next poll. So a sequence that was changed twice is not left out for being
    /// too new.
    async fn tell_changes(&mut self, up_to: i64) -> Result<(), StatementFailure> {
        let mut after = (self.told_up_to, None);
        loop {
            let until = Instant::now() + self.time_limit;
            let position = after.clone();
            let rows = self
                .connection
                .run(until, move |database| changed_after(database, position))
                .await?;
            let Some((last, _)) = rows.last() else {
                break;
            };
            after = (last.version, Some(last.name.clone()));
            let is_last = rows.len() < PAGE;
            let changed = rows.into_iter().filter_map(|row| changed(row, &self.store));
            let news = News {
                source: self.source,
                n_recoveries: self.heartbeat.n_recoveries(),
                changed: changed.collect(),
            };
            let sent = self.tell.send_timeout(news, NEWS_TIMEOUT).await;
            if sent.is_err() {
                // The reader is gone, or not ready yet. The next poll goes on here.
                return Ok(());
            }
            // Other sequences with this version may be on the next page.
            self.told_up_to = Ord::max(self.told_up_to, after.0.saturating_sub(1));
            if is_last {
                break;
            }
        }
        self.told_up_to = up_to;
        Ok(())
    }
}

impl Refresh for Refresher {
    /// Makes the first contact, before anything is reserved. Nothing is in memory yet, so the
    /// changes up to now are no news.
    async fn meet(&mut self) -> Result<(), StatementFailure> {
        let (read, verdict) = self.look().await?;
        let meta = read.meta;
        self.heartbeat.met(meta.recovered_at);
        let branch = match verdict {
            None => Some(None),
            Some(StampVerdict::Fits(branch)) => Some(Some(branch)),
            Some(StampVerdict::Copied) => {
                self.heartbeat.is_a_copy(COPIED);
                None
            }
            Some(StampVerdict::Promoted) => {
                self.heartbeat.is_a_copy(PROMOTED);
                None
            }
            Some(StampVerdict::Restarted | StampVerdict::Unstamped | StampVerdict::Unmarked) => {
                return Err(self.unmarked(true));
            }
        };
        if let Some(branch) = branch {
            let (connection, time_limit) = (&self.connection, self.time_limit);
            let establishing = self.heartbeat.establish(branch, connection, time_limit);
            establishing.await?;
            self.heartbeat.fits(branch);
        }
        self.told_up_to = meta.definitions_version;
        self.cluster_id = meta.cluster_id;
        Ok(())
    }

    /// Polls until the program ends.
    async fn run(mut self) {
        let mut contact = self.connection.contact_changes();
        let (least, longest) = WHILE_DOUBTED;
        let mut while_doubted = least;
        loop {
            // Nothing can be read while the database is away. When it comes back, the poll runs at
            // once.
            if contact.wait_for(|now| *now == Contact::Up).await.is_err() {
                return;
            }
            let next = Instant::now() + self.interval;
            let was_doubted = self.heartbeat.is_doubted();
            match self.poll().await {
                Ok(()) => self.has_complained = false,
                Err(failure) if !std::mem::replace(&mut self.has_complained, true) => {
                    tracing::warn!(
                        target: TARGET,
                        error = failure.cause().text(),
                        "what other replicas changed cannot be read for now; it is tried again"
                    );
                }
                Err(_) => {}
            }
            while_doubted = match was_doubted || self.heartbeat.is_doubted() {
                true => longest.min(while_doubted * 2),
                false => least,
            };
            let pause = tokio::time::sleep_until(next.into());
            let asked = async {
                self.connection.refresh.notified().await;
                if while_doubted > least {
                    tokio::time::sleep(while_doubted).await;
                }
            };
            let doubted = async {
                self.heartbeat.doubted().await;
                tokio::time::sleep(while_doubted).await;
            };
            tokio::select! {
                () = pause => {}
                () = asked => {}
                () = doubted => {}
                went = contact.wait_for(|now| *now != Contact::Up) => {
                    if went.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// A changed sequence, and the floor of its counter without period, if it has such a counter.
type ChangedRow = (sequence::Model, Option<i64>);

fn changed((row, floor): ChangedRow, store: &str) -> Option<Changed> {
    let broken = |error: String| {
        tracing::error!(
            target: TARGET,
            sequence = row.name,
            error,
            "a stored definition cannot be read"
        );
    };
    let name = SequenceName::parse(&row.name)
        .map_err(|error| broken(error.to_string()))
        .ok()?;
    // Floor and state hold even if a newer version wrote a definition that this version cannot
    // read.
    let definition = catalog::read_definition(&row.definition, store)
        .map_err(|error| broken(error.to_string()))
        .ok()
        .map(Arc::new);
    Some(Changed {
        name,
        is_live: row.state == catalog::LIVE,
        definition,
        version: row.version,
        floor: floor.unwrap_or(0),
    })
}

/// Returns a page of the changes after a position, in the order of the changes.
async fn changed_after(
    database: DatabaseConnection,
    (version, name): (i64, Option<String>),
) -> Result<Vec<ChangedRow>, DbErr> {
    let mut behind = Condition::any().add(sequence::Column::Version.gt(version));
    if let Some(name) = name {
        behind = behind.add(
            sequence::Column::Version
                .eq(version)
                .and(sequence::Column::Name.gt(name)),
        );
    }
    let query = Query::select()
        .columns(sequence::Column::iter().map(|column| (sequence::Entity, column)))
        .column((counter::Entity, counter::Column::Floor))
        .from(sequence::Entity)
        .join(
            JoinType::LeftJoin,
            counter::Entity,
            catalog::its_counter(catalog::NO_PERIOD),
        )
        .cond_where(behind)
        .and_where(Expr::col((sequence::Entity, sequence::Column::State)).ne(catalog::ELSEWHERE))
        .order_by((sequence::Entity, sequence::Column::Version), Order::Asc)
        .order_by((sequence::Entity, sequence::Column::Name), Order::Asc)
        .limit(u64::try_from(PAGE).unwrap_or(u64::MAX))
        .to_owned();
    let rows = database.query_all(&query).await?;
    rows.iter()
        .map(|row| {
            Ok((
                sequence::Model::from_query_result(row, "")?,
                row.try_get("", "floor")?,
            ))
        })
        .collect()
}
