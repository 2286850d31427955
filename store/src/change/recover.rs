//! Runs `odometer recover`: after the database went back, every sequence goes on above what may
//! have been issued since.
//!
//! A recovery is one transaction that [locks `meta` exclusively](meta_row) from its beginning.
//! Nothing is created or changed meanwhile. A reservation at this time comes before the recovery,
//! or conflicts.
//!
//! The counters of all periods are raised like all others. What was removed stays removed: a
//! tombstone stays a tombstone, and `periods_removed_through` is not touched.

use std::{collections::BTreeMap, time::Duration};

use entity::{block, counter, meta, sequence};
use odometer_core::definition::{Definition, Kind, Stripe};
use odometer_database::{
    failure::{Cause, StatementFailure},
    file_lock::FileLock,
    fitness::{DatabaseFitness, fitness_of},
    server_mark::ServerMark,
    session::{DatabaseConnection, DatabaseTransaction},
    start_error::StartError,
    target::Target,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter,
    QueryOrder, QuerySelect,
    sea_query::{CaseStatement, Expr, ExprTrait},
};

use crate::{
    change::{
        leases::{self, ClockPair},
        transaction::{self, TransactionError},
    },
    fitness, heartbeat,
    identity::DatabaseIdentity,
    installation_id, lineage, meta_row,
    rows::{
        catalog::{self, LIVE, NO_PERIOD},
        creation_baseline::version_at,
    },
    settings::DatabaseSettings,
};

/// Bounds the sequences of one step.
const PAGE: u64 = 1000;
/// Says why nothing can be said of a database that has no stamp.
const NO_STAMP: &str = "--nothing-was-lost: this database has no stamp, so there is nothing to say; \
                        give --skip N if it went back";
/// Sets by how much the versions of counters and the numbers of windows rise at least. So nothing
/// that was remembered from the time before fits any more.
pub(crate) const VERSIONS: i64 = 1 << 40;
/// Sets by how much a recovery is later than the one before if its clock is behind. [`version_at`]
/// leaves space for 60 million changes in this time.
const AFTER_ANOTHER_MS: i64 = 60_000;
/// Bounds the exhausted sequences that are named.
const MAX_NAMED: usize = 1000;
/// Bounds the attempts if another transaction is in the way.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(250);

/// What an operator says that a database may have lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Up to this many steps of each sequence.
    Steps(u64),
    /// Nothing. The database is only on another server than before.
    Nothing,
}

/// The outcome of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub n_sequences: u64,
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
/// `is_dry_run`.
///
/// # Errors
/// The reason why nothing was changed.
pub(crate) async fn recover(
    settings: &DatabaseSettings,
    loss: Loss,
    is_dry_run: bool,
) -> Result<Recovered, StartError> {
    let target = Target::parse(&settings.url)?;
    if let Some(file) = target.file.as_deref().filter(|file| !file.exists()) {
        return Err(StartError::Configuration(format!(
            "ODOMETER_DATABASE_URL: the SQLite file {} is not there",
            file.display()
        )));
    }
    let lock = target.file.as_deref().map(FileLock::take).transpose()?;
    let file = lock.as_ref().map(FileLock::mark);
    let acquire = settings.bounds.statement.acquire;
    let (identity, is_lossless) = (settings.identity.clone(), settings.bounds.is_lossless);
    let file_mark = file.map(|file| ServerMark::of_file(file.id()));
    let work = async |database: &DatabaseConnection| {
        recover_fit(
            database,
            (identity, is_lossless),
            file_mark,
            (loss, is_dry_run),
        )
        .await
    };
    // A recovery of very many sequences takes long, so its statements have no time limit.
    let working = DatabaseConnection::once(&target, acquire, None, Target::single, work);
    let recovered = working.await??;
    if let Some(file) = file.filter(|_| !is_dry_run) {
        // The state before the loss may be younger than the one that goes on from here.
        file.forget();
    }
    Ok(recovered)
}

