//! Reads and writes the recoveries of a database, which the table `fence` keeps.
//!
//! A row raised all sequences, or one for which an operator said what was lost.
//!
//! Each recovery begins a branch of the database's history. A replica remembers the recoveries that
//! the database had when it met the present branch. If the database is on another branch later,
//! these recoveries tell whether it [followed](Recoveries::follow) from what the replica knows.

use std::{collections::HashSet, sync::Arc};

use entity::fence::{Column, Entity, Model};
use odometer_core::{
    name::SequenceName,
    speed_limit::fence::{Fence, missing},
};
use odometer_database::session::DatabaseTransaction;
use sea_orm::{
    ActiveModelTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, IntoActiveModel, QueryOrder,
    QuerySelect, Select,
};

use crate::{
    lineage::UNSTAMPED,
    recovery::{KeptNumbers, LastRecovery},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::change::fence";

/// Says what recoveries mean that do not [lead to](Recoveries::lead_to) the branch.
pub(crate) const ASTRAY: &str =
    "its table `fence` lacks the recovery that began the present branch";

/// A recovery of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredFence {
    pub(crate) fence: Fence,
    /// The branch that the database was on before. 0 if it had lost its stamp.
    pub(crate) previous_branch: i64,
    /// The time of the recovery (Unix ms), after those of all that were known. Of one that raised all
    /// sequences, `meta.recovered_at` was set to it.
    pub(crate) fenced_at: i64,
    /// The largest rise of a counter.
    pub(crate) highest_rise: i64,
    /// The replica that made it. Empty if `odometer recover` made it.
    pub(crate) made_by: Arc<str>,
    /// The only sequence that it raised. `None` if it raised all.
    pub(crate) sequence: Option<Arc<str>>,
}

impl StoredFence {
    fn of(row: &Model) -> Self {
        Self {
            fence: Fence {
                id: u128::from(row.branch.unsigned_abs()),
                since_us: row.since_us,
                until_us: row.until_us,
                n_levels: u32::try_from(row.n_levels).unwrap_or(u32::MAX),
                n_steps: u64::try_from(row.n_steps).unwrap_or(0),
                is_said: row.is_said,
            },
            previous_branch: row.previous_branch,
            fenced_at: row.fenced_at,
            highest_rise: row.highest_rise,
            made_by: row.made_by.as_str().into(),
            sequence: row.sequence.as_deref().map(Arc::from),
        }
    }

    /// Returns the branch that the recovery began.
    pub(crate) fn branch(&self) -> i64 {
        i64::try_from(self.fence.id).unwrap_or(i64::MAX)
    }

    /// Returns what people are told of it.
    pub(crate) fn told(&self) -> LastRecovery {
        let since_ms = self.fence.since_us / 1000;
        LastRecovery {
            at_ms: self.fenced_at,
            lost_since_ms: (!self.fence.is_said).then_some(since_ms),
            highest_rise: u64::try_from(self.highest_rise).unwrap_or(0),
            made_by: (!self.made_by.is_empty()).then(|| self.made_by.to_string()),
        }
    }

    fn log(&self, store: &str) {
        let (since_ms, until_ms) = (self.fence.since_us / 1000, self.fence.until_us / 1000);
        if self.fence.is_said {
            tracing::info!(
                target: TARGET,
                store,
                sequence = self.sequence.as_deref(),
                skipped = self.fence.n_steps,
                until_ms,
                highest_rise = self.highest_rise,
                "the store was recovered: an operator said what was lost"
            );
        } else {
            tracing::warn!(
                target: TARGET,
                store,
                since_ms,
                until_ms,
                highest_rise = self.highest_rise,
                made_by = &*self.made_by,
                "the database is a copy that may have lost commits: every sequence goes on above \
                 what can have been given"
            );
        }
    }

    /// Returns a number of steps that it raised no counter by more than.
    pub(crate) fn n_steps_at_most(&self) -> u64 {
        let highest_rise = u64::try_from(self.highest_rise).unwrap_or(0);
        highest_rise.max(self.fence.n_steps)
    }

