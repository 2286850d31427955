//! Compares the configuration of a replica with what its database has on record, for as long as the
//! replica serves. What counts for strict order waits for the first comparison.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_database::{connection::Contact, failure::StatementFailure};
use tokio::sync::watch;

use super::agreement::{Agreement, does_any_serve};
use crate::{database::Database, error::StoreError};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::redis::agreement";

/// The longest time between two looks while the replica does not agree with the record.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

impl Database {
    /// Checks that this replica uses the servers and the fallback that the database has on record.
    /// The record is read as soon as the database answers. Waits for that at most until `until`.
    ///
    /// # Errors
    /// `Unavailable` if the two differ, or if the database is away. `Deadline` if the record was not
    /// read in time.
    pub(crate) async fn agree(&self, until: Instant) -> Result<(), StoreError> {
        let (agreed, contact) = (self.agreed.subscribe(), self.connection.contact_changes());
        match first_comparison(agreed, contact, until).await {
            Some(true) => Ok(()),
            None if self.is_up() => Err(StoreError::Deadline),
            Some(false) | None => Err(StoreError::Unavailable),
        }
    }
}

/// Returns whether the record was as the configuration when they were last compared. Waits for the
/// first time at most until `until`, or until the database is away.
async fn first_comparison(
    mut agreed: watch::Receiver<Option<bool>>,
    mut contact: watch::Receiver<Contact>,
    until: Instant,
) -> Option<bool> {
    tokio::select! {
        biased;
        agrees = agreed.wait_for(Option::is_some) => agrees.ok().and_then(|agrees| *agrees),
        _away = contact.wait_for(|now| *now != Contact::Up) => None,
        () = tokio::time::sleep_until(until.into()) => None,
    }
}

impl Agreement {
    /// Compares the configuration with the record, as soon as the database answers and then again
    /// and again. If they differ before they agreed once, the program ends. If they differ later,
    /// nothing is counted for strict order.
    pub(crate) fn watch(self, database: &Arc<Database>) {
        let mut contact = database.connection.contact_changes();
        let tasks = database.tasks().clone();
        let database = Arc::downgrade(database);
        tasks.spawn(async move {
            let mut is_first = true;
            while contact.wait_for(|now| *now == Contact::Up).await.is_ok() {
                let Some(database) = database.upgrade() else {
                    return;
                };
                let mut pause = database.settings.definition_refresh / 2;
                match self.look(&database, is_first).await {
                    Ok(recorded) if self.agrees_with(&recorded) => {
                        is_first = false;
                        database.agreed.send_replace(Some(true));
                    }
                    Ok(recorded) => {
                        let problem = self.differs_from(&recorded, &database.identity);
                        if is_first && !recorded.is_changing() {
                            database.refuse(problem);
                            return;
                        }
                        if database.agreed.send_replace(Some(false)) == Some(true) {
                            tracing::error!(target: TARGET, "nothing is counted where order is strict: {problem}");
                        }
                        pause = pause.min(BETWEEN_LOOKS);
                    }
                    Err(_) => pause = pause.min(BETWEEN_LOOKS),
                }
                drop(database);
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Reads what is on record. At the first look, this also writes the configuration there if the
    /// database is a SQLite file. With `migrate`, it does so if nothing is on record and no other
    /// replica serves.
    async fn look(
        &self,
        database: &Arc<Database>,
        is_first: bool,
    ) -> Result<Self, StatementFailure> {
        let (wanted, holder) = (self.clone(), Arc::clone(&database.holder));
        let (is_file, migrates) = (database.is_file(), database.settings.migrate);
        let time_limit = database.settings.definition_refresh * 2;
        let until = Instant::now() + database.settings.deadline;
        let looking = database.connection.run(until, |connection| async move {
            let recorded = Self::read(&connection).await?;
            let is_alone = is_file
                || (migrates
                    && !recorded.names_servers()
                    && !does_any_serve(&connection, &holder, time_limit).await?);
            if recorded == wanted || !is_first || !is_alone {
                return Ok(recorded);
            }
            wanted.put(&connection).await?;
            Ok(wanted)
        });
        looking.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_waits_for_the_first_comparison() {
        let (agreed, contact) = (watch::Sender::new(None), watch::Sender::new(Contact::Up));
        let within = |time_limit| {
            let until = Instant::now() + time_limit;
            first_comparison(agreed.subscribe(), contact.subscribe(), until)
        };
        let (hour, moment) = (Duration::from_secs(3600), Duration::from_millis(1));
        assert_eq!(within(moment).await, None);
        for agrees in [true, false] {
            agreed.send_replace(None);
            let waiting = within(hour);
            let comparing = async { agreed.send_replace(Some(agrees)) };
            assert_eq!(tokio::join!(waiting, comparing).0, Some(agrees));
            assert_eq!(within(Duration::ZERO).await, Some(agrees));
        }
        agreed.send_replace(None);
        let waiting = within(hour);
        let leaving = async { contact.send_replace(Contact::Lost) };
        assert_eq!(tokio::join!(waiting, leaving).0, None);
    }
}
