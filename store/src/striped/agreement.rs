//! Finds out what the members of a store agree on about a name: the grid of its numbers. A *grid*
//! is what decides which numbers a definition gives: kind, `start`, `step`, order, store and
//! periods.
//!
//! A grid is decided as soon as more than half of the members hold it. From then on, no other grid
//! of that name can come to more than half. The reason is that rows only ever change towards the
//! decided grid. Numbers are reserved only of a decided name, and only in a member whose row
//! agrees. So no two replicas count a name by different grids, no matter which members they reach.

use std::sync::Arc;

use odometer_core::definition::Definition;
use odometer_process::faults::{self, Fault};

use crate::{
    error::StoreError,
    reservation::stripe_constraints::{Agreed, counts_alike},
    rows::catalog::{CatalogEntry, ELSEWHERE, LIVE},
};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::striped::agreement";

/// What one member has of a name.
#[derive(Clone, Debug)]
pub(crate) struct MemberEntry {
    pub(crate) k: usize,
    pub(crate) entry: CatalogEntry,
    pub(crate) definition: Arc<Definition>,
    /// Whether a number was ever reserved here of one of the sequence's periods. It is only set if
    /// the member was asked for the counter without a period.
    pub(crate) has_used_periods: bool,
}

impl MemberEntry {
    pub(crate) fn version(&self) -> i64 {
        self.entry.definition_version
    }

    pub(crate) fn is_live(&self) -> bool {
        self.entry.state == LIVE
    }

    /// Says whether only reservations happened to the row between two reads of it.
    fn is_unchanged(&self, earlier: &Self) -> bool {
        let revision = |found: &Self| found.entry.counter().map(|counter| counter.revision);
        self.k == earlier.k
            && self.version() == earlier.version()
            && self.entry.definition == earlier.entry.definition
            && revision(self) == revision(earlier)
    }

    /// Says whether the row only claims the name for another store.
    pub(crate) fn is_claim(&self) -> bool {
        self.entry.state == ELSEWHERE
    }

    /// Says whether a number of the name was ever reserved here, which happens only to decided
    /// names. Changes raise both `version` and `revision`, and reservations raise `version` alone.
    pub(crate) fn was_used(&self) -> bool {
        let counter = self.entry.counter();
        self.has_used_periods
            || counter.is_some_and(|counter| counter.seen.version > counter.revision)
    }
}

/// What the members answered about a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// The members that answered, with or without an entry.
    pub(crate) answered: Vec<usize>,
    pub(crate) found: Vec<MemberEntry>,
    /// Whether one of the members went back to an earlier state.
    pub(crate) went_back: bool,
}

impl Answers {
    /// Returns the newest entry of a sequence that was agreed on, unless it is older than that.
    pub(crate) fn newest_like(&self, known: &Agreed) -> Option<&MemberEntry> {
        let alike = self.found.iter();
        let alike = alike.filter(|found| known.is_like(&found.definition));
        let newest = alike.max_by_key(|found| found.version())?;
        (newest.version() >= known.version).then_some(newest)
    }

    /// Returns the error if the answers decide nothing.
    pub(crate) fn undecided(&self) -> StoreError {
        if self.went_back {
            StoreError::WentBack
        } else {
            StoreError::Unavailable
        }
    }
}

/// What follows from the answers.
#[derive(Debug)]
pub(crate) enum MajorityAnswer {
    /// The name is decided. This is its newest entry.
    Decided(MemberEntry),
    /// More than half of the members answered, and none that answered has the name.
    Absent,
    /// Some members have the name, and it must be brought to more than half of them.
    Begun(MemberEntry),
}

/// Returns what follows from the answers of a store of `n` members.
///
/// # Errors
/// `WentBack` or `Unavailable` if too few members answered, or if their answers decide nothing.
pub(crate) fn verdict(answers: &Answers, n: usize) -> Result<MajorityAnswer, StoreError> {
    let is_most = |count: usize| count * 2 > n;
    let is_loose = faults::is(Fault::LooseCreation);
    let mut groups: Vec<Vec<&MemberEntry>> = Vec::new();
    for found in &answers.found {
        let alike = groups.iter_mut().find(|group| {
            let first = group.first();
            first.is_some_and(|first| counts_alike(&first.definition, &found.definition))
        });
        match alike {
            Some(group) => group.push(found),
            None => groups.push(vec![found]),
        }
    }
    let newest = |group: &Vec<&MemberEntry>| {
        let best = group
            .iter()
            .max_by_key(|found| (found.version(), std::cmp::Reverse(found.k)));
        best.map(|found| (*found).clone())
    };
    let mut decided = groups.iter().filter(|group| {
        is_loose || is_most(group.len()) || group.iter().any(|found| found.was_used())
    });
    let first = decided.next();
    if !is_loose && decided.next().is_some() {
        tracing::error!(
            target: TARGET,
            "databases of a store count one name in two ways, so nothing is given of it: was one of \
             them restored? A PUT decides it"
        );
        return Err(answers.undecided());
    }
    if let Some(found) = first.and_then(newest) {
        return Ok(MajorityAnswer::Decided(found));
    }
    let is_enough = is_most(answers.answered.len()) || (is_loose && !answers.answered.is_empty());
    if !is_enough {
        return Err(answers.undecided());
    }
    let n_without = answers.answered.len() - answers.found.len();
    let leading = groups.iter().max_by_key(|group| {
        let newest = group.iter().map(|found| found.version()).max();
        let lowest = group.iter().map(|found| found.k).min();
        (group.len(), newest, std::cmp::Reverse(lowest))
    });
    let Some(leading) = leading else {
        return Ok(MajorityAnswer::Absent);
    };
    let begun = newest(leading).filter(|_| is_most(leading.len() + n_without));
    begun
        .map(MajorityAnswer::Begun)
        .ok_or_else(|| answers.undecided())
}