    /// Returns whether it raised this sequence.
    fn concerns(&self, name: &str) -> bool {
        self.sequence.as_deref().is_none_or(|only| only == name)
    }

    fn row(&self, number: i32) -> Model {
        Model {
            number,
            branch: self.branch(),
            previous_branch: self.previous_branch,
            since_us: self.fence.since_us,
            until_us: self.fence.until_us,
            n_levels: i32::try_from(self.fence.n_levels).unwrap_or(i32::MAX),
            n_steps: i64::try_from(self.fence.n_steps).unwrap_or(i64::MAX),
            is_said: self.fence.is_said,
            fenced_at: self.fenced_at,
            highest_rise: self.highest_rise,
            made_by: self.made_by.to_string(),
            sequence: self.sequence.as_deref().map(str::to_owned),
        }
    }
}

/// The recoveries of a database, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recoveries {
    stored: Vec<StoredFence>,
    /// The highest number of a row.
    last_number: i32,
    /// How many steps were added to them.
    n_added: u64,
}

impl Recoveries {
    pub(crate) async fn read(database: &impl ConnectionTrait) -> Result<Self, DbErr> {
        Self::read_by(Entity::find(), database).await
    }

    /// Reads them in a transaction that has locked `meta`'s row. MySQL may show a state from before
    /// the lock unless the read itself takes a lock.
    pub(crate) async fn read_held(transaction: &DatabaseTransaction) -> Result<Self, DbErr> {
        let find = match transaction.get_database_backend() {
            DbBackend::MySql => Entity::find().lock_shared(),
            DbBackend::Postgres | DbBackend::Sqlite | _ => Entity::find(),
        };
        Self::read_by(find, transaction).await
    }

    async fn read_by(find: Select<Entity>, database: &impl ConnectionTrait) -> Result<Self, DbErr> {
        let rows = find.order_by_asc(Column::Number).all(database).await?;
        Ok(Self {
            stored: rows.iter().map(StoredFence::of).collect(),
            last_number: rows.last().map_or(0, |row| row.number),
            n_added: 0,
        })
    }

    /// Writes the recovery that follows these, and adds it.
    pub(crate) async fn insert(
        &mut self,
        transaction: &impl ConnectionTrait,
        next: StoredFence,
    ) -> Result<(), DbErr> {
        // A row may be missing, so the rows are not counted.
        self.last_number = self.last_number.saturating_add(1);
        let row = next.row(self.last_number);
        let row = row.into_active_model().reset_all();
        Entity::insert(row)
            .exec_without_returning(transaction)
            .await?;
        self.n_added = self.n_added.saturating_add(next.fence.n_steps);
        self.stored.push(next);
        Ok(())
    }

    /// Returns how many steps they skip that were [inserted](Self::insert).
    pub(crate) fn n_added(&self) -> u64 {
        self.n_added
    }

    /// Returns the recoveries that raised this sequence, or that raised all sequences.
    pub(crate) fn concerning(&self, name: Option<&str>) -> Self {
        let stored = self.stored.iter();
        let concerns = |it: &&StoredFence| match name {
            Some(name) => it.concerns(name),
            None => it.sequence.is_none(),
        };
        Self {
            stored: stored.filter(concerns).cloned().collect(),
            ..*self
        }
    }

    /// Returns the recoveries up to the branch `births_after`, which an operator has ended for new
    /// counters.
    pub(crate) fn ended(&self, births_after: Option<i64>) -> Self {
        let mut stored = self.stored.iter();
        // Without that row the word is of another database, and each recovery counts.
        let last = stored.rposition(|it| Some(it.branch()) == births_after);
        let n_ended = last.map_or(0, |at| at + 1);
        Self {
            stored: self.stored.iter().take(n_ended).cloned().collect(),
            ..*self
        }
    }

    pub(crate) fn stored(&self) -> &[StoredFence] {
        &self.stored
    }

    /// Returns the branch that the last recovery began.
    pub(crate) fn last_branch(&self) -> Option<i64> {
        self.stored.last().map(StoredFence::branch)
    }

