//! Looks at the stamp of a database, and stamps the database again if that is right.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::metrics::Counter;
use entity::{meta, replica};
use odometer_database::{
    connection::Connection,
    database_clock,
    failure::{Cause, StatementFailure},
    server_mark::ServerMark,
    session::DatabaseConnection,
};
use odometer_process::{
    faults::{self, Fault},
    metrics::DatabaseMetrics,
};
use sea_orm::{
    ConnectionTrait, DbErr, EntityTrait, FromQueryResult, Iterable,
    sea_query::{Expr, ExprTrait, Query},
};

use crate::{
    heartbeat::Heartbeat,
    lineage::{self, LineageRead, StampVerdict},
    meta_row,
    set_aside::is_kept,
    settings::{Durability, StoreLimits},
    vouching::{LastBeat, Vouching},
};

/// Says what a stamp means.
pub(crate) const PROMOTED: &str = "it is a copy that may have lost commits: a standby that was \
                                   promoted, or a backup";
pub(crate) const RESTARTED: &str = "its server was started again, and no replica that ran before has \
                                    seen that it lost nothing";
pub(crate) const COPIED: &str = "it is a copy that was restored, as from a dump, or from a backup of a \
                                 SQLite file";
/// Bounds how often one look stamps a database that other processes stamp meanwhile.
const MAX_STAMPINGS: u32 = 5;

/// Compares the stamp of one database with the server that it is on.
pub(crate) struct StampCheck {
    connection: Arc<Connection>,
    heartbeat: Arc<Heartbeat>,
    /// Whether replicas fence the database by themselves, once it is armed.
    is_fenced: bool,
    limits: StoreLimits,
    time_limit: Duration,
    /// Counts the starts of the server that this process vouched for.
    vouched: Counter,
}

impl StampCheck {
    pub(crate) fn new(
        (connection, heartbeat): (&Arc<Connection>, &Arc<Heartbeat>),
        (settings, is_fenced): (&StoreLimits, bool),
        counted: &DatabaseMetrics,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            heartbeat: Arc::clone(heartbeat),
            is_fenced,
            limits: settings.clone(),
            time_limit: settings.statement.timeout + settings.statement.acquire,
            vouched: counted.vouched.clone(),
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
    /// started again and lost nothing, or is said to lose nothing, stamps the database and reads it
    /// again.
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
            if !self.may_stamp(&read, verdict).await? {
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
            let is_vouched = verdict == StampVerdict::Restarted && self.needs_voucher(&read.meta);
            let until = Instant::now() + self.time_limit;
            let stamping = self.connection.run(until, |database| {
                lineage::stamp_again(database, mark, read.lineage)
            });
            if stamping.await? && is_vouched {
                self.vouched.increment(1);
            }
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
    async fn may_stamp(
        &self,
        read: &StoreRead,
        verdict: StampVerdict,
    ) -> Result<bool, StatementFailure> {
        if self.heartbeat.has_fallen(read.beat) {
            return Ok(false);
        }
        Ok(match verdict {
            StampVerdict::Fits(_) | StampVerdict::Copied | StampVerdict::Unmarked => false,
            StampVerdict::Restarted => {
                !self.needs_voucher(&read.meta) || self.is_vouched_for(read).await?
            }
            // A SQLite file has no failover: it is restored.
            StampVerdict::Promoted => {
                self.limits.failover.is_lossless && self.heartbeat.file.is_none()
            }
            // A process that knows a stamp has a state from before it.
            StampVerdict::Unstamped => self.heartbeat.branch().is_none(),
        })
    }

    /// Returns whether replicas fence the database if its server was started again, and nobody
    /// knows what that server has lost.
    pub(crate) fn fences(&self, meta: &meta::Model) -> bool {
        self.is_fenced && meta.armed_at.is_some()
    }

    /// Returns whether a start of the server is trusted only if something shows that it lost nothing.
    fn needs_voucher(&self, meta: &meta::Model) -> bool {
        self.fences(meta) && !self.limits.failover.is_lossless
    }

    /// Returns whether the heartbeats in a database whose server was started again show that it
    /// lost nothing. This process's own heartbeat is there, if it knows one, and it vouches then.
    async fn is_vouched_for(&self, read: &StoreRead) -> Result<bool, StatementFailure> {
        if faults::is(Fault::TrustsStarts) {
            return Ok(true);
        }
        let heartbeat = &self.heartbeat;
        // A server that may forget commits in a crash may have forgotten those after the heartbeat.
        let is_witness = self.limits.durability == Durability::Full
            && heartbeat.last_confirmed().is_some()
            && heartbeat.branch() == read.branch()
            && !heartbeat.is_lost()
            && !faults::is(Fault::NoVouching);
        if is_witness {
            heartbeat.vouch(&self.connection, self.time_limit).await?;
        }
        let vouching = Vouching {
            started: read.lineage.started.clone(),
            within: self.limits.failover.within,
            clock_margin: self.limits.failover.clock_margin,
        };
        let since_ms = vouching.since_ms(read.now_ms);
        let until = Instant::now() + self.time_limit;
        let reading = self.connection.run(until, move |database| {
            LastBeat::read_since(database, since_ms)
        });
        Ok(vouching.is_whole(&reading.await?, read.now_ms))
    }
}

/// Returns what a stamp says of a database that goes on only after a fence. A process that has just
/// started sees a start of the server only if nobody vouches for it.
pub(crate) fn needs_fence(verdict: Option<StampVerdict>) -> Option<&'static str> {
    match verdict? {
        StampVerdict::Promoted => Some(PROMOTED),
        StampVerdict::Restarted => Some(RESTARTED),
        StampVerdict::Fits(_)
        | StampVerdict::Unstamped
        | StampVerdict::Copied
        | StampVerdict::Unmarked => None,
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

impl StoreRead {
    /// Returns the branch that the database is on. `None` if it was never stamped.
    pub(crate) fn branch(&self) -> Option<i64> {
        self.lineage.branch()
    }
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
    match &mark {
        Some(mark) => LineageRead::read_in(&mut query, backend, mark),
        None => LineageRead::read_branch_in(&mut query),
    }
    let row = meta_row::query(&database, &query).await?;
    let mut read = StoreRead::from_query_result(&row, "")?;
    read.lineage = match mark {
        Some(_) => LineageRead::from_query_result(&row, "")?,
        None => LineageRead {
            branch: row.try_get("", "branch")?,
            ..LineageRead::default()
        },
    };
    Ok(read)
}
