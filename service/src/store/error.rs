//! What can go wrong in the store, told apart by what it means for the numbers.

use std::fmt;

use odometer_core::definition::DefinitionError;
use sea_orm::{
    ConnAcquireErr, DbErr, RuntimeErr, SqlxError,
    sqlx::{
        error::DatabaseError, mysql::MySqlDatabaseError, postgres::PgDatabaseError,
        sqlite::SqliteError,
    },
};
use thiserror::Error;

/// Why the program cannot start, or cannot go on.
#[derive(Clone, Debug, Error)]
pub enum StartError {
    /// Something that an operator has to change: exit code 78.
    #[error("{0}")]
    Configuration(String),
    /// Another process holds the SQLite file: exit code 75.
    #[error("{0}")]
    Held(String),
    #[error("{0}")]
    Other(String),
}

/// Why the store did not do what it was asked for.
///
/// With any of them no block exists: what may have been reserved was counted as abandoned.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    #[error("the database cannot be reached")]
    Unavailable,
    #[error("the attempts or the time for one reservation are used up")]
    Deadline,
    #[error("no such sequence")]
    NotFound,
    #[error("as many sequences as allowed")]
    TooMany { limit: u64 },
    #[error("{left} numbers are left")]
    Exhausted { left: u64 },
    #[error("a block may have at most {limit} numbers")]
    TooLarge { limit: u64 },
    #[error("the sequence is retired")]
    Retired,
    #[error("{0}")]
    Definition(DefinitionError),
    #[error("the sequence exists")]
    AlreadyExists,
    #[error("the sequence is at version {current}")]
    VersionMismatch { current: i64 },
    #[error("a floor may be at most {highest}")]
    FloorTooHigh { highest: i64, max: i64 },
    #[error("{skipped} of {left} numbers left would be skipped")]
    ConfirmNeeded { skipped: u64, left: u64 },
    /// A change that certainly was not made.
    #[error("the change was not made")]
    NotChanged,
    /// A change whose outcome was not told.
    #[error("the change may have been made")]
    MayHaveChanged,
    #[error("the store holds less than was seen in it")]
    WentBack,
    /// Said once in the log where it was found.
    #[error("{0}")]
    Broken(String),
}

/// How a statement failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing of it is or will be in the database.
    NotCommitted(Cause),
    /// It may be in the database, or get there yet.
    MayHaveCommitted(Cause),
}

/// What was behind it.
#[derive(Debug)]
pub(super) enum Cause {
    /// No connection could be had: the database is away.
    NoConnection(String),
    /// Every connection was taken until the deadline.
    Busy,
    /// No reply came in time.
    Silent,
    /// The connection broke in the middle, or was one of a pool that is replaced.
    Broken(String),
    /// The server was reached and refuses this user, password or database.
    Refused(String),
    /// The server is read-only: a standby, or set so.
    ReadOnly(String),
    /// Two transactions met; trying again is all there is to do.
    Contention,
    /// A row of that key is there already.
    Duplicate,
    /// The database went back to an earlier state: nothing is written there.
    WentBack,
    /// Anything else the server said.
    Server(String),
}

impl Cause {
    /// For the log: our own words and the server's error code, never a message of the database.
    pub(super) fn text(&self) -> &str {
        match self {
            Cause::NoConnection(text)
            | Cause::Broken(text)
            | Cause::Refused(text)
            | Cause::ReadOnly(text)
            | Cause::Server(text) => text,
            Cause::Busy => "every connection was taken until the deadline",
            Cause::Silent => "no reply came in time",
            Cause::Contention => "two transactions met",
            Cause::Duplicate => "a row of that key is there already",
            Cause::WentBack => "the database went back to an earlier state",
        }
    }
}

impl Failure {
    pub(super) fn cause(&self) -> &Cause {
        match self {
            Failure::NotCommitted(cause) | Failure::MayHaveCommitted(cause) => cause,
        }
    }

    /// Whether trying again on another connection is of no use for now.
    pub(super) fn is_away(&self) -> bool {
        matches!(
            self.cause(),
            Cause::NoConnection(_) | Cause::Refused(_) | Cause::ReadOnly(_)
        )
    }
}

impl From<DbErr> for Failure {
    fn from(error: DbErr) -> Self {
        // The first three arise before a statement is sent.
        if let DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed) = &error {
            Failure::NotCommitted(Cause::Broken("its pool was replaced".to_owned()))
        } else if let DbErr::ConnectionAcquire(_) = &error {
            Failure::NotCommitted(Cause::NoConnection(
                "no connection within the time for making one".to_owned(),
            ))
        } else if let DbErr::Conn(RuntimeErr::SqlxError(inner)) = &error {
            Failure::NotCommitted(connecting(inner))
        } else if let DbErr::Exec(RuntimeErr::SqlxError(inner))
        | DbErr::Query(RuntimeErr::SqlxError(inner)) = &error
        {
            executing(inner)
        } else if let DbErr::Migration(text) = error {
            // Written by the migrations themselves, not by a database.
            Failure::NotCommitted(Cause::Server(text))
        } else {
            // Whatever else it is, nothing says that the statement did not run.
            Failure::MayHaveCommitted(Cause::Server(
                "the reply is not what was asked for".to_owned(),
            ))
        }
    }
}

