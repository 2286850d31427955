//! Finds the store in which a name lives. A name lives in exactly one store, for good.
//!
//! The default store knows of every name. For a name that lives in another store it has a *claim*:
//! a row in `sequence` with a state of its own and without a counter. The claim's definition names
//! the store. The primary key of the row decides which replica was first. So no name is created in
//! two stores, even if replicas that start at once have different templates. A name that was never
//! seen is created only after every store has said that the name is not there.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use odometer_core::{
    definition::{Definition, DefinitionError, Order},
    name::SequenceName,
};
use odometer_process::faults::{self, Fault};
use parking_lot::Mutex;

use crate::bounded_map::BoundedMap;
use crate::outcome::LocalPlacement;
use crate::reservation::counter_read::ReadCounter;
use crate::rows::counter::SeenCounter;
use crate::store::Store;
use crate::stores::Stores;
use crate::{Act, Altered, ChangeRequest, StoreError};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::homes";

/// Bounds how many placements are remembered.
const MAX_PLACEMENTS: usize = 65_536;
/// Bounds the attempts to find or create a name. Another replica that creates the name at the same
/// time makes a second attempt necessary.
const LOOKS: u32 = 4;

/// What all stores together say about a name.
enum Placement {
    In(usize),
    /// The name is claimed for this store. If it does not exist there yet, it is created with this
    /// definition.
    Claimed(usize, Arc<Definition>),
    Absent,
}

/// The remembered placements of names that do not live in the default store.
#[derive(Default)]
pub(crate) struct RememberedPlacements {
    by_name: Mutex<BoundedMap<SequenceName, usize, MAX_PLACEMENTS>>,
}

impl RememberedPlacements {
    fn get(&self, name: &SequenceName) -> Option<usize> {
        self.by_name.lock().get(name).copied()
    }

    pub(crate) fn note(&self, name: &SequenceName, index: usize) {
        if index > 0 {
            self.by_name.lock().insert(name.clone(), index);
        }
    }

    pub(crate) fn forget(&self, name: &SequenceName) {
        self.by_name.lock().remove(name);
    }
}

impl Stores {
    /// Returns the store in which a name lives.
    ///
    /// # Errors
    /// `NotFound`, or why the store is not known.
    pub(crate) async fn placement(&self, name: &SequenceName) -> Result<&Arc<Store>, StoreError> {
        Ok(self.at(self.remembered_or_asked(name).await?))
    }

    /// Returns the index of the store in which a name lives, as remembered, or as the stores say. A
    /// change always asks the stores.
    async fn remembered_or_asked(&self, name: &SequenceName) -> Result<usize, StoreError> {
        if let Some(index) = self.placements.get(name) {
            return Ok(index);
        }
        match self.ask(name, true).await? {
            Placement::In(index) | Placement::Claimed(index, _) => Ok(index),
            Placement::Absent => Err(StoreError::NotFound),
        }
    }

    /// Asks the stores. Claims a name that only another store than the default store knows, if
    /// `may_claim`.
    async fn ask(&self, name: &SequenceName, may_claim: bool) -> Result<Placement, StoreError> {
        if self.has_one() {
            return Ok(Placement::In(0));
        }
        if faults::is(Fault::NoClaims) {
            return Ok(Placement::Absent);
        }
        match self.at(0).placement_of(name).await {
            Ok(LocalPlacement::Here(_)) => Ok(Placement::In(0)),
            Ok(LocalPlacement::Elsewhere(definition)) => match self.index_of(&definition.store) {
                Some(index) => Ok(Placement::Claimed(index, definition)),
                // The store of the claim may have another name by now.
                None => match self.among_others(name, false).await? {
                    Some((index, _)) => Ok(self.found(name, index)),
                    None => Err(StoreError::Elsewhere(definition)),
                },
            },
            Ok(LocalPlacement::WrongInstallation) => Err(StoreError::Unavailable),
            Ok(LocalPlacement::Nowhere) => match self.among_others(name, false).await? {
                Some((index, _)) if !may_claim => Ok(Placement::In(index)),
                Some((index, definition)) => self.claim_found(name, index, definition).await,
                None => Ok(Placement::Absent),
            },
            // The default store did not answer, so a name that no other store has may live there. A
            // name that another store had before the stores were joined may live in both.
            Err(error) => match self.among_others(name, true).await {
                Ok(Some((index, _))) => Ok(self.found(name, index)),
                Ok(None) | Err(_) => Err(error),
            },
        }
    }

