//! The life of a sequence: defined, advanced, retired, restored.
//!
//! A change that the store has taken holds here before its caller is answered, also where that
//! caller has gone.

use std::sync::Arc;

use odometer_core::{
    block::Block,
    definition::DefinitionChange,
    name::SequenceName,
    period::{CounterKey, Period},
};

use super::{
    audit::{self, Author},
    description::{Condition, Defined, Rehearsed, Standing},
    directory::Directory,
    error::SequenceError,
};
use crate::{
    sabotage::{self, Fault},
    store::{Act, Altered, Changed, StoreError},
};

/// Numbers that a rehearsal shows.
const N_SAMPLES: usize = 3;

impl Directory {
    /// Creates or changes a sequence; here it holds at once.
    ///
    /// # Errors
    /// Nothing was changed, but with [`SequenceError::MayHaveChanged`]; so for all changes.
    pub async fn define(
        &self,
        name: &SequenceName,
        change: DefinitionChange,
        condition: Condition,
        author: Author,
    ) -> Result<Defined, SequenceError> {
        let act = self.definition(change, false);
        let altered = self.change(name, act, condition, author).await?;
        let warnings = warnings(&altered);
        Ok(Defined {
            created: altered.before.is_none(),
            definition: altered.after.definition,
            version: altered.after.version,
            warnings,
        })
    }

    /// Checks what [`Directory::define`] would do, and does nothing.
    ///
    /// # Errors
    /// Why it would not be done.
    pub async fn rehearse(
        &self,
        name: &SequenceName,
        change: DefinitionChange,
        condition: Condition,
    ) -> Result<Rehearsed, SequenceError> {
        let act = self.definition(change, true);
        let last_seen = self.last_seen(name);
        let store = &self.shared.store;
        let altered = store.alter(name, act, condition, last_seen).await;
        let altered = altered.map_err(|error| SequenceError::from_store(name, error))?;
        let warnings = warnings(&altered);
        let after = altered.after;
        let definition = after.definition;
        let step = definition.step;
        let from_store = std::iter::successors(Some(after.next_value), |n| n.checked_add(step))
            .take_while(|number| !definition.exhausted(*number));
        let samples = self.in_memory(name).into_iter().chain(from_store);
        Ok(Rehearsed {
            samples: samples.take(N_SAMPLES).collect(),
            runway: definition.left(after.next_value),
            warnings,
            definition,
        })
    }

    /// Lets nothing below `floor` be issued any more: here from now on, elsewhere as soon as the
    /// other replicas learn of it.
    ///
    /// # Errors
    /// As for [`Directory::define`].
    pub async fn advance(
        &self,
        name: &SequenceName,
        floor: i64,
        confirm: bool,
        condition: Condition,
        author: Author,
    ) -> Result<Standing, SequenceError> {
        let act = Act::Advance {
            period: Period::none(),
            floor,
            confirm,
        };
        let altered = self.change(name, act, condition, author).await?;
        Ok(standing(&altered))
    }

    /// Lets nothing be issued any more. Retired already, it stays so.
    ///
    /// # Errors
    /// As for [`Directory::define`].
    pub async fn retire(
        &self,
        name: &SequenceName,
        condition: Condition,
        author: Author,
    ) -> Result<Standing, SequenceError> {
        let altered = self.change(name, Act::Retire, condition, author).await?;
        Ok(standing(&altered))
    }

    /// Lets a retired sequence go on above everything that was ever reserved of it.
    ///
    /// # Errors
    /// As for [`Directory::define`].
    pub async fn restore(
        &self,
        name: &SequenceName,
        condition: Condition,
        author: Author,
    ) -> Result<Standing, SequenceError> {
        let altered = self.change(name, Act::Restore, condition, author).await?;
        Ok(standing(&altered))
    }

    /// Whether there is such a sequence, live or retired.
    ///
    /// # Errors
    /// There is none, or the store did not answer.
    pub async fn exists(&self, name: &SequenceName) -> Result<(), SequenceError> {
        let found = self
            .shared
            .store
            .look_up(&CounterKey::whole(name.clone()))
            .await;
        found.map_err(|error| SequenceError::from_store(name, error))?;
        Ok(())
    }

    fn definition(&self, change: DefinitionChange, dry_run: bool) -> Act {
        Act::Define {
            change: Box::new(change),
            template: Arc::clone(&self.shared.settings.template),
            dry_run,
        }
    }

    /// Changes it in the store and then here, to the end, whoever stops waiting for it.
    async fn change(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        author: Author,
    ) -> Result<Altered, SequenceError> {
        let (shared, of) = (Arc::clone(&self.shared), name.clone());
        let last_seen = self.last_seen(name);
        let work = async move {
            let outcome = shared.store.alter(&of, act.clone(), condition, last_seen);
            let altered = match outcome.await {
                Ok(altered) => altered,
                Err(error) => {
                    if matches!(error, StoreError::MayHaveChanged) {
                        audit::note_uncertain(&author, &of, &act);
                    }
                    return Err(SequenceError::from_store(&of, error));
                }
            };
            audit::note(&author, &of, &act, &altered);
            // Also where it stood so before: an earlier answer of the store may have been lost.
            shared.apply(changed(of, &altered)).await;
            Ok(altered)
        };
        if sabotage::is(Fault::ChangeUnfinished) {
            return work.await;
        }
        let done = self.shared.store.finish(work).await;
        // It can only be stopped by the end of the store, which is the program's.
        done.unwrap_or(Err(SequenceError::MayHaveChanged))
    }

    /// The numbers in memory that would be given next, as many as a rehearsal shows.
    fn in_memory(&self, name: &SequenceName) -> Vec<i64> {
        let issuer = self.shared.issuers.pin().get(name).cloned();
        let blocks = issuer.map(|issuer| issuer.cursor.rest());
        let blocks = blocks.iter().flat_map(|blocks| blocks.iter());
        blocks.flat_map(Block::values).take(N_SAMPLES).collect()
    }
}

fn changed(name: SequenceName, altered: &Altered) -> Changed {
    Changed {
        name,
        is_live: altered.after.is_live,
        definition: Some(Arc::clone(&altered.after.definition)),
        version: altered.after.version,
        floor: altered.after.floor,
    }
}

fn standing(altered: &Altered) -> Standing {
    let before = altered.before.as_ref();
    Standing {
        changed: before.is_some_and(|before| {
            before.floor != altered.after.floor || before.is_live != altered.after.is_live
        }),
        floor: altered.after.floor,
        high_water_mark: altered.after.next_value,
        version: altered.after.version,
    }
}

fn warnings(altered: &Altered) -> Vec<String> {
    let after = &altered.after;
    after.definition.warnings(after.next_value, after.rate)
}
