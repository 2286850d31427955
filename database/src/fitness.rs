//! What a look at a database found.

use crate::{
    failure::{Cause, StatementFailure},
    start_error::StartError,
};

/// What a first look at a database found.
#[derive(Debug)]
pub enum DatabaseFitness {
    /// It can be used; where a crash of it can forget commits, a sentence says so.
    Good { weakness: Option<String> },
    /// It cannot be used yet, and may become usable by itself: a standby, a read-only server.
    Away(String),
    /// Its schema does not fit this binary yet.
    Schema(String),
    /// It will not become usable by waiting.
    Wrong(String),
}

impl From<DatabaseFitness> for StartError {
    fn from(fitness: DatabaseFitness) -> Self {
        match fitness {
            DatabaseFitness::Wrong(reason) | DatabaseFitness::Schema(reason) => {
                Self::Configuration(reason)
            }
            DatabaseFitness::Away(reason) => Self::Other(reason),
            DatabaseFitness::Good { .. } => Self::Other("the database cannot be used".to_owned()),
        }
    }
}

/// What a failure to reach the database means for the start.
pub fn fitness_of(failure: &StatementFailure) -> DatabaseFitness {
    let text = failure.cause().text();
    match failure.cause() {
        Cause::Refused(_) => DatabaseFitness::Wrong(format!("ODOMETER_DATABASE_URL: {text}")),
        Cause::Denied(_) => DatabaseFitness::Wrong(format!("{MAY_NOT_USE} ({text})")),
        Cause::Server(_) | Cause::Internal(_) => DatabaseFitness::Wrong(format!(
            "ODOMETER_DATABASE_URL: the database does not do what it is asked to: {text}"
        )),
        // Whoever makes room does not think of a restart.
        Cause::NoConnection(_) | Cause::Away(_) | Cause::DiskFull(_) => {
            DatabaseFitness::Away(text.to_owned())
        }
        Cause::ReadOnly(_) => DatabaseFitness::Away(format!("the database is read-only ({text})")),
        Cause::Broken(_) => DatabaseFitness::Away(format!("the connection was lost: {text}")),
        // Another transaction was in the way, or the database is slow.
        Cause::Contention | Cause::Interrupted | Cause::Duplicate | Cause::Silent | Cause::Busy => {
            DatabaseFitness::Away(format!("a statement was not done: {text}"))
        }
    }
}

/// Of a user that lacks rights on the tables.
pub const MAY_NOT_USE: &str = "ODOMETER_DATABASE_URL: this user may not read or write the tables of \
                           Odometer: grant it SELECT, INSERT, UPDATE and DELETE on all of them";
