//! Finds out what one database says about the placement of a name, and makes the claims in it.

use std::sync::{Arc, atomic::Ordering};

use entity::sequence;
use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_database::session::DatabaseConnection;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, PaginatorTrait, QueryFilter};

use crate::{
    database::Database,
    error::StoreError,
    heartbeat::HeartbeatGuard,
    identity::DatabaseIdentity,
    outcome::LocalPlacement,
    reservation::counter_read,
    rows::{
        catalog::{self, CatalogEntry, ELSEWHERE},
        creation_baseline::CreationBaseline,
        sequence::SequenceRow,
    },
};

/// Sets how many claims come between two counts of all claims.
const RECOUNT_EVERY: u64 = 1024;

/// The outcome of a claim.
enum Claimed {
    Made,
    /// There is a row of this name already.
    Found(Box<CatalogEntry>),
    /// The store went back.
    Contradicted,
}

impl Database {
    /// Returns what this database knows about the placement of a name.
    pub(crate) async fn placement_of(
        &self,
        name: &SequenceName,
    ) -> Result<LocalPlacement, StoreError> {
        let guard = match self.heartbeat.guard() {
            Ok(guard) => guard,
            Err(error @ StoreError::WentBack) => {
                // What the database still has may be right. What the database lacks it may have
                // lost.
                let found = self.several_times(name, |database| find(database, name.clone()));
                let found = found.await?.ok_or(error)?;
                return placement(&found, &self.identity);
            }
            Err(error) => return Err(error),
        };
        let looking = self.several_times(name, |database| {
            counter_read::look(database, guard.clone(), CounterKey::whole(name.clone()))
        });
        let look = looking.await?;
        match look.entry {
            Some(found) => placement(&found, &self.identity),
            None if guard.is_satisfied_by(look.heartbeat) => Ok(LocalPlacement::Nowhere),
            None => Err(self.contradicted_by(&guard)),
        }
    }

    /// Notes that a name is to live in the store that its definition names. If the name was claimed
    /// earlier, or lives here, returns that placement instead.
    pub(crate) async fn claim(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
    ) -> Result<LocalPlacement, StoreError> {
        let guard = self.heartbeat.guard()?;
        self.admit_claim(name).await?;
        // A repeated attempt finds the claim of the first one.
        let claim = self.several_times(name, |database| {
            claim(
                database,
                name.clone(),
                Arc::clone(definition),
                self.identity.installation.of(&definition.store),
                guard.clone(),
            )
        });
        match claim.await? {
            Claimed::Made => Ok(LocalPlacement::Elsewhere(Arc::clone(definition))),
            Claimed::Found(found) => placement(&found, &self.identity),
            Claimed::Contradicted => Err(self.contradicted_by(&guard)),
        }
    }

    /// Checks that one more claim may be made: claims are bounded like sequences. The estimate is
    /// renewed once for every `RECOUNT_EVERY` claims, and near the limit for each claim.
    async fn admit_claim(&self, name: &SequenceName) -> Result<(), StoreError> {
        let limit = self.settings.max_sequences;
        let estimate = self.n_claims.fetch_add(1, Ordering::Relaxed);
        let is_far = estimate.saturating_add(RECOUNT_EVERY) < limit;
        if is_far && !estimate.is_multiple_of(RECOUNT_EVERY) {
            return Ok(());
        }
        let exact = self.several_times(name, count).await?;
        self.n_claims
            .store(exact.saturating_add(1), Ordering::Relaxed);
        if exact >= limit {
            return Err(StoreError::TooMany { limit });
        }
        Ok(())
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

async fn find(
    database: DatabaseConnection,
    name: SequenceName,
) -> Result<Option<CatalogEntry>, DbErr> {
    catalog::read(&database, name.as_str(), &Period::none()).await
}

async fn claim(
    database: DatabaseConnection,
    name: SequenceName,
    definition: Arc<Definition>,
    installation: Option<String>,
    guard: HeartbeatGuard,
) -> Result<Claimed, DbErr> {
    let transaction = database.begin().await?;
    let there = catalog::read(&transaction, name.as_str(), &Period::none()).await?;
    if let Some(found) = there {
        transaction.rollback().await?;
        return Ok(Claimed::Found(Box::new(found)));
    }
    if CreationBaseline::hold(&transaction, &guard)
        .await?
        .is_none()
    {
        transaction.rollback().await?;
        return Ok(Claimed::Contradicted);
    }
    let row = SequenceRow {
        name: &name,
        kind: definition.kind,
        definition: definition.to_stored(),
        state: ELSEWHERE,
        // A claim is no change, so other replicas are not told of it.
        version: 0,
        removed_through: installation.as_deref(),
    };
    row.insert(&transaction).await?;
    transaction.commit().await?;
    Ok(Claimed::Made)
}

async fn count(database: DatabaseConnection) -> Result<u64, DbErr> {
    sequence::Entity::find()
        .filter(sequence::Column::State.eq(ELSEWHERE))
        .count(&database)
        .await
}
