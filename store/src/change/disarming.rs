//! Runs `odometer migrate --disarm`: lets a program before schema 7 use an armed database again.
//!
//! An armed database keeps older programs out, because they know no fences. The way back is one
//! transaction that locks `meta` exclusively, so nothing is created, changed, fenced or armed
//! meanwhile. It is refused while an older program would repeat numbers:
//!
//! - in a copy, which nobody has fenced yet;
//! - while counters wait for an operator: an older program would give their numbers;
//! - while a new counter skips what a fence computed: an older program skips only what operators
//!   have said.
//!
//! # What an older program sees
//!
//! 1. While the database is armed, its row is gone and it reserves nothing. `meta.told_older_at`
//!    stays, so it sees no recovery, and gives what it has in memory.
//! 2. The transaction tells it the last recovery of all sequences, if there was one since the
//!    database was armed. An older program that waited all the time sees the recovery before it
//!    gets a row. So it drops what it holds, and takes the counters as they are now. If there was no
//!    such recovery, it finds that its row is gone, and goes on refusing until it is started again.
//!    A recovery of one sequence is not told: its date would be news to replicas of this version.
//! 3. The same commit lets older programs start, and lets no replica fence the database any more. A
//!    fence needs `armed_at`, which it reads after it has the lock.
//! 4. Replicas of this version see that the database is not armed, and do not arm it again. They
//!    leave the rows of older programs. They trust each start of the server, as before arming.
//!
//! A copy that lacks this commit is armed: an older program does not start on it, and gets no row.
//! But replicas of this version may fence it, by speed limits that programs before schema 6 do not
//! keep. So the standbys must have the commit before such a program starts.

use std::time::Duration;

use entity::meta;
use migration::{Installed, OLDEST_BESIDE, SCHEMA_VERSION};
use odometer_database::{
    failure::{Cause, StatementFailure},
    file_lock::FileLock,
    fitness::{DatabaseFitness, fitness_of},
    server_mark::ServerMark,
    session::{DatabaseConnection, DatabaseTransaction},
    start_error::StartError,
    target::Target,
};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, sea_query::Expr};

use super::{
    fencing,
    recover::{Recovery, is_of_older},
    transaction::{self, TransactionError},
};
use crate::{fences::Recoveries, fitness, meta_row, settings::DatabaseSettings};

/// Bounds the attempts if another transaction is in the way.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(250);
const OF_A_COPY: &str = "--disarm: this database is a copy, or no replica has used it since its \
                         server was started, or an earlier version recovered it last. Start a \
                         replica, or run `odometer recover` first";
const OF_BIRTHS: &str = "--disarm: a sequence that is created now begins above what a failover may \
                         have lost, and an earlier program would begin it lower. Run \
                         `odometer recover --births-from-start` first, if no sequence was lost";
const OF_SEVERAL: &str = "--disarm: a failover may have lost counters here that other databases of the \
                          store have, and an earlier program would begin them lower";

/// Whether replicas may arm a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arming {
    /// They arm it as soon as no older program uses it.
    Allowed,
    /// The database is not armed, so that an older program can use it.
    Off,
}

/// Lets replicas arm a database, or lets them not.
///
/// # Errors
/// Why nothing was changed.
pub(crate) async fn set(settings: &DatabaseSettings, arming: Arming) -> Result<(), StartError> {
    let target = Target::parse(&settings.url)?;
    let lock = target.file.as_deref().map(FileLock::take).transpose()?;
    let file_mark = lock
        .as_ref()
        .map(|lock| ServerMark::of_file(lock.mark().id()));
    let work = async |database: &DatabaseConnection| {
        set_in(database, settings, file_mark.as_ref(), arming).await
    };
    let acquire = settings.bounds.statement.acquire;
    let longest = Some(settings.bounds.statement.timeout);
    DatabaseConnection::once(&target, acquire, longest, Target::single, work).await?
}

