//! In which store a name lives: in exactly one, for good.
//!
//! The default store knows of every name. Of those born elsewhere it has a *claim*: their row in
//! `sequence`, in a state of its own and without a counter, whose definition names the store. The
//! row's primary key decides who is first, so that no name is ever born in two stores, whatever
//! replicas that start at once have in their templates. A name that was never seen is only born
//! when every store has said that it is not there.

use std::{collections::HashMap, sync::Arc};

use futures_util::future::join_all;
use odometer_core::{
    definition::{Definition, DefinitionError, Order},
    name::SequenceName,
};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use parking_lot::Mutex;

use crate::kind::Store;
use crate::outcome::LocalPlacement;
use crate::stores::Stores;
use crate::{Act, Altered, Condition, ReserveRequest, SeenCounter, StoreError, Unpublished};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::homes";

/// Names whose home is remembered; of more it is asked anew.
const MAX_HOMES: usize = 65_536;
/// Looks at a name: another replica that gives birth to it at once makes a second one necessary.
const LOOKS: u32 = 4;

/// What all stores together say of a name.
enum Placement {
    In(usize),
    /// In this store, where it may be unborn yet: it is to be born with the definition.
    Claimed(usize, Arc<Definition>),
    Unborn,
}

/// Where names live that do not live in the default store.
#[derive(Default)]
pub(crate) struct Homes {
    by_name: Mutex<HashMap<SequenceName, usize>>,
}

impl Homes {
    fn get(&self, name: &SequenceName) -> Option<usize> {
        self.by_name.lock().get(name).copied()
    }

    pub(crate) fn note(&self, name: &SequenceName, index: usize) {
        if index == 0 {
            return;
        }
        let mut by_name = self.by_name.lock();
        if by_name.len() >= MAX_HOMES {
            by_name.clear();
        }
        by_name.insert(name.clone(), index);
    }

    pub(crate) fn forget(&self, name: &SequenceName) {
        self.by_name.lock().remove(name);
    }
}

impl Stores {
    /// The store in which a name lives.
    ///
    /// # Errors
    /// `NotFound`, or why it is not known.
    pub(crate) async fn placement(&self, name: &SequenceName) -> Result<&Store, StoreError> {
        match self.whereabouts(name).await? {
            Placement::In(index) | Placement::Claimed(index, _) => Ok(self.at(index)),
            Placement::Unborn => Err(StoreError::NotFound),
        }
    }

    /// As it is remembered; what is born or changed asks anew.
    async fn whereabouts(&self, name: &SequenceName) -> Result<Placement, StoreError> {
        match self.placements.get(name) {
            Some(index) => Ok(Placement::In(index)),
            None => self.ask(name).await,
        }
    }

