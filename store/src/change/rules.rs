//! Defines what each change of a sequence in a store keeps to.

use std::sync::Arc;

use odometer_core::{
    definition::{Definition, DefinitionError, Order, Stripe},
    period::PeriodKind,
};

use super::{merged_counter::MergedCounter, prepared::Prepared};
use crate::{error::StoreError, rows::catalog};

/// The rules of a store that each change of a sequence keeps to.
#[derive(Clone, Debug)]
pub(crate) struct ChangeRules {
    /// The name of the store.
    pub(crate) store: Arc<str>,
    /// The stripe of the last database, which reaches least far.
    pub(crate) last_stripe: Stripe,
    /// The limit of sequences. No sequence is created if it is reached.
    pub(crate) max_sequences: u64,
    /// The limit of keys of one sequence. No counter is created for a further key if it is reached.
    pub(crate) keyed_periods: u64,
}

/// What was used of all counters of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// The highest high-water mark of the counters that issue.
    pub(crate) highest: i64,
    /// Whether a number may have been issued, in any period, even in one that is removed.
    pub(crate) issued: bool,
}

impl ChangeRules {
    /// Returns how many databases share each sequence.
    pub(crate) fn n_databases(&self) -> u16 {
        self.last_stripe.n()
    }

    /// Checks that the databases of the store can count by a definition.
    pub(crate) fn admit(&self, definition: &Definition) -> Result<(), DefinitionError> {
        let invalid = |field, reason| Err(DefinitionError::Invalid { field, reason });
        if definition.store != *self.store {
            return invalid("store", format!("must be \"{}\"", self.store));
        }
        if self.n_databases() == 1 {
            return Ok(());
        }
        if definition.order == Order::Strict {
            return invalid(
                "order",
                format!(
                    "cannot be \"strict\" in the store `{}`: {} databases give its numbers side \
                     by side",
                    self.store,
                    self.n_databases()
                ),
            );
        }
        let highest = self.last_stripe.highest_max(definition.step);
        if definition.max > highest {
            return invalid(
                "max",
                format!(
                    "must be at most {highest} in the store `{}` (2^63 - 1 - {} steps), not {}",
                    self.store,
                    self.n_databases(),
                    definition.max
                ),
            );
        }
        Ok(())
    }

    /// Returns which numbers of all counters were used, in all databases.
    ///
    /// If several databases share the sequence, ids count as issued even if none was. A change may
    /// stop after part of the commits, and a replica prints by the earlier definition until it hears
    /// of the change.
    pub(crate) fn used(
        &self,
        parts: &[Prepared],
        definition: &Arc<Definition>,
        counter: &MergedCounter,
    ) -> Used {
        let is_shared = self.n_databases() > 1;
        if !catalog::has_periods(definition) {
            return Used {
                highest: counter.next_value,
                issued: is_shared || counter.next_value > definition.start,
            };
        }
        let rows = || {
            parts
                .iter()
                .filter_map(|part| Some((part.stripe, part.row.as_ref()?)))
        };
        let highest = rows().filter_map(|(stripe, row)| {
            Some(Stripe::reached(stripe, definition, row.highest_of_periods?))
        });
        Used {
            highest: highest.max().unwrap_or(definition.start),
            issued: is_shared || rows().any(|(_, row)| row.has_periods_made),
        }
    }

    pub(crate) fn admit_new_period(
        &self,
        definition: &Definition,
        parts: &[Prepared],
    ) -> Result<(), StoreError> {
        let limit = self.keyed_periods;
        let mut rows = parts.iter().filter_map(|part| part.row.as_ref());
        let is_full = rows.any(|row| row.other_periods.is_full(limit));
        if definition.period == PeriodKind::Keyed && is_full {
            return Err(StoreError::TooManyPeriods { limit });
        }
        Ok(())
    }
}
