//! Polls one database: raises this replica's heartbeat, and reads what was changed since the last
//! poll, for all names at once.
//!
//! The poll runs twice in `definition_refresh`. It also runs when the database comes back, and when
//! another task asks for it.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use entity::meta;
use odometer_database::{
    connection::{Connection, Contact},
    failure::{Cause, StatementFailure},
    monitor::Refresh,
    target::Target,
};
use odometer_process::{
    faults::{self, Fault},
    metrics::DatabaseMetrics,
};
use tokio::sync::mpsc;

use super::{
    changed_rows::{PAGE, changed, changed_after},
    recover::is_of_older,
    self_fencing::{FencingError, SelfFencing},
};
use crate::{
    database::Database,
    fences::{ASTRAY, Recoveries},
    heartbeat::{Heartbeat, ROW_GONE},
    lineage::StampVerdict,
    outcome::{News, SeenRecovery},
    set_aside,
    settings::Source,
    stamp_check::{COPIED, PROMOTED, RESTARTED, StampCheck, StoreRead, needs_fence},
    trust::Met,
    worker_lease::baseline::SentAt,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::change::refresh";

/// Bounds how long the reader of the news may take to accept the next piece.
const NEWS_TIMEOUT: Duration = Duration::from_secs(1);
/// Says what a recovery of a program before schema 7 means.
const OLDER_PROGRAM: &str = "`odometer recover` of an earlier version has run last, which did not \
                             stamp it: run that of this version";
const OTHER_INSTALLATION: &str = "it is another installation's than before";
/// Says what another branch means.
const OTHER_BRANCH: &str = "it is on another branch of its history, and no recovery that this \
                            replica knows leads there";
/// Bounds the looks at recoveries that do not lead to the branch.
const MAX_ASTRAY: u32 = 3;
/// Sets the time between two attempts to fence, after one that failed or made a fence, and after one
/// whose loss cannot be known.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
const AFTER_REFUSAL: Duration = Duration::from_secs(30);
/// Bound how long a replica waits for one that knows more: one that ran before the failover, or
/// one that lived through the start of the server. It has its database again within two seconds.
const WAIT_FOR_OTHERS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(30));
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
    /// The last recovery that an operator has ended for new counters, as `meta.births_after` gave it.
    births_after: Option<i64>,
    /// The installation of this database; empty before the first contact.
    cluster_id: String,
    deleted_old_at: Option<Instant>,
    has_complained: bool,
    stamp: StampCheck,
    fences: SelfFencing,
    /// When the next attempt to fence may be made.
    fence_from: Instant,
    /// How many looks in a row found recoveries that do not lead to the branch.
    n_astray: u32,
    /// Since when the database needs a fence. `None` if it needs none.
    unfenced_since: Option<Instant>,
    counted: DatabaseMetrics,
}

impl Refresher {
    pub(crate) fn new(
        database: &Database,
        target: Target,
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
            births_after: None,
            cluster_id: String::new(),
            deleted_old_at: None,
            has_complained: false,
            stamp: StampCheck::new(
                (&database.connection, &database.heartbeat),
                (settings, database.unfenced.is_none()),
                &database.counted,
            ),
            fences: SelfFencing::of(database, target),
            fence_from: Instant::now(),
            n_astray: 0,
            unfenced_since: None,
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
            None | Some(StampVerdict::Fits(_)) => self.judge(&read).await?,
            Some(StampVerdict::Copied) => self.heartbeat.is_a_copy(COPIED),
            Some(StampVerdict::Promoted) => self.fence(PROMOTED, Duration::ZERO).await?,
            Some(StampVerdict::Restarted) if self.stamp.fences(meta) => {
                // Nobody can vouch if this replica misses its heartbeat.
                let wait = match self.heartbeat.has_fallen(read.beat) {
                    true => Duration::ZERO,
                    false => self.longest_wait(2),
                };
                self.fence(RESTARTED, wait).await?;
            }
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
        if !self.heartbeat.has_gone_back() && meta.definitions_version > self.told_up_to {
            self.tell_changes(meta.definitions_version).await?;
        }
        raised?;
        if self.heartbeat.is_sound() {
            self.unfenced_since = None;
        }
        if !self.heartbeat.has_gone_back() {
            let has_mark = self.heartbeat.mark().is_some();
            let arming = self.fences.arm(&self.connection, meta, has_mark);
            arming.await?;
        }
        self.delete_old().await
    }

    /// Decides what the database is whose stamp fits, if stamps are compared.
    async fn judge(&mut self, read: &StoreRead) -> Result<(), StatementFailure> {
        let branch = read.branch();
        if is_of_older(&read.meta) {
            let n_recoveries = self.heartbeat.n_recoveries();
            self.heartbeat.note_went_back(n_recoveries, OLDER_PROGRAM);
            return Ok(());
        }
        if branch != self.heartbeat.branch() {
            return self.judge_branch(read).await;
        }
        if let Some(how) = self.what_went_back(read) {
            let n_recoveries = self.heartbeat.n_recoveries();
            self.heartbeat.note_went_back(n_recoveries, how);
            return Ok(());
        }
        if self.heartbeat.last_confirmed().is_none() {
            // At the first contact the database was a copy, and it counts as whole since.
            let (connection, time_limit) = (&self.connection, self.time_limit);
            let establishing = self.heartbeat.establish(branch, connection, time_limit);
            establishing.await?;
        }
        self.heartbeat.fits(branch);
        if read.meta.births_after != self.births_after {
            self.births_after = read.meta.births_after;
            self.heartbeat.births_have_ended();
        }
        Ok(())
    }