async fn recover_fit(
    database: &DatabaseConnection,
    (identity, is_lossless): (DatabaseIdentity, bool),
    file_mark: Option<ServerMark>,
    (loss, is_dry_run): (Loss, bool),
) -> Result<Recovered, StartError> {
    // A new database in the place of a lost one is recovered before it gets its installation id.
    let verdict = fitness::inspect(database.clone(), identity, true, is_lossless).await;
    let verdict = verdict.unwrap_or_else(|error| fitness_of(&error.into()));
    let DatabaseFitness::Good { has_marks, .. } = verdict else {
        return Err(verdict.into());
    };
    let server_mark = ServerMark::of(database.get_database_backend(), true);
    let mark = file_mark.or(server_mark.filter(|_| has_marks));
    if mark.is_none() && loss == Loss::Nothing {
        return Err(StartError::Configuration(NO_STAMP.to_owned()));
    }
    let mut n_tried = 0;
    loop {
        n_tried += 1;
        let failure = match Box::pin(recover_once(database, loss, mark.as_ref(), is_dry_run)).await
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
    loss: Loss,
    mark: Option<&ServerMark>,
    is_dry_run: bool,
) -> Result<Result<Recovered, StartError>, DbErr> {
    let transaction = database.begin_read_committed().await?;
    let recovered = match loss {
        Loss::Steps(n_steps) => recover_in(&transaction, n_steps, mark).await,
        Loss::Nothing => stamp_in(&transaction, mark).await,
    };
    transaction::end(transaction, recovered, |_| !is_dry_run).await
}

/// Stamps the database where it is now, and leaves all else as it is. A database without stamp is
/// refused: it is older than its stamp, or has lost it.
async fn stamp_in(
    transaction: &DatabaseTransaction,
    mark: Option<&ServerMark>,
) -> Result<Recovered, TransactionError<StartError>> {
    let Some(mark) = mark else {
        return Ok(Recovered::default());
    };
    meta_row::lock_exclusively(transaction).await?;
    let Some(branch) = lineage::branch_of(transaction).await? else {
        return Err(TransactionError::Refused(StartError::Configuration(
            NO_STAMP.to_owned(),
        )));
    };
    lineage::stamp_in(transaction, mark, branch).await?;
    Ok(Recovered::default())
}

async fn recover_in(
    transaction: &DatabaseTransaction,
    n_steps: u64,
    mark: Option<&ServerMark>,
) -> Result<Recovered, TransactionError<StartError>> {
    let meta = meta_row::lock_exclusively(transaction).await?;
    let clocks = ClockPair::read(transaction).await?;
    clocks.check()?;
    let now_ms = clocks.ours_ms;
    // The database may have lost a recovery that was made by a clock ahead of this one.
    let seen = heartbeat::last_recovery_seen(transaction).await?;
    let recovered_at = match Ord::max(meta.recovered_at, seen) {
        Some(earlier) if earlier >= now_ms => earlier.saturating_add(AFTER_ANOTHER_MS),
        Some(_) | None => now_ms,
    };
    let mut recovery = Recovery {
        transaction,
        n_steps,
        stripe: installation_id::of(&meta),
        version: version_at(recovered_at),
        longest_hold: Duration::ZERO,
        outcome: Recovered::default(),
    };
    recovery.raise_counters().await?;
    recovery.give_up_returned().await?;
    let (mut outcome, longest_hold) = (recovery.outcome, recovery.longest_hold);
    let voided = leases::void(transaction, clocks, longest_hold, &meta, recovered_at).await?;
    (outcome.n_leases, outcome.leases_from_ms) = (voided.n_leases, voided.used_from_ms);
    let skipped = i64::try_from(n_steps).unwrap_or(i64::MAX);
    meta::Entity::update_many()
        .col_expr(meta::Column::RecoveredAt, Expr::val(recovered_at))
        .col_expr(
            meta::Column::RecoveredSkip,
            Expr::val(meta.recovered_skip.saturating_add(skipped)),
        )
        .col_expr(meta::Column::LeasesFrom, Expr::val(voided.leases_from_ms))
        // The version rises no higher than this. The next recovery finds out by their versions
        // which definitions are older than itself.
        .col_expr(
            meta::Column::DefinitionsVersion,
            Expr::val(Ord::max(
                version_at(recovered_at),
                meta.definitions_version.saturating_add(1),
            )),
        )
        .filter(meta::Column::Id.eq(1))
        .exec(transaction)
        .await?;
    if let Some(mark) = mark {
        lineage::stamp_in(transaction, mark, lineage::new_branch()).await?;
    }
    Ok(outcome)
}

/// A recovery that is under way.
struct Recovery<'a> {
    transaction: &'a DatabaseTransaction,
    n_steps: u64,
    stripe: Stripe,
    /// The least version of each counter after the recovery.
    version: i64,
    /// The longest time that the existing sequences reserve ahead.
    longest_hold: Duration,
    outcome: Recovered,
}