/// Says whether the decided entry was decided at one moment. A reserved number proves it. So does a
/// second reading that began after the first one ended, if more than half of the rows were the same
/// in both.
pub(crate) fn is_steady(
    earlier: &Answers,
    later: &Answers,
    decided: &MemberEntry,
    n: usize,
) -> bool {
    let alike = earlier
        .found
        .iter()
        .filter(|found| counts_alike(&found.definition, &decided.definition));
    let is_unchanged = |found: &&MemberEntry| later.found.iter().any(|now| now.is_unchanged(found));
    alike.clone().any(MemberEntry::was_used) || alike.filter(is_unchanged).count() * 2 > n
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn found(k: usize, start: i64, version: i64, used: bool) -> MemberEntry {
        let definition = Definition {
            start,
            ..Definition::default()
        };
        MemberEntry {
            k,
            entry: CatalogEntry::for_tests(&definition.to_stored(), version, i64::from(used)),
            definition: Arc::new(definition),
            has_used_periods: false,
        }
    }

    fn said(answered: &[usize], found: Vec<MemberEntry>, n: usize) -> String {
        let answers = Answers {
            answered: answered.to_vec(),
            found,
            went_back: false,
        };
        match verdict(&answers, n) {
            Ok(MajorityAnswer::Decided(found)) => format!("decided {}", found.k),
            Ok(MajorityAnswer::Begun(found)) => format!("begun {}", found.k),
            Ok(MajorityAnswer::Absent) => "unborn".to_owned(),
            Err(_) => "unknown".to_owned(),
        }
    }

    #[test]
    fn a_name_is_decided_by_more_than_half() {
        let same = |k| found(k, 1, 0, false);
        assert_eq!(said(&[0, 1], vec![same(0), same(1)], 3), "decided 0");
        assert_eq!(said(&[0, 1], vec![same(0), same(1)], 4), "unknown");
        assert_eq!(said(&[0, 1, 2], vec![same(0), same(1)], 4), "begun 0");
        assert_eq!(said(&[0, 1, 2], vec![same(1)], 3), "begun 1");
        assert_eq!(said(&[1], vec![same(1)], 3), "unknown");
        assert_eq!(said(&[0, 1], vec![], 3), "unborn");
        assert_eq!(said(&[0], vec![], 3), "unknown");
        assert_eq!(said(&[0, 1], vec![], 4), "unknown");
        assert_eq!(said(&[0, 1], vec![same(0), same(1)], 2), "decided 0");
        assert_eq!(said(&[0], vec![same(0)], 2), "unknown");
    }

    #[test]
    fn the_majority_decides_and_of_it_the_newest_row() {
        let rows = vec![
            found(0, 7, 9, false),
            found(1, 1, 3, false),
            found(2, 1, 5, false),
        ];
        assert_eq!(said(&[0, 1, 2], rows, 3), "decided 2");
    }

    #[test]
    fn one_database_is_enough_where_a_number_was_reserved_before() {
        assert_eq!(said(&[2], vec![found(2, 1, 0, true)], 3), "decided 2");
    }

    #[test]
    fn two_halves_that_differ_are_left_to_a_change() {
        let split = || vec![found(0, 1, 0, false), found(1, 7, 0, false)];
        assert_eq!(said(&[0, 1], split(), 2), "unknown");
        assert_eq!(said(&[0, 1], split(), 3), "unknown");
        assert_eq!(said(&[0, 1, 2], split(), 3), "begun 0");
    }

    #[test]
    fn of_two_that_were_counted_by_none_is_decided() {
        let rows = vec![found(0, 1, 0, true), found(1, 7, 0, true)];
        assert_eq!(said(&[0, 1], rows, 3), "unknown");
        let most = vec![
            found(0, 1, 0, true),
            found(1, 7, 0, false),
            found(2, 7, 0, false),
        ];
        assert_eq!(said(&[0, 1, 2], most, 3), "unknown");
    }

    #[test]
    fn rows_that_moved_between_two_readings_decide_nothing() {
        let read = |found| Answers {
            answered: vec![0, 1, 2],
            found,
            went_back: false,
        };
        let same = |k| found(k, 1, 0, false);
        let first = read(vec![same(0), same(1)]);
        let decided = same(0);
        assert!(is_steady(&first, &first, &decided, 3));
        let moved = read(vec![found(0, 7, 2, false), same(1)]);
        assert!(!is_steady(&first, &moved, &decided, 3));
        let raised = read(vec![found(0, 1, 1, false), same(1)]);
        assert!(!is_steady(&first, &raised, &decided, 3));
        let used = read(vec![found(0, 1, 0, true)]);
        assert!(is_steady(&used, &moved, &decided, 3));
    }
}
