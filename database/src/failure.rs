//! How a statement failed: whether it certainly did not commit, and what was behind it.

use std::io;

use odometer_process::faults::{self, Fault};
use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr, SqlxError};

use crate::{code::ServerErrorCode, tls};

/// How a statement failed.
#[derive(Debug)]
pub enum StatementFailure {
    /// Nothing of it is or will be in the database.
    NotCommitted(Cause),
    /// It may be in the database, or get there yet.
    MayHaveCommitted(Cause),
}

/// What was behind it.
#[derive(Debug)]
pub enum Cause {
    /// No connection could be had, and nobody answered: the database is away.
    NoConnection(String),
    /// The server, or a pooler, answers that it cannot be used for now, which passes by itself.
    Away(String),
    /// Every connection was taken until the deadline.
    Busy,
    /// No reply came in time.
    Silent,
    /// The connection broke in the middle, or was one of a pool that is replaced.
    Broken(String),
    /// The server answers that something in it failed; the end of the statement is not told.
    Internal(String),
    /// The server was reached and refuses this user, password or database.
    Refused(String),
    /// The server is read-only: a standby, or set so.
    ReadOnly(String),
    /// This user lacks a right; the text says for what.
    Denied(String),
    /// The server has no room left for what was to be written.
    DiskFull(String),
    /// Two transactions met; trying again is all there is to do.
    Contention,
    /// The server ended the statement because it took too long, or because it was told to.
    Interrupted,
    /// A row of that key is there already.
    Duplicate,
    /// Anything else the server said.
    Server(String),
}

impl Cause {
    /// For the log: our own words and the server's error code, never a message of the database.
    pub fn text(&self) -> &str {
        match self {
            Cause::NoConnection(text)
            | Cause::Away(text)
            | Cause::Broken(text)
            | Cause::Internal(text)
            | Cause::Refused(text)
            | Cause::ReadOnly(text)
            | Cause::Denied(text)
            | Cause::DiskFull(text)
            | Cause::Server(text) => text,
            Cause::Busy => "every connection was taken until the deadline",
            Cause::Silent => "no reply came in time",
            Cause::Contention => "two transactions met",
            Cause::Interrupted => "the database ended the statement, as it took too long",
            Cause::Duplicate => "a row of that key is there already",
        }
    }
}

impl StatementFailure {
    pub fn cause(&self) -> &Cause {
        match self {
            StatementFailure::NotCommitted(cause) | StatementFailure::MayHaveCommitted(cause) => {
                cause
            }
        }
    }

    /// Whether trying again on another connection is of no use for now.
    pub fn is_away(&self) -> bool {
        matches!(
            self.cause(),
            Cause::NoConnection(_) | Cause::Away(_) | Cause::Refused(_) | Cause::ReadOnly(_)
        )
    }
}

impl From<DbErr> for StatementFailure {
    fn from(error: DbErr) -> Self {
        // The first three arise before a statement is sent.
        if let DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed) = &error {
            StatementFailure::NotCommitted(Cause::Broken("its pool was replaced".to_owned()))
        } else if let DbErr::ConnectionAcquire(_) = &error {
            StatementFailure::NotCommitted(Cause::NoConnection(NO_CONNECTION.to_owned()))
        } else if let DbErr::Conn(RuntimeErr::SqlxError(inner)) = &error {
            StatementFailure::NotCommitted(connecting(inner))
        } else if let DbErr::Exec(RuntimeErr::SqlxError(inner))
        | DbErr::Query(RuntimeErr::SqlxError(inner)) = &error
        {
            executing(inner)
        } else if let DbErr::Migration(text) = error {
            // Written by the migrations themselves, not by a database: another one is at work.
            StatementFailure::NotCommitted(Cause::Away(text))
        } else {
            // Whatever else it is, nothing says that the statement did not run.
            StatementFailure::MayHaveCommitted(Cause::Server(
                "the reply is not what was asked for: are the tables those of Odometer?".to_owned(),
            ))
        }
    }
}

