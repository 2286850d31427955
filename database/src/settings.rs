//! What statements and connections are bounded by.

use std::time::Duration;

/// What the connections and the statements of one database are bounded by.
#[derive(Clone)]
pub struct StatementBounds {
    /// Connections at most; SQLite always has one.
    pub pool_max: u32,
    /// How long making a connection may take.
    pub acquire: Duration,
    /// How long a statement may take before its outcome counts as unknown.
    pub timeout: Duration,
    /// Between two tries: at least, and at most.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// How long a schema that does not fit is waited for.
    pub schema_wait: Duration,
}
