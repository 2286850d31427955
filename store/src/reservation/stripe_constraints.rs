//! Defines what a store of several databases demands of a reservation in one member. A store of one
//! database demands nothing.

use std::sync::Arc;

use odometer_core::definition::Definition;

use crate::{
    error::StoreError,
    rows::catalog::{self, CatalogEntry},
};

/// The constraints of a reservation in one member of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StripeConstraints {
    /// The definition that the members agreed on. If this member has another one, nothing is
    /// reserved.
    pub(crate) agreed: Option<Agreed>,
    /// A lower bound for the block's first number: nothing below the floor of a change is given.
    pub(crate) floor: Option<i64>,
    /// The number from which the block should begin. It makes a member that was away catch up with
    /// the others, as far as the speed limit allows.
    pub(crate) level: Option<i64>,
    /// Whether a broken connection ends the reservation, or a speed limit that allows too few
    /// numbers now, because another member can be asked at once.
    pub(crate) fails_fast: bool,
}

/// The definition of a sequence that the members agreed on: more than half of them held it at one
/// time. A later version of the same sequence replaces it.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) definition: Arc<Definition>,
    pub(crate) version: i64,
}

impl Agreed {
    /// Returns whether `definition` gives the same numbers as the agreed one.
    pub(crate) fn is_like(&self, definition: &Definition) -> bool {
        counts_alike(&self.definition, definition)
    }

    /// Refuses a row that is older than the agreed definition, or whose definition gives other
    /// numbers. A newer row that gives the same numbers is a change, and is accepted.
    ///
    /// # Errors
    /// `Behind`, or `Broken` if the row's definition cannot be read.
    pub(crate) fn check(&self, entry: &CatalogEntry) -> Result<(), StoreError> {
        let version = entry.definition_version;
        if version < self.version {
            return Err(StoreError::Behind);
        }
        let read = catalog::read_definition(&entry.definition, &self.definition.store)?;
        let is_same = if version == self.version {
            read == *self.definition
        } else {
            self.is_like(&read)
        };
        if is_same {
            Ok(())
        } else {
            Err(StoreError::Behind)
        }
    }
}

/// Returns whether two definitions give the same numbers, each once. No change of a relaxed
/// sequence changes the fields that are compared here.
pub(crate) fn counts_alike(one: &Definition, other: &Definition) -> bool {
    one.kind == other.kind
        && one.start == other.start
        && one.step == other.step
        && one.order == other.order
        && one.store == other.store
        && one.has_same_periods(other)
}
