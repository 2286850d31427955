//! Stamps a database, so that it shows where it was last good.
//!
//! # The problem
//!
//! A server fails, and a copy of it takes its place: a standby that lags behind, a backup, a
//! restored snapshot, a dump. The copy answers as the server did. But it may lack commits, and
//! numbers that were reserved in them would be reserved again.
//!
//! # The naive way, and why it fails
//!
//! Each replica could compare the database with what it has seen there. But a replica that starts
//! after the failover has seen nothing. And a counter that lost three reservations looks as it did
//! before, as soon as others have reserved three times from it.
//!
//! # What Odometer does
//!
//! The database has a stamp: the one row of `lineage`. It holds the [marks](ServerMark) of the
//! server that wrote it: which server it is, on which timeline, and since when it runs. A copy has
//! the row, and other marks. Each guarded statement compares the row with the marks of the server
//! that runs the statement, so no time passes between the check and the write. A dump copies the
//! row, too, and may be restored into the very server. But then another transaction has written the
//! row than the row itself says.
//!
//! The stamp also names a *branch* of the database's history, by a random number. Each recovery
//! begins a new branch, and what a process knew of an earlier branch does not hold on it.
//!
//! If a stamp does not fit, [`LineageRead::verdict`] says why.

use entity::{
    lineage::{Column, Entity},
    meta,
};
use odometer_database::{database_clock, server_mark::ServerMark, session::DatabaseConnection};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, FromQueryResult, Iterable,
    QueryFilter,
    sea_query::{Condition, Expr, ExprTrait, Func, Query, SelectStatement},
};

use crate::meta_row;

/// Is the branch of a database that was never stamped.
pub(crate) const UNSTAMPED: i64 = 0;
/// Gives the number of the transaction that runs a statement.
const POSTGRES_TRANSACTION: &str = "pg_current_xact_id()::text::bigint";
/// Holds if the transaction that wrote the row is the one that the row names. A row names its
/// transaction by 32 bits.
const POSTGRES_IS_ORIGINAL: &str =
    "\"lineage\".\"xmin\"::text::bigint = (\"lineage\".\"written_by\" & 4294967295)";

/// Gives the time of the statement in microseconds, as MariaDB notes it in the rows that the statement
/// writes. It does not depend on the time zone of the session. MySQL notes nothing.
const MYSQL_TIME: &str = "/*M! TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) \
     */ /*!80000 0 */";
/// Holds on MariaDB if the row was written when it says so. A dump does not copy the time of a row,
/// unless its tool is told to (`--dump-history`). Always holds on MySQL: there a dump that is
/// restored into its own server goes unnoticed.
const MYSQL_IS_ORIGINAL: &str = "/*M! CAST(UNIX_TIMESTAMP(`lineage`.`row_start`) * 1000000 AS \
     SIGNED) = `lineage`.`written_by` */ /*!80000 TRUE */";

/// The condition that the stamp of a database fits: the server that runs the statement wrote it,
/// and it names the branch that this process knows.
#[derive(Clone, Debug)]
pub(crate) struct StampGuard {
    pub(crate) branch: i64,
    pub(crate) mark: ServerMark,
    pub(crate) backend: DbBackend,
}

impl StampGuard {
    /// Makes a query find a row only if the stamp fits.
    pub(crate) fn narrow(&self, query: &mut SelectStatement) {
        let fits = the_row()
            .add(Column::Branch.eq(self.branch))
            .add(column(Column::Server).eq(self.mark.server.clone()))
            .add(column(Column::Started).eq(self.mark.started.clone()))
            .add(is_original(self.backend));
        query.from(Entity).cond_where(fits);
    }

    /// Returns the query for the branch, which finds no row if the stamp does not fit.
    pub(crate) fn select_branch(&self) -> SelectStatement {
        let mut query = Query::select();
        query.column((Entity, Column::Branch));
        self.narrow(&mut query);
        query
    }
}