    /// Decides what the database is that is on another branch than this replica knows.
    ///
    /// It was recovered, if its recoveries lead there. Otherwise it is a copy that lost a recovery,
    /// or another database. Another replica may use it, so it is fenced above what that one knows.
    async fn judge_branch(&mut self, read: &StoreRead) -> Result<(), StatementFailure> {
        let recoveries = self.read_recoveries().await?;
        if !recoveries.lead_to(read.branch()) {
            return self.is_astray();
        }
        self.n_astray = 0;
        let known = self.heartbeat.recoveries();
        if !recoveries.were_said_since(&known) {
            if read.meta.cluster_id != self.cluster_id {
                let n_recoveries = self.heartbeat.n_recoveries();
                self.heartbeat
                    .note_went_back(n_recoveries, OTHER_INSTALLATION);
                return Ok(());
            }
            if !recoveries.follow(self.heartbeat.branch(), &known) {
                return self.fence(OTHER_BRANCH, Duration::ZERO).await;
            }
        }
        self.recover(&read.meta, met(read, recoveries)).await
    }

    /// Notes that the recoveries of the database do not lead to its branch. It may have been recovered
    /// again between the two reads. If it stays so, a row is missing, and nobody knows what else.
    ///
    /// # Errors
    /// Look again.
    fn is_astray(&mut self) -> Result<(), StatementFailure> {
        self.n_astray = self.n_astray.saturating_add(1);
        if self.n_astray < MAX_ASTRAY {
            return Err(StatementFailure::NotCommitted(Cause::Contention));
        }
        self.heartbeat.is_a_copy(ASTRAY);
        Ok(())
    }

