//! Finds out what one database says about the placement of a name, and makes the claims in it.

use std::sync::Arc;

use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};

use crate::{
    creation::{Creation, NewName, NewRow},
    database::Database,
    error::StoreError,
    identity::DatabaseIdentity,
    outcome::LocalPlacement,
    reservation::counter_read,
    rows::catalog::{self, CatalogEntry, ELSEWHERE},
};

impl Database {
    /// Returns what this database knows about the placement of a name.
    pub(crate) async fn placement_of(
        &self,
        name: &SequenceName,
    ) -> Result<LocalPlacement, StoreError> {
        let whole = CounterKey::whole(name.clone());
        let read = |database, guard| counter_read::look(database, guard, whole.clone());
        let found = match self.read_guarded(name, read, |look| look.guard).await {
            Ok(look) => look.entry,
            // What the database still has may be right. What the database lacks it may have lost.
            Err(error @ StoreError::WentBack) => Some(self.read_entry(&whole).await?.ok_or(error)?),
            Err(error) => return Err(error),
        };
        found.map_or(Ok(LocalPlacement::Nowhere), |found| {
            placement(&found, &self.identity)
        })
    }

    /// Notes that a name is to live in the store that its definition names. If the name was claimed
    /// earlier, or lives here, returns that placement instead.
    pub(crate) async fn claim(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
    ) -> Result<LocalPlacement, StoreError> {
        let new = NewName {
            name: name.clone(),
            definition: Arc::clone(definition),
            row: NewRow::Claim {
                installation: self.identity.installation.of(&definition.store),
            },
        };
        if let Creation::Created(_) = self.create(&new).await? {
            return Ok(LocalPlacement::Elsewhere(Arc::clone(definition)));
        }
        self.placement_of(name).await
    }
}

/// Returns the placement of a name, as the name's row in a database says it.
pub(crate) fn placement(
    found: &CatalogEntry,
    identity: &DatabaseIdentity,
) -> Result<LocalPlacement, StoreError> {
    let definition = catalog::claimed(&found.definition)?;
    if found.state != ELSEWHERE {
        return Ok(LocalPlacement::Here(definition));
    }
    // A claim has no periods. So this column holds the installation of the claimed store.
    let claimed_of = &found.periods_removed_through;
    if identity
        .installation
        .is_another(&definition.store, claimed_of)
    {
        return Ok(LocalPlacement::WrongInstallation);
    }
    Ok(LocalPlacement::Elsewhere(definition))
}
