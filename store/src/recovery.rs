//! Defines what the rest of the program hears of a recovery.

use std::sync::Arc;

use odometer_core::name::SequenceName;

/// A recovery of a database, as people are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRecovery {
    /// When the recovery was made (Unix ms).
    pub at_ms: i64,
    /// When the database was certainly whole (Unix ms): later commits may be lost. `None` if an
    /// operator said what was lost.
    pub lost_since_ms: Option<i64>,
    /// The largest rise of a counter.
    pub highest_rise: u64,
    /// The replica that made the recovery. `None` if `odometer recover` made it.
    pub made_by: Option<String>,
}

/// Which numbers of a recovered database are still issued: nobody else has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptNumbers {
    /// None, as after a word of an operator about all sequences.
    None,
    /// Those of all sequences but these.
    AllBut(Vec<Arc<str>>),
}

impl KeptNumbers {
    /// Returns whether those of this sequence are still issued.
    #[must_use]
    pub fn are_of(&self, name: &SequenceName) -> bool {
        match self {
            Self::None => false,
            Self::AllBut(others) => !others.iter().any(|other| **other == *name.as_str()),
        }
    }
}