    pub(crate) fn fences(&self) -> Vec<Fence> {
        self.stored.iter().map(|stored| stored.fence).collect()
    }

    /// Returns the `known` recoveries above which the counters of a database with these recoveries
    /// may not be.
    ///
    /// No other recovery is above that of one sequence, but for what an operator says of all
    /// sequences.
    pub(crate) fn lacking(&self, known: &Self) -> Vec<StoredFence> {
        let (all, in_copy) = (
            known.concerning(None).fences(),
            self.concerning(None).fences(),
        );
        let missing: HashSet<u128> = missing(&all, &in_copy).map(|fence| fence.id).collect();
        let is_lacking = |it: &&StoredFence| match it.sequence {
            Some(_) => !self.has(it),
            None => missing.contains(&it.fence.id),
        };
        known.stored.iter().filter(is_lacking).cloned().collect()
    }

    fn has(&self, other: &StoredFence) -> bool {
        self.stored.iter().any(|it| it.fence.id == other.fence.id)
    }

    /// Returns how many steps they skipped beyond what was computed.
    pub(crate) fn n_steps(&self) -> u64 {
        let n_steps = self.stored.iter().map(|stored| stored.fence.n_steps);
        n_steps.fold(0, u64::saturating_add)
    }

    /// Returns what people are told of the last one that raised all sequences.
    pub(crate) fn last(&self) -> Option<LastRecovery> {
        let mut stored = self.stored.iter().rev();
        let stored = stored.find(|stored| stored.sequence.is_none())?;
        Some(stored.told())
    }

    /// Writes a line of the log for each recovery that is not `known`. Returns how many of them are
    /// fences.
    pub(crate) fn log_since(&self, known: &Self, store: &str) -> u64 {
        let mut n_fences = 0;
        for stored in self.stored.iter().filter(|it| !known.has(it)) {
            stored.log(store);
            n_fences += u64::from(!stored.fence.is_said);
        }
        n_fences
    }

    /// Returns the latest time of a recovery (Unix ms).
    pub(crate) fn last_at(&self) -> Option<i64> {
        self.stored.iter().map(|stored| stored.fenced_at).max()
    }

    /// Returns the latest time of a recovery of which nobody said what was lost (Unix ms).
    pub(crate) fn last_computed_at(&self) -> Option<i64> {
        let computed = self.stored.iter().filter(|stored| !stored.fence.is_said);
        computed.map(|stored| stored.fenced_at).max()
    }

    /// Returns up to when they skip all numbers (Unix µs).
    pub(crate) fn last_until_us(&self) -> Option<i64> {
        let until_us = self.stored.iter().map(|stored| stored.fence.until_us);
        until_us.max()
    }

    /// Returns the latest time of a recovery of this sequence alone (Unix ms).
    pub(crate) fn last_at_of(&self, name: &SequenceName) -> Option<i64> {
        let of_one = self.stored.iter().filter(|it| it.sequence.is_some());
        let of_it = of_one.filter(|it| it.concerns(name.as_str()));
        of_it.map(|stored| stored.fenced_at).max()
    }

    /// Returns whether no operator has said what was lost at the last recovery. For a sequence, ask
    /// the recoveries [concerning](Self::concerning) it.
    pub(crate) fn is_unsettled(&self) -> bool {
        is_unsettled(&self.fences())
    }

    /// Returns whether they were read when the database was on `branch`: each recovery begins one.
    pub(crate) fn lead_to(&self, branch: Option<i64>) -> bool {
        let last = self.last_branch();
        last.is_none() || last == branch
    }

    /// Returns whether a database with these recoveries followed from one that was on `branch`, and
    /// had the recoveries `known`: nothing is missing but what they skipped.
    ///
    /// If not, the database lost a recovery that the replica knows, or it is another one.
    pub(crate) fn follow(&self, branch: Option<i64>, known: &Self) -> bool {
        let is_named = |stored: &StoredFence| {
            Some(stored.branch()) == branch || Some(stored.previous_branch) == branch
        };
        if branch.is_none() || self.stored.iter().any(is_named) || self.were_said_since(known) {
            return true;
        }
        // Another replica may have fenced an older copy than the one that this replica knows.
        known.last().is_some() && self.lacking(known).is_empty()
    }

