//! Answers questions about a whole store: merges what all members that are well have.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use odometer_core::{
    name::SequenceName,
    period::{CounterKey, Period},
};

use super::{
    agreement::{MajorityAnswer, MemberEntry, verdict},
    health::Member,
};
use crate::{
    JournalBlock, NumberTrace, Page, SeenCounter, SequenceSummary,
    database::Database,
    error::{StoreError, any_answers},
    journal::recent,
    outcome::BLOCKS_SHOWN,
    reservation::stripe_constraints::counts_alike,
    rows::catalog::CatalogEntry,
    store::Store,
};

impl Store {
    /// Asks all members that are well, and needs at least one answer. If there is none, the error
    /// is that of the last member that failed. The only database is asked in any case: what it still
    /// has after it went back may be right.
    async fn each<T, F, Fut>(&self, ask: F) -> Result<Vec<T>, StoreError>
    where
        F: Fn(Arc<Database>) -> Fut,
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let is_asked = |member: &&Arc<Member>| self.only().is_some() || member.is_well();
        let asked = self.members.iter().filter(is_asked);
        let asking = asked.map(|member| ask(Arc::clone(&member.database)));
        any_answers(join_all(asking).await)
    }

    /// Returns at most `limit` counters that are in use. In each member, the counters that were
    /// used most recently come first.
    pub(crate) async fn recently_used(&self, limit: usize) -> Result<Vec<CounterKey>, StoreError> {
        let all = self
            .each(|database| async move { database.recently_used(limit).await })
            .await?;
        Ok(recent::in_turn(all, limit))
    }

    pub(crate) async fn names_like(
        &self,
        name: &SequenceName,
        time_limit: Duration,
    ) -> Vec<String> {
        let all = self
            .each(|database| async move { Ok(database.names_like(name, time_limit).await) })
            .await;
        // A suggestion is only a courtesy, so errors are ignored.
        let all: BTreeSet<String> = all.unwrap_or_default().into_iter().flatten().collect();
        all.into_iter().collect()
    }

    /// Returns a page of definitions: for each name the newest that a member has.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: u64,
    ) -> Result<Page, StoreError> {
        let pages = self
            .each(|database| async move { database.list(prefix, after, limit).await })
            .await?;
        Ok(Page::merged(pages, limit, |listed| listed.version))
    }

    /// Returns live sequences with the number of their keys: for each name the highest number that a
    /// member has.
    pub(crate) async fn count_keys(
        &self,
        prefix: &str,
        after: &str,
        limit: u64,
    ) -> Result<Vec<(SequenceName, u64)>, StoreError> {
        let counted = self
            .each(|database| async move { database.count_keys(prefix, after, limit).await })
            .await?;
        let mut highest = BTreeMap::new();
        for (name, n_keys) in counted.into_iter().flatten() {
            let of_name = highest.entry(name).or_insert(0);
            *of_name = n_keys.max(*of_name);
        }
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(highest.into_iter().take(shown).collect())
    }

    /// Returns what the members that are well have of a name and one of its counters.
    pub(crate) async fn look_up(
        &self,
        key: &CounterKey,
    ) -> Result<(SequenceSummary, Option<SeenCounter>), StoreError> {
        let (newest, alike) = self.look(key).await?;
        if is_removed(&alike, &key.period) {
            return Err(StoreError::PeriodRemoved);
        }
        let seen = match self.only() {
            Some(_) => newest.entry.counter().map(|counter| counter.seen),
            None => self.seen_in_all(key, &newest, &alike),
        };
        let listed = SequenceSummary {
            name: key.sequence.clone(),
            state: newest.entry.state.clone(),
            version: newest.version(),
            definition: Arc::clone(&newest.definition),
        };
        Ok((listed, seen))
    }

    /// Returns the counter as all members together have it: its high-water mark is the lowest
    /// number above all that any member has reserved. Returns `None` if no member has the counter.
    fn seen_in_all(
        &self,
        key: &CounterKey,
        newest: &MemberEntry,
        alike: &[MemberEntry],
    ) -> Option<SeenCounter> {
        let read = alike.iter().filter_map(|found| {
            let stripe = self.member(found.k).ok()?.database.identity.stripe;
            let next_value = found.entry.counter()?.seen.next_value;
            Some(stripe.reached(&newest.definition, next_value))
        });
        let read = read.max()?;
        let remembered = self.reached_of(key, &newest.definition, None);
        Some(SeenCounter {
            next_value: remembered.map_or(read, |remembered| read.max(remembered)),
            version: 0,
        })
    }

    /// Returns the counter's floor. Returns `None` if its period is removed.
    pub(crate) async fn floor_of(&self, key: &CounterKey) -> Result<Option<i64>, StoreError> {
        let entries = if let Some(only) = self.only() {
            // The floor holds even if a newer version wrote a definition that this one cannot read.
            vec![only.entry_of(key).await?]
        } else {
            let (_newest, alike) = self.look(key).await?;
            alike.into_iter().map(|found| found.entry).collect()
        };
        if entries.iter().any(|entry| entry.has_removed(&key.period)) {
            return Ok(None);
        }
        let floors = entries.iter().filter_map(CatalogEntry::counter);
        let highest = floors.map(|counter| counter.floor).max();
        Ok(Some(highest.unwrap_or(i64::MIN)))
    }

    /// Returns the newest entry of a name, and all entries of the same sequence.
    async fn look(&self, key: &CounterKey) -> Result<(MemberEntry, Vec<MemberEntry>), StoreError> {
        if let Some(only) = self.only() {
            let found = only.member_entry_of(key).await?;
            return Ok((found.clone(), vec![found]));
        }
        let until = self.deadline();
        let answers = self.ask_all_of(key, until).await;
        let known = self.memory.agreed(&key.sequence);
        let decided = match verdict(&answers, self.members.len()) {
            Ok(MajorityAnswer::Decided(found)) => Some(found),
            Ok(MajorityAnswer::Absent) => return Err(StoreError::NotFound),
            Ok(MajorityAnswer::Begun(_)) if known.is_none() => return Err(StoreError::NotFound),
            Ok(MajorityAnswer::Begun(_)) | Err(_) => None,
        };
        let grid = decided.map(|decided| decided.definition);
        let grid = grid.or(known.map(|known| known.definition));
        let is_of_it = |found: &&MemberEntry| {
            let grid = grid.as_ref();
            grid.is_some_and(|grid| counts_alike(grid, &found.definition))
        };
        let alike: Vec<MemberEntry> = answers.found.iter().filter(is_of_it).cloned().collect();
        let newest = alike.iter().max_by_key(|found| found.version()).cloned();
        match newest {
            Some(newest) if newest.is_claim() => {
                Err(StoreError::Elsewhere(Arc::clone(&newest.definition)))
            }
            Some(newest) => Ok((newest, alike)),
            None => Err(answers.undecided()),
        }
    }

    /// Returns rows of a sequence's journals. Periods that sort last come first, and within a
    /// period the highest blocks.
    pub(crate) async fn blocks(
        &self,
        name: &SequenceName,
    ) -> Result<Vec<JournalBlock>, StoreError> {
        let all = self
            .each(|database| async move { database.blocks(name).await })
            .await?;
        let mut rows: Vec<JournalBlock> = all.into_iter().flatten().collect();
        rows.sort_by(|one, other| {
            let place = |row: &JournalBlock| (row.period.as_str().to_owned(), row.first);
            place(other).cmp(&place(one))
        });
        rows.truncate(BLOCKS_SHOWN.into());
        Ok(rows)
    }

    /// Returns what is known of one number, from the member that has it.
    pub(crate) async fn trace(
        &self,
        key: &CounterKey,
        value: i64,
    ) -> Result<NumberTrace, StoreError> {
        if let Some(only) = self.only() {
            return only.trace(key, value).await;
        }
        let (newest, _alike) = self.look(&CounterKey::whole(key.sequence.clone())).await?;
        let stripe = self.member(0)?.database.identity.stripe;
        // No member has a number that is not on the grid. Then any member can say that it was not
        // reserved.
        let has_it = stripe.index_of(&newest.definition, value);
        let k = has_it.map_or(newest.k, usize::from);
        let mut trace = self.member(k)?.database.trace(key, value).await?;
        let seen = self.memory.view(key, k).seen;
        let went_back = seen.is_some_and(|seen| {
            trace.seen.version < seen.version || trace.seen.next_value < seen.next_value
        });
        if went_back {
            return Err(StoreError::WentBack);
        }
        // The caller compares `seen` with what it knows of all members together. This member alone
        // was compared above, so the value here always passes.
        trace.seen = SeenCounter {
            next_value: i64::MAX,
            version: 0,
        };
        Ok(trace)
    }
}

/// Says whether one of the members has removed a period.
fn is_removed(alike: &[MemberEntry], period: &Period) -> bool {
    alike.iter().any(|found| found.entry.has_removed(period))
}
