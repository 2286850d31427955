//! Changes sequences: creates, defines, advances, retires and restores them.
//!
//! When a caller is answered, its change holds in the store and in the memory of this replica. A
//! change is completed even if its caller has gone.

use std::sync::Arc;

use odometer_core::{
    block::Block,
    definition::{Definition, DefinitionChange},
    format::Format,
    name::SequenceName,
    period::{CounterKey, Period, PeriodKind},
    runway::Runway,
    snowflake::Layout,
};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{Act, Altered, ChangeRequest, Changed, StoreError};
use tracing::Instrument as _;

use crate::{
    directory::calls::{Directory, asked_for},
    directory::resolving::check_period,
    error::SequenceError,
    inspection::description::{Condition, Defined, LifecycleOutcome, Rehearsed},
    lifecycle::audit::{self, Author},
    lifecycle::changes::Concerns,
};

/// Sets how many numbers a dry run shows.
const N_SAMPLES: usize = 3;
/// The key for which a dry run shows ids, if callers name keys.
const SAMPLE_KEY: &str = "key";

impl Directory {
    /// Creates or changes a sequence. On this replica the change holds at once.
    ///
    /// # Errors
    /// Nothing was changed. Only [`SequenceError::MayHaveChanged`] leaves open whether the change
    /// was made. This is true for all changes.
    pub async fn define(
        &self,
        name: &SequenceName,
        change: DefinitionChange,
        condition: Condition,
        author: Author,
    ) -> Result<Defined, SequenceError> {
        let act = self.definition(name, change, false);
        let altered = self.change(name, act, condition, author).await?;
        let warnings = warnings(&altered);
        Ok(Defined {
            created: altered.before.is_none(),
            definition: altered.after.definition,
            version: altered.after.version,
            warnings,
        })
    }

    /// Checks what [`Directory::define`] would do, and changes nothing.
    ///
    /// # Errors
    /// Returns why the change would be refused.
    pub async fn rehearse(
        &self,
        name: &SequenceName,
        change: DefinitionChange,
        condition: Condition,
    ) -> Result<Rehearsed, SequenceError> {
        let act = self.definition(name, change, true);
        let change = self.request(&CounterKey::whole(name.clone()), act, condition);
        let altered = self.shared.store.alter(change).await;
        let altered = altered.map_err(|error| SequenceError::from_store(name, error))?;
        let warnings = warnings(&altered);
        let definition = Arc::clone(&altered.after.definition);
        let key = asked_for(name, None, &definition)?;
        let next_value = match key.period.shown() {
            None if definition.period == PeriodKind::None => altered.after.next_value,
            None => definition.start,
            Some(_) => {
                // A counter that was never reserved from begins at `start`.
                let seen = self.seen(&key).await.ok().flatten();
                seen.map_or(definition.start, |seen| seen.next_value)
            }
        };
        Ok(Rehearsed {
            samples: self.samples(&key, &definition, next_value)?,
            runway: Runway::of(&definition, next_value, altered.after.rate, clock::now_ms()),
            warnings,
            definition,
        })
    }

    /// Returns the numbers that this replica would issue next, as they are printed.
    fn samples(
        &self,
        key: &CounterKey,
        definition: &Definition,
        next_value: i64,
    ) -> Result<Vec<String>, SequenceError> {
        let format = Format::of(definition).map_err(|_| SequenceError::Internal)?;
        let is_keyed = key.period.is_none() && definition.period == PeriodKind::Keyed;
        let period = if is_keyed {
            Period::parse(SAMPLE_KEY)?
        } else {
            key.period.clone()
        };
        let printer = format.printer(&period);
        let from_store =
            std::iter::successors(Some(next_value), |n| n.checked_add(definition.step))
                .take_while(|number| !definition.exhausted(*number));
        let numbers = self.in_memory(key).into_iter().chain(from_store);
        let numbers: Vec<i64> = match &definition.layout {
            Some(layout) => of_now(layout),
            None => numbers.take(N_SAMPLES).collect(),
        };
        let print = |number| {
            let mut printed = String::new();
            printer.print(number, &mut printed);
            printed
        };
        Ok(numbers.into_iter().map(print).collect())
    }

