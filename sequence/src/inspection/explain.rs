//! Explains what became of one number, and never says more than is known. `docs/journal.md` has
//! each case and its reason.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{
    definition::{Definition, Kind},
    format::InvalidId,
    name::SequenceName,
    period::{CounterKey, Period, PeriodKind},
    templates::Template,
};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{
    Holder, JournalBlock, JournalRow, NumberTrace, SeenCounter, StoreError, Traced,
};
use serde::Serialize;

use crate::{
    directory::calls::Directory, directory::period_rule::PeriodRule, error::SequenceError,
    inspection::explain_snowflake::SnowflakeParts, issuer::memory::Issuer,
};

/// What is known of one number.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub key: CounterKey,
    pub value: i64,
    pub fate: NumberFate,
    /// The block that gives the answer; `None` if no row does.
    pub block: Option<NumberOrigin>,
    /// Who reserved the number, if that is known.
    pub holder: Option<String>,
}

/// Where a number comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberOrigin {
    pub first: i64,
    pub last: i64,
    pub step: i64,
    /// The process that reserved or adopted the block. Each start of the program has a name of its
    /// own.
    pub holder: String,
    pub reserved_at: SystemTime,
}

/// What became of a number. If two rows disagree, the row whose fate is later in this list is
/// believed, because that fate claims less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberFate {
    /// No replica has ever reserved the number.
    NotReserved,
    /// A caller certainly got the number.
    Issued,
    /// The number was reserved, and neither issued nor returned.
    Abandoned,
    /// The number was returned, and waits to be adopted.
    Returned,
    /// The number was returned and adopted. The journal does not have the adopter's row.
    Adopted,
    /// The number left its holder's memory and is not issued any more: a caller got the number, or
    /// it is a gap.
    IssuedOrLost,
    /// The holder has not reported what became of the number, and may have it in memory.
    Held,
    /// No row of the journal has the number. It was reserved or skipped, and its row is missing or
    /// was pruned.
    NoRecord,
}

impl Explanation {
    pub(crate) fn without_block(key: CounterKey, value: i64, fate: NumberFate) -> Self {
        Self {
            key,
            value,
            fate,
            block: None,
            holder: None,
        }
    }
}

impl Directory {
    /// Explains what became of the number that is printed as `id`. If a period is named, the number
    /// must be of that period. Asks the store, and changes and loads nothing.
    ///
    /// # Errors
    /// The sequence does not exist, none of its numbers is printed so, or the store does not
    /// answer.
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
                // The text is a number, though none that the sequence gives.
                let value = refused.number().ok_or(refused)?;
                let key = CounterKey::whole(sequence);
                return Ok(Explanation::without_block(
                    key,
                    value,
                    NumberFate::NotReserved,
                ));
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
            return self.explain_id(key.sequence, &definition, value).await;
        }
        // Read this before asking the store. What the store has by then can only be more.
        let seen = self.last_seen(&key);
        let trace = self.shared.store.trace(&key, value).await;
        let trace = trace.map_err(|error| SequenceError::of_counter(&key, error))?;
        let went_back = |seen: &SeenCounter| {
            trace.seen.version < seen.version || trace.seen.next_value < seen.next_value
        };
        if seen.as_ref().is_some_and(went_back) {
            return Err(SequenceError::StoreWentBack);
        }
        // Look into memory after asking the store, because memory is ahead of the journal.
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

    /// Reads a printed number back: returns its counter and its value. For a time-ordered sequence,
    /// also returns the parts of the value.
    ///
    /// # Errors
    /// The sequence does not exist, none of its numbers is printed so, or the store does not
    /// answer.
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

    /// Returns the sequence that a name stands for, with its definition.
    async fn definition_behind(
        &self,
        name: &SequenceName,
    ) -> Result<(SequenceName, Arc<Definition>), SequenceError> {
        let refused = match self.definition_of(name).await {
            Ok(definition) => return Ok((name.clone(), definition)),
            Err(refused) => refused,
        };
        // Callers of this name may get the numbers of another sequence.
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

    /// Returns the definition of a sequence. If the store does not answer, returns the definition
    /// in memory.
    async fn definition_of(&self, name: &SequenceName) -> Result<Arc<Definition>, SequenceError> {
        let whole = CounterKey::whole(name.clone());
        match self.shared.store.look_up(&whole).await {
            Ok((listed, _seen)) => Ok(listed.definition),
            Err(error) => {
                // A definition that is a little older is good enough.
                let is_away = matches!(error, StoreError::Unavailable | StoreError::Deadline);
                let head = is_away.then(|| self.shared.names.look(name)).flatten();
                let told = SequenceError::from_store(name, error);
                Ok(head.ok_or(told)?.definition())
            }
        }
    }

    /// Returns the counter as this process last saw it.
    pub(crate) fn last_seen(&self, key: &CounterKey) -> Option<SeenCounter> {
        let issuer = self.shared.find(key);
        let known = issuer.and_then(|issuer| Some(issuer.memory.lock().known.as_ref()?.seen));
        known.or_else(|| Some(self.shared.forgotten(key)?.seen))
    }

    /// Describes a block in memory, whose row may not be written yet.
    fn origin_of(&self, row: &JournalRow) -> NumberOrigin {
        NumberOrigin {
            first: row.block.first(),
            last: row.block.last(),
            step: row.block.step(),
            holder: self.shared.store.holder().to_owned(),
            reserved_at: clock::time_of(row.reserved_at),
        }
    }
}