/// A group of sequences that rise by the same amount, and that end at the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rise {
    length_of_steps: i64,
    /// The highest number that a counter can rise to.
    highest: i64,
    /// From this number on a sequence is exhausted, unless its `max` is raised.
    end: i64,
    /// Whether these sequences count in periods. Then their counter without period issues nothing.
    has_periods: bool,
}

impl Rise {
    /// Returns the condition for the counters of these sequences that issue numbers.
    fn issuing(self, names: &[String]) -> Condition {
        let is_in_period = Expr::col(counter::Column::Period).gt(NO_PERIOD);
        Condition::all()
            .add(counter::Column::Sequence.is_in(names))
            .add(counter::Column::State.eq(LIVE))
            .add_option(self.has_periods.then_some(is_in_period))
    }

    /// Returns the lowest high-water mark that this rise brings to the end.
    fn comes_to_its_end(self) -> i64 {
        if self.highest < self.end {
            self.end
        } else {
            self.end.saturating_sub(self.length_of_steps)
        }
    }
}

impl Recovery<'_> {
    /// Raises all counters page by page, in the order of names. Retired sequences are raised like
    /// others.
    async fn raise_counters(&mut self) -> Result<(), TransactionError<StartError>> {
        let mut after = String::new();
        loop {
            let page = catalog::living_here()
                .filter(sequence::Column::Name.gt(after.as_str()))
                .order_by_asc(sequence::Column::Name)
                .limit(PAGE)
                .all(self.transaction)
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after.clone_from(&last.name);
            let mut groups: BTreeMap<Rise, Vec<String>> = BTreeMap::new();
            for row in page {
                let definition = Definition::from_stored(&row.definition).map_err(|error| {
                    let name = &row.name;
                    StartError::Other(format!("nothing was changed: sequence `{name}`: {error}"))
                })?;
                let counted = self.stripe.view(&definition);
                if definition.kind == Kind::Snowflake {
                    let hold = Duration::from_secs(definition.block.hold.seconds());
                    self.longest_hold = Ord::max(self.longest_hold, hold);
                    self.outcome.n_time_ordered += 1;
                }
                self.outcome.n_sequences += 1;
                let rise = Rise {
                    length_of_steps: counted.length_of_steps(self.n_steps),
                    highest: counted.highest(),
                    end: counted.end(),
                    has_periods: catalog::has_periods(&definition),
                };
                groups.entry(rise).or_default().push(row.name);
            }
            for (rise, names) in groups {
                self.note_rises(rise, &names).await?;
                self.raise(rise, &names).await?;
            }
            // Pages come in the order of names, but groups do not.
            self.outcome.at_their_end.sort_unstable();
            self.outcome.at_their_end.truncate(MAX_NAMED);
        }
    }

    /// Notes what raising these counters will come to. The database finds it out, because one
    /// sequence may have very many counters.
    async fn note_rises(&mut self, rise: Rise, names: &[String]) -> Result<(), DbErr> {
        let at_their_end: Vec<String> = counter::Entity::find()
            .select_only()
            .distinct()
            .column(counter::Column::Sequence)
            .filter(rise.issuing(names))
            .filter(counter::Column::NextValue.gte(rise.comes_to_its_end()))
            .into_tuple()
            .all(self.transaction)
            .await?;
        for name in at_their_end {
            self.outcome.n_at_their_end += 1;
            self.outcome.at_their_end.push(name);
        }
        // The rise is cut off at `highest`, and most for the highest counters. So the lowest
        // counter rises most.
        let lowest = counter::Entity::find()
            .filter(rise.issuing(names))
            .order_by_asc(counter::Column::NextValue)
            .order_by_asc(counter::Column::Sequence)
            .one(self.transaction)
            .await?;
        if let Some(row) = lowest {
            let left = rise.highest.saturating_sub(row.next_value);
            let rises_by = Ord::max(Ord::min(rise.length_of_steps, left), 0);
            if rises_by > self.outcome.highest_rise {
                self.outcome.highest_rise = rises_by;
                self.outcome.highest_riser = Some(row.sequence);
            }
        }
        Ok(())
    }

    async fn raise(
        &self,
        Rise {
            length_of_steps,
            highest,
            ..
        }: Rise,
        names: &[String],
    ) -> Result<(), DbErr> {
        let next_value = || Expr::col(counter::Column::NextValue);
        let raised = CaseStatement::new()
            .case(next_value().gt(highest), next_value())
            .case(
                next_value().gt(highest.saturating_sub(length_of_steps)),
                highest,
            )
            .finally(next_value().add(length_of_steps));
        // Strict order trusts a remembered revision, so the revision rises as far as the version.
        let least = self.version.saturating_sub(VERSIONS);
        let risen = |column: counter::Column| {
            CaseStatement::new()
                .case(Expr::col(column).lt(least), self.version)
                .finally(Expr::col(column).add(VERSIONS))
        };
        // A version above its revision says that numbers were reserved of the counter. It stays
        // above.
        let version = || Expr::col(counter::Column::Version);
        let is_used = version().gt(Expr::col(counter::Column::Revision));
        let risen_version = CaseStatement::new()
            .case(
                version().lte(least).and(is_used),
                self.version.saturating_add(1),
            )
            .case(version().lte(least), self.version)
            .finally(version().add(VERSIONS));
        counter::Entity::update_many()
            .col_expr(counter::Column::NextValue, raised.into())
            // Comes before the revision, because MySQL reads the columns that are set already.
            .col_expr(counter::Column::Version, risen_version.into())
            .col_expr(
                counter::Column::Revision,
                risen(counter::Column::Revision).into(),
            )
            // The number rises as far as that of counters that are created from now on.
            .col_expr(
                counter::Column::Window,
                risen(counter::Column::Window).into(),
            )
            .col_expr(counter::Column::WindowOpen, Expr::val(false))
            .filter(counter::Column::Sequence.is_in(names))
            .exec(self.transaction)
            .await?;
        Ok(())
    }

    /// Abandons the returned blocks. In commits that the database has lost, they may have been
    /// adopted and issued.
    async fn give_up_returned(&mut self) -> Result<(), DbErr> {
        let n_numbers = match self.transaction.get_database_backend() {
            DbBackend::MySql => {
                "CAST(COALESCE(SUM((last - next_unissued) DIV step + 1), 0) AS SIGNED)"
            }
            DbBackend::Postgres | DbBackend::Sqlite | _ => {
                "CAST(COALESCE(SUM((last - next_unissued) / step + 1), 0) AS BIGINT)"
            }
        };
        let given_up: Option<(i64, i64)> = block::Entity::find()
            .select_only()
            .expr_as(Expr::cust("COUNT(*)"), "n_blocks")
            .expr_as(Expr::cust(n_numbers), "n_numbers")
            .filter(block::Column::Fate.eq("returned"))
            .into_tuple()
            .one(self.transaction)
            .await?;
        (self.outcome.n_blocks, self.outcome.n_numbers) = given_up.unwrap_or_default();
        if !faults::is(Fault::RecoverKeepsReturned) {
            block::Entity::update_many()
                .col_expr(block::Column::Fate, Expr::val("abandoned"))
                .filter(block::Column::Fate.eq("returned"))
                .exec(self.transaction)
                .await?;
        }
        Ok(())
    }
}
