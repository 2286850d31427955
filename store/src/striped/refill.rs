//! A reservation goes round the databases that are well until one of them gives the numbers.
//!
//! One that fails costs no more than its part of the deadline, and is then passed over. What a
//! caller waits for is only refused when every database has refused it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use odometer_process::faults::{self, Fault};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};

use super::{memory::CounterView, store::Striped};
use crate::{
    ReserveRequest, Reserved, Resolved, SeenCounter, Unpublished,
    error::StoreError,
    reservation::stripe_constraints::{Agreed, StripeConstraints},
};

/// This part of the time that is left is the most that a database may take while there are others.
const PART: u32 = 5;
/// The least that it gets, so that a deadline that is near is no reason to pass databases over.
const MIN: Duration = Duration::from_millis(100);
/// Turns in one database that is behind the others.
const TURNS: usize = 4;

/// What the databases have refused.
#[derive(Default)]
struct Refusals {
    /// Numbers left in those that have too few.
    left: u64,
    is_exhausted: bool,
    /// The largest range that one of them would give.
    limit: Option<u64>,
    went_back: bool,
    is_away: bool,
    is_late: bool,
    /// What is so in one database, and need not be in another.
    here: Option<StoreError>,
}

impl Refusals {
    /// Notes why a database gave nothing.
    ///
    /// # Errors
    /// The reason, where no other database would say something else.
    fn note(&mut self, error: StoreError) -> Result<(), StoreError> {
        if let StoreError::Exhausted { left } = error {
            self.left = self.left.saturating_add(left);
            self.is_exhausted = true;
        } else if let StoreError::TooLarge { limit } = error {
            self.limit = self.limit.max(Some(limit));
        } else if matches!(error, StoreError::Unavailable) {
            self.is_away = true;
        } else if matches!(error, StoreError::Deadline | StoreError::Behind) {
            self.is_late = true;
        } else if matches!(error, StoreError::WentBack) {
            self.went_back = true;
        } else if matches!(
            error,
            StoreError::Broken(_) | StoreError::TooManyPeriods { .. }
        ) {
            self.here.get_or_insert(error);
        } else {
            return Err(error);
        }
        Ok(())
    }

    /// Why there are no numbers. A database that is away may have some.
    fn reason(self) -> StoreError {
        if self.went_back {
            StoreError::WentBack
        } else if self.is_late {
            StoreError::Deadline
        } else if self.is_away {
            StoreError::Unavailable
        } else if let Some(error) = self.here {
            error
        } else if let Some(limit) = self.limit {
            StoreError::TooLarge { limit }
        } else if self.is_exhausted {
            StoreError::Exhausted { left: self.left }
        } else {
            StoreError::Unavailable
        }
    }
}

