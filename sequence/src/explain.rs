//! What became of one number, never more than is known: `docs/journal.md` has each case and why.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use odometer_core::{
    block::Block,
    definition::{Definition, Kind},
    format::InvalidId,
    name::SequenceName,
    period::{CounterKey, Period, PeriodKind},
    templates::Template,
};
use odometer_process::faults::{self, Fault};
use odometer_store::{
    Holder, JournalBlock, JournalRow, NumberTrace, SeenCounter, StoreError, Traced,
};

use crate::{
    directory::Directory, error::SequenceError, explain_snowflake::SnowflakeParts, issuer::Issuer,
    period_directory::PeriodDirectory,
};

/// What is known of one number.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub key: CounterKey,
    pub value: i64,
    pub fate: NumberFate,
    /// The block that says so; `None` where no row does.
    pub block: Option<NumberOrigin>,
    /// Who reserved it, if that is known.
    pub holder: Option<String>,
}

/// Where a number comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberOrigin {
    pub first: i64,
    pub last: i64,
    pub step: i64,
    /// The start of the program that reserved or adopted the block.
    pub holder: String,
    pub reserved_at: SystemTime,
}

/// What became of a number, in the order in which two rows that disagree are believed: the later
/// claims less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberFate {
    /// Nobody has ever reserved it.
    NotReserved,
    /// Certainly given to a caller.
    Issued,
    /// Reserved, neither issued nor returned.
    Abandoned,
    /// Given back; it waits to be adopted.
    Returned,
    /// Given back and taken over, by whom and what for is not in the journal.
    Adopted,
    /// It left its holder's memory, to a caller or with the holder.
    IssuedOrLost,
    /// Its holder has not told what became of it, and may have it in memory.
    Held,
    /// It was reserved, skipped or pruned: no row of the journal has it.
    NoRecord,
}

impl Directory {
    /// What became of the number that is printed so; where a period is named, it has to be of that
    /// one. Asks the store, and changes and loads nothing.
    ///
    /// # Errors
    /// There is no such sequence, none of its numbers is printed so, or the store does not answer.
    pub async fn explain(
        &self,
        name: &SequenceName,
        id: &str,
        period: Option<&Period>,
    ) -> Result<Explanation, SequenceError> {
        let (sequence, definition) = self.definition_behind(name).await?;
        let (of_period, value) = match read_by(&definition, id) {
            Ok(read) => read,
            Err(refused) if definition.period == PeriodKind::None => {
                // A number all the same, though none that the sequence gives.
                let value = refused.number().ok_or(refused)?;
                return Ok(Explanation {
                    key: CounterKey::whole(sequence),
                    value,
                    fate: NumberFate::NotReserved,
                    block: None,
                    holder: None,
                });
            }
            Err(refused) => return Err(refused.into()),
        };
        let key = CounterKey {
            sequence,
            period: of_period,
        };
        if let Some(period) = period.filter(|period| **period != key.period) {
            return Err(SequenceError::OfAnotherPeriod {
                period: period.clone(),
            });
        }
        if definition.kind == Kind::Snowflake {
            return self.explain_stamp(key.sequence, &definition, value).await;
        }
        // Before the store is asked: what it holds then can only be more.
        let seen = self.last_seen(&key);
        let trace = self.shared.store.trace(&key, value).await;
        let trace = trace.map_err(|error| SequenceError::of_counter(&key, error))?;
        let went_back = |seen: &SeenCounter| {
            trace.seen.version < seen.version || trace.seen.next_value < seen.next_value
        };
        if seen.as_ref().is_some_and(went_back) {
            return Err(SequenceError::StoreWentBack);
        }
        // After it: memory is ahead of the journal.
        let issuer = self.shared.find(&key);
        let (fate, block) = match issuer.and_then(|issuer| in_memory(&issuer, value)) {
            Some((fate, row)) => (fate, Some(self.origin_of(&row))),
            None => in_journal(value, &trace),
        };
        Ok(Explanation {
            key,
            value,
            fate,
            holder: block.as_ref().map(|block| block.holder.clone()),
            block,
        })
    }

