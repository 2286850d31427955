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
use odometer_core::name::SequenceName;
use odometer_process::clock::now_ms;

use super::lease::{
    LeaseError, LeaseGrant, LeaseRow, LeaseWanted, Share, WorkerChoice, WorkerPool, workers,
};
use crate::{database::Database, store::Store, striped::walk::Walk};

impl Database {
    /// Returns whether the database is the one that has a worker id.
    pub(crate) fn has_worker(&self, worker: u32) -> bool {
        Share::of(self.identity.stripe).has(worker)
    }
}

impl Store {
    /// Returns the database that has a worker id.
    pub(crate) fn database_of(&self, worker: u32) -> Result<&Arc<Database>, LeaseError> {
        let is_its = |database: &&Arc<Database>| database.has_worker(worker);
        self.databases().find(is_its).ok_or(LeaseError::Unavailable)
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

    /// Returns how many ids are held in each pool of other programs whose name begins with `prefix`,
    /// once for each database. Databases that are away lease nothing, and are left out.
    pub(crate) async fn held_ids(
        &self,
        prefix: &str,
    ) -> Result<Vec<(SequenceName, u64)>, LeaseError> {
        let asked = self.databases().filter(|it| it.is_up());
        let counting = asked.map(|it| it.held_ids(prefix));
        Ok(try_join_all(counting).await?.concat())
    }

    /// Leases an id of one of the databases.
    pub(crate) async fn lease(
        &self,
        wanted: LeaseWanted,
        until: Instant,
    ) -> Result<LeaseGrant, LeaseError> {
        let only = match wanted.choice {
            WorkerChoice::Exact(worker) => Some(self.database_of(worker)?),
            WorkerChoice::Any => self.only(),
        };
        if let Some(only) = only {
            return only.lease(wanted, until).await;
        }
        let order = self.order_of_leases(&wanted, until).await;
        if wanted.usable_by_ms.is_none() {
            // An id that can be used at once in one member is better than an id that must rest in
            // another.
            let usable_by_ms = Some(now_ms());
            let now = LeaseWanted {
                usable_by_ms,
                ..wanted.clone()
            };
            let leased = self.go_round(&now, &order, until).await;
            if !matches!(leased, Err(LeaseError::NoneUsable { .. })) {
                return leased;
            }
        }
        self.go_round(&wanted, &order, until).await
    }

    /// Asks one member after the other, until one of them leases an id.
    async fn go_round(
        &self,
        wanted: &LeaseWanted,
        order: &[usize],
        until: Instant,
    ) -> Result<LeaseGrant, LeaseError> {
        let mut walk = Walk::new(self, order.to_vec(), until);
        while let Some((k, member)) = walk.next()? {
            let part = self.part_of(k, until);
            let answer = member.database.lease(wanted.clone(), part).await;
            if let Some(lease) = walk.note(member, answer)? {
                return Ok(lease);
            }
        }
        let workers = workers(wanted.bits);
        Err(walk.reason(LeaseError::NoneFree { workers }))
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