    /// Returns whether a database on `branch` with these recoveries was once the one that a replica
    /// knows. A replica that knows no branch knows nothing else.
    pub(crate) fn share_a_branch(
        &self,
        branch: Option<i64>,
        (known, known_branch): (&Self, Option<i64>),
    ) -> bool {
        let named = |recoveries: &Self, branch: Option<i64>| {
            let stored = recoveries.stored.iter();
            let named = stored.flat_map(|it| [it.branch(), it.previous_branch]);
            let named = named.filter(|branch| *branch != UNSTAMPED);
            named.chain(branch).collect::<HashSet<i64>>()
        };
        let theirs = named(known, known_branch);
        known_branch.is_none() || !theirs.is_disjoint(&named(self, branch))
    }

    /// Returns whether an operator has said how much was lost of all sequences, after all that is
    /// `known`. A word that nothing was lost is none about what a replica misses.
    pub(crate) fn were_said_since(&self, known: &Self) -> bool {
        let is_later = |of: &Fence| {
            let mut known = known.stored.iter();
            known.all(|stored| stored.fence.until_us <= of.until_us)
        };
        let mut said = self.stored.iter().filter(|it| it.sequence.is_none());
        said.any(|it| {
            let is_amount = it.fence.is_said && it.fence.n_steps > 0;
            is_amount && !known.has(it) && is_later(&it.fence)
        })
    }

    /// Returns whether one of them raised all sequences, and is not `known`.
    pub(crate) fn raised_all_since(&self, known: &Self) -> bool {
        let mut of_all = self.stored.iter().filter(|it| it.sequence.is_none());
        of_all.any(|it| !known.has(it))
    }

    /// Returns which numbers that were reserved on `branch` are still issued: every recovery since
    /// skipped what it computed for the copy itself, so nobody else can have them.
    ///
    /// After any other recovery nobody knows. If counters were raised by levels, numbers may also
    /// have been reserved above a fence that did not know of another one.
    ///
    /// If an operator said what one sequence has lost, the others keep their numbers. Those of the
    /// sequence itself may have been given in commits that were lost, and go, as after a word about
    /// all sequences. So N need not count them, and a wrong N repeats none of them.
    pub(crate) fn keep_numbers_of(&self, branch: Option<i64>) -> KeptNumbers {
        let mut at = self.last_branch();
        let mut of_others = Vec::new();
        for stored in self.stored.iter().rev() {
            let fence = &stored.fence;
            if at == branch {
                return KeptNumbers::AllBut(of_others);
            }
            match &stored.sequence {
                _ if at != Some(stored.branch()) => return KeptNumbers::None,
                Some(name) => of_others.push(Arc::clone(name)),
                None if fence.is_said || fence.n_levels > 0 => return KeptNumbers::None,
                None => {}
            }
            at = Some(stored.previous_branch);
        }
        match at == branch && branch.is_some() {
            true => KeptNumbers::AllBut(of_others),
            false => KeptNumbers::None,
        }
    }
}

/// Returns whether no operator has said what was lost at the last of these recoveries.
pub(crate) fn is_unsettled(fences: &[Fence]) -> bool {
    fences.last().is_some_and(|last| !last.is_said)
}

