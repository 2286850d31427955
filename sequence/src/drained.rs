//! What a drain gave back.

/// What became of the numbers in memory when the actors were drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Given back to the store.
    pub returned: u64,
    /// Could not be given back: gaps.
    pub abandoned: u64,
}