fn connecting(error: &SqlxError) -> Cause {
    let text = describe(error);
    let is_refused = match error.as_database_error() {
        Some(said) => Code::of(said).refuses(),
        None => matches!(error, SqlxError::Configuration(_)),
    };
    if is_refused {
        Cause::Refused(text)
    } else {
        Cause::NoConnection(text)
    }
}

fn executing(error: &SqlxError) -> Failure {
    let text = describe(error);
    let Some(said) = error.as_database_error() else {
        return if matches!(error, SqlxError::PoolTimedOut | SqlxError::PoolClosed) {
            Failure::NotCommitted(Cause::NoConnection(text))
        } else {
            Failure::MayHaveCommitted(Cause::Broken(text))
        };
    };
    let code = Code::of(said);
    if said.is_unique_violation() {
        Failure::NotCommitted(Cause::Duplicate)
    } else if code.contends() {
        Failure::NotCommitted(Cause::Contention)
    } else if code.is_read_only() {
        Failure::NotCommitted(Cause::ReadOnly(text))
    } else if code.is_uncertain() {
        Failure::MayHaveCommitted(Cause::Broken(text))
    } else {
        Failure::NotCommitted(Cause::Server(text))
    }
}

/// An error in our words: what a database says may quote a user, a host or a statement.
fn describe(error: &SqlxError) -> String {
    if let Some(said) = error.as_database_error() {
        return Code::of(said).to_string();
    }
    if let SqlxError::Io(error) = error {
        return error.kind().to_string();
    }
    let what = if matches!(error, SqlxError::Tls(_)) {
        "TLS could not be agreed on"
    } else if matches!(error, SqlxError::PoolTimedOut) {
        "no connection within the time for making one"
    } else if matches!(error, SqlxError::PoolClosed) {
        "the connections are closed"
    } else if matches!(error, SqlxError::Protocol(_)) {
        "what answers does not speak the protocol"
    } else if matches!(error, SqlxError::Configuration(_)) {
        "the URL's host, port or parameters cannot be used"
    } else {
        "the driver failed"
    };
    what.to_owned()
}

/// A server's error code, in that server's own numbering.
enum Code<'a> {
    /// SQLSTATE, appendix A of PostgreSQL's manual.
    Postgres(&'a str),
    /// Error numbers of MySQL and MariaDB; their SQLSTATEs are too coarse.
    MySql(u16),
    /// SQLite's extended result code.
    Sqlite(i32),
    Other,
}

impl fmt::Display for Code<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Postgres(code) => write!(formatter, "SQLSTATE {code}"),
            Code::MySql(code) => write!(formatter, "MySQL error {code}"),
            Code::Sqlite(code) => write!(formatter, "SQLite result code {code}"),
            Code::Other => formatter.write_str("an error without a code"),
        }
    }
}

impl<'a> Code<'a> {
    fn of(said: &'a dyn DatabaseError) -> Self {
        if let Some(said) = said.try_downcast_ref::<PgDatabaseError>() {
            Code::Postgres(said.code())
        } else if let Some(said) = said.try_downcast_ref::<MySqlDatabaseError>() {
            Code::MySql(said.number())
        } else if said.try_downcast_ref::<SqliteError>().is_some() {
            let code = said.code().and_then(|code| code.parse().ok());
            code.map_or(Code::Other, Code::Sqlite)
        } else {
            Code::Other
        }
    }

    /// Authentication, privileges, no such database.
    fn refuses(&self) -> bool {
        match self {
            Code::Postgres(code) => matches!(*code, "28P01" | "28000" | "3D000" | "42501"),
            Code::MySql(code) => matches!(*code, 1044 | 1045 | 1049 | 1698 | 1251),
            // Cannot open (no such directory), not a database.
            Code::Sqlite(code) => matches!(*code & 0xff, 14 | 26),
            Code::Other => false,
        }
    }

    /// Serialization failure, deadlock, lock wait timeout; SQLite's busy and locked.
    fn contends(&self) -> bool {
        match self {
            Code::Postgres(code) => matches!(*code, "40001" | "40P01" | "55P03"),
            Code::MySql(code) => matches!(*code, 1205 | 1213 | 1020),
            Code::Sqlite(code) => matches!(*code & 0xff, 5 | 6),
            Code::Other => false,
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            Code::Postgres(code) => *code == "25006",
            Code::MySql(code) => matches!(*code, 1290 | 1792 | 1836),
            Code::Sqlite(code) => *code & 0xff == 8,
            Code::Other => false,
        }
    }

    /// The server ends the connection, or the disk failed: the end of the statement is not told.
    fn is_uncertain(&self) -> bool {
        match self {
            Code::Postgres(code) => {
                code.starts_with("57P") || code.starts_with("08") || *code == "40003"
            }
            Code::MySql(code) => matches!(
                *code,
                1053 | 1080 | 1152 | 1158..=1161 | 1180 | 1927 | 3169 | 4031
            ),
            Code::Sqlite(code) => *code & 0xff == 10,
            Code::Other => true,
        }
    }
}
