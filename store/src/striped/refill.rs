//! Reserves a block in a store of several databases: in the first member that gives it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use odometer_process::faults::{self, Fault};

use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};

use super::{memory::CounterView, walk::Walk};
use crate::{
    ReserveRequest, Reserved, Resolved, SeenCounter,
    error::StoreError,
    reservation::{
        attempts::Reservation,
        entry::ReservationGauge,
        stripe_constraints::{Agreed, StripeConstraints},
    },
    store::Store,
};

/// The most tries in one member that is behind the other members.
const MAX_TRIES: usize = 4;

/// From where a block begins.
struct Reached {
    /// No number below it is given.
    floor: Option<i64>,
    /// The lowest number above all that the other members have reserved. `None` if there is nothing
    /// to catch up with.
    level: Option<i64>,
}

impl Store {
    /// Reserves a block: goes round the members, until one of them gives it.
    ///
    /// # Errors
    /// Why none of them gave a block.
    pub(crate) async fn refill_of_members(
        &self,
        request: &ReserveRequest,
    ) -> Result<Reserved, StoreError> {
        let until = self.deadline();
        let name = &request.key.sequence;
        let mut agreed = match (self.memory.agreed(name), &request.known) {
            (Some(_), Some(known)) => {
                // This process may have heard of a change since.
                let (definition, version) = (&known.definition, known.definition_version);
                self.memory.learn(name, definition, version)
            }
            (Some(agreed), None) => agreed,
            (None, _) => self.agree(name, None, until).await?,
        };
        let is_first = request.is_first || !self.memory.any_adopts(&request.key);
        if request.adopt_from.is_some() && is_first {
            // The caller looks for returned blocks again: at the end of the sequence, or after an
            // unload.
            self.memory.look_for_returned(&request.key);
        }
        loop {
            let order = self.order(self.memory.round_robin(&request.key));
            let mut walk = Walk::new(self, order, until);
            while let Some((k, member)) = walk.next()? {
                let answer = self.refill_from(k, request, &mut agreed, until).await;
                if let Some(reserved) = walk.note(member, answer)? {
                    return Ok(reserved);
                }
            }
            let reason = walk.reason(StoreError::Unavailable);
            // Callers do not know that a member can be behind the others.
            if matches!(reason, StoreError::Behind) {
                return Err(StoreError::Deadline);
            }
            let StoreError::RateLimited { wait_ms, .. } = reason else {
                return Err(reason);
            };
            let again_at = Instant::now() + Duration::from_millis(wait_ms);
            if request.want.is_ahead() || again_at >= until {
                return Err(reason);
            }
            tokio::time::sleep_until(again_at.into()).await;
        }
    }

    /// Reserves a block in one member. If the member is behind, it catches up first.
    async fn refill_from(
        &self,
        k: usize,
        request: &ReserveRequest,
        agreed: &mut Agreed,
        until: Instant,
    ) -> Result<Reserved, StoreError> {
        let member = self.member(k)?;
        let was_well = member.is_well();
        let _turn = member.database.permit_for_prefetch(request).await;
        if was_well && !member.is_well() {
            // Other callers have found out meanwhile that the member fails.
            return Err(StoreError::Unavailable);
        }
        let mut n_turns = 0;
        loop {
            n_turns += 1;
            let n_outages = member.n_outages();
            let view = self.memory.view(&request.key, k);
            let is_caught_up = view.caught_up_in == Some((n_outages, agreed.version));
            // Another member may answer slowly. That time does not count for this member.
            let catching_up =
                self.catch_up_to(k, request, agreed, is_caught_up, self.part_of(k, until));
            let reached = catching_up.await?;
            let constraints = StripeConstraints {
                agreed: Some(agreed.clone()),
                floor: reached.floor,
                level: reached.level,
                fails_fast: self.has_others(k),
            };
            let part = self.part_of(k, until);
            let asked = self.request_of(request, agreed, view);
            let gauge = ReservationGauge::enter(&member.database);
            let reservation = Reservation::new(&member.database, asked);
            let outcome = reservation.constrained_by(constraints, part).run().await;
            drop(gauge);
            let error = match outcome {
                Ok(reserved) => {
                    let was_caught_up = (n_outages, is_caught_up);
                    return Ok(self.note(k, was_caught_up, &reached, reserved));
                }
                Err(error) => error,
            };
            let may_be_mended = matches!(error, StoreError::Behind | StoreError::Retired);
            if !may_be_mended || n_turns >= MAX_TRIES {
                return Err(error);
            }
            *agreed = self.settle(k, &request.key.sequence, agreed, until).await?;
        }
    }

    /// Builds the request to one member. It contains what is known of the counter in that member.
    fn request_of(
        &self,
        request: &ReserveRequest,
        agreed: &Agreed,
        view: CounterView,
    ) -> ReserveRequest {
        let mut asked = request.clone();
        asked.last_seen = view.seen;
        // Numbers ascend only as a trend here. So every block is adopted, except below the floor of
        // a change.
        let floor = request.known.as_ref().map_or(i64::MIN, |known| known.floor);
        asked.adopt_from = request.adopt_from.filter(|_| view.adopts).map(|_| floor);
        if let Some(known) = &mut asked.known {
            let is_current = view.definition_version >= agreed.version;
            let trusts = known.trusted && view.trusted && is_current;
            *known = Resolved {
                definition: Arc::clone(&agreed.definition),
                definition_version: agreed.version,
                seen: view.seen.unwrap_or_default(),
                revision: view.revision,
                floor: known.floor,
                trusted: trusts,
            };
        }
        asked
    }