    async fn ask(&self, name: &SequenceName) -> Result<Placement, StoreError> {
        if self.has_one() {
            return Ok(Placement::In(0));
        }
        if faults::is(Fault::NoClaims) {
            return Ok(Placement::Unborn);
        }
        match self.at(0).home_of(name).await {
            Ok(LocalPlacement::Here(_)) => Ok(Placement::In(0)),
            Ok(LocalPlacement::Elsewhere(definition)) => match self.index_of(&definition.store) {
                Some(index) => Ok(Placement::Claimed(index, definition)),
                // Its store may only be called something else by now.
                None => match self.among_others(name, false).await? {
                    Some((index, _)) => Ok(self.found(name, index)),
                    None => Err(StoreError::Elsewhere(definition)),
                },
            },
            Ok(LocalPlacement::Astray) => Err(StoreError::Unavailable),
            Ok(LocalPlacement::Nowhere) => match self.among_others(name, false).await? {
                Some((index, definition)) => self.claim_found(name, index, definition).await,
                None => Ok(Placement::Unborn),
            },
            // What is not found elsewhere now may live there, and what was in another store before
            // they were joined may be in both.
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

    /// Claims a name for the store that it was found in, so that nobody who does not have that
    /// store gives birth to it.
    async fn claim_found(
        &self,
        name: &SequenceName,
        index: usize,
        mut definition: Arc<Definition>,
    ) -> Result<Placement, StoreError> {
        if let Some(store) = self.names.get(index)
            && definition.store != **store
        {
            Arc::make_mut(&mut definition).store = store.to_string();
        }
        match self.at(0).claim(name, &definition).await? {
            LocalPlacement::Elsewhere(claimed) if claimed.store == definition.store => {
                Ok(self.found(name, index))
            }
            LocalPlacement::Here(_)
            | LocalPlacement::Elsewhere(_)
            | LocalPlacement::Astray
            | LocalPlacement::Nowhere => {
                tracing::error!(
                    target: TARGET,
                    sequence = name.as_str(),
                    store = definition.store,
                    "a sequence of this name lives in another store as well: that one counts on"
                );
                Err(StoreError::Unavailable)
            }
        }
    }

    /// The other store that has a name's row, which none of them may keep to itself; where
    /// `is_own` only such as was born there.
    async fn among_others(
        &self,
        name: &SequenceName,
        is_own: bool,
    ) -> Result<Option<(usize, Arc<Definition>)>, StoreError> {
        let others = self.all().enumerate().skip(1);
        let asking = others.map(async |(index, store)| (index, store.home_of(name).await));
        let mut outcome = Ok(None);
        for (index, said) in join_all(asking).await {
            match said {
                Ok(LocalPlacement::Here(definition)) => {
                    if !is_own || self.index_of(&definition.store) == Some(index) {
                        return Ok(Some((index, definition)));
                    }
                }
                // Whatever this store was before, the name would have to live in another one.
                Ok(
                    LocalPlacement::Elsewhere(_) | LocalPlacement::Astray | LocalPlacement::Nowhere,
                ) => {}
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Reserves where a name lives, as far as that is known, or finds it, or where it is to be born.
    pub(crate) async fn reserve_at_home(
        &self,
        mut request: ReserveRequest,
    ) -> Result<Unpublished, StoreError> {
        let known = request.known.as_ref();
        if let Some(index) = known.and_then(|known| self.index_of(&known.definition.store)) {
            let mut there = request.clone();
            // What is gone there may live elsewhere by now.
            there.template = None;
            match self.reserve_in(index, there).await {
                Err(StoreError::NotFound | StoreError::Elsewhere(_)) => {}
                outcome => return outcome,
            }
            self.placements.forget(&request.key.sequence);
            request.known = None;
        }
        self.reserve_unknown(request).await
    }

    async fn reserve_in(
        &self,
        index: usize,
        request: ReserveRequest,
    ) -> Result<Unpublished, StoreError> {
        let receiver = self.at(index).reserve(request);
        // Gone only with the store, at the end.
        receiver.await.unwrap_or(Err(StoreError::Unavailable))
    }

    /// Nothing is born in another store than the default one but behind a claim.
    async fn reserve_unknown(
        &self,
        mut request: ReserveRequest,
    ) -> Result<Unpublished, StoreError> {
        let name = request.key.sequence.clone();
        let asked = request.template.take();
        for _look in 0..LOOKS {
            let found = self.whereabouts(&name).await?;
            let was_there = matches!(found, Placement::In(_));
            let (index, template) = match found {
                Placement::In(0) => {
                    let is_of_it =
                        |template: &Arc<Definition>| self.index_of(&template.store) == Some(0);
                    (0, asked.clone().filter(is_of_it))
                }
                Placement::In(index) => (index, None),
                Placement::Claimed(index, definition) => {
                    (index, asked.as_ref().map(|_may_be_born| definition))
                }
                Placement::Unborn => match self.place_to_be_born(&name, asked.as_ref()).await? {
                    Some(index) => (index, asked.clone()),
                    None => continue,
                },
            };
            request.template = template;
            match self.reserve_in(index, request.clone()).await {
                Err(StoreError::Elsewhere(_)) if index == 0 => {}
                Err(StoreError::NotFound | StoreError::Elsewhere(_)) if was_there => {}
                Ok(block) => {
                    self.placements.note(&name, index);
                    return Ok(block);
                }
                Err(error) => return Err(error),
            }
            self.placements.forget(&name);
        }
        Err(StoreError::Deadline)
    }

    /// Where a name that lives nowhere is to be born; `None` where another replica was faster.
    async fn place_to_be_born(
        &self,
        name: &SequenceName,
        template: Option<&Arc<Definition>>,
    ) -> Result<Option<usize>, StoreError> {
        let template = template.ok_or(StoreError::NotFound)?;
        let index = self.index_of(&template.store).unwrap_or(0);
        if index > 0 {
            // One that is refused there leaves no claim.
            self.at(index).admit_one_more().await?;
        }
        Ok(self.claim(name, template, index).await?.then_some(index))
    }

    /// Claims a name for a store; false where another replica was faster.
    async fn claim(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
        index: usize,
    ) -> Result<bool, StoreError> {
        // In the default store its birth decides.
        if index == 0 || faults::is(Fault::NoClaims) || faults::is(Fault::NoClaimRow) {
            return Ok(true);
        }
        let claimed = self.at(0).claim(name, definition).await?;
        Ok(
            matches!(claimed, LocalPlacement::Elsewhere(claimed) if claimed.store == definition.store),
        )
    }

    /// Changes a sequence where it lives, or gives birth to it where it is to live.
    pub(crate) async fn alter_at_home(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        last_seen: Option<SeenCounter>,
    ) -> Result<Altered, StoreError> {
        for _look in 0..LOOKS {
            let altered = match self.ask(name).await.map_err(not_changed)? {
                Placement::In(index) => {
                    let act = self.aimed_at(index, &act);
                    self.at(index).alter(name, act, condition, last_seen).await
                }
                Placement::Claimed(index, _) => {
                    let act = self.aimed_at(index, &act);
                    let altered = self.at(index).alter(name, act, condition, last_seen).await;
                    altered.inspect(|_| self.placements.note(name, index))
                }
                Placement::Unborn => {
                    let creating = self.create(name, act.clone(), condition, last_seen);
                    Box::pin(creating).await
                }
            };
            if !matches!(altered, Err(StoreError::Elsewhere(_))) {
                return altered;
            }
        }
        Err(StoreError::NotChanged)
    }

    /// What a definition leaves out does not send it to another store than the name lives in.
    fn aimed_at(&self, index: usize, act: &Act) -> Act {
        let mut act = act.clone();
        if let Act::Define { template, .. } = &mut act
            && let Some(store) = self.names.get(index)
            && template.store != **store
        {
            Arc::make_mut(template).store = store.to_string();
        }
        act
    }

    /// Creates a name that lives nowhere.
    async fn create(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        last_seen: Option<SeenCounter>,
    ) -> Result<Altered, StoreError> {
        let Act::Define {
            change,
            template,
            dry_run,
        } = &act
        else {
            return Err(StoreError::NotFound);
        };
        let created = change.create_at(template, now_ms());
        let definition = created.map_err(StoreError::Definition)?;
        let index = self.index_for(&definition)?;
        let store = self.at(index);
        if index > 0 && !faults::is(Fault::NoClaims) {
            // One that is refused there leaves no claim.
            let rehearsal = Act::Define {
                change: change.clone(),
                template: Arc::clone(template),
                dry_run: true,
            };
            let rehearsed = store.alter(name, rehearsal, condition, last_seen).await?;
            if *dry_run {
                return Ok(rehearsed);
            }
            let definition = Arc::new(definition);
            let claim = self.claim(name, &definition, index).await;
            if !claim.map_err(not_changed)? {
                return Err(StoreError::Elsewhere(definition));
            }
        }
        let altered = store.alter(name, act, condition, last_seen).await;
        altered.inspect(|_| self.placements.note(name, index))
    }

    /// The store of a definition that is new.
    fn index_for(&self, definition: &Definition) -> Result<usize, StoreError> {
        let invalid =
            |field, reason| StoreError::Definition(DefinitionError::Invalid { field, reason });
        let Some(index) = self.index_of(&definition.store) else {
            let reason = format!(
                "must be a store of the configuration, one of {}",
                self.names.join(", ")
            );
            return Err(invalid("store", reason));
        };
        if definition.order == Order::Strict && self.at(index).is_striped() {
            let reason = format!(
                "must be \"relaxed\" in the store \"{}\", whose databases share each sequence",
                definition.store
            );
            return Err(invalid("order", reason));
        }
        Ok(index)
    }
}

/// Where it is not known where a name lives, nothing was changed.
fn not_changed(error: StoreError) -> StoreError {
    if matches!(error, StoreError::Unavailable | StoreError::Deadline) {
        StoreError::NotChanged
    } else {
        error
    }
}
