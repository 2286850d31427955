//! Defines what a change can do to a sequence.

use std::sync::Arc;

use odometer_core::{
    definition::{Definition, DefinitionChange},
    period::Period,
};

/// What a change does to a sequence.
#[derive(Clone, Debug)]
pub enum Act {
    /// Gives the sequence a definition, and creates the sequence if it does not exist.
    Define {
        change: Box<DefinitionChange>,
        /// The values of a new sequence in the fields that the change leaves out.
        template: Arc<Definition>,
        /// Whether everything is only checked, and nothing is written.
        dry_run: bool,
    },
    /// Raises the floor: no number below `floor` is issued any more. If the sequence has periods,
    /// the floor is that of one period.
    Advance {
        period: Period,
        floor: i64,
        /// Whether more than 1 % of the numbers that are left may be skipped.
        confirm: bool,
    },
    /// Retires the sequence: nothing is issued any more.
    Retire,
    /// Lets a retired sequence go on, above everything that was ever reserved.
    Restore,
    /// Removes a key of the caller for ever: nothing is issued in this period any more.
    RemovePeriod { period: Period },
}

impl Act {
    /// Returns the period of the counter that the act is about. If it names no period, the act is
    /// about all counters.
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