impl StatementFailure {
    /// Of an attempt to connect that the driver made by itself.
    pub fn to_connect(error: &SqlxError) -> Self {
        StatementFailure::NotCommitted(connecting(error))
    }
}

fn connecting(error: &SqlxError) -> Cause {
    if let Some(said) = error.as_database_error() {
        let code = ServerErrorCode::of(said);
        return match code.passing() {
            Some(_) if faults::is(Fault::CodesUnread) => Cause::Refused(describe(error)),
            Some(what) => Cause::Away(format!("{what} ({code})")),
            None if code.is_disk_full() => Cause::Away(code.answer()),
            None if faults::is(Fault::SecretsTold) => Cause::Refused(describe(error)),
            None => Cause::Refused(code.refusal()),
        };
    }
    match tls::of(error) {
        Some(tls::Trouble::Lasting(text)) => Cause::Refused(text),
        Some(tls::Trouble::Passing(text)) => Cause::Away(text),
        // Half an answer of a server that ends, or another kind of server: a probe tells.
        None if matches!(error, SqlxError::Protocol(_)) => Cause::Away(describe(error)),
        None => Cause::NoConnection(format!(
            "the database cannot be reached: {}",
            describe(error)
        )),
    }
}

fn executing(error: &SqlxError) -> StatementFailure {
    let text = describe(error);
    let Some(said) = error.as_database_error() else {
        return if matches!(error, SqlxError::PoolTimedOut | SqlxError::PoolClosed) {
            StatementFailure::NotCommitted(Cause::NoConnection(NO_CONNECTION.to_owned()))
        } else {
            StatementFailure::MayHaveCommitted(Cause::Broken(text))
        };
    };
    let code = ServerErrorCode::of(said);
    if said.is_unique_violation() {
        StatementFailure::NotCommitted(Cause::Duplicate)
    } else if code.is_uncertain() {
        StatementFailure::MayHaveCommitted(match code.passing() {
            Some(what) => Cause::Broken(format!("{what} ({code})")),
            None => Cause::Internal(code.answer()),
        })
    } else {
        StatementFailure::NotCommitted(match faults::is(Fault::CodesUnread) {
            true => Cause::Server(text),
            false => code.cause(text),
        })
    }
}

/// Of a pool, which says no more than that.
const NO_CONNECTION: &str = "the database gave no connection within the time for making one";

/// An error in our words: what a database says may quote a user, a host or a statement.
fn describe(error: &SqlxError) -> String {
    if faults::is(Fault::SecretsTold) {
        return error.to_string();
    }
    if let Some(said) = error.as_database_error() {
        return ServerErrorCode::of(said).to_string();
    }
    if let SqlxError::Io(error) = error {
        return network(error);
    }
    let what = if matches!(error, SqlxError::Tls(_)) {
        "TLS could not be agreed on"
    } else if matches!(error, SqlxError::PoolTimedOut) {
        NO_CONNECTION
    } else if matches!(error, SqlxError::PoolClosed) {
        "the connections are closed"
    } else if matches!(error, SqlxError::Protocol(_)) {
        "what answers at its host and port does not speak the protocol of the URL's scheme, or \
         asks for a login that this program does not know"
    } else if matches!(error, SqlxError::Configuration(_)) {
        "the URL's host, port or parameters cannot be used"
    } else {
        "the driver failed"
    };
    what.to_owned()
}

/// What keeps a connection from being made or used, by the system's word for it.
fn network(error: &io::Error) -> String {
    // Looking a name up fails without a kind of its own.
    let is_name = error.to_string().contains("failed to lookup address");
    if is_name {
        return "the name of its host is not known".to_owned();
    }
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return "nothing listens at its host and port".to_owned();
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "what listens there closed the connection".to_owned();
    }
    error.kind().to_string()
}