    fn what_went_back(&self, read: &StoreRead) -> Option<&'static str> {
        let meta = &read.meta;
        if meta.cluster_id != self.cluster_id {
            Some(OTHER_INSTALLATION)
        } else if self.heartbeat.has_fallen(read.beat) {
            Some(ROW_GONE)
        } else if meta.definitions_version < self.told_up_to {
            Some("it does not know of changes that were made in it")
        } else {
            None
        }
    }

    /// Returns how long a replica waits for those that know more. By then each living one has polled
    /// `n_polls` times.
    fn longest_wait(&self, n_polls: u32) -> Duration {
        let (least, longest) = WAIT_FOR_OTHERS;
        (self.interval * n_polls).clamp(least, longest)
    }

    /// Raises all counters above what the database may have lost, but not before it has needed that
    /// for as long as `wait`. If nobody can know what that is, nothing is reserved until an
    /// operator recovers the database.
    ///
    /// What this replica has seen may be lost for another reason than a failover, at another time.
    /// So a replica that misses something fences nothing.
    ///
    /// # Errors
    /// The database failed. Call this again. If it goes on failing, nothing is reserved meanwhile,
    /// as if nobody could know.
    async fn fence(&mut self, how: &str, wait: Duration) -> Result<(), StatementFailure> {
        let since = *self.unfenced_since.get_or_insert_with(Instant::now);
        let is_early = since.elapsed() < wait || Instant::now() < self.fence_from;
        if self.heartbeat.is_lost() || is_early {
            return Ok(());
        }
        let longest = wait + self.longest_wait(2);
        let mut raising = pin!(self.fences.raise(&self.heartbeat, &self.cluster_id));
        let patience = longest.saturating_sub(since.elapsed()).max(AFTER_FAILURE);
        let raised = match tokio::time::timeout(patience, &mut raising).await {
            Ok(raised) => raised,
            Err(_) => {
                // It is being raised all the same.
                let why = format!("{how}; it is being fenced, which takes long");
                self.heartbeat.is_a_copy(&why);
                raising.await
            }
        };
        match raised {
            // The next look finds the fence. It covers all that this replica knows, so another one
            // is not needed. If it is, it can wait.
            Ok(()) => {
                self.fence_from = Instant::now() + AFTER_FAILURE;
                self.unfenced_since = None;
                self.connection.refresh.notify_one();
                Ok(())
            }
            Err(FencingError::Refused(why)) => {
                self.fence_from = Instant::now() + AFTER_REFUSAL;
                self.heartbeat.is_a_copy(&format!("{how}; {why}"));
                Ok(())
            }
            Err(FencingError::Failed(why)) => {
                self.fence_from = Instant::now() + AFTER_FAILURE;
                let is_short = since.elapsed() < longest;
                if is_short || faults::is(Fault::FencesFailSilently) {
                    return Err(StatementFailure::NotCommitted(Cause::Away(why)));
                }
                // Callers and operators must hear of it. It is tried again all the same.
                self.heartbeat
                    .is_a_copy(&format!("{how}; it could not be fenced so far: {why}"));
                Ok(())
            }
        }
    }

    async fn read_recoveries(&self) -> Result<Recoveries, StatementFailure> {
        let until = Instant::now() + self.time_limit;
        let reading = self
            .connection
            .run(until, async |database| Recoveries::read(&database).await);
        reading.await
    }

    /// Notes a recovery. From here on this replica trusts the store again, unless it misses something
    /// and no operator has said what was lost.
    async fn recover(&mut self, meta: &meta::Model, met: Met) -> Result<(), StatementFailure> {
        let known = self.heartbeat.recoveries();
        let has_said = met.recoveries.were_said_since(&known);
        let kept = met.recoveries.keep_numbers_of(self.heartbeat.branch());
        let (connection, time_limit) = (&self.connection, self.time_limit);
        let establishing = self.heartbeat.establish(met.branch, connection, time_limit);
        establishing.await?;
        let n_fences = met.recoveries.log_since(&known, &self.store);
        self.counted.fences.increment(n_fences);
        // Some sequences may have been changed since, or while this replica refused. So all changes
        // are passed on again.
        self.told_up_to = 0;
        self.cluster_id.clone_from(&meta.cluster_id);
        self.heartbeat.recovered(met, has_said);
        // This message does not wait behind news. News that was sent before it does not count after
        // it.
        let seen = SeenRecovery {
            source: self.source,
            n_recoveries: self.heartbeat.n_recoveries(),
            kept,
        };
        // If the receiver is gone, nothing is issued any more.
        let _is_heard = self.recoveries.send(seen);
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

    /// Waits until the database needs no fence any more. Replicas that ran before may know more of it,
    /// so they go first: one of them fences a copy, and all of them vouch for a start. Returns what
    /// was read last.
    async fn wait_for_others(
        &self,
        verdict: Option<StampVerdict>,
    ) -> Result<(StoreRead, Option<StampVerdict>), StatementFailure> {
        let n_polls = match verdict {
            Some(StampVerdict::Restarted) => 2,
            _ => 1,
        };
        let until = Instant::now() + self.longest_wait(n_polls);
        let (_, between) = WHILE_DOUBTED;
        loop {
            tokio::time::sleep(between).await;
            let (read, verdict) = self.look().await?;
            if needs_fence(verdict).is_none() || Instant::now() >= until {
                return Ok((read, verdict));
            }
        }
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

/// Returns what was read of a database and its branch.
fn met(read: &StoreRead, recoveries: Recoveries) -> Met {
    Met {
        branch: read.branch(),
        recovered_at: read.meta.recovered_at,
        recoveries,
    }
}

impl Refresh for Refresher {
    /// Makes the first contact, before anything is reserved. Nothing is in memory yet, so the
    /// changes up to now are no news.
    async fn meet(&mut self) -> Result<(), StatementFailure> {
        let (mut read, mut verdict) = self.look().await?;
        // A fence that is made now is news, also to a replica that has just started.
        let mut before = None;
        if needs_fence(verdict).is_some() {
            before = Some(self.read_recoveries().await?);
            (read, verdict) = self.wait_for_others(verdict).await?;
        }
        self.cluster_id.clone_from(&read.meta.cluster_id);
        if let Some(how) = needs_fence(verdict) {
            self.fence(how, Duration::ZERO).await?;
            (read, verdict) = self.look().await?;
        }
        let recoveries = self.read_recoveries().await?;
        let branch = read.branch();
        let is_astray = !recoveries.lead_to(branch);
        if let Some(before) = before {
            let n_fences = recoveries.log_since(&before, &self.store);
            self.counted.fences.increment(n_fences);
        }
        self.heartbeat.met(met(&read, recoveries));
        match verdict {
            None | Some(StampVerdict::Fits(_)) if is_astray => self.is_astray()?,
            None | Some(StampVerdict::Fits(_)) => {
                let (connection, time_limit) = (&self.connection, self.time_limit);
                let establishing = self.heartbeat.establish(branch, connection, time_limit);
                establishing.await?;
                self.heartbeat.fits(branch);
                if is_of_older(&read.meta) {
                    let n_recoveries = self.heartbeat.n_recoveries();
                    self.heartbeat.note_went_back(n_recoveries, OLDER_PROGRAM);
                }
            }
            Some(StampVerdict::Copied) => self.heartbeat.is_a_copy(COPIED),
            Some(StampVerdict::Promoted) => self.heartbeat.is_a_copy(PROMOTED),
            Some(StampVerdict::Restarted) => self.heartbeat.is_a_copy(RESTARTED),
            Some(StampVerdict::Unstamped | StampVerdict::Unmarked) => {
                return Err(self.unmarked(true));
            }
        }
        self.told_up_to = read.meta.definitions_version;
        self.cluster_id = read.meta.cluster_id;
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
