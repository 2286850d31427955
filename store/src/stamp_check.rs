//! Looks at the stamp of a database, and stamps the database again if that is right.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::{meta, replica};
use odometer_database::{
    connection::Connection,
    database_clock,
    failure::{Cause, StatementFailure},
    server_mark::ServerMark,
    session::DatabaseConnection,
};
use sea_orm::{
    ConnectionTrait, DbErr, EntityTrait, FromQueryResult, Iterable,
    sea_query::{Expr, ExprTrait, Query},
};

use crate::{
    database::Database,
    heartbeat::Heartbeat,
    lineage::{self, LineageRead, StampVerdict},
    meta_row,
    set_aside::is_kept,
};

/// Says what a stamp means.
pub(crate) const PROMOTED: &str = "it is a copy that may have lost commits: a standby that was \
                                   promoted, or a backup";
pub(crate) const COPIED: &str = "it is a copy that was restored, as from a dump, or from a backup of a \
                                 SQLite file";
/// Bounds how often one look stamps a database that other processes stamp meanwhile.
const MAX_STAMPINGS: u32 = 5;

/// Compares the stamp of one database with the server that it is on.
pub(crate) struct StampCheck {
    connection: Arc<Connection>,
    heartbeat: Arc<Heartbeat>,
    /// Whether a server that takes the place of another one has all of its commits.
    is_lossless: bool,
    time_limit: Duration,
}

impl StampCheck {
    pub(crate) fn of(database: &Database) -> Self {
        let settings = &database.settings;
        Self {
            connection: Arc::clone(&database.connection),
            heartbeat: Arc::clone(&database.heartbeat),
            is_lossless: settings.is_lossless,
            time_limit: settings.statement.timeout + settings.statement.acquire,
        }
    }

    async fn read(&self) -> Result<StoreRead, StatementFailure> {
        let until = Instant::now() + self.time_limit;
        let (holder, mark) = (Arc::clone(self.heartbeat.holder()), self.heartbeat.mark());
        let reading = self
            .connection
            .run(until, |database| read(database, holder, mark));
        reading.await
    }

    /// Reads where the database stands, and compares its stamp with its server. If the server was
    /// only started again, or is said to lose nothing, stamps the database and reads it again.
    ///
    /// Returns what was read last, and what the stamp says of it. `None` if stamps are not compared.
    pub(crate) async fn look(&self) -> Result<(StoreRead, Option<StampVerdict>), StatementFailure> {
        let mut n_stamped = 0;
        loop {
            let read = self.read().await?;
            let Some(mark) = self.heartbeat.mark() else {
                return Ok((read, None));
            };
            let mut verdict = read.lineage.verdict();
            if matches!(verdict, StampVerdict::Fits(_)) && self.is_older_file().await? {
                verdict = StampVerdict::Copied;
            }
            if !self.may_stamp(&read, verdict) {
                return Ok((read, Some(verdict)));
            }
            if n_stamped == MAX_STAMPINGS {
                return Err(StatementFailure::NotCommitted(Cause::Contention));
            }
            n_stamped += 1;
            if let (StampVerdict::Unstamped, Some(file)) = (verdict, &self.heartbeat.file) {
                // What was noted is of a database that was in this place before.
                file.forget();
            }
            let until = Instant::now() + self.time_limit;
            let stamping = self.connection.run(until, |database| {
                lineage::stamp_again(database, mark, read.lineage)
            });
            stamping.await?;
        }
    }

    /// Returns whether the SQLite file has lost the last heartbeat of the process before this one: an
    /// earlier state of the file was put in its place. Later on this process's own heartbeat shows
    /// that.
    async fn is_older_file(&self) -> Result<bool, StatementFailure> {
        let file = self.heartbeat.file.as_ref();
        let last = file.and_then(|file| file.last());
        let Some(last) = last.filter(|_| self.heartbeat.last_confirmed().is_none()) else {
            return Ok(false);
        };
        let until = Instant::now() + self.time_limit;
        let looking = self.connection.run(until, |database| async move {
            let find = replica::Entity::find_by_id(&*last.holder);
            let row = find.one(&database).await?;
            Ok(is_kept(row.map(|row| row.beat), last.beat))
        });
        Ok(!looking.await?)
    }

    /// Returns whether this process may stamp the database after such a look.
    fn may_stamp(&self, read: &StoreRead, verdict: StampVerdict) -> bool {
        let is_right = match verdict {
            StampVerdict::Fits(_) | StampVerdict::Copied | StampVerdict::Unmarked => false,
            StampVerdict::Restarted => true,
            // A SQLite file has no failover: it is restored.
            StampVerdict::Promoted => self.is_lossless && self.heartbeat.file.is_none(),
            // A process that knows a stamp has a state from before it.
            StampVerdict::Unstamped => self.heartbeat.branch().is_none(),
        };
        is_right && !self.heartbeat.has_fallen(read.beat)
    }
}

/// What a poll reads of the database.
#[derive(Clone, Debug, FromQueryResult)]
pub(crate) struct StoreRead {
    #[sea_orm(nested)]
    pub(crate) meta: meta::Model,
    /// The database's clock (Unix ms).
    pub(crate) now_ms: i64,
    /// This replica's heartbeat. `None` if it has no row.
    pub(crate) beat: Option<i64>,
    #[sea_orm(skip)]
    lineage: LineageRead,
}

async fn read(
    database: DatabaseConnection,
    holder: Arc<str>,
    mark: Option<ServerMark>,
) -> Result<StoreRead, DbErr> {
    let backend = database.get_database_backend();
    let own_row = Expr::col((replica::Entity, replica::Column::Holder)).eq(&*holder);
    let mut query = Query::select();
    query
        .columns(meta::Column::iter().map(|column| (meta::Entity, column)))
        .expr_as(database_clock::now(backend), "now_ms")
        .column((replica::Entity, replica::Column::Beat))
        .from(meta::Entity)
        .left_join(replica::Entity, own_row)
        .and_where(Expr::col((meta::Entity, meta::Column::Id)).eq(1));
    if let Some(mark) = &mark {
        LineageRead::read_in(&mut query, backend, mark);
    }
    let row = meta_row::query(&database, &query).await?;
    let mut read = StoreRead::from_query_result(&row, "")?;
    if mark.is_some() {
        read.lineage = LineageRead::from_query_result(&row, "")?;
    }
    Ok(read)
}
