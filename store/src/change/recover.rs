//! Runs `odometer recover`: after the database went back, every sequence goes on above what may
//! have been issued since.
//!
//! A recovery is one transaction that [locks `meta` exclusively](meta_row) from its beginning.
//! Nothing is created or changed meanwhile. A reservation at this time comes before the recovery,
//! or conflicts.
//!
//! The counters of all periods are raised like all others. What was removed stays removed: a
//! tombstone stays a tombstone, and `periods_removed_through` is not touched.

use std::{sync::Arc, time::Duration};

use entity::{block, meta};
use odometer_core::speed_limit::fence::Fence;
use odometer_database::{
    failure::{Cause, StatementFailure},
    file_lock::FileLock,
    file_mark::FileMark,
    fitness::{DatabaseFitness, fitness_of},
    server_mark::ServerMark,
    session::{DatabaseConnection, DatabaseTransaction},
    start_error::StartError,
    target::Target,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter,
    QuerySelect, sea_query::Expr,
};

use crate::{
    change::{
        fencing::{self, FencePlan, FenceRequest},
        leases::{self, ClockPair, Voided},
        rise::{OnPage, RaisedCounters},
        transaction::{self, TransactionError},
    },
    fences::{Recoveries, StoredFence},
    fitness,
    identity::DatabaseIdentity,
    lineage::{self, StampVerdict},
    meta_row,
    recovery::LastRecovery,
    rows::creation_baseline::version_at,
    settings::{DatabaseSettings, StoreLimits},
};

/// Says why nothing can be said of a database that has no stamp.
const NO_STAMP: &str = "this database has no stamp, so what was lost cannot be computed, and you \
                        cannot say that nothing was lost. Give --skip N, with more numbers than \
                        any sequence can have reserved since the state that was restored. Count \
                        the numbers that replicas hold ahead, too";
/// Says why a recovery of one sequence does not make a copy whole.
const NAME_OF_A_COPY: &str = "NAME: this database is a copy, or it was restarted and no replica has \
                              used it since. Give no NAME: `odometer recover` then says for all \
                              sequences what was lost";
/// Sets by how much a recovery is later than the one before if its clock is behind. [`version_at`]
/// leaves space for 60 million changes in this time.
const AFTER_ANOTHER_MS: i64 = 60_000;
/// Bounds the attempts if another transaction is in the way.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(250);
/// Bound how long the fence of a replica holds up others: the time between two statements, the wait
/// for a lock, and a statement, in seconds. A replica that was stopped in the middle gives way.
const POSTGRES_BOUNDS: &str = "SET LOCAL idle_in_transaction_session_timeout = '10s'; \
                               SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '60s'";
const MYSQL_BOUNDS: [&str; 2] = [
    "SET SESSION wait_timeout = 10",
    "SET SESSION innodb_lock_wait_timeout = 30",
];

/// What a database may have lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Up to this many steps of each sequence, as an operator says. If it is none, the database may
    /// only be on another server than before.
    Steps(u64),
    /// Up to this many steps of one sequence, which waits for this word of an operator.
    OfSequence { name: String, n_steps: u64 },
    /// No counter that is not there, as an operator says: those that are created from now on begin
    /// at their start. It is not said what was given of the others.
    NoCounter,
    /// What the speed limits allow since the time that the database was last good.
    Computed(FenceRequest),
}

/// The outcome of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// What `meta.recovered_at` was set to.
    pub recovered_at: i64,
    pub n_sequences: u64,
    /// Whether there is no sequence of the name that was given, and none that was lost. Nothing was
    /// changed then.
    pub is_nowhere: bool,
    /// The fence, if the rises were computed and the database needed them.
    pub fence: Option<LastRecovery>,
    /// Sequences that give nothing until an operator says what was lost, and the first 1000 of them.
    /// If there is nothing to compute or to skip, those that waited before.
    pub n_unknown: u64,
    pub unknown: Vec<String>,
    /// Sequences with a counter that is at its end now: exhausted, unless `max` is raised.
    pub n_at_their_end: u64,
    /// The first of these sequences by name, at most 1000.
    pub at_their_end: Vec<String>,
    /// The largest rise of a counter, and the name of its sequence.
    pub highest_rise: i64,
    pub highest_riser: Option<String>,
    /// Returned blocks that nobody adopts any more, and the numbers in them.
    pub n_blocks: i64,
    pub n_numbers: i64,
    /// Worker ids whose leases are void.
    pub n_leases: u64,
    /// Sequences that lease worker ids. The database may have forgotten leases of them.
    pub n_time_ordered: u64,
    /// No other process uses one of these worker ids before this time (Unix ms).
    pub leases_from_ms: i64,
}