    /// Reads a printed number back: the counter it is of, its value, and what that is composed of
    /// where the sequence is time-ordered.
    ///
    /// # Errors
    /// There is no such sequence, none of its numbers is printed so, or the store does not answer.
    pub async fn read(
        &self,
        name: &SequenceName,
        id: &str,
    ) -> Result<(CounterKey, i64, Option<SnowflakeParts>), SequenceError> {
        let (sequence, definition) = self.definition_behind(name).await?;
        let (period, value) = read_by(&definition, id)?;
        let stamp = SnowflakeParts::of(&definition, value);
        Ok((CounterKey { sequence, period }, value, stamp))
    }

    /// The sequence that a name stands for, and how it is defined.
    async fn definition_behind(
        &self,
        name: &SequenceName,
    ) -> Result<(SequenceName, Arc<Definition>), SequenceError> {
        let refused = match self.definition_of(name).await {
            Ok(definition) => return Ok((name.clone(), definition)),
            Err(refused) => refused,
        };
        // Its callers may get numbers of another sequence.
        let other = if matches!(refused, SequenceError::NotFound { .. }) {
            self.shared.settings.templates.of(name)
        } else {
            let alias = self.shared.aliases.pin().get(name).cloned();
            alias.map(Template::Share)
        };
        let Some(Template::Share(other)) = other else {
            return Err(refused);
        };
        let definition = self.definition_of(&other).await?;
        Ok((other, definition))
    }

    /// How a sequence is defined, as far as memory knows where the store does not answer.
    async fn definition_of(&self, name: &SequenceName) -> Result<Arc<Definition>, SequenceError> {
        let whole = CounterKey::whole(name.clone());
        match self.shared.store.look_up(&whole).await {
            Ok((listed, _seen)) => Ok(listed.definition),
            Err(error) => {
                // A definition that is a little older may do.
                let is_away = matches!(error, StoreError::Unavailable | StoreError::Deadline);
                let remembered = is_away.then(|| self.remembered(name, None)).flatten();
                let told = SequenceError::from_store(name, error);
                Ok(remembered.ok_or(told)?.definition)
            }
        }
    }

    /// The counter as this process last saw it.
    pub(crate) fn last_seen(&self, key: &CounterKey) -> Option<SeenCounter> {
        let issuer = self.shared.find(key);
        let known = issuer.and_then(|issuer| Some(issuer.memory.lock().known.as_ref()?.seen));
        let forgotten = || self.shared.forgotten(key).ok().flatten();
        known.or_else(|| Some(forgotten()?.seen))
    }

    /// Of a block in memory, whose row may not be written yet.
    fn origin_of(&self, row: &JournalRow) -> NumberOrigin {
        let reserved_at = u64::try_from(row.reserved_at).unwrap_or_default();
        NumberOrigin {
            first: row.block.first(),
            last: row.block.last(),
            step: row.block.step(),
            holder: self.shared.store.holder().to_owned(),
            reserved_at: UNIX_EPOCH + Duration::from_millis(reserved_at),
        }
    }
}

fn read_by(definition: &Arc<Definition>, id: &str) -> Result<(Period, i64), InvalidId> {
    let (period, value) = definition.read(id)?;
    let is_one =
        PeriodDirectory::of(definition).is_none_or(|periods| periods.check(&period).is_ok());
    if is_one {
        return Ok((period, value));
    }
    let found = period.to_string();
    Err(InvalidId::Period { found })
}

