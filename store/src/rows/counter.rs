//! Defines a counter as its row has it.

/// A counter as it was last seen. Both values only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCounter {
    /// The high-water mark.
    pub next_value: i64,
    pub version: i64,
}

/// The counter's part of a [`CatalogEntry`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterRow {
    pub(crate) seen: SeenCounter,
    pub(crate) revision: i64,
    pub(crate) floor: i64,
    pub(crate) rate: f64,
    /// Whether the counter is only a tombstone.
    pub(crate) is_removed: bool,
    pub(crate) window: WindowRow,
}

/// The window in which Redis counts, as the counter's row has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowRow {
    /// The number of the last window that was opened.
    pub(crate) number: i64,
    /// Whether numbers of this window may be issued.
    pub(crate) is_open: bool,
}
