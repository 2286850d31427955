//! Defines what a change is asked for, and what it keeps to in one database.

use std::{sync::Arc, time::Instant};

use odometer_core::{
    definition::{Definition, DefinitionChange, Stripe},
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};

use crate::{
    database::Database, error::StoreError, guard::HeartbeatGuard, outcome::Condition,
    rows::counter::SeenCounter,
};

/// An act on one sequence, and the conditions for it.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    pub name: SequenceName,
    pub act: Act,
    pub condition: Condition,
    /// The counter of the act's period as this process last saw it. The counter never falls below
    /// this. A store of several databases ignores it, and uses what was seen in each of them.
    pub last_seen: Option<SeenCounter>,
    /// How many sequences count as created already, besides those that exist. A dry run of several
    /// changes needs this, because it creates none of them.
    pub n_created: u64,
}

impl ChangeRequest {
    /// Returns the counter that the act is about.
    pub(crate) fn key(&self) -> CounterKey {
        CounterKey {
            sequence: self.name.clone(),
            period: self.act.period(),
        }
    }

    /// Returns whether the sequence is created if it does not exist.
    pub(crate) fn may_create(&self) -> bool {
        matches!(self.act, Act::Define { .. }) && !matches!(self.condition, Condition::Version(_))
    }
}

/// What a change keeps to in one database.
#[derive(Clone, Debug)]
pub(crate) struct ChangeScope {
    /// The name of the store.
    pub(crate) store: Arc<str>,
    pub(crate) stripe: Stripe,
    /// The guard that the database has not gone back. A dry run does not need it.
    pub(crate) guard: HeartbeatGuard,
    /// The counter of the act's period as this process last saw it in this database.
    pub(crate) last_seen: Option<SeenCounter>,
}

impl ChangeScope {
    /// Returns the scope of a change in a database. While it is looked why the stamp does not fit,
    /// waits, at most until `until`.
    ///
    /// # Errors
    /// As for [`Heartbeat::guard`](crate::heartbeat::Heartbeat::guard).
    pub(crate) async fn of(
        database: &Database,
        last_seen: Option<SeenCounter>,
        until: Instant,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            store: Arc::clone(&database.identity.label.store),
            stripe: database.stripe,
            guard: database.guard_by(until).await?,
            last_seen,
        })
    }

    /// Returns whether the database is the only one of its store.
    pub(crate) fn is_alone(&self) -> bool {
        self.stripe.n() == 1
    }
}

/// Returns whether a database has forgotten what this process has seen of a counter in it.
pub(crate) fn went_back(
    last_seen: Option<SeenCounter>,
    next_value: i64,
    version: Option<i64>,
) -> bool {
    let is_below = last_seen.is_some_and(|seen| {
        next_value < seen.next_value || version.is_some_and(|version| version < seen.version)
    });
    is_below && !faults::is(Fault::NoWentBackChecks)
}

/// What a change does to a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Gives the sequence a definition, and creates the sequence if it does not exist.
    Define {
        change: Box<DefinitionChange>,
        /// The values of a new sequence in the fields that the change leaves out.
        template: Arc<Definition>,
        /// Whether everything is only checked, and nothing is written.
        dry_run: bool,
    },
    /// Raises the floor: no number below `floor` is issued any more. If the sequence has periods,
    /// the floor is that of one period.
    Advance {
        period: Period,
        floor: i64,
        /// Whether more than 1 % of the numbers that are left may be skipped.
        confirm: bool,
    },
    /// Retires the sequence: nothing is issued any more.
    Retire,
    /// Lets a retired sequence go on, above everything that was ever reserved.
    Restore,
    /// Removes a key of the caller for ever: nothing is issued in this period any more.
    RemovePeriod { period: Period },
}

impl Act {
    /// Returns the period of the counter that the act is about. If it names no period, the act is
    /// about all counters.
    pub fn period(&self) -> Period {
        match self {
            Act::Advance { period, .. } | Act::RemovePeriod { period } => period.clone(),
            Act::Define { .. } | Act::Retire | Act::Restore => Period::none(),
        }
    }

    /// Returns the definition of the sequence that the act creates if it does not exist.
    ///
    /// # Errors
    /// `NotFound` if the act creates none, or `Definition`.
    pub(crate) fn new_definition(&self) -> Result<Definition, StoreError> {
        match self {
            Act::Define {
                change, template, ..
            } => Ok(change.create_at(template, now_ms())?),
            Act::Advance { .. } | Act::Retire | Act::Restore | Act::RemovePeriod { .. } => {
                Err(StoreError::NotFound)
            }
        }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        matches!(self, Act::Define { dry_run: true, .. })
    }
}
