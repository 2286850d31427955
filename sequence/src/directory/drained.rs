//! Defines the result of a drain.

/// What became of the numbers in memory when the actors were drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Numbers that were given back to the store.
    pub returned: u64,
    /// Numbers that could not be given back. They are gaps.
    pub abandoned: u64,
}
