//! What can go wrong in the store, told apart by what it means for the numbers.

use std::{io, sync::Arc};

use odometer_core::definition::{Definition, DefinitionError};
use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr, SqlxError};
use thiserror::Error;

use super::{code::Code, connection::tls, reservation::Known, settings::Place};
use crate::sabotage::{self, Fault};

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

impl StartError {
    /// Both of them, as what an operator has to see to first.
    pub(super) fn and(self, other: Self) -> Self {
        let both = format!("{self}; {other}");
        match (self, other) {
            (Self::Configuration(_), _) | (_, Self::Configuration(_)) => Self::Configuration(both),
            (Self::Held(_), _) | (_, Self::Held(_)) => Self::Held(both),
            (Self::Other(_), Self::Other(_)) => Self::Other(both),
        }
    }

    /// What was said of the one database there usually is, said of this one.
    pub(super) fn of(self, place: &Place) -> Self {
        match self {
            Self::Configuration(sentence) => Self::Configuration(place.name_in(&sentence)),
            Self::Held(sentence) => Self::Held(place.name_in(&sentence)),
            Self::Other(sentence) => Self::Other(place.name_in(&sentence)),
        }
    }
}

/// Why the store did not do what it was asked for.
///
/// With any of them no block exists: what may have been reserved was counted as abandoned.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    #[error("the database cannot be used now")]
    Unavailable,
    #[error("the attempts or the time for one reservation are used up")]
    Deadline,
    #[error("no such sequence")]
    NotFound,
    /// The name is claimed for the store that the definition names.
    #[error("the sequence lives in the store `{}`", .0.store)]
    Elsewhere(Arc<Definition>),
    #[error("as many sequences as allowed")]
    TooMany { limit: u64 },
    #[error("{left} numbers are left")]
    Exhausted { left: u64 },
    #[error("a block may have at most {limit} numbers")]
    TooLarge { limit: u64 },
    /// The sequence has another order than the reservation was asked for.
    #[error("the sequence has another order")]
    OtherOrder {
        known: Box<Known>,
        /// The rate that is stored with the counter.
        rate: Option<f64>,
    },
    #[error("the sequence is retired")]
    Retired,
    /// A period has to be named, or is one of another calendar than the sequence has; what is known
    /// is of the sequence.
    #[error("the sequence counts in periods")]
    HasPeriods(Box<Known>),
    /// A period was named in vain; what is known is of the sequence's one counter.
    #[error("the sequence does not count in periods")]
    NoPeriods(Box<Known>),
    #[error("the period is removed")]
    PeriodRemoved,
    /// Removed ones count: their tombstones stay.
    #[error("as many periods as allowed")]
    TooManyPeriods { limit: u64 },
    #[error("not for this kind of sequence")]
    NotForKind,
    /// Its ids are stamped, not counted: what is known of it.
    #[error("the sequence is time-ordered")]
    TimeOrdered(Box<Known>),
    #[error("{0}")]
    Definition(DefinitionError),
    #[error("the sequence exists")]
    AlreadyExists,
    #[error("the sequence is at version {current}")]
    VersionMismatch { current: i64 },
    #[error("a floor may be at most {highest}")]
    FloorTooHigh { highest: i64, limit: i64 },
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
    /// Never leaves the store: one of several databases has not what the others agreed on.
    #[error("a database is behind the others")]
    Behind,
    /// A change needs a database that is away; the text names it.
    #[error("{away} is away")]
    Incomplete { away: String },
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
            Cause::NoConnection(_) | Cause::Away(_) | Cause::Refused(_) | Cause::ReadOnly(_)
        )
    }
}

impl From<DbErr> for Failure {
    fn from(error: DbErr) -> Self {
        // The first three arise before a statement is sent.
        if let DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed) = &error {
            Failure::NotCommitted(Cause::Broken("its pool was replaced".to_owned()))
        } else if let DbErr::ConnectionAcquire(_) = &error {
            Failure::NotCommitted(Cause::NoConnection(NO_CONNECTION.to_owned()))
        } else if let DbErr::Conn(RuntimeErr::SqlxError(inner)) = &error {
            Failure::NotCommitted(connecting(inner))
        } else if let DbErr::Exec(RuntimeErr::SqlxError(inner))
        | DbErr::Query(RuntimeErr::SqlxError(inner)) = &error
        {
            executing(inner)
        } else if let DbErr::Migration(text) = error {
            // Written by the migrations themselves, not by a database: another one is at work.
            Failure::NotCommitted(Cause::Away(text))
        } else {
            // Whatever else it is, nothing says that the statement did not run.
            Failure::MayHaveCommitted(Cause::Server(
                "the reply is not what was asked for: are the tables those of Odometer?".to_owned(),
            ))
        }
    }
}

impl Failure {
    /// Of an attempt to connect that the driver made by itself.
    pub(super) fn to_connect(error: &SqlxError) -> Self {
        Failure::NotCommitted(connecting(error))
    }
}

fn connecting(error: &SqlxError) -> Cause {
    if let Some(said) = error.as_database_error() {
        let code = Code::of(said);
        return match code.passing() {
            Some(_) if sabotage::is(Fault::CodesUnread) => Cause::Refused(describe(error)),
            Some(what) => Cause::Away(format!("{what} ({code})")),
            None if code.is_disk_full() => Cause::Away(code.answer()),
            None if sabotage::is(Fault::SecretsTold) => Cause::Refused(describe(error)),
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

fn executing(error: &SqlxError) -> Failure {
    let text = describe(error);
    let Some(said) = error.as_database_error() else {
        return if matches!(error, SqlxError::PoolTimedOut | SqlxError::PoolClosed) {
            Failure::NotCommitted(Cause::NoConnection(NO_CONNECTION.to_owned()))
        } else {
            Failure::MayHaveCommitted(Cause::Broken(text))
        };
    };
    let code = Code::of(said);
    if said.is_unique_violation() {
        Failure::NotCommitted(Cause::Duplicate)
    } else if code.is_uncertain() {
        Failure::MayHaveCommitted(match code.passing() {
            Some(what) => Cause::Broken(format!("{what} ({code})")),
            None => Cause::Internal(code.answer()),
        })
    } else {
        Failure::NotCommitted(match sabotage::is(Fault::CodesUnread) {
            true => Cause::Server(text),
            false => code.cause(text),
        })
    }
}

/// Of a pool, which says no more than that.
const NO_CONNECTION: &str = "the database gave no connection within the time for making one";

/// An error in our words: what a database says may quote a user, a host or a statement.
fn describe(error: &SqlxError) -> String {
    if sabotage::is(Fault::SecretsTold) {
        return error.to_string();
    }
    if let Some(said) = error.as_database_error() {
        return Code::of(said).to_string();
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
