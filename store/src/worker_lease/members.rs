//! Leases worker ids from the databases of one store. Each database has ids of its own, so it need
//! not know which ids the other databases give.
//!
//! If there are several databases, those that are well are asked one after the other, until one of
//! them has an id.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::future::{join_all, try_join_all};
use odometer_process::clock::now_ms;

use super::{
    grant::LeaseCall,
    lease::{
        LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, Share, WorkerChoice, WorkerPool,
        workers,
    },
};
use crate::{database::Database, store::Store};

/// What the members have refused.
#[derive(Default)]
struct LeaseRefusals {
    went_back: bool,
    is_late: bool,
    /// Whether a member may have leased an id, which it takes back by itself.
    is_uncertain: bool,
    is_away: bool,
    /// The earliest time at which one of the ids can be used, in milliseconds since 1970.
    from_ms: Option<i64>,
    /// A reason that holds in one member, and need not hold in another.
    here: Option<LeaseError>,
}

impl LeaseRefusals {
    fn note(&mut self, error: LeaseError) {
        match error {
            LeaseError::WentBack => self.went_back = true,
            LeaseError::Deadline => self.is_late = true,
            LeaseError::MayHaveHappened => self.is_uncertain = true,
            LeaseError::Unavailable => self.is_away = true,
            LeaseError::NoneUsable { from_ms } => {
                let earliest = self.from_ms.map_or(from_ms, |known| known.min(from_ms));
                self.from_ms = Some(earliest);
            }
            LeaseError::NoneFree { .. } => {}
            LeaseError::Held { .. }
            | LeaseError::Lost
            | LeaseError::OtherWidth { .. }
            | LeaseError::ClockAhead { .. }
            | LeaseError::TooManyPools { .. }
            | LeaseError::NotOfTheLease { .. }
            | LeaseError::OldSchema => {
                self.here.get_or_insert(error);
            }
        }
    }

    /// Returns why there is no id. A member that is away may have one.
    fn reason(self, bits: u32) -> LeaseError {
        if self.is_uncertain {
            LeaseError::MayHaveHappened
        } else if let Some(error) = self.here {
            error
        } else if let Some(from_ms) = self.from_ms {
            LeaseError::NoneUsable { from_ms }
        } else if self.went_back {
            LeaseError::WentBack
        } else if self.is_late {
            LeaseError::Deadline
        } else if self.is_away {
            LeaseError::Unavailable
        } else {
            let workers = workers(bits);
            LeaseError::NoneFree { workers }
        }
    }
}

impl Store {
    /// Begins a call for a lease, from the store at this place in the configuration.
    pub(crate) fn lease_call(&self, wanted: LeaseWanted, place: usize) -> LeaseCall {
        LeaseCall::new(wanted, place, Instant::now() + self.bounds.deadline)
    }

    /// Makes the first attempt, if one database has all ids. Returns `None` if other attempts have
    /// to follow.
    pub(crate) async fn lease_first(
        &self,
        asking: &mut LeaseCall,
    ) -> Result<Option<LeaseGrant>, LeaseError> {
        match self.only() {
            Some(only) => only.lease_first(asking).await,
            None => Ok(None),
        }
    }

    pub(crate) async fn lease(&self, asking: LeaseCall) -> Result<LeaseGrant, LeaseError> {
        let leased = match self.only() {
            Some(only) => only.lease(asking).await,
            None => self.lease_of_members(&asking.wanted, asking.store).await,
        };
        let is_taken = matches!(
            leased,
            Err(LeaseError::NoneFree { .. }
                | LeaseError::NoneUsable { .. }
                | LeaseError::Held { .. })
        );
        if is_taken {
            self.metrics.worker_leases_refused.increment(1);
        }
        leased
    }

    /// Returns the database that has a worker id.
    pub(crate) fn database_of(&self, worker: u32) -> Result<&Arc<Database>, LeaseError> {
        let is_its = |database: &&Arc<Database>| Share::of(database.identity.stripe).has(worker);
        self.databases().find(is_its).ok_or(LeaseError::Unavailable)
    }

    /// Takes a lease back in the background that nobody has. None of its time was used.
    pub(crate) fn take_back(&self, key: LeaseKey, from_ms: i64, ttl: Duration) {
        if let Ok(database) = self.database_of(key.worker) {
            database.take_back(key, from_ms, ttl);
        }
    }

    pub(crate) async fn lease_rows(
        &self,
        pool: &WorkerPool,
        after: Option<u32>,
        limit: u64,
    ) -> Result<Vec<LeaseRow>, LeaseError> {
        let reading = self.databases().map(|it| it.lease_rows(pool, after, limit));
        let mut rows = try_join_all(reading).await?.concat();
        rows.sort_by_key(|row| row.worker);
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(rows)
    }