fn read_by(definition: &Arc<Definition>, id: &str) -> Result<(Period, i64), InvalidId> {
    let (period, value) = definition.read(id)?;
    let is_one = PeriodRule::of(definition).is_none_or(|rule| rule.check(&period).is_ok());
    if is_one {
        return Ok((period, value));
    }
    Err(InvalidId::no_period(period.as_str()))
}

/// Returns what this process knows of a number, if the block of the number is open here.
fn in_memory(issuer: &Arc<Issuer>, value: i64) -> Option<(NumberFate, JournalRow)> {
    let memory = issuer.memory.lock();
    let row = memory.held.iter().find(|row| row.block.contains(value))?;
    // The numbers of a block leave in ascending order. While memory is locked, each number that is
    // left is in the cursor or spare.
    let first_left = row.first_of(&issuer.blocks(&memory));
    let is_taken = first_left.is_none_or(|first| value < first);
    let fate = if is_taken { taken() } else { NumberFate::Held };
    Some((fate, row.row(&issuer.key)))
}

/// Returns the fate of a number that left memory. No journal of blocks can know whether a caller
/// has the number. The caller may have hung up, the reply may have been lost, or the thread may
/// have come too late for its slot.
fn taken() -> NumberFate {
    if faults::is(Fault::ExplainGuesses) {
        NumberFate::Issued
    } else {
        NumberFate::IssuedOrLost
    }
}

/// Returns what the journal says of a number, with the row that says it.
fn in_journal(value: i64, trace: &NumberTrace) -> (NumberFate, Option<NumberOrigin>) {
    // The oldest row goes first, so that the youngest one is named if two rows say the same.
    let said = trace.rows.iter().rev().filter_map(|row| {
        let fate = of_row(value, row, trace.was_recovered)?;
        Some((fate, row))
    });
    // Two rows that both answer for a number are a fault. Then the row that claims less is
    // believed.
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

/// Returns what one row says of a number of its block; `None` if the adopter's row must answer.
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
        // This includes words of a later version, of which nothing is known.
        _ => Some(NumberFate::Held),
    }
}

/// Returns whether no reservation can have had this number. Such a number is not on the grid of the
/// sequence, or not below the first free number.
///
/// Numbers that `advance` skipped are below the first free number. They look like any number
/// without a row.
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
    use std::time::UNIX_EPOCH;

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

    /// Returns the fate of `value` in a sequence that is reserved up to 100, with the block that
    /// decides.
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
        // The youngest row goes first, as the store returns the rows that have the number.
        let chain = |last: Traced| vec![last, row(1, 100, "adopted", 41, Holder::Gone)];
        let held = chain(row(41, 100, "held", 41, Holder::Living));
        assert_eq!(said(50, held, false), (NumberFate::Held, Some(41)));
        let again = chain(row(41, 100, "returned", 61, Holder::Gone));
        assert_eq!(
            said(50, again.clone(), false),
            (NumberFate::IssuedOrLost, Some(41))
        );
        assert_eq!(said(61, again, false), (NumberFate::Returned, Some(41)));
        // The rest was adopted again, by a process that wrote no row.
        let silent = chain(row(41, 100, "adopted", 61, Holder::Gone));
        assert_eq!(said(61, silent, false), (NumberFate::Adopted, Some(41)));
        // A block was returned and adopted before a number was issued, so two rows have the same
        // range.
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