async fn set_in(
    database: &DatabaseConnection,
    settings: &DatabaseSettings,
    file_mark: Option<&ServerMark>,
    arming: Arming,
) -> Result<(), StartError> {
    let is_lossless = settings.bounds.failover.is_lossless;
    let identity = settings.identity.clone();
    let inspecting = fitness::inspect(database.clone(), identity, true, is_lossless);
    let verdict = inspecting.await;
    let verdict = verdict.unwrap_or_else(|error| fitness_of(&error.into()));
    let DatabaseFitness::Good { has_marks, .. } = verdict else {
        return Err(verdict.into());
    };
    let server_mark = ServerMark::of(
        sea_orm::ConnectionTrait::get_database_backend(database),
        true,
    );
    let server_mark = server_mark.filter(|_| has_marks);
    let mark = file_mark.or(server_mark.as_ref());
    let mut n_tried = 0;
    loop {
        n_tried += 1;
        let failure = match set_once(database, (settings, mark), arming).await {
            Ok(outcome) => return outcome,
            Err(error) => StatementFailure::from(error),
        };
        if !matches!(failure, StatementFailure::NotCommitted(Cause::Contention))
            || n_tried >= ATTEMPTS
        {
            let cause = failure.cause().text();
            return Err(StartError::Other(format!(
                "the database could not be changed: {cause}"
            )));
        }
        tokio::time::sleep(BETWEEN_ATTEMPTS).await;
    }
}

async fn set_once(
    database: &DatabaseConnection,
    (settings, mark): (&DatabaseSettings, Option<&ServerMark>),
    arming: Arming,
) -> Result<Result<(), StartError>, DbErr> {
    let installed = Installed::read(database).await?;
    if installed.is_some_and(|installed| installed.schema_version > SCHEMA_VERSION) {
        return Ok(Err(StartError::Configuration(
            "the schema is that of a later program: use --disarm and --arm of that program"
                .to_owned(),
        )));
    }
    let transaction = database.begin_read_committed().await?;
    let recovery = Recovery {
        transaction: &transaction,
        mark,
        limits: &settings.bounds,
        on_page: &|_n_sequences| {},
    };
    let done = match arming {
        Arming::Off => recovery.disarm().await,
        Arming::Allowed => write_mark(&transaction, false).await,
    };
    transaction::end(transaction, done, |()| true).await
}

async fn write_mark(
    transaction: &DatabaseTransaction,
    is_disarmed: bool,
) -> Result<(), TransactionError<StartError>> {
    meta::Entity::update_many()
        .col_expr(meta::Column::Disarmed, Expr::val(is_disarmed))
        .filter(meta::Column::Id.eq(1))
        .exec(transaction)
        .await?;
    Ok(())
}

impl Recovery<'_> {
    async fn disarm(&self) -> Result<(), TransactionError<StartError>> {
        let transaction = self.transaction;
        let meta = meta_row::lock_exclusively(transaction).await?;
        write_mark(transaction, true).await?;
        if meta.armed_at.is_none() {
            return Ok(());
        }
        let recoveries = Recoveries::read_held(transaction).await?;
        if is_of_older(&meta) || !self.is_whole(&recoveries).await? {
            return Err(StartError::Configuration(OF_A_COPY.to_owned()).into());
        }
        let waiting = fencing::waiting(transaction).await?;
        if !waiting.is_empty() {
            let names = fencing::first_names(&waiting);
            return Err(StartError::Configuration(format!(
                "--disarm: sequences wait for `odometer recover NAME` with --skip N or \
                 --nothing-was-lost, and an earlier program would not: {names}"
            ))
            .into());
        }
        if recoveries.leave_births_unknown(meta.births_after) {
            let why = if meta.stripe_n > 1 {
                OF_SEVERAL
            } else {
                OF_BIRTHS
            };
            return Err(StartError::Configuration(why.to_owned()).into());
        }
        // An older program that waited sees the last recovery now. It is not one that replicas of
        // this version have not seen, so it must not be a later one.
        let told = meta.told_older_at.max(meta.recovered_at);
        meta::Entity::update_many()
            .col_expr(meta::Column::ArmedAt, Expr::val(None::<i64>))
            .col_expr(meta::Column::ToldOlderAt, Expr::val(told))
            .col_expr(meta::Column::CompatibleFrom, Expr::val(OLDEST_BESIDE))
            .filter(meta::Column::Id.eq(1))
            .exec(transaction)
            .await?;
        Ok(())
    }
}
