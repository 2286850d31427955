//! Classifies failures of statements: whether a statement certainly did not commit, and for what
//! cause.

use std::io;

use odometer_process::faults::{self, Fault};
use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr, SqlxError};

use crate::{code::ServerErrorCode, tls};

/// The failure of a statement.
#[derive(Debug)]
pub enum StatementFailure {
    /// Nothing of the statement is or will be in the database.
    NotCommitted(Cause),
    /// The statement may be in the database, or may still get there.
    MayHaveCommitted(Cause),
}

/// The cause of a failure.
#[derive(Debug)]
pub enum Cause {
    /// There was no connection, and no server answered: the database is away.
    NoConnection(String),
    /// The server or a pooler answers that it cannot be used now. This passes by itself.
    Away(String),
    /// Every connection was taken until the deadline.
    Busy,
    /// No reply came in time.
    Silent,
    /// The connection broke while the statement ran, or its pool was replaced.
    Broken(String),
    /// The server answers that something in it failed. The end of the statement is not known.
    Internal(String),
    /// The server was reached and refuses this user, password or database.
    Refused(String),
    /// The server is read-only: it is a standby, or was set so.
    ReadOnly(String),
    /// This user lacks a right. The text is the server's error code.
    Denied(String),
    /// The server has no room left for what was to be written.
    DiskFull(String),
    /// Two transactions met. Another try is all there is to do.
    Contention,
    /// The server ended the statement because it took too long, or because somebody cancelled it.
    Interrupted,
    /// A row with that key is there already.
    Duplicate,
    /// Any other answer of the server.
    Server(String),
}

impl Cause {
    /// Returns the text for the log: words of this program and the server's error code. It never
    /// holds a message of the database.
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

    /// Returns whether the same statement may succeed at the next try: another one was in the way,
    /// or one connection or one call in the server failed.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Cause::Contention
                | Cause::Interrupted
                | Cause::Duplicate
                | Cause::Broken(_)
                | Cause::Internal(_)
        )
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

    /// Returns whether another try on another connection is of no use now.
    pub fn is_away(&self) -> bool {
        matches!(
            self.cause(),
            Cause::NoConnection(_) | Cause::Away(_) | Cause::Refused(_) | Cause::ReadOnly(_)
        )
    }
}

impl From<DbErr> for StatementFailure {
    fn from(error: DbErr) -> Self {
        // The first three errors arise before a statement is sent.
        if let DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed) = &error {
            StatementFailure::NotCommitted(Cause::Broken("its pool was replaced".to_owned()))
        } else if let DbErr::ConnectionAcquire(_) = &error {
            StatementFailure::NotCommitted(Cause::NoConnection(NO_CONNECTION.to_owned()))
        } else if let DbErr::Conn(RuntimeErr::SqlxError(inner)) = &error {
            StatementFailure::NotCommitted(classify_connecting(inner))
        } else if let DbErr::Exec(RuntimeErr::SqlxError(inner))
        | DbErr::Query(RuntimeErr::SqlxError(inner)) = &error
        {
            classify_executed(inner)
        } else if let DbErr::Migration(text) = error {
            // The migrations write this error themselves: another process is migrating.
            StatementFailure::NotCommitted(Cause::Away(text))
        } else {
            // For any other error, nothing says that the statement did not run.
            StatementFailure::MayHaveCommitted(Cause::Server(
                "the reply is not what was asked for: are the tables those of Odometer?".to_owned(),
            ))
        }
    }
}

impl StatementFailure {
    /// Converts the error of a connection that was made by the driver alone, without a pool.
    pub fn to_connect(error: &SqlxError) -> Self {
        StatementFailure::NotCommitted(classify_connecting(error))
    }
}

fn classify_connecting(error: &SqlxError) -> Cause {
    if let Some(said) = error.as_database_error() {
        let code = ServerErrorCode::of(said);
        return match code.passing() {
            Some(_) if faults::is(Fault::CodesUnread) => Cause::Refused(describe(error)),
            Some(what) => Cause::Away(format!("{what} ({code})")),
            None if matches!(code.cause(String::new()), Cause::DiskFull(_)) => {
                Cause::Away(code.answer())
            }
            None if faults::is(Fault::SecretsTold) => Cause::Refused(describe(error)),
            None => Cause::Refused(code.refusal()),
        };
    }
    match tls::cause(error) {
        Some(cause) => cause,
        // A server that is stopping cut its answer off, or another kind of server answers. A probe
        // finds out which.
        None if matches!(error, SqlxError::Protocol(_)) => Cause::Away(describe(error)),
        None => Cause::NoConnection(format!(
            "the database cannot be reached: {}",
            describe(error)
        )),
    }
}

fn classify_executed(error: &SqlxError) -> StatementFailure {
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

/// Says that a pool gave no connection. The pool says no more than that.
const NO_CONNECTION: &str = "the database gave no connection within the time for making one";

/// Describes an error in words of this program. The database's own message may quote a user, a host
/// or a statement.
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

/// Describes an error of the network by the system's word for it.
fn network(error: &io::Error) -> String {
    // A failed look-up of a name has no error kind of its own.
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
