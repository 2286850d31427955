//! Holds the bounds of statements and connections.

use std::time::Duration;

/// The bounds of the connections and the statements of one database.
#[derive(Clone)]
pub struct StatementBounds {
    /// The most connections; SQLite always has one.
    pub pool_max: u32,
    /// How long making a connection may take.
    pub acquire: Duration,
    /// How long a statement may take before its outcome counts as unknown.
    pub timeout: Duration,
    /// The first and the greatest bound of the random wait between two attempts.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// How long a schema that does not fit is waited for.
    pub schema_wait: Duration,
}