/// What this process knows of a number in a block whose fate is open here.
fn in_memory(issuer: &Arc<Issuer>, value: i64) -> Option<(NumberFate, JournalRow)> {
    let memory = issuer.memory.lock();
    let row = memory.held.iter().find(|row| row.block.contains(value))?;
    // The numbers of a block leave in ascending order, and while the memory is held each that is
    // left is here.
    let rest = issuer.cursor.rest();
    let mut left = rest.iter().chain(&memory.spare).map(Block::first);
    let first_left = left.find(|first| row.block.contains(*first));
    let is_taken = first_left.is_none_or(|first| value < first);
    let fate = if is_taken { taken() } else { NumberFate::Held };
    Some((fate, row.clone()))
}

/// A number that left memory: whether a caller has it, no journal of blocks can tell. The caller may
/// have hung up, the reply may have been lost, the thread may have come too late for its slot.
fn taken() -> NumberFate {
    if faults::is(Fault::ExplainGuesses) {
        NumberFate::Issued
    } else {
        NumberFate::IssuedOrLost
    }
}

/// What the journal says of a number, and the row that says it.
fn in_journal(value: i64, trace: &NumberTrace) -> (NumberFate, Option<NumberOrigin>) {
    // The oldest first, so that of two that say the same the youngest is named.
    let said = trace.rows.iter().rev().filter_map(|row| {
        let fate = of_row(value, row, trace.was_recovered)?;
        Some((fate, row))
    });
    // Two rows that both answer for a number are a fault; then the one that claims less is believed.
    if let Some((fate, row)) = said.max_by_key(|(fate, _)| *fate) {
        return (fate, Some(NumberOrigin::from(&row.block)));
    }
    if let Some(youngest) = trace.rows.first() {
        return (
            NumberFate::Adopted,
            Some(NumberOrigin::from(&youngest.block)),
        );
    }
    let is_guessed = faults::is(Fault::ExplainGuesses);
    let fate = if is_guessed || was_never_reserved(value, &trace.definition, trace.first_free) {
        NumberFate::NotReserved
    } else {
        NumberFate::NoRecord
    };
    (fate, None)
}

/// What one row says of a number of its block; `None` where it leaves it to the adopter's.
fn of_row(value: i64, row: &Traced, was_recovered: bool) -> Option<NumberFate> {
    let was_left = value >= row.block.next_unissued;
    match row.block.fate.as_str() {
        "spent" => Some(taken()),
        "held" if row.holder == Holder::Gone => Some(taken()),
        "returned" | "adopted" | "abandoned" if !was_left => Some(taken()),
        "returned" => Some(NumberFate::Returned),
        "adopted" => None,
        "abandoned" if !was_recovered => Some(NumberFate::Abandoned),
        "abandoned" => Some(NumberFate::IssuedOrLost),
        // Also a word of a later version: nothing is known.
        _ => Some(NumberFate::Held),
    }
}

/// Numbers that no reservation can have had: they are not on the sequence's grid, or not below the
/// first that is free. Those that `advance` skipped are below it and look like any without a row.
fn was_never_reserved(value: i64, definition: &Definition, first_free: i64) -> bool {
    let is_on_grid = value
        .checked_sub(definition.start)
        .is_some_and(|offset| offset >= 0 && offset.checked_rem(definition.step) == Some(0));
    !is_on_grid || value >= first_free
}

