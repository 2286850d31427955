//! Resolves names: reads the definition and the counter of a sequence, or creates both.
//!
//! What a name resolves to says which issuer it needs. The issuer then reserves from the counter as
//! it was read, so the first number of a name costs no second read.

use std::sync::Arc;

use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};
use odometer_process::clock::now_ms;

use crate::{
    creation::{Creation, NewName, NewRow},
    database::Database,
    error::StoreError,
    outcome::Resolved,
    reservation::{attempts::Reservation, counter_read::ReadCounter, stripe_constraints::Agreed},
    rows::counter::SeenCounter,
    store::Store,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reservation::birth";

impl Store {
    /// Reads the definition and the counter of a name. `last_seen` is the counter as this process
    /// last saw it; a store of several databases knows better by itself.
    ///
    /// # Errors
    /// `NotFound`, `Elsewhere`, `Retired`, or why the store did not answer.
    pub(crate) async fn resolve(
        &self,
        name: &SequenceName,
        last_seen: Option<SeenCounter>,
    ) -> Result<ReadCounter, StoreError> {
        if let Some(only) = self.only() {
            return Reservation::reading(only, name, last_seen).look().await;
        }
        let until = self.deadline();
        if let Some(known) = self.memory.agreed(name) {
            // The name may have been changed since it was agreed on.
            let answers = self.ask_all(name, until).await;
            if let Some(newest) = answers.newest_like(&known) {
                return Ok(self.resolved(name, &self.live(name, newest)?));
            }
        }
        let agreed = self.agree(name, None, until).await?;
        Ok(self.resolved(name, &agreed))
    }

    /// Creates a sequence, and returns what was written. If the name exists already, this reads it.
    ///
    /// # Errors
    /// `TooMany`, `Definition`, or as for [`Store::resolve`].
    pub(crate) async fn create(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
        last_seen: Option<SeenCounter>,
    ) -> Result<ReadCounter, StoreError> {
        if let Some(only) = self.only() {
            return only.create_or_read(name, definition, last_seen).await;
        }
        let until = self.deadline();
        let agreed = self.agree(name, Some(definition), until).await?;
        Ok(self.resolved(name, &agreed))
    }

    /// Builds what a name resolves to from the definition that the members agreed on. Each member
    /// reads its own counter before it reserves.
    fn resolved(&self, name: &SequenceName, agreed: &Agreed) -> ReadCounter {
        let key = CounterKey::whole(name.clone());
        let reached = self.reached_of(&key, &agreed.definition, None);
        ReadCounter {
            known: Resolved {
                definition: Arc::clone(&agreed.definition),
                definition_version: agreed.version,
                seen: SeenCounter {
                    next_value: reached.unwrap_or(agreed.definition.start),
                    version: 0,
                },
                revision: 0,
                floor: agreed.definition.start,
                trusted: false,
            },
            rate: None,
            window: Default::default(),
            bucket: None,
        }
    }
}

impl Database {
    /// Creates a sequence in the store's only database, or reads it if it exists already.
    async fn create_or_read(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
        last_seen: Option<SeenCounter>,
    ) -> Result<ReadCounter, StoreError> {
        definition.check_time(now_ms())?;
        let above = last_seen.map_or(0, |seen| seen.next_value);
        let new = NewName {
            name: name.clone(),
            definition: Arc::clone(definition),
            row: NewRow::Sequence { above },
        };
        let Creation::Created(Some(known)) = self.create(&new).await? else {
            return Reservation::reading(self, name, last_seen).look().await;
        };
        self.metrics.sequences_created.increment(1);
        tracing::info!(target: TARGET, sequence = name.as_str(), "a sequence was created");
        Ok(ReadCounter {
            known,
            rate: Some(0.0),
            window: Default::default(),
            bucket: None,
        })
    }
}
