//! In what a sequence counts from its start again.

use serde::{Deserialize, Serialize};

/// In what a sequence counts from its start again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeriodKind {
    /// Never.
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
