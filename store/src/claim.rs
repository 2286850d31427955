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
        let guard = match self.heartbeat.guard() {
            Ok(guard) => guard,
            Err(error @ StoreError::WentBack) => {
                // What the database still has may be right. What the database lacks it may have
                // lost.
                let found = self.read_entry(&whole).await?.ok_or(error)?;
                return placement(&found, &self.identity);
            }
            Err(error) => return Err(error),
        };
        let looking = self.several_times(name, |database| {
            counter_read::look(database, guard.clone(), whole.clone())
        });
        let look = looking.await?;
        if let Some(found) = look.entry {
            return placement(&found, &self.identity);
        }
        self.check_heartbeat(&guard, look.heartbeat)?;
        Ok(LocalPlacement::Nowhere)
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