#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn computed(branch: u32, previous_branch: i64) -> StoredFence {
        let fence = Fence {
            id: branch.into(),
            since_us: 0,
            until_us: branch.into(),
            n_levels: 0,
            n_steps: 0,
            is_said: false,
        };
        StoredFence {
            fence,
            previous_branch,
            fenced_at: branch.into(),
            highest_rise: 1,
            made_by: "replica".into(),
            sequence: None,
        }
    }

    fn said(branch: u32, previous_branch: i64) -> StoredFence {
        let mut stored = computed(branch, previous_branch);
        (stored.fence.is_said, stored.fence.n_steps) = (true, 10);
        stored
    }

    fn of_one(branch: u32, previous_branch: i64) -> StoredFence {
        let mut stored = said(branch, previous_branch);
        stored.sequence = Some("few".into());
        stored
    }

    pub(crate) fn recoveries<const N: usize>(stored: [StoredFence; N]) -> Recoveries {
        Recoveries {
            stored: stored.to_vec(),
            ..Recoveries::default()
        }
    }

    fn name(text: &str) -> SequenceName {
        SequenceName::parse(text).unwrap()
    }

    /// Whether the numbers of an ordinary sequence are kept, and those of the one that was recovered.
    fn kept(recoveries: &Recoveries, branch: Option<i64>) -> (bool, bool) {
        let kept = recoveries.keep_numbers_of(branch);
        (kept.are_of(&name("orders")), kept.are_of(&name("few")))
    }

    #[test]
    fn numbers_are_kept_over_fences_and_over_nothing_else() {
        let (all, none) = ((true, true), (false, false));
        let fences = recoveries([computed(10, 5), computed(20, 10), computed(40, 30)]);
        let first = recoveries([computed(10, 5), computed(20, 10)]);
        assert_eq!(kept(&fences, Some(30)), all);
        assert_eq!(kept(&first, Some(5)), all);
        assert_eq!(kept(&first, Some(10)), all);
        assert_eq!(kept(&first, Some(20)), all);
        // A recovery to 30 is not there.
        assert_eq!(kept(&fences, Some(20)), none);
        assert_eq!(kept(&fences, Some(5)), none);
        assert_eq!(kept(&recoveries([]), Some(5)), none);
        assert_eq!(kept(&recoveries([]), None), none);
        assert_eq!(kept(&recoveries([said(10, 5)]), Some(5)), none);
        let mut above = computed(10, 5);
        above.fence.n_levels = 1;
        assert_eq!(kept(&recoveries([above]), Some(5)), none);
    }

    #[test]
    fn the_recovery_of_one_sequence_concerns_no_other() {
        let one = recoveries([computed(10, 5), of_one(20, 10)]);
        assert_eq!(kept(&one, Some(10)), (true, false));
        assert_eq!(kept(&one, Some(5)), (true, false));
        assert_eq!(kept(&one, Some(20)), (true, true));
        let fenced = recoveries([computed(10, 5), of_one(20, 10), computed(30, 20)]);
        assert_eq!(kept(&fenced, Some(10)), (true, false));
        let is_unsettled = |name| one.concerning(name).is_unsettled();
        assert!(is_unsettled(None) && is_unsettled(Some("orders")));
        assert!(!is_unsettled(Some("few")));
        assert!(fenced.concerning(Some("few")).is_unsettled());
        assert_eq!(one.concerning(Some("few")).n_steps(), 10);
        assert_eq!(one.concerning(Some("orders")).n_steps(), 0);
        assert_eq!(one.last().map(|last| last.at_ms), Some(10));
        assert_eq!(one.last_at_of(&name("few")), Some(20));
        assert_eq!(one.last_computed_at(), Some(10));
        assert_eq!(one.last_at_of(&name("orders")), None);
    }

    #[test]
    fn nothing_stands_in_for_the_recovery_of_one_sequence() {
        let known = recoveries([computed(10, 5), of_one(20, 10)]);
        let copy = recoveries([computed(10, 5)]);
        let fenced = recoveries([computed(10, 5), computed(30, 10)]);
        for copy in [&copy, &fenced] {
            assert_eq!(copy.lacking(&known), vec![of_one(20, 10)]);
        }
        // The copy names the branch, but what it lacks is known only by its row.
        assert!(!fenced.follow(Some(20), &known));
        let again = recoveries([computed(10, 5), of_one(20, 10), computed(40, 20)]);
        assert!(again.lacking(&known).is_empty() && again.follow(Some(20), &known));
        assert!(again.follow(Some(10), &copy));
        // A word about one sequence says nothing of the others.
        assert!(!recoveries([of_one(50, 49)]).were_said_since(&copy));
        assert!(!recoveries([of_one(50, 49)]).raised_all_since(&copy));
        assert!(again.raised_all_since(&copy));
        assert!(recoveries([said(50, 49)]).follow(Some(20), &known));
    }

    #[test]
    fn a_database_follows_from_what_it_names_or_is_above() {
        let none = recoveries([]);
        let fenced = recoveries([computed(10, 5), computed(20, 10)]);
        assert!(fenced.follow(Some(5), &none));
        assert!(fenced.follow(Some(10), &recoveries([computed(10, 5)])));
        assert!(!fenced.follow(Some(6), &none));
        // The copy lacks the fence 11, and none of its own is above it.
        assert!(!fenced.follow(Some(30), &recoveries([computed(30, 5)])));
        // Another replica has fenced an older copy of the same branch since.
        assert!(fenced.follow(Some(15), &recoveries([computed(15, 5)])));
        // That of the earlier one is not above what was given after the later one.
        let earlier = recoveries([computed(10, 5)]);
        assert!(!earlier.follow(Some(15), &recoveries([computed(15, 5)])));
    }

    #[test]
    fn copies_of_one_database_share_a_branch() {
        let (none, fenced) = (recoveries([]), recoveries([computed(10, 5)]));
        assert!(none.share_a_branch(Some(5), (&fenced, Some(10))));
        assert!(recoveries([computed(11, 5)]).share_a_branch(Some(11), (&fenced, Some(10))));
        assert!(none.share_a_branch(Some(6), (&none, None)));
        assert!(!none.share_a_branch(Some(6), (&fenced, Some(10))));
        let unstamped = recoveries([said(12, UNSTAMPED)]);
        assert!(
            !unstamped.share_a_branch(Some(12), (&recoveries([said(13, UNSTAMPED)]), Some(13)))
        );
    }

    #[test]
    fn what_an_operator_said_ends_all_that_was_known_before() {
        let fenced = recoveries([said(20, 5), computed(30, 20)]);
        assert!(fenced.follow(Some(6), &recoveries([])));
        assert!(fenced.follow(Some(15), &recoveries([said(15, 6)])));
        assert!(!fenced.follow(Some(25), &recoveries([said(25, 6)])));
        assert!(fenced.were_said_since(&recoveries([])));
        assert!(!fenced.were_said_since(&recoveries([said(20, 5)])));
    }

    #[test]
    fn the_last_recovery_tells_whether_names_wait() {
        assert!(!recoveries([]).is_unsettled());
        assert!(recoveries([said(10, 5), computed(20, 10)]).is_unsettled());
        assert!(!recoveries([computed(10, 5), said(20, 10)]).is_unsettled());
    }

    #[test]
    fn a_word_about_new_counters_ends_the_recoveries_before_it() {
        let all = recoveries([computed(10, 5), of_one(20, 10), computed(30, 20)]);
        let births = |name, after| {
            let births = all.for_births(name, after);
            births.iter().map(|fence| fence.id).collect::<Vec<u128>>()
        };
        assert_eq!(births("orders", None), [10, 30]);
        assert_eq!(births("few", None), [10, 20, 30]);
        assert_eq!(births("orders", Some(20)), [30]);
        assert_eq!(births("few", Some(20)), [30]);
        assert_eq!(births("few", Some(30)), [0_u128; 0]);
        // The row is gone.
        assert_eq!(births("orders", Some(40)), [10, 30]);
        // What an operator says later is of all that a counter can have given.
        assert_eq!(births("orders", Some(10)), [30]);
        assert_eq!(births("few", Some(10)), [10, 20, 30]);
    }

    #[test]
    fn a_row_says_what_the_fence_says() {
        for stored in [computed(7, 3), said(8, 0), of_one(9, 0)] {
            assert_eq!(StoredFence::of(&stored.row(0)), stored);
            assert_eq!(stored.row(4).number, 4);
        }
    }
}