    pub(crate) async fn lease_row(
        &self,
        pool: &WorkerPool,
        worker: u32,
    ) -> Result<Option<LeaseRow>, LeaseError> {
        self.database_of(worker)?.lease_row(pool, worker).await
    }

    async fn lease_of_members(
        &self,
        wanted: &LeaseWanted,
        store: usize,
    ) -> Result<LeaseGrant, LeaseError> {
        let until = Instant::now() + self.bounds.deadline;
        if let WorkerChoice::Exact(worker) = wanted.choice {
            return self
                .database_of(worker)?
                .lease(LeaseCall::new(wanted.clone(), store, until))
                .await;
        }
        // An id that can be used at once in one member is better than an id that must rest in
        // another.
        let mut now = wanted.clone();
        now.usable_by_ms = wanted.usable_by_ms.or_else(|| Some(now_ms()));
        let order = self.order_of_leases(wanted, until).await;
        match self.go_round(&now, &order, store, until).await {
            Err(LeaseError::NoneUsable { .. }) if wanted.usable_by_ms.is_none() => {
                self.go_round(wanted, &order, store, until).await
            }
            outcome => outcome,
        }
    }

    async fn go_round(
        &self,
        wanted: &LeaseWanted,
        order: &[usize],
        store: usize,
        until: Instant,
    ) -> Result<LeaseGrant, LeaseError> {
        let mut refused = LeaseRefusals::default();
        for k in order {
            if Instant::now() >= until {
                return Err(LeaseError::Deadline);
            }
            let Some(member) = self.members.get(*k) else {
                continue;
            };
            let part = self.part_of(*k, until);
            let asking = LeaseCall::new(wanted.clone(), store, part);
            match member.database.lease(asking).await {
                Ok(lease) => {
                    member.succeed();
                    return Ok(lease);
                }
                Err(error) => {
                    let is_ill = matches!(
                        error,
                        LeaseError::Unavailable
                            | LeaseError::Deadline
                            | LeaseError::MayHaveHappened
                            | LeaseError::WentBack
                    );
                    if is_ill {
                        member.fail();
                    }
                    refused.note(error);
                }
            }
        }
        Err(refused.reason(wanted.bits))
    }

    /// Returns the members that have ids of this width, in the order in which they are asked. A
    /// member with the former id of this holder comes first. Members that are well follow in
    /// rotation, and the other members are a last resort.
    async fn order_of_leases(&self, wanted: &LeaseWanted, until: Instant) -> Vec<usize> {
        let has_ids = |k: &usize| {
            let member = self.members.get(*k);
            member.is_some_and(|it| Share::of(it.database.identity.stripe).has_any(wanted.bits))
        };
        let mut order = self.order(self.lease_turn.fetch_add(1, Ordering::Relaxed));
        order.retain(has_ids);
        let asking = order.iter().map(async |k| {
            let member = self.members.get(*k).filter(|member| member.is_well())?;
            let time_limit = Instant::now() + Duration::from_millis(500);
            let until = self.part_of(*k, until).min(time_limit);
            let had = member.database.has_former(wanted, until).await;
            had.then_some(*k)
        });
        let former = join_all(asking).await.into_iter().flatten().next();
        if let Some(former) = former {
            order.retain(|k| *k != former);
            order.insert(0, former);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(errors: Vec<LeaseError>) -> LeaseError {
        let mut refused = LeaseRefusals::default();
        for error in errors {
            refused.note(error);
        }
        refused.reason(10)
    }

    #[test]
    fn what_one_database_lacks_another_may_have() {
        let none = || LeaseError::NoneFree { workers: 1024 };
        let late = |from_ms| LeaseError::NoneUsable { from_ms };
        assert!(matches!(
            reason(vec![none(), none()]),
            LeaseError::NoneFree { workers: 1024 }
        ));
        assert!(matches!(
            reason(vec![none(), LeaseError::Unavailable]),
            LeaseError::Unavailable
        ));
        let earliest = reason(vec![late(9), none(), late(7)]);
        assert!(matches!(earliest, LeaseError::NoneUsable { from_ms: 7 }));
        assert!(matches!(
            reason(vec![
                none(),
                LeaseError::MayHaveHappened,
                LeaseError::Unavailable
            ]),
            LeaseError::MayHaveHappened
        ));
        let ahead = LeaseError::ClockAhead { by_ms: 400_000 };
        assert!(matches!(
            reason(vec![none(), ahead]),
            LeaseError::ClockAhead { .. }
        ));
    }
}
