//! What is to become of a sequence.

use std::sync::Arc;

use odometer_core::{
    definition::{Definition, DefinitionChange},
    period::Period,
};

/// What is to become of a sequence.
#[derive(Clone, Debug)]
pub enum Act {
    /// It gets this definition, and is created where it does not exist.
    Define {
        change: Box<DefinitionChange>,
        /// What a new sequence has where the change says nothing.
        template: Arc<Definition>,
        /// Everything is checked and nothing is written.
        dry_run: bool,
    },
    /// Nothing below `floor` is issued any more, in a period where the sequence has periods.
    Advance {
        period: Period,
        floor: i64,
        /// Whether more than 1 % of what is left may be skipped.
        confirm: bool,
    },
    /// Nothing is issued any more.
    Retire,
    /// It goes on above everything that was ever reserved.
    Restore,
    /// Nothing is issued of a caller's key any more, for good.
    RemovePeriod { period: Period },
}

impl Act {
    /// Whose counter it is about; of all of them where it names no period.
    pub fn period(&self) -> Period {
        match self {
            Act::Advance { period, .. } | Act::RemovePeriod { period } => period.clone(),
            Act::Define { .. } | Act::Retire | Act::Restore => Period::none(),
        }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        matches!(self, Act::Define { dry_run: true, .. })
    }
}