    /// Raises a floor, removes a caller's key, or retires or restores a sequence. On this replica
    /// the change holds at once. Other replicas obey as soon as they learn of the change. The same
    /// act for a second time changes nothing.
    ///
    /// # Errors
    /// As for [`Directory::define`].
    pub async fn act(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        author: Author,
    ) -> Result<LifecycleOutcome, SequenceError> {
        if let Act::Advance { period, .. } = &act
            && !period.is_none()
        {
            let whole = CounterKey::whole(name.clone());
            let found = self.shared.store.look_up(&whole).await;
            let (listed, _seen) = found.map_err(|error| SequenceError::from_store(name, error))?;
            check_period(name, &listed.definition, Some(period))?;
        }
        let altered = self.change(name, act, condition, author).await?;
        let (before, after) = (altered.before.as_ref(), &altered.after);
        Ok(LifecycleOutcome {
            changed: before.is_some_and(|before| {
                before.floor != after.floor || before.is_live != after.is_live
            }),
            floor: after.floor,
            high_water_mark: after.next_value,
            version: after.version,
        })
    }

    fn definition(&self, name: &SequenceName, change: DefinitionChange, dry_run: bool) -> Act {
        Act::Define {
            change: Box::new(change),
            template: self.shared.settings.templates.behind(name),
            dry_run,
        }
    }

    /// Returns the request for an act, which changes this counter.
    fn request(&self, key: &CounterKey, act: Act, condition: Condition) -> ChangeRequest {
        ChangeRequest {
            name: key.sequence.clone(),
            act,
            condition,
            last_seen: self.last_seen(key),
            n_created: 0,
        }
    }

    /// Makes a change in the store and then in memory. The change is completed even if its caller
    /// stops waiting.
    async fn change(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        author: Author,
    ) -> Result<Altered, SequenceError> {
        let (shared, of) = (Arc::clone(&self.shared), name.clone());
        let key = CounterKey {
            sequence: name.clone(),
            period: act.period(),
        };
        let change = self.request(&key, act.clone(), condition);
        let work = async move {
            let altered = match shared.store.alter(change).await {
                Ok(altered) => altered,
                Err(error) => {
                    if matches!(error, StoreError::MayHaveChanged) {
                        audit::note_uncertain(&author, &of, &act);
                    }
                    return Err(SequenceError::of_counter(&key, error));
                }
            };
            audit::note(&author, &of, &act, &altered);
            // Apply the change even if the store had it before: an earlier answer of the store may
            // have been lost.
            let after = &altered.after;
            let concerns = match &act {
                Act::Advance { .. } | Act::RemovePeriod { .. } => match after.is_removed {
                    true => Concerns::Removed(&after.period),
                    false => Concerns::One(&after.period),
                },
                // This replica may not have heard of a retirement that another replica made.
                Act::Restore => Concerns::Unknown,
                Act::Define { .. } | Act::Retire => Concerns::None,
            };
            shared.apply(&changed(of, &altered), concerns).await;
            Ok(altered)
        };
        if faults::is(Fault::ChangeUnfinished) {
            return work.await;
        }
        let done = self.shared.store.finish(work.in_current_span()).await;
        // Only the end of the store can stop the task, and the store ends with the program.
        done.unwrap_or(Err(SequenceError::MayHaveChanged))
    }

    /// Returns the next numbers in memory, as many as a dry run shows.
    fn in_memory(&self, key: &CounterKey) -> Vec<i64> {
        let Some(issuer) = self.shared.find(key) else {
            return Vec::new();
        };
        let blocks = issuer.blocks(&issuer.memory.lock());
        let values = blocks.iter().flat_map(Block::values);
        values.take(N_SAMPLES).collect()
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

/// Returns ids that a worker id could issue now.
fn of_now(layout: &Layout) -> Vec<i64> {
    let tick = layout.tick_at(clock::now_ms()).unwrap_or_default();
    layout.sample(tick, N_SAMPLES as u64)
}

fn warnings(altered: &Altered) -> Vec<String> {
    let after = &altered.after;
    after
        .definition
        .warnings(after.next_value, after.rate, clock::now_ms())
}