/// What a database says of its stamp, and of the server that it is on.
#[derive(Clone, Debug, Default, FromQueryResult)]
pub(crate) struct LineageRead {
    /// `None` if the row is gone.
    pub(crate) branch: Option<i64>,
    pub(crate) stamped_server: Option<String>,
    pub(crate) stamped_started: Option<String>,
    /// The branch, if the row is the one that was written, and no copy.
    pub(crate) original: Option<i64>,
    pub(crate) server: Option<String>,
    pub(crate) started: Option<String>,
}

/// What a stamp says of the database that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StampVerdict {
    /// The database is where it was stamped, on this branch.
    Fits(i64),
    /// It was never stamped.
    Unstamped,
    /// The server that stamped it was started again.
    Restarted,
    /// Another server or timeline has the database: a standby was promoted, or a backup restored.
    Promoted,
    /// The row was written a second time, as a dump does it, or it is gone.
    Copied,
    /// The server does not say which one it is.
    Unmarked,
}

impl LineageRead {
    /// Makes a query of `meta` also read the branch.
    pub(crate) fn read_branch_in(query: &mut SelectStatement) {
        query
            .column((Entity, Column::Branch))
            .left_join(Entity, the_row());
    }

    /// Makes a query of `meta` also read the stamp and the marks of the server.
    pub(crate) fn read_in(query: &mut SelectStatement, backend: DbBackend, mark: &ServerMark) {
        let original = Query::select()
            .column((Entity, Column::Branch))
            .from(Entity)
            .cond_where(the_row().add(is_original(backend)))
            .to_owned();
        Self::read_branch_in(query);
        query
            .expr_as(column(Column::Server), "stamped_server")
            .expr_as(column(Column::Started), "stamped_started")
            .expr_as(Expr::SubQuery(None, Box::new(original.into())), "original")
            .expr_as(mark.server.clone(), "server")
            .expr_as(mark.started.clone(), "started");
    }

    /// Returns the branch that the stamp names. `None` if the database was never stamped.
    pub(crate) fn branch(&self) -> Option<i64> {
        self.branch.filter(|it| *it != UNSTAMPED)
    }

    /// Says where the database stands.
    pub(crate) fn verdict(&self) -> StampVerdict {
        let is_marked = |mark: &Option<String>| mark.as_ref().is_some_and(|mark| !mark.is_empty());
        if !is_marked(&self.server) || !is_marked(&self.started) {
            return StampVerdict::Unmarked;
        }
        match self.branch {
            Some(UNSTAMPED) => StampVerdict::Unstamped,
            Some(branch) if self.original.is_some() => {
                if self.stamped_server != self.server {
                    StampVerdict::Promoted
                } else if self.stamped_started != self.started {
                    StampVerdict::Restarted
                } else {
                    StampVerdict::Fits(branch)
                }
            }
            Some(_) | None => StampVerdict::Copied,
        }
    }
}

fn column(column: Column) -> Expr {
    Expr::col((Entity, column))
}

fn the_row() -> Condition {
    Condition::all().add(Column::Id.eq(1))
}

/// Returns the condition that the row is the one that was written, and no copy of it, as far as the
/// server shows that.
fn is_original(backend: DbBackend) -> Expr {
    match backend {
        DbBackend::Postgres => Expr::cust(POSTGRES_IS_ORIGINAL),
        DbBackend::MySql => Expr::cust(MYSQL_IS_ORIGINAL),
        // A file is copied whole. Its last heartbeat shows its age.
        DbBackend::Sqlite | _ => Expr::val(1).eq(1),
    }
}

/// Says where the database stands that a transaction is in.
pub(crate) async fn verdict_in(
    transaction: &impl ConnectionTrait,
    mark: &ServerMark,
) -> Result<StampVerdict, DbErr> {
    let mut query = Query::select();
    query.from(meta::Entity);
    LineageRead::read_in(&mut query, transaction.get_database_backend(), mark);
    let row = meta_row::query(transaction, &query).await?;
    Ok(LineageRead::from_query_result(&row, "")?.verdict())
}