impl Striped {
    /// Reserves in a task that nobody cancels.
    ///
    /// A block that arrives when the receiver is gone is abandoned, counted.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        let store = Arc::clone(self);
        let call = request.progress.call();
        let reserving = async move {
            let started = Instant::now();
            let outcome = store.refill(request).await.and_then(|reserved| {
                let member = store.member(usize::from(reserved.source.database))?;
                let (heartbeat, metrics) = (&member.database.heartbeat, &store.metrics);
                let block = Unpublished::new(reserved, Arc::clone(heartbeat), Arc::clone(metrics));
                Ok(block)
            });
            let seconds = started.elapsed().as_secs_f64();
            store.metrics.reservation_duration.record(seconds);
            // Dropped with a block in it, the outcome counts the block as abandoned.
            let _gone = answer.send(outcome);
        };
        self.handle().spawn(reserving.instrument(call));
        receiver
    }

    async fn refill(&self, request: ReserveRequest) -> Result<Reserved, StoreError> {
        let until = Instant::now() + self.bounds.deadline;
        let name = &request.key.sequence;
        let mut agreed = match (self.agreements.get(name), &request.known) {
            (Some(_), Some(known)) => {
                // A change may have been heard of since.
                let (definition, version) = (&known.definition, known.definition_version);
                self.agreements.learn(name, definition, version)
            }
            (Some(agreed), None) => agreed,
            (None, _) => self.agree(name, request.template.as_ref(), until).await?,
        };
        let is_first = request.known.is_none() || !self.memory.any_adopts(&request.key);
        if request.adopt_from.is_some() && is_first {
            // It was asked for anew: at the end of the sequence, or after an unload.
            self.memory.look_for_returned(&request.key);
        }
        let mut refused = Refusals::default();
        let first = self.memory.round_robin(&request.key);
        for k in self.order(first) {
            let now = Instant::now();
            if now >= until {
                return Err(StoreError::Deadline);
            }
            match self.refill_from(k, &request, &mut agreed, until).await {
                Ok(reserved) => {
                    self.member(k)?.succeed();
                    return Ok(reserved);
                }
                Err(error) => {
                    let is_ill = matches!(
                        error,
                        StoreError::Unavailable | StoreError::Deadline | StoreError::WentBack
                    );
                    refused.note(error)?;
                    if is_ill {
                        self.member(k)?.fail();
                    }
                }
            }
        }
        Err(refused.reason())
    }

    /// All databases in the order in which they are asked: those that are well, from `first` on,
    /// and as a last resort the others.
    pub(crate) fn order(&self, first: usize) -> Vec<usize> {
        let n = self.members.len();
        let round = (0..n).map(|at| first.wrapping_add(at) % n.max(1));
        let is_well = |k: &usize| self.members.get(*k).is_some_and(|member| member.is_well());
        let (mut well, ill): (Vec<usize>, Vec<usize>) = round.partition(is_well);
        well.extend(ill);
        well
    }

    /// One reservation of one database, which is brought level first where it is behind.
    async fn refill_from(
        &self,
        k: usize,
        request: &ReserveRequest,
        agreed: &mut Agreed,
        until: Instant,
    ) -> Result<Reserved, StoreError> {
        let member = self.member(k)?;
        let was_well = member.is_well();
        let _turn = member.database.turn_ahead(request).await;
        if was_well && !member.is_well() {
            // Others have found out meanwhile.
            return Err(StoreError::Unavailable);
        }
        let mut n_turns = 0;
        loop {
            n_turns += 1;
            let era = member.era();
            let view = self.memory.view(&request.key, k);
            let is_level = view.caught_up_in == Some((era, agreed.version));
            // Another database may be slow to say it: that is not this one's time.
            let level = self
                .catch_up_to(k, request, agreed, is_level, self.part_of(k, until))
                .await?;
            let constraints = StripeConstraints {
                agreed: Some(agreed.clone()),
                level,
                gives_way: self.has_others(k),
                until: Some(self.part_of(k, until)),
            };
            let asked = self.request_of(request, agreed, view);
            let error = match member.database.reserve_guided(asked, constraints).await {
                Ok(reserved) => return Ok(self.note(k, era, is_level, reserved)),
                Err(error) => error,
            };
            let may_be_mended = matches!(error, StoreError::Behind | StoreError::Retired);
            if !may_be_mended || n_turns >= TURNS {
                return Err(error);
            }
            *agreed = self.settle(k, &request.key.sequence, agreed, until).await?;
        }
    }

    /// Whether another database is well.
    fn has_others(&self, k: usize) -> bool {
        let mut others = self.members.iter().enumerate();
        others.any(|(other, member)| other != k && member.is_well())
    }

    /// How long one database may take: a part of what is left, or all of it where it is the last.
    pub(crate) fn part_of(&self, k: usize, until: Instant) -> Instant {
        if !self.has_others(k) {
            return until;
        }
        let now = Instant::now();
        let part = until.saturating_duration_since(now) / PART;
        (now + part.max(MIN)).min(until)
    }

    /// What is asked of one database: what is known is what is known of it.
    fn request_of(
        &self,
        request: &ReserveRequest,
        agreed: &Agreed,
        view: CounterView,
    ) -> ReserveRequest {
        let mut asked = request.clone();
        asked.template = None;
        asked.last_seen = view.seen;
        // Order is a trend here: only what a change forbids is not adopted.
        let floor = request.known.as_ref().map_or(i64::MIN, |known| known.floor);
        asked.adopt_from = request.adopt_from.filter(|_| view.adopts).map(|_| floor);
        if let Some(known) = &mut asked.known {
            let is_current = view.definition_version >= agreed.version;
            let trusts = known.trusted && view.trusted && is_current;
            *known = Resolved {
                definition: Arc::clone(&agreed.definition),
                definition_version: agreed.version,
                seen: view.seen.unwrap_or(SeenCounter {
                    next_value: 0,
                    version: 0,
                }),
                revision: view.revision,
                floor: known.floor,
                trusted: trusts,
            };
        }
        asked
    }

    /// At which number the block of a database begins at least: where the others are, after it was
    /// away and when it is first used; and never below the floor.
    ///
    /// # Errors
    /// `PeriodRemoved` where another one has removed it.
    async fn catch_up_to(
        &self,
        k: usize,
        request: &ReserveRequest,
        agreed: &Agreed,
        is_level: bool,
        until: Instant,
    ) -> Result<Option<i64>, StoreError> {
        let floor = request.known.as_ref().map(|known| known.floor);
        if is_level || faults::is(Fault::NoCatchUp) {
            return Ok(floor);
        }
        let key = &request.key;
        let remembered = self.reached_of(key, &agreed.definition, Some(k));
        let others = (0..self.members.len()).filter(|other| *other != k);
        let asking = others.map(|other| self.ask(other, key, until));
        let mut read = None;
        for found in join_all(asking).await.into_iter().flatten().flatten() {
            if !agreed.is_like(&found.definition) {
                continue;
            }
            if found.standing.has_removed(&key.period) {
                // The removal may have ended before it came to this one.
                return Err(StoreError::PeriodRemoved);
            }
            let stripe = self.member(found.k)?.database.identity.stripe;
            let reached = found.standing.counter().map(|counter| {
                let next_value = counter.seen.next_value;
                stripe
                    .reached(&found.definition, next_value)
                    .max(counter.floor)
            });
            read = read.max(reached);
        }
        Ok(floor.max(remembered).max(read))
    }

    /// The lowest number above all that this process knows to be reserved of a counter, in all
    /// databases but one.
    pub(crate) fn reached_of(
        &self,
        key: &CounterKey,
        definition: &Definition,
        but: Option<usize>,
    ) -> Option<i64> {
        let spots = self.memory.all(key);
        let others = spots.iter().zip(&self.members).enumerate();
        others
            .filter(|(k, _)| Some(*k) != but)
            .filter_map(|(_, (view, member))| {
                let stripe = member.database.identity.stripe;
                Some(stripe.reached(definition, view.seen?.next_value))
            })
            .max()
    }

    /// Notes what one database gave, and tells of it as all of them together stand.
    fn note(&self, k: usize, era: u64, was_level: bool, mut reserved: Reserved) -> Reserved {
        let known = &mut reserved.known;
        let (key, version) = (&reserved.key, known.definition_version);
        let (seen, revision, trusted) = (known.seen, known.revision, known.trusted);
        let (more, is_adopted) = (reserved.more_to_adopt, reserved.adopted);
        self.memory.change(key, k, |view| {
            *view = CounterView {
                seen: Some(seen),
                revision,
                definition_version: version,
                trusted,
                adopts: more,
                // What is adopted lies where it lies.
                caught_up_in: if is_adopted && !was_level {
                    view.caught_up_in
                } else {
                    Some((era, version))
                },
            };
        });
        let heartbeat = self.members.get(k).map(|member| &member.database.heartbeat);
        if heartbeat.is_some_and(|heartbeat| heartbeat.recovered_at() == reserved.recovered_at) {
            self.agreements
                .learn(&key.sequence, &known.definition, version);
        }
        known.seen = SeenCounter {
            next_value: self
                .reached_of(key, &known.definition, None)
                .unwrap_or(seen.next_value),
            // Each database has versions of its own.
            version: 0,
        };
        known.trusted = true;
        reserved.more_to_adopt = self.memory.any_adopts(key);
        reserved
    }

    /// Finds out what is decided of a name by now, and brings a database there that is not.
    ///
    /// # Errors
    /// `Retired`, or that the database did not take it.
    async fn settle(
        &self,
        k: usize,
        name: &SequenceName,
        agreed: &Agreed,
        until: Instant,
    ) -> Result<Agreed, StoreError> {
        let answers = self.ask_all(name, until).await;
        let known = self.agreements.get(name).unwrap_or_else(|| agreed.clone());
        let newest = answers
            .found
            .iter()
            .filter(|found| known.is_like(&found.definition))
            .max_by_key(|found| found.version());
        let Some(newest) = newest.filter(|newest| newest.version() >= known.version) else {
            // Those that have the change that was made last are away, and what else it made than
            // the definition is only known there.
            return Err(StoreError::Behind);
        };
        if !newest.is_live() {
            self.agreements.forget(name);
            return Err(StoreError::Retired);
        }
        self.repair_decided(k, name, newest, until).await?;
        let (definition, version) = (&newest.definition, newest.version());
        Ok(self.agreements.learn(name, definition, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_database_cannot_give_is_asked_of_the_others() {
        let mut refused = Refusals::default();
        let broken = StoreError::Broken("a row is gone".to_owned());
        assert!(refused.note(broken).is_ok());
        assert!(
            refused
                .note(StoreError::TooManyPeriods { limit: 1 })
                .is_ok()
        );
        assert!(matches!(refused.reason(), StoreError::Broken(_)));
        let mut refused = Refusals::default();
        assert!(refused.note(StoreError::PeriodRemoved).is_err());
    }
}
