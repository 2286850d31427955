//! Says when the numbers of a sequence start again.

use serde::{Deserialize, Serialize};

/// The kind of a sequence's periods, which says when numbers start again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeriodKind {
    /// Never: the sequence has no periods.
    #[default]
    None,
    /// Each day.
    Day,
    /// Each ISO week.
    Week,
    /// Each month.
    Month,
    /// Each year.
    Year,
    /// For each key that callers give.
    Keyed,
}