/// Stamps the database again, if its stamp still is as it was read. Returns false if another process
/// was faster.
///
/// The time of the stamp stays. A server that was started again may have lost commits since.
pub(crate) async fn stamp_again(
    database: DatabaseConnection,
    mark: ServerMark,
    read: LineageRead,
) -> Result<bool, DbErr> {
    let backend = database.get_database_backend();
    let before = read.branch.unwrap_or(UNSTAMPED);
    let branch = match before {
        UNSTAMPED => new_branch(),
        before => before,
    };
    let as_read = |read: Option<String>| read.unwrap_or_default();
    // The statement may run on another server than the look did, or after a restore.
    let mut is_as_read = the_row()
        .add(Column::Branch.eq(before))
        .add(Column::Server.eq(as_read(read.stamped_server)))
        .add(Column::Started.eq(as_read(read.stamped_started)))
        .add(mark.server.clone().eq(as_read(read.server)))
        .add(mark.started.clone().eq(as_read(read.started)));
    if before != UNSTAMPED {
        is_as_read = is_as_read.add(is_original(backend));
    }
    let stamped_at = match before {
        UNSTAMPED => database_clock::now(backend),
        _ => Expr::col(Column::StampedAt),
    };
    let stamped = Entity::update_many()
        .col_expr(Column::Branch, Expr::val(branch))
        .col_expr(Column::Server, mark.server)
        .col_expr(Column::Started, mark.started)
        .col_expr(Column::WrittenBy, this_transaction(backend))
        .col_expr(Column::StampedAt, stamped_at)
        .filter(is_as_read)
        .exec(&database)
        .await?;
    Ok(stamped.rows_affected > 0)
}

/// Returns the branch that the stamp names. `None` if there is no stamp.
pub(crate) async fn branch_of(database: &impl ConnectionTrait) -> Result<Option<i64>, DbErr> {
    let row = Entity::find_by_id(1_i16).one(database).await?;
    let branch = row.map(|row| row.branch);
    Ok(branch.filter(|it| *it != UNSTAMPED))
}

/// Stamps the database for `branch`, on the server that runs the transaction, whatever the stamp was
/// before. A server without marks leaves them empty.
pub(crate) async fn stamp_in(
    transaction: &impl ConnectionTrait,
    mark: Option<&ServerMark>,
    branch: i64,
) -> Result<(), DbErr> {
    let backend = transaction.get_database_backend();
    let or_empty = |mark: Option<&Expr>| match mark {
        Some(mark) => Expr::from(Func::coalesce([mark.clone(), Expr::val("")])),
        None => Expr::val(""),
    };
    let row = Query::insert()
        .into_table(Entity)
        .columns(Column::iter())
        .values_panic([
            Expr::val(1_i16),
            Expr::val(branch),
            or_empty(mark.map(|mark| &mark.server)),
            or_empty(mark.map(|mark| &mark.started)),
            this_transaction(backend),
            database_clock::now(backend),
        ])
        .to_owned();
    // The row may be gone.
    Entity::delete_many().exec(transaction).await?;
    transaction.execute(&row).await?;
    Ok(())
}

/// Returns what names the writer of a row in the rows that a statement writes: on PostgreSQL the number
/// of its transaction, on MariaDB its time. The statement must not be within a savepoint, which has a
/// number of its own.
fn this_transaction(backend: DbBackend) -> Expr {
    match backend {
        DbBackend::Postgres => Expr::cust(POSTGRES_TRANSACTION),
        DbBackend::MySql => Expr::cust(MYSQL_TIME),
        DbBackend::Sqlite | _ => Expr::val(0_i64),
    }
}

/// Returns the number of a branch: it is random, and was never used.
pub(crate) fn new_branch() -> i64 {
    let random = uuid::Uuid::new_v4().as_u128();
    // The lowest bit keeps it from the number of a database that was never stamped.
    i64::try_from(random >> 65).unwrap_or(i64::MAX) | 1
}
