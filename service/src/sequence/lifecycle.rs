//! The life of a sequence: defined, advanced, retired, restored.
//!
//! A change that the store has taken holds here before its caller is answered, also where that
//! caller has gone.

use std::sync::Arc;

use odometer_core::{
    block::Block,
    definition::{Definition, DefinitionChange, PeriodKind},
    format::Format,
    name::SequenceName,
    period::{Calendar, CounterKey, Period},
    runway::Runway,
};

use super::{
    audit::{self, Author},
    description::{Condition, Defined, Rehearsed, Standing},
    directory::Directory,
    error::SequenceError,
};
use crate::{
    clock,
    sabotage::{self, Fault},
    store::{Act, Altered, Changed, StoreError},
};

/// Numbers that a rehearsal shows.
const N_SAMPLES: usize = 3;

/// The key in the ids that a rehearsal shows.
const SAMPLE_KEY: &str = "key";

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
        let period = sampled_period(&definition);
        let next_value = match period.shown() {
            None => after.next_value,
            Some(_) => self
                .next_value_in(name, &period)
                .await
                .unwrap_or(definition.start),
        };
        let step = definition.step;
        let from_store = std::iter::successors(Some(next_value), |n| n.checked_add(step))
            .take_while(|number| !definition.exhausted(*number));
        let samples = self.in_memory(name).into_iter().chain(from_store);
        let samples: Vec<i64> = samples.take(N_SAMPLES).collect();
        Ok(Rehearsed {
            samples: printed(&definition, &period, &samples),
            runway: Runway::of(&definition, next_value, after.rate),
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

    /// The first number of a period that nobody has reserved, where it was ever used.
    async fn next_value_in(&self, name: &SequenceName, period: &Period) -> Option<i64> {
        let key = CounterKey {
            sequence: name.clone(),
            period: period.clone(),
        };
        let (_, seen) = self.shared.store.look_up(&key).await.ok()?;
        Some(seen?.next_value)
    }

    /// The numbers in memory that would be given next, as many as a rehearsal shows.
    fn in_memory(&self, name: &SequenceName) -> Vec<i64> {
        let issuer = self.shared.issuers.pin().get(name).cloned();
        let blocks = issuer.map(|issuer| issuer.cursor.rest());
        let blocks = blocks.iter().flat_map(|blocks| blocks.iter());
        blocks.flat_map(Block::values).take(N_SAMPLES).collect()
    }
}

/// The period whose ids a rehearsal shows: that of today, or a key that stands for any.
fn sampled_period(definition: &Definition) -> Period {
    match Calendar::of(definition) {
        Some(calendar) => calendar.at(clock::now_ms()).period,
        None if definition.period == PeriodKind::Keyed => Period::from_stored(SAMPLE_KEY),
        None => Period::none(),
    }
}

fn printed(definition: &Definition, period: &Period, numbers: &[i64]) -> Vec<String> {
    // No definition comes this far whose format is none.
    let Ok(format) = Format::of(definition) else {
        return Vec::new();
    };
    let printer = format.printer(period);
    let ids = numbers.iter().map(|number| {
        let mut id = String::with_capacity(printer.room());
        printer.print(*number, &mut id);
        id
    });
    ids.collect()
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
