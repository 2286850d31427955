//! Holds the conditions that several measurements share.

use std::time::Duration;

/// The calls a second that are made while the database is slow or away.
pub(super) const CALLS_PER_S: f64 = 5_000.0;
/// The name of the reference with a healthy database.
pub(super) const HEALTHY: &str = "the same, database healthy";

/// The time in which two database servers start.
pub(super) const STARTS: Duration = Duration::from_secs(8);
