//! What a store of several databases tells the reservation that one of them makes: one that stands
//! alone is told nothing.

use std::{sync::Arc, time::Instant};

use odometer_core::definition::Definition;

use crate::{
    error::StoreError,
    rows::catalog::{self, CatalogEntry},
};

/// What a reservation goes by that is one of several databases.
#[derive(Clone, Debug, Default)]
pub(crate) struct StripeConstraints {
    /// Nothing is reserved where this database has it otherwise.
    pub(crate) agreed: Option<Agreed>,
    /// The block begins at this number or above, so that a database that was away does not go on
    /// where the others were long ago.
    pub(crate) level: Option<i64>,
    /// Whether another database is asked at once when this one's connection breaks.
    pub(crate) gives_way: bool,
    /// Where that is before the ordinary deadline.
    pub(crate) until: Option<Instant>,
}

/// How a sequence is defined, as more than half of its databases had it at one time, or more have
/// been told since.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) definition: Arc<Definition>,
    /// The same, as it is stored.
    pub(crate) text: Arc<str>,
    pub(crate) version: i64,
}

impl Agreed {
    pub(crate) fn new(definition: Arc<Definition>, version: i64) -> Self {
        Self {
            text: definition.to_stored().into(),
            definition,
            version,
        }
    }

    /// Whether a definition is one of the same sequence: its numbers come about in the same way.
    pub(crate) fn is_like(&self, definition: &Definition) -> bool {
        counts_alike(&self.definition, definition)
    }

    /// Refuses a row that is older, or of another definition; a newer one is a change that was made.
    ///
    /// # Errors
    /// `Behind`.
    pub(crate) fn check(&self, standing: &CatalogEntry) -> Result<(), StoreError> {
        let version = standing.definition_version;
        if version < self.version {
            return Err(StoreError::Behind);
        }
        if version == self.version && *standing.definition == *self.text {
            return Ok(());
        }
        let read = catalog::read_definition(&standing.definition, &self.definition.store)
            .map_err(|error| StoreError::Broken(error.to_string()))?;
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

/// Whether two definitions give the same numbers, each once: what never changes of a sequence.
pub(crate) fn counts_alike(one: &Definition, other: &Definition) -> bool {
    one.kind == other.kind
        && one.start == other.start
        && one.step == other.step
        && one.order == other.order
        && one.store == other.store
        && one.counts_like(other)
}
