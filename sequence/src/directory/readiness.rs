//! Defines whether this replica can answer.

/// Whether calls should be sent to this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The numbers of the names used most recently are being loaded.
    Loading,
    Draining,
    /// The database has not answered since the start, or it is away and memory is empty.
    NoContact,
    WrongSchema,
}
