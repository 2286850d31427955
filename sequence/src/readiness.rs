//! Whether this replica can answer.

/// Whether calls should be sent to this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The names used most recently are on their way into memory.
    Loading,
    Draining,
    /// The database has not answered since the start, or is away and nothing is left in memory.
    NoContact,
    WrongSchema,
}