/// Lets every sequence of the database go on above what may have been lost. Changes nothing if
/// `is_dry_run`. `on_page` gets the number of sequences that are raised so far.
///
/// # Errors
/// The reason why nothing was changed.
pub(crate) async fn recover(
    settings: &DatabaseSettings,
    loss: Loss,
    is_dry_run: bool,
    on_page: OnPage<'_>,
) -> Result<Recovered, StartError> {
    let target = Target::parse(&settings.url)?;
    if let Some(file) = target.file.as_deref().filter(|file| !file.exists()) {
        return Err(StartError::Configuration(format!(
            "ODOMETER_DATABASE_URL: the SQLite file {} is not there",
            file.display()
        )));
    }
    let lock = target.file.as_deref().map(FileLock::take).transpose()?;
    let of = (&settings.identity, &settings.bounds);
    let file = lock.as_ref().map(|lock| &**lock.mark());
    recover_at(&target, file, of, (loss, is_dry_run, on_page)).await
}

/// Does the same in a database whose `file`, if it is one, belongs to this process.
///
/// # Errors
/// The reason why nothing was changed.
pub(crate) async fn recover_at(
    target: &Target,
    file: Option<&FileMark>,
    (identity, limits): (&DatabaseIdentity, &StoreLimits),
    (loss, is_dry_run, on_page): (Loss, bool, OnPage<'_>),
) -> Result<Recovered, StartError> {
    let file_mark = file.map(|file| ServerMark::of_file(file.id()));
    let work = async |database: &DatabaseConnection| {
        let how = (loss, is_dry_run, on_page);
        recover_fit(database, (identity, limits), file_mark, how).await
    };
    // A recovery of very many sequences takes long, so its statements have no time limit.
    let acquire = limits.statement.acquire;
    let working = DatabaseConnection::once(target, acquire, None, Target::single, work);
    let recovered = working.await??;
    if let Some(file) = file.filter(|_| !is_dry_run) {
        // The state before the loss may be younger than the one that goes on from here.
        file.forget();
    }
    Ok(recovered)
}

async fn recover_fit(
    database: &DatabaseConnection,
    (identity, limits): (&DatabaseIdentity, &StoreLimits),
    file_mark: Option<ServerMark>,
    (loss, is_dry_run, on_page): (Loss, bool, OnPage<'_>),
) -> Result<Recovered, StartError> {
    // A new database in the place of a lost one is recovered before it gets its installation id.
    let is_lossless = limits.failover.is_lossless;
    let inspecting = fitness::inspect(database.clone(), identity.clone(), true, is_lossless);
    let verdict = inspecting.await;
    let verdict = verdict.unwrap_or_else(|error| fitness_of(&error.into()));
    let DatabaseFitness::Good { has_marks, .. } = verdict else {
        return Err(verdict.into());
    };
    let server_mark = ServerMark::of(database.get_database_backend(), true);
    let mark = file_mark.or(server_mark.filter(|_| has_marks));
    if mark.is_none() && matches!(loss, Loss::Computed(_) | Loss::Steps(0)) {
        return Err(StartError::Configuration(NO_STAMP.to_owned()));
    }
    let mut n_tried = 0;
    loop {
        n_tried += 1;
        let failure = match Box::pin(recover_once(
            database,
            (&loss, limits),
            mark.as_ref(),
            (is_dry_run, on_page),
        ))
        .await
        {
            Ok(outcome) => return outcome,
            Err(error) => StatementFailure::from(error),
        };
        if !matches!(failure, StatementFailure::NotCommitted(Cause::Contention))
            || n_tried >= ATTEMPTS
        {
            return Err(StartError::Other(format!(
                "the database could not be changed, and is as it was unless its reply was lost: {}",
                failure.cause().text()
            )));
        }
        tokio::time::sleep(BETWEEN_ATTEMPTS).await;
    }
}

/// Tries the recovery once. If a definition cannot be read, nothing is changed.
async fn recover_once(
    database: &DatabaseConnection,
    (loss, limits): (&Loss, &StoreLimits),
    mark: Option<&ServerMark>,
    (is_dry_run, on_page): (bool, OnPage<'_>),
) -> Result<Result<Recovered, StartError>, DbErr> {
    let transaction = database.begin_read_committed().await?;
    let recovery = Recovery {
        transaction: &transaction,
        mark,
        limits,
        on_page,
    };
    let recovered = recovery.of(loss).await;
    transaction::end(transaction, recovered, |_| !is_dry_run).await
}

/// A recovery that is under way.
pub(super) struct Recovery<'a> {
    pub(super) transaction: &'a DatabaseTransaction,
    /// `None` if the server gives no marks.
    pub(super) mark: Option<&'a ServerMark>,
    pub(super) limits: &'a StoreLimits,
    pub(super) on_page: OnPage<'a>,
}

impl Recovery<'_> {
    async fn of(&self, loss: &Loss) -> Result<Recovered, TransactionError<StartError>> {
        if let Loss::Computed(request) = loss
            && !request.is_of_operator()
        {
            self.bound().await?;
        }
        let meta = meta_row::lock_exclusively(self.transaction).await?;
        let recoveries = Recoveries::read_held(self.transaction).await?;
        match loss {
            Loss::Steps(0) => self.say_nothing_was_lost((&meta, recoveries)).await,
            Loss::Steps(n_steps) => self.say((&meta, recoveries), *n_steps).await,
            Loss::OfSequence { name, n_steps } => {
                self.release((&meta, recoveries), name, *n_steps).await
            }
            Loss::NoCounter => self.end_births((&meta, &recoveries)).await,
            Loss::Computed(request) => self.fence((&meta, recoveries), request).await,
        }
    }

    /// Lets the server give up the transaction if this process stops in the middle of it. All other
    /// replicas wait for it.
    async fn bound(&self) -> Result<(), DbErr> {
        match self.transaction.get_database_backend() {
            DbBackend::Postgres => {
                let bounding = self.transaction.execute_unprepared(POSTGRES_BOUNDS);
                bounding.await?;
            }
            DbBackend::MySql => {
                for bound in MYSQL_BOUNDS {
                    self.transaction.execute_unprepared(bound).await?;
                }
            }
            DbBackend::Sqlite | _ => {}
        }
        Ok(())
    }

    /// Raises all counters to the line that no lost commit can have passed, if that is needed.
    async fn fence(
        &self,
        (meta, mut recoveries): (&meta::Model, Recoveries),
        request: &FenceRequest,
    ) -> Result<Recovered, TransactionError<StartError>> {
        let of = (meta, &recoveries);
        let planning = FencePlan::of(self.transaction, self.mark, of, (request, self.limits));
        let Some(plan) = planning.await? else {
            let waiting = match request.is_of_operator() {
                true => fencing::waiting(self.transaction).await?,
                false => Vec::new(),
            };
            return Ok(Recovered::default().naming(waiting));
        };
        let mut branch = self.branch().await?;
        for known in plan.again {
            branch = self
                .make_again(meta, &mut recoveries, (known, branch))
                .await?;
        }
        self.carry_out((meta, recoveries), (plan.fence, branch), Some(request))
            .await
    }

    /// Returns the branch that the database is on.
    async fn branch(&self) -> Result<i64, DbErr> {
        let branch = lineage::branch_of(self.transaction).await?;
        Ok(branch.unwrap_or(lineage::UNSTAMPED))
    }

    /// Raises the counters of one sequence as a recovery did that the database has lost, on top of
    /// `branch`. It stays the recovery that it was, and a fence has to follow. Returns its branch.
    async fn make_again(
        &self,
        meta: &meta::Model,
        recoveries: &mut Recoveries,
        (known, branch): (StoredFence, i64),
    ) -> Result<i64, TransactionError<StartError>> {
        let mut raised = RaisedCounters {
            is_again: true,
            only: known.sequence.as_deref(),
            on_page: self.on_page,
            // The fence raises the versions.
            ..RaisedCounters::by(known.fence, self.transaction, (meta, 0))
        };
        raised.raise_all().await?;
        let again = StoredFence {
            previous_branch: branch,
            highest_rise: raised.outcome.highest_rise,
            ..known.clone()
        };
        let branch = again.branch();
        recoveries.insert(self.transaction, again).await?;
        Ok(branch)
    }

    /// Raises all counters by as many steps as an operator says.
    async fn say(
        &self,
        (meta, recoveries): (&meta::Model, Recoveries),
        n_steps: u64,
    ) -> Result<Recovered, TransactionError<StartError>> {
        let of = (&recoveries, self.limits);
        let fence = fencing::said(self.transaction, of, n_steps).await?;
        let fence = (fence, self.branch().await?);
        self.carry_out((meta, recoveries), fence, None).await
    }

    /// Raises the counters of one sequence, and lets them give numbers. All else stays as it is: the
    /// database has lost nothing since the fence that stopped them. If the sequence is created later,
    /// it begins so much higher.
    async fn release(
        &self,
        (meta, mut recoveries): (&meta::Model, Recoveries),
        name: &str,
        n_steps: u64,
    ) -> Result<Recovered, TransactionError<StartError>> {
        let transaction = self.transaction;
        let branch = lineage::branch_of(transaction).await?;
        if !self.is_whole(&recoveries).await? {
            return Err(StartError::Configuration(NAME_OF_A_COPY.to_owned()).into());
        }
        let fence = fencing::said(transaction, (&recoveries, self.limits), n_steps).await?;
        let now_ms = ClockPair::read(transaction).await?.database_ms;
        let fenced_at = recovered_at(meta, recoveries.last_at(), now_ms);
        let mut raised = RaisedCounters {
            only: Some(name),
            on_page: self.on_page,
            ..RaisedCounters::by(fence, transaction, (meta, version_at(fenced_at)))
        };
        raised.raise_all().await?;
        let mut outcome = raised.outcome;
        if outcome.n_sequences == 0 && !recoveries.leave_unknown(name, meta.births_after) {
            outcome.is_nowhere = true;
            return Ok(outcome);
        }
        (outcome.n_blocks, outcome.n_numbers) = give_up_returned(transaction, Some(name)).await?;
        let stored = StoredFence {
            fence,
            previous_branch: branch.unwrap_or(lineage::UNSTAMPED),
            fenced_at,
            highest_rise: outcome.highest_rise,
            made_by: Arc::default(),
            sequence: Some(name.into()),
        };
        let branch = stored.branch();
        recoveries.insert(transaction, stored).await?;
        // Programs that may be older know only the recoveries of all sequences.
        let is_of_all = meta.recovered_at.is_none() || meta.armed_at.is_none();
        let columns = MetaUpdate {
            recovered_at: is_of_all.then_some(fenced_at),
            n_steps: recoveries.n_added(),
            leases: None,
        };
        columns.write(transaction, meta).await?;
        lineage::stamp_in(transaction, self.mark, branch).await?;
        Ok(outcome)
    }

    /// Returns whether the database is where it was stamped, and has all its recoveries, as far as
    /// it shows that.
    pub(super) async fn is_whole(&self, recoveries: &Recoveries) -> Result<bool, DbErr> {
        let verdict = fencing::verdict(self.transaction, self.mark).await?;
        let fits = self.mark.is_none() || matches!(verdict, StampVerdict::Fits(_));
        let branch = lineage::branch_of(self.transaction).await?;
        Ok(fits && recoveries.lead_to(branch))
    }

    /// Lets the server stamp the database, which has lost nothing.
    ///
    /// If it is stamped already, the word is about the last fence, and ends what waits for an
    /// operator. If not, the word is about the present server alone, and what waits since an earlier
    /// failover goes on waiting. So it is if several databases count together, because the word may
    /// be about another one of them.
    ///
    /// # Errors
    /// It has no stamp: it is older than its stamp, or has lost it.
    async fn say_nothing_was_lost(
        &self,
        (meta, recoveries): (&meta::Model, Recoveries),
    ) -> Result<Recovered, TransactionError<StartError>> {
        let transaction = self.transaction;
        let Some(branch) = lineage::branch_of(transaction).await? else {
            return Err(StartError::Configuration(NO_STAMP.to_owned()).into());
        };
        let verdict = fencing::verdict(transaction, self.mark).await?;
        let is_whole = recoveries.lead_to(Some(branch)) && !is_of_older(meta);
        let is_settled = meta.stripe_n > 1 || !recoveries.concerning(None).is_unsettled();
        let waiting = fencing::waiting(transaction).await?;
        let outcome = if is_whole && (is_settled || !matches!(verdict, StampVerdict::Fits(_))) {
            lineage::stamp_in(transaction, self.mark, branch).await?;
            Recovered::default()
        } else {
            self.say((meta, recoveries), 0).await?
        };
        Ok(outcome.naming(waiting))
    }

    /// Raises all counters, gives up what was returned or leased, and stamps the database for a new
    /// branch. The recovery is dated after those that the asking replica knows.
    async fn carry_out(
        &self,
        (meta, mut recoveries): (&meta::Model, Recoveries),
        (fence, previous_branch): (Fence, i64),
        request: Option<&FenceRequest>,
    ) -> Result<Recovered, TransactionError<StartError>> {
        let transaction = self.transaction;
        let is_automatic = request.is_some_and(|request| !request.is_of_operator());
        let mut clocks = ClockPair::read(transaction).await?;
        if is_automatic {
            clocks = clocks.of_database();
        }
        clocks.check()?;
        let known = request.and_then(|request| request.known.last_at());
        let known = known.max(recoveries.last_at());
        let recovered_at = recovered_at(meta, known, clocks.database_ms);
        let to = (meta, version_at(recovered_at));
        let mut raised = RaisedCounters {
            on_page: self.on_page,
            ..RaisedCounters::by(fence, transaction, to)
        };
        raised.raise_all().await?;
        let (mut outcome, longest_hold) = (raised.outcome, raised.longest_hold);
        outcome.recovered_at = recovered_at;
        (outcome.n_blocks, outcome.n_numbers) = give_up_returned(transaction, None).await?;
        let leases = if fence.is_said && fence.n_steps == 0 {
            None
        } else if is_automatic && leases::are_bounded(&fence, meta) {
            Some(leases::rest(transaction, &fence, longest_hold, meta).await?)
        } else {
            Some(leases::void(transaction, clocks, longest_hold, meta, recovered_at).await?)
        };
        if let Some(voided) = &leases {
            (outcome.n_leases, outcome.leases_from_ms) = (voided.n_leases, voided.used_from_ms);
        }
        let stored = StoredFence {
            fence,
            previous_branch,
            fenced_at: recovered_at,
            highest_rise: outcome.highest_rise,
            made_by: request.map_or("", |request| &request.holder).into(),
            sequence: None,
        };
        let branch = stored.branch();
        outcome.fence = request.map(|_| stored.told());
        recoveries.insert(transaction, stored).await?;
        let columns = MetaUpdate {
            recovered_at: Some(recovered_at),
            n_steps: recoveries.n_added(),
            leases,
        };
        columns.write(transaction, meta).await?;
        lineage::stamp_in(transaction, self.mark, branch).await?;
        Ok(outcome)
    }
}

/// Returns whether the last recovery was made by a program of an earlier version.
pub(crate) fn is_of_older(meta: &meta::Model) -> bool {
    meta.told_older_at > meta.recovered_at
}

/// Returns the time of a recovery: after all that are known, even if the clock of this server is
/// behind. The clock of the machine that recovers does not count. So a recovery that was lost is an
/// earlier one, too, although nobody knows it here.
fn recovered_at(meta: &meta::Model, known: Option<i64>, now_ms: i64) -> i64 {
    match meta.recovered_at.max(meta.told_older_at).max(known) {
        Some(earlier) if earlier >= now_ms => earlier.saturating_add(AFTER_ANOTHER_MS),
        Some(_) | None => now_ms,
    }
}

/// What a recovery changes in `meta`.
struct MetaUpdate {
    /// The time of the recovery. `None` if it raised one sequence alone.
    recovered_at: Option<i64>,
    /// How many steps it skipped beyond what was computed.
    n_steps: u64,
    /// What became of the leases of worker ids. `None` if they stay.
    leases: Option<Voided>,
}

impl MetaUpdate {
    async fn write(
        self,
        transaction: &DatabaseTransaction,
        meta: &meta::Model,
    ) -> Result<(), DbErr> {
        let n_steps = i64::try_from(self.n_steps).unwrap_or(i64::MAX);
        let mut update = meta::Entity::update_many().col_expr(
            meta::Column::RecoveredSkip,
            Expr::val(meta.recovered_skip.saturating_add(n_steps)),
        );
        if let Some(leases) = self.leases {
            update = update
                .col_expr(meta::Column::LeasesFrom, Expr::val(leases.leases_from_ms))
                .col_expr(
                    meta::Column::NamedLeasesFrom,
                    Expr::val(leases.named_from_ms),
                );
        }
        if let Some(recovered_at) = self.recovered_at {
            // The version rises no higher than this. The next recovery finds out by their versions
            // which definitions are older than itself.
            let version = Ord::max(
                version_at(recovered_at),
                meta.definitions_version.saturating_add(1),
            );
            update = update
                .col_expr(meta::Column::RecoveredAt, Expr::val(recovered_at))
                .col_expr(meta::Column::DefinitionsVersion, Expr::val(version));
        }
        if let Some(told) = self.recovered_at.filter(|_| meta.armed_at.is_none()) {
            // An older program that sees a recovery makes its row again, so it must not see one
            // later.
            update = update.col_expr(meta::Column::ToldOlderAt, Expr::val(told));
        }
        update
            .filter(meta::Column::Id.eq(1))
            .exec(transaction)
            .await?;
        Ok(())
    }
}

/// Abandons the returned blocks, of all sequences or of one. In commits that the database has lost,
/// they may have been adopted and issued. Returns how many blocks there were, and how many numbers
/// in them.
async fn give_up_returned(
    transaction: &DatabaseTransaction,
    only: Option<&str>,
) -> Result<(i64, i64), DbErr> {
    let returned = || {
        let of_it = only.map(|name| block::Column::Sequence.eq(name));
        let returned = Condition::all().add(block::Column::Fate.eq("returned"));
        returned.add_option(of_it)
    };
    let n_numbers = match transaction.get_database_backend() {
        DbBackend::MySql => "CAST(COALESCE(SUM((last - next_unissued) DIV step + 1), 0) AS SIGNED)",
        DbBackend::Postgres | DbBackend::Sqlite | _ => {
            "CAST(COALESCE(SUM((last - next_unissued) / step + 1), 0) AS BIGINT)"
        }
    };
    let given_up: Option<(i64, i64)> = block::Entity::find()
        .select_only()
        .expr_as(Expr::cust("COUNT(*)"), "n_blocks")
        .expr_as(Expr::cust(n_numbers), "n_numbers")
        .filter(returned())
        .into_tuple()
        .one(transaction)
        .await?;
    if !faults::is(Fault::RecoverKeepsReturned) {
        block::Entity::update_many()
            .col_expr(block::Column::Fate, Expr::val("abandoned"))
            .filter(returned())
            .exec(transaction)
            .await?;
    }
    Ok(given_up.unwrap_or_default())
}