impl From<&JournalBlock> for NumberOrigin {
    fn from(block: &JournalBlock) -> Self {
        Self {
            first: block.first,
            last: block.last,
            step: block.step,
            holder: block.holder.clone(),
            reserved_at: block.reserved_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(first: i64, last: i64, fate: &str, next_unissued: i64, holder: Holder) -> Traced {
        Traced {
            block: JournalBlock {
                period: Period::none(),
                first,
                last,
                step: 1,
                holder: format!("{holder:?}"),
                reserved_at: UNIX_EPOCH,
                fate: fate.to_owned(),
                next_unissued,
            },
            holder,
        }
    }

    /// What is said of `value` in a sequence that is reserved up to 100, and of which block.
    fn said(value: i64, rows: Vec<Traced>, was_recovered: bool) -> (NumberFate, Option<i64>) {
        let trace = NumberTrace {
            definition: Arc::default(),
            seen: SeenCounter {
                next_value: 101,
                version: 1,
            },
            first_free: 101,
            was_recovered,
            rows,
        };
        let (fate, block) = in_journal(value, &trace);
        (fate, block.map(|block| block.first))
    }

    #[test]
    fn one_row_says_no_more_than_it_knows() {
        use NumberFate::{Abandoned, Adopted, Held, IssuedOrLost, Returned};
        for (fate, holder, below, from_there_on) in [
            ("held", Holder::This, Held, Held),
            ("held", Holder::Living, Held, Held),
            ("held", Holder::Gone, IssuedOrLost, IssuedOrLost),
            ("spent", Holder::This, IssuedOrLost, IssuedOrLost),
            ("returned", Holder::Gone, IssuedOrLost, Returned),
            ("adopted", Holder::Living, IssuedOrLost, Adopted),
            ("abandoned", Holder::Gone, IssuedOrLost, Abandoned),
            ("a later word", Holder::Gone, Held, Held),
        ] {
            let rows = || vec![row(1, 100, fate, 41, holder)];
            assert_eq!(said(40, rows(), false), (below, Some(1)), "{fate}");
            assert_eq!(said(41, rows(), false), (from_there_on, Some(1)), "{fate}");
        }
    }

    #[test]
    fn what_was_abandoned_in_another_history_may_have_been_issued() {
        let rows = || vec![row(1, 100, "abandoned", 41, Holder::Gone)];
        assert_eq!(said(41, rows(), true).0, NumberFate::IssuedOrLost);
        assert_eq!(said(41, rows(), false).0, NumberFate::Abandoned);
    }

    #[test]
    fn a_number_is_explained_by_the_youngest_row_that_has_it() {
        // The youngest first, as the store gives them; those that have the number.
        let chain = |last: Traced| vec![last, row(1, 100, "adopted", 41, Holder::Gone)];
        let held = chain(row(41, 100, "held", 41, Holder::Living));
        assert_eq!(said(50, held, false), (NumberFate::Held, Some(41)));
        let again = chain(row(41, 100, "returned", 61, Holder::Gone));
        assert_eq!(
            said(50, again.clone(), false),
            (NumberFate::IssuedOrLost, Some(41))
        );
        assert_eq!(said(61, again, false), (NumberFate::Returned, Some(41)));
        // Adopted again, by one that wrote nothing.
        let silent = chain(row(41, 100, "adopted", 61, Holder::Gone));
        assert_eq!(said(61, silent, false), (NumberFate::Adopted, Some(41)));
        // Returned and adopted without a number issued: two rows of the same range.
        let same = vec![
            row(1, 100, "held", 1, Holder::Living),
            row(1, 100, "adopted", 1, Holder::Gone),
        ];
        assert_eq!(said(1, same, false), (NumberFate::Held, Some(1)));
    }

    #[test]
    fn of_rows_that_disagree_the_one_that_claims_less_is_believed() {
        let rows = vec![
            row(1, 100, "returned", 1, Holder::Gone),
            row(1, 100, "held", 1, Holder::Living),
            row(1, 100, "spent", 101, Holder::Gone),
        ];
        assert_eq!(said(50, rows, false).0, NumberFate::Held);
    }

    #[test]
    fn without_a_row_only_what_nobody_can_have_reserved_is_known() {
        for (value, expected) in [
            (0, NumberFate::NotReserved),
            (1, NumberFate::NoRecord),
            (100, NumberFate::NoRecord),
            (101, NumberFate::NotReserved),
            (i64::MAX, NumberFate::NotReserved),
        ] {
            assert_eq!(said(value, Vec::new(), false), (expected, None), "{value}");
        }
        let grid = Definition {
            start: 7,
            step: 10,
            ..Definition::default()
        };
        for (value, never) in [(6, true), (7, false), (8, true), (97, false), (107, true)] {
            assert_eq!(was_never_reserved(value, &grid, 107), never, "{value}");
        }
    }
}
