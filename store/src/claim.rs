//! What one database says of where a name lives, and the claims in it.

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

/// Claims between two counts of all of them.
const RECOUNT_EVERY: u64 = 1024;

/// What became of a claim.
enum Claimed {
    Made,
    /// There is a row of that name.
    Found(Box<CatalogEntry>),
    /// The store went back.
    Contradicted,
}

impl Database {
    /// What is known here of where a name lives.
    pub(crate) async fn home_of(&self, name: &SequenceName) -> Result<LocalPlacement, StoreError> {
        let guard = match self.heartbeat.guard() {
            Ok(guard) => guard,
            Err(error @ StoreError::WentBack) => {
                // What it still has may stand; what it has not it may have lost.
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
        match look.standing {
            Some(found) => placement(&found, &self.identity),
            None if guard.is_satisfied_by(look.heartbeat) => Ok(LocalPlacement::Nowhere),
            None => Err(self.contradicted_by(&guard)),
        }
    }

    fn contradicted_by(&self, guard: &HeartbeatGuard) -> StoreError {
        self.heartbeat.contradicted(guard);
        self.connection.refresh.notify_one();
        StoreError::WentBack
    }

    /// Notes that a name is to live in the store that its definition names; what was noted, or
    /// lives here, if that was earlier.
    pub(crate) async fn claim(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
    ) -> Result<LocalPlacement, StoreError> {
        let guard = self.heartbeat.guard()?;
        self.admit_claim(name).await?;
        // Done twice it finds itself.
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

    /// Claims are bounded as sequences are; the estimate is renewed now and then, and near the
    /// limit each time.
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

/// What a name's row in a database says of where the name lives.
pub(crate) fn placement(
    found: &CatalogEntry,
    identity: &DatabaseIdentity,
) -> Result<LocalPlacement, StoreError> {
    let definition = catalog::claimed(&found.definition)?;
    if found.state != ELSEWHERE {
        return Ok(LocalPlacement::Here(definition));
    }
    // A claim has no periods that could be removed: of which installation its store was is there.
    let claimed_of = &found.periods_removed_through;
    if identity
        .installation
        .is_another(&definition.store, claimed_of)
    {
        return Ok(LocalPlacement::Astray);
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
        // No change, so nobody is told of it.
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
