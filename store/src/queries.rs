//! Reads what one database has: single names, all names page by page, and rows of the journal.

use std::{
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_database::failure::StatementFailure;

use crate::{
    database::Database,
    error::StoreError,
    journal::recent,
    outcome::{BLOCKS_SHOWN, JournalBlock, Page, SequenceSummary},
    repeat::Repeat,
    rows::catalog::{self, CatalogEntry},
    striped::agreement::MemberEntry,
    suggestions,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reading";

impl Database {
    /// Returns names of live sequences that a caller of `name` may have meant, within bounded time.
    pub(crate) async fn names_like(
        &self,
        name: &SequenceName,
        time_limit: Duration,
    ) -> Vec<String> {
        let name = name.clone();
        let search = |database| async move { suggestions::search(&database, name.as_str()).await };
        let until = Instant::now() + time_limit;
        // A suggestion is a courtesy. If the database does not answer, there is none.
        self.connection.run(until, search).await.unwrap_or_default()
    }

    pub(crate) async fn recently_used(&self, limit: usize) -> Result<Vec<CounterKey>, StoreError> {
        let read = self.attempts(Repeat::Any, |database| recent::used(database, limit));
        read.await.map_err(|failure| listing_failed(&failure))
    }

    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: u64,
    ) -> Result<Page, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        let rows = self
            .attempts(Repeat::Any, |database| {
                catalog::list(
                    database,
                    prefix.clone(),
                    after.clone(),
                    limit.saturating_add(1),
                )
            })
            .await
            .map_err(|failure| listing_failed(&failure))?;
        let n_shown = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > n_shown;
        let store = &self.identity.label.store;
        let shown = rows.into_iter().take(n_shown).map(|row| listed(row, store));
        Ok(Page::of(shown.collect::<Result<_, _>>()?, limit, has_more))
    }

    /// Returns live sequences whose names begin with `prefix` and come after `after`, with the number
    /// of their keys, at most `limit` in the order of names.
    pub(crate) async fn count_keys(
        &self,
        prefix: &str,
        after: &str,
        limit: u64,
    ) -> Result<Vec<(SequenceName, u64)>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        let counting = self.attempts(Repeat::Any, |database| {
            catalog::count_keys(database, prefix.clone(), after.clone(), limit)
        });
        let rows = counting.await.map_err(|failure| listing_failed(&failure))?;
        let counts = rows.into_iter().map(|row| {
            let broken = |error| StoreError::Broken(format!("sequence `{}`: {error}", row.name));
            let name = SequenceName::parse(&row.name).map_err(broken)?;
            Ok((name, u64::try_from(row.n_keys).unwrap_or(0)))
        });
        counts.collect()
    }

    /// Reads the row of a name and the row of one of its counters, if the name is here. A period
    /// has no counter before its first use.
    pub(crate) async fn read_entry(
        &self,
        key: &CounterKey,
    ) -> Result<Option<CatalogEntry>, StoreError> {
        let reading = self.several_times(&key.sequence, |database| {
            let key = key.clone();
            async move { catalog::read(&database, &key).await }
        });
        reading.await
    }

    /// Does what [`Self::read_entry`] does, for a sequence that lives here.
    pub(crate) async fn entry_of(&self, key: &CounterKey) -> Result<CatalogEntry, StoreError> {
        let entry = self.read_entry(key).await?.ok_or(StoreError::NotFound)?;
        entry.check_here()?;
        Ok(entry)
    }

    /// Does what [`Self::entry_of`] does, and reads the definition.
    pub(crate) async fn member_entry_of(
        &self,
        key: &CounterKey,
    ) -> Result<MemberEntry, StoreError> {
        let entry = self.entry_of(key).await?;
        Ok(MemberEntry {
            k: usize::from(self.identity.source.database),
            definition: self.definition_of(&entry)?,
            entry,
            has_used_periods: false,
        })
    }

    /// Reads the definition of a sequence that lives in this database.
    pub(crate) fn definition_of(
        &self,
        entry: &CatalogEntry,
    ) -> Result<Arc<Definition>, StoreError> {
        let read = catalog::read_definition(&entry.definition, &self.identity.label.store);
        read.map(Arc::new)
    }

    pub(crate) async fn blocks(
        &self,
        name: &SequenceName,
    ) -> Result<Vec<JournalBlock>, StoreError> {
        let rows = self
            .several_times(name, |database| {
                catalog::blocks(database, name.clone(), BLOCKS_SHOWN.into())
            })
            .await?;
        Ok(rows.into_iter().map(journal_block).collect())
    }
}

pub(crate) fn journal_block(row: entity::block::Model) -> JournalBlock {
    JournalBlock {
        period: Period::from_stored(&row.period),
        first: row.first,
        last: row.last,
        step: row.step,
        holder: row.holder,
        reserved_at: UNIX_EPOCH
            + Duration::from_millis(u64::try_from(row.reserved_at).unwrap_or(0)),
        fate: row.fate,
        next_unissued: row.next_unissued,
    }
}

fn listing_failed(failure: &StatementFailure) -> StoreError {
    tracing::warn!(target: TARGET, error = failure.cause().text(), "a listing failed");
    StoreError::Unavailable
}

fn listed(row: entity::sequence::Model, store: &str) -> Result<SequenceSummary, StoreError> {
    let broken = |error: String| StoreError::Broken(format!("sequence `{}`: {error}", row.name));
    Ok(SequenceSummary {
        name: SequenceName::parse(&row.name).map_err(|error| broken(error.to_string()))?,
        definition: Arc::new(
            catalog::read_definition(&row.definition, store)
                .map_err(|error| broken(error.to_string()))?,
        ),
        state: row.state,
        version: row.version,
    })
}
