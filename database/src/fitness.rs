//! Says whether a database can be used, and why not.

use crate::{
    failure::{Cause, StatementFailure},
    start_error::StartError,
};

/// The result of a look at a database.
#[derive(Debug, PartialEq, Eq)]
pub enum DatabaseFitness {
    /// The database can be used.
    Good {
        /// If a crash of the database can forget commits, says so in a sentence.
        weakness: Option<String>,
        /// If a copy of the database may lack commits from before its last one, says so in a
        /// sentence.
        disorder: Option<&'static str>,
        /// Whether the server gives the marks by which a copy of the database is told apart.
        has_marks: bool,
    },
    /// The database cannot be used yet, and may become usable by itself: a standby, a read-only
    /// server.
    Away(String),
    /// The schema does not fit this program yet.
    Schema(String),
    /// Waiting will not make the database usable.
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

/// Returns what a failure to reach the database means for the start.
pub fn fitness_of(failure: &StatementFailure) -> DatabaseFitness {
    let text = failure.cause().text();
    match failure.cause() {
        Cause::Refused(_) => DatabaseFitness::Wrong(format!("ODOMETER_DATABASE_URL: {text}")),
        Cause::Denied(_) => DatabaseFitness::Wrong(format!("{MAY_NOT_USE} ({text})")),
        Cause::Server(_) | Cause::Internal(_) => DatabaseFitness::Wrong(format!(
            "ODOMETER_DATABASE_URL: the database does not do what it is asked to: {text}"
        )),
        // A full disk must not end the program: an operator who makes room does not think of a
        // restart.
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

/// Refuses a user who lacks rights on the tables.
pub const MAY_NOT_USE: &str = "ODOMETER_DATABASE_URL: this user may not read or write the tables of \
                           Odometer: grant it SELECT, INSERT, UPDATE and DELETE on all of them";