    /// Returns from where the block of a member begins. After the member was away, and at its first
    /// use, this is not below what the other members have reserved.
    ///
    /// # Errors
    /// `PeriodRemoved` if another member has removed the period.
    async fn catch_up_to(
        &self,
        k: usize,
        request: &ReserveRequest,
        agreed: &Agreed,
        is_caught_up: bool,
        until: Instant,
    ) -> Result<Reached, StoreError> {
        let floor = request.known.as_ref().map(|known| known.floor);
        let mut reached = Reached { floor, level: None };
        if is_caught_up || faults::is(Fault::NoCatchUp) {
            return Ok(reached);
        }
        let key = &request.key;
        reached.level = self.reached_of(key, &agreed.definition, Some(k));
        let others = (0..self.members.len()).filter(|other| *other != k);
        let asking = others.map(|other| self.ask(other, key, until));
        for found in join_all(asking).await.into_iter().flatten().flatten() {
            if !agreed.is_like(&found.definition) {
                continue;
            }
            if found.entry.has_removed(&key.period) {
                // The removal may have stopped before it came to this member.
                return Err(StoreError::PeriodRemoved);
            }
            let stripe = self.member(found.k)?.database.identity.stripe;
            if let Some(counter) = found.entry.counter() {
                let next_value = counter.seen.next_value;
                let read = stripe.reached(&found.definition, next_value);
                reached.level = reached.level.max(Some(read));
                reached.floor = reached.floor.max(Some(counter.floor));
            }
        }
        Ok(reached)
    }

    /// Returns the lowest number above all numbers of a counter that this process knows to be
    /// reserved. It leaves out one member, if `but` names one.
    pub(crate) fn reached_of(
        &self,
        key: &CounterKey,
        definition: &Definition,
        but: Option<usize>,
    ) -> Option<i64> {
        let members = self.memory.views(key);
        let others = members.iter().zip(&self.members).enumerate();
        others
            .filter(|(k, _)| Some(*k) != but)
            .filter_map(|(_, (view, member))| {
                let stripe = member.database.identity.stripe;
                Some(stripe.reached(definition, view.seen?.next_value))
            })
            .max()
    }

    /// Notes what one member gave, and returns the block with the state of all members together.
    fn note(
        &self,
        k: usize,
        (n_outages, was_caught_up): (u64, bool),
        reached: &Reached,
        mut reserved: Reserved,
    ) -> Reserved {
        // An adopted block may lie below the other members' numbers, so it does not show that the
        // member caught up.
        let is_caught_up =
            was_caught_up || (!reserved.adopted && self.has_caught_up(k, reached.level, &reserved));
        let known = &mut reserved.known;
        let (key, version) = (&reserved.key, known.definition_version);
        let (seen, revision, trusted) = (known.seen, known.revision, known.trusted);
        let more = reserved.more_to_adopt;
        self.memory.change(key, k, |view| {
            *view = CounterView {
                seen: Some(seen),
                revision,
                definition_version: version,
                trusted,
                adopts: more,
                caught_up_in: match is_caught_up {
                    true => Some((n_outages, version)),
                    false => view.caught_up_in,
                },
            };
        });
        let heartbeat = self.members.get(k).map(|member| &member.database.heartbeat);
        let recovered_at = heartbeat.map(|heartbeat| heartbeat.recovered_at(&key.sequence));
        if recovered_at == Some(reserved.recovered_at) {
            self.memory.learn(&key.sequence, &known.definition, version);
        }
        known.seen = SeenCounter {
            next_value: self
                .reached_of(key, &known.definition, None)
                .unwrap_or(seen.next_value),
            // Each member has versions of its own.
            version: 0,
        };
        known.trusted = true;
        reserved.more_to_adopt = self.memory.any_adopts(key);
        reserved
    }

    /// Says whether a block begins at the level of the other members. If not, the speed limit held
    /// the member back. A member that would be at its end by that has nothing to catch up with.
    fn has_caught_up(&self, k: usize, level: Option<i64>, reserved: &Reserved) -> bool {
        let Some(member) = self.members.get(k) else {
            return false;
        };
        let counted = member.database.stripe.view(&reserved.known.definition);
        let first = level.and_then(|level| counted.first_from(level));
        first.is_none_or(|first| first <= reserved.block.first() || counted.exhausted(first))
    }

    /// Finds out what is decided of a name by now, and repairs a member that lacks it.
    ///
    /// # Errors
    /// `Retired`, `Behind`, or that the member did not take it.
    async fn settle(
        &self,
        k: usize,
        name: &SequenceName,
        agreed: &Agreed,
        until: Instant,
    ) -> Result<Agreed, StoreError> {
        let answers = self.ask_all(name, until).await;
        let known = self.memory.agreed(name).unwrap_or_else(|| agreed.clone());
        let Some(newest) = answers.newest_like(&known) else {
            // The members that have the newest change are away. That change may be more than its
            // definition, and only they know the rest.
            return Err(StoreError::Behind);
        };
        if !newest.is_live() {
            self.memory.forget(name);
            return Err(StoreError::Retired);
        }
        self.repair(k, name, (newest, true), until).await?;
        // Only what the member has by now is remembered.
        let (definition, version) = (&newest.definition, newest.version());
        Ok(self.memory.learn(name, definition, version))
    }
}