    fn found(&self, name: &SequenceName, index: usize) -> Placement {
        self.placements.note(name, index);
        Placement::In(index)
    }

    /// Claims a name for the store in which it was found. So a replica that does not have this
    /// store cannot create the name elsewhere.
    async fn claim_found(
        &self,
        name: &SequenceName,
        index: usize,
        mut definition: Arc<Definition>,
    ) -> Result<Placement, StoreError> {
        let store = &self.at(index).name;
        if definition.store != **store {
            Arc::make_mut(&mut definition).store = store.to_string();
        }
        if self.claim(name, &definition, index).await? {
            return Ok(self.found(name, index));
        }
        tracing::error!(
            target: TARGET,
            sequence = name.as_str(),
            store = definition.store,
            "a sequence of this name lives in another store as well: that one counts on"
        );
        Err(StoreError::Unavailable)
    }

    /// Returns the other store that has a name's row, and the row's definition. If no store has the
    /// row, every store must have said so. If `is_own`, only a store that the definition names
    /// counts.
    async fn among_others(
        &self,
        name: &SequenceName,
        is_own: bool,
    ) -> Result<Option<(usize, Arc<Definition>)>, StoreError> {
        let others = self.all().enumerate().skip(1);
        let asking = others.map(async |(index, store)| (index, store.placement_of(name).await));
        let mut outcome = Ok(None);
        for (index, said) in join_all(asking).await {
            match said {
                Ok(LocalPlacement::Here(definition)) => {
                    if !is_own || self.index_of(&definition.store) == Some(index) {
                        return Ok(Some((index, definition)));
                    }
                }
                // A store that was the default store before may have a claim. The name does not
                // live there either.
                Ok(
                    LocalPlacement::Elsewhere(_)
                    | LocalPlacement::WrongInstallation
                    | LocalPlacement::Nowhere,
                ) => {}
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Reads the definition and the counter of a name, which say what issues its numbers.
    /// `last_seen` is the counter as this process last saw it. The counter never falls below this.
    ///
    /// # Errors
    /// `NotFound`, `Retired`, or why the store did not answer.
    pub fn resolve<'a>(
        &'a self,
        name: &'a SequenceName,
        last_seen: Option<SeenCounter>,
    ) -> BoxFuture<'a, Result<ReadCounter, StoreError>> {
        Box::pin(async move {
            for _look in 0..LOOKS {
                let was_remembered = self.placements.get(name).is_some();
                let index = self.remembered_or_asked(name).await?;
                match self.at(index).resolve(name, last_seen).await {
                    // The name may live in another store by now.
                    Err(StoreError::NotFound | StoreError::Elsewhere(_)) if was_remembered => {
                        self.placements.forget(name);
                    }
                    Err(StoreError::Elsewhere(_)) if index == 0 && !self.has_one() => {}
                    outcome => {
                        return outcome.inspect(|_found| self.placements.note(name, index));
                    }
                }
            }
            Err(StoreError::Deadline)
        })
    }

    /// Creates a sequence, and returns its definition and its counter. If the name exists by now,
    /// they are read. Outside the default store, a name is created only after a claim.
    ///
    /// # Errors
    /// `TooMany`, `Definition`, or as for [`Stores::resolve`].
    pub fn create<'a>(
        &'a self,
        name: &'a SequenceName,
        template: &'a Arc<Definition>,
        last_seen: Option<SeenCounter>,
    ) -> BoxFuture<'a, Result<ReadCounter, StoreError>> {
        Box::pin(async move {
            for _look in 0..LOOKS {
                let (index, definition) = match self.ask(name, true).await? {
                    Placement::In(index) if self.has_one() => (index, template),
                    Placement::In(_) => return self.resolve(name, last_seen).await,
                    Placement::Claimed(index, ref claimed) => (index, &Arc::clone(claimed)),
                    Placement::Absent => match self.store_for_creation(name, template).await? {
                        Some(index) => (index, template),
                        None => continue,
                    },
                };
                match self.at(index).create(name, definition, last_seen).await {
                    Err(StoreError::Elsewhere(_)) if index == 0 && !self.has_one() => {}
                    outcome => return outcome.inspect(|_made| self.placements.note(name, index)),
                }
            }
            Err(StoreError::Deadline)
        })
    }

    /// Returns the store in which to create a name that lives nowhere. `None` if another replica
    /// was faster.
    async fn store_for_creation(
        &self,
        name: &SequenceName,
        template: &Arc<Definition>,
    ) -> Result<Option<usize>, StoreError> {
        let index = self.index_of(&template.store).unwrap_or(0);
        if index > 0 {
            // A name that the store refuses must leave no claim.
            self.at(index).admit_one_more().await?;
        }
        Ok(self.claim(name, template, index).await?.then_some(index))
    }

    /// Claims a name for a store. Returns false if another store has it: another replica was
    /// faster, or the name lives in the default store.
    async fn claim(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
        index: usize,
    ) -> Result<bool, StoreError> {
        // In the default store, the creation itself decides which replica is first.
        if index == 0 || faults::is(Fault::NoClaims) || faults::is(Fault::NoClaimRow) {
            return Ok(true);
        }
        let claimed = self.at(0).claim(name, definition).await?;
        Ok(
            matches!(claimed, LocalPlacement::Elsewhere(claimed) if claimed.store == definition.store),
        )
    }

    /// Changes a sequence in the store in which it lives, or creates it. A change is one of its
    /// definition, a floor, its state, or the state of one of its periods.
    ///
    /// # Errors
    /// Why the sequence was not changed, or that it may have been changed.
    pub fn alter(&self, change: ChangeRequest) -> BoxFuture<'_, Result<Altered, StoreError>> {
        Box::pin(async move {
            let name = change.name.clone();
            let may_claim = !change.act.is_dry_run();
            for _look in 0..LOOKS {
                let placement = self
                    .ask(&name, may_claim)
                    .await
                    .map_err(StoreError::not_changed)?;
                let altered = match placement {
                    Placement::In(index) => {
                        self.at(index).alter(self.aimed_at(index, &change)).await
                    }
                    Placement::Claimed(index, _) => {
                        let altered = self.at(index).alter(self.aimed_at(index, &change)).await;
                        altered.inspect(|_| self.placements.note(&name, index))
                    }
                    Placement::Absent => Box::pin(self.create_by_change(&change)).await,
                };
                if !matches!(altered, Err(StoreError::Elsewhere(_))) {
                    return altered;
                }
            }
            Err(StoreError::NotChanged)
        })
    }

    /// Sets the store of an act's template to the store in which the name lives. So a definition
    /// that names no store does not move the name.
    fn aimed_at(&self, index: usize, change: &ChangeRequest) -> Arc<ChangeRequest> {
        let mut change = change.clone();
        let store = &self.at(index).name;
        if let Act::Define { template, .. } = &mut change.act
            && template.store != **store
        {
            Arc::make_mut(template).store = store.to_string();
        }
        Arc::new(change)
    }

    /// Creates a name that lives nowhere.
    async fn create_by_change(&self, change: &ChangeRequest) -> Result<Altered, StoreError> {
        let definition = change.act.new_definition()?;
        let index = self.index_for(&definition)?;
        let store = self.at(index);
        if index > 0 && !faults::is(Fault::NoClaims) {
            // A name that the store refuses must leave no claim.
            let mut rehearsal = change.clone();
            if let Act::Define { dry_run, .. } = &mut rehearsal.act {
                *dry_run = true;
            }
            let rehearsed = store.alter(Arc::new(rehearsal)).await?;
            if change.act.is_dry_run() {
                return Ok(rehearsed);
            }
            let definition = Arc::new(definition);
            let claim = self.claim(&change.name, &definition, index).await;
            if !claim.map_err(StoreError::not_changed)? {
                return Err(StoreError::Elsewhere(definition));
            }
        }
        let altered = store.alter(Arc::new(change.clone())).await;
        altered.inspect(|_| self.placements.note(&change.name, index))
    }

    /// Returns the store of a new definition.
    fn index_for(&self, definition: &Definition) -> Result<usize, StoreError> {
        let invalid =
            |field, reason| StoreError::Definition(DefinitionError::Invalid { field, reason });
        let Some(index) = self.index_of(&definition.store) else {
            let names: Vec<&str> = self.all().map(|store| &*store.name).collect();
            let reason = format!(
                "must be a store of the configuration, one of {}",
                names.join(", ")
            );
            return Err(invalid("store", reason));
        };
        let is_shared = self.at(index).change_rules().n_databases() > 1;
        if definition.order == Order::Strict && is_shared {
            let reason = format!(
                "must be \"relaxed\" in the store \"{}\", whose databases share each sequence",
                definition.store
            );
            return Err(invalid("order", reason));
        }
        Ok(index)
    }
}
