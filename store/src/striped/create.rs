//! Handles the first use of a name: asks the members what they have of it, and creates it in
//! members that lack it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::counter;
use futures_util::future::join_all;
use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};
use odometer_database::{
    failure::{Cause, StatementFailure},
    session::DatabaseConnection,
};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait},
};

use super::agreement::{Answers, MajorityAnswer, MemberEntry, is_steady, verdict};
use crate::creation::{Creation, NewName, NewRow};
use crate::error::StoreError;
use crate::guard::HeartbeatGuard;
use crate::reservation::{counter_read, stripe_constraints::Agreed};
use crate::rows::catalog::{self, CatalogEntry, NO_PERIOD};
use crate::store::Store;

/// The target of this file's log events.
const TARGET: &str = "odometer::store::striped::birth";

/// How long one member may take to say what it has of a name, or to create the name.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// The most rounds of one creation, if other replicas are in the way.
const ROUNDS: usize = 12;

impl Store {
    /// Returns the definition that was decided for a name. If there is none, this creates the name.
    ///
    /// # Errors
    /// `NotFound`, `Retired`, `Elsewhere`, `TooMany`, `Definition`, `Deadline`, `WentBack`, or
    /// `Unavailable` if too few members answer.
    pub(crate) async fn agree(
        &self,
        name: &SequenceName,
        template: Option<&Arc<Definition>>,
        until: Instant,
    ) -> Result<Agreed, StoreError> {
        for _round in 0..ROUNDS {
            let answers = self.ask_all(name, until).await;
            match verdict(&answers, self.members.len())? {
                MajorityAnswer::Decided(found) => {
                    if self.was_at_once(name, &answers, &found, until).await {
                        return self.live(name, &found);
                    }
                }
                MajorityAnswer::Absent => {
                    let template = template.ok_or(StoreError::NotFound)?;
                    self.admit_creation(template, &answers, until).await?;
                    if self
                        .create_in_members(name, template, &answers, until)
                        .await?
                    {
                        self.metrics.sequences_created.increment(1);
                        tracing::info!(target: TARGET, sequence = name.as_str(), "a sequence was created");
                        // A change may have come between two of the rows, so they are read
                        // together.
                        continue;
                    }
                }
                MajorityAnswer::Begun(found) => {
                    self.go_on(name, &found, &answers, until).await?;
                }
            }
            if let Some(agreed) = self.memory.agreed(name) {
                return Ok(agreed);
            }
            if Instant::now() >= until {
                break;
            }
            let pause = self
                .bounds
                .statement
                .backoff_min
                .mul_f64(rand::random::<f64>() * 4.0);
            tokio::time::sleep(pause).await;
        }
        Err(StoreError::Deadline)
    }

    /// Says whether more than half of the members held the found definition at one moment.
    async fn was_at_once(
        &self,
        name: &SequenceName,
        answers: &Answers,
        found: &MemberEntry,
        until: Instant,
    ) -> bool {
        let n = self.members.len();
        let is_known = faults::is(Fault::LooseCreation) || found.was_used();
        is_known || is_steady(answers, &self.ask_all(name, until).await, found, n)
    }

    /// Returns the decided definition, if numbers are issued of it.
    ///
    /// # Errors
    /// `Elsewhere` or `Retired`.
    pub(crate) fn live(
        &self,
        name: &SequenceName,
        found: &MemberEntry,
    ) -> Result<Agreed, StoreError> {
        if found.is_claim() {
            return Err(StoreError::Elsewhere(Arc::clone(&found.definition)));
        }
        if !found.is_live() {
            self.memory.forget(name);
            return Err(StoreError::Retired);
        }
        let agreed = self.memory.learn(name, &found.definition, found.version());
        Ok(agreed)
    }

    /// Asks all members that are well what they have of a name.
    pub(crate) async fn ask_all(&self, name: &SequenceName, until: Instant) -> Answers {
        self.ask_all_of(&CounterKey::whole(name.clone()), until)
            .await
    }

    /// Asks all members that are well what they have of a name and one of its counters.
    pub(crate) async fn ask_all_of(&self, key: &CounterKey, until: Instant) -> Answers {
        let asking = (0..self.members.len()).map(|k| self.ask(k, key, until));
        let mut answers = Answers::default();
        for (k, answer) in join_all(asking).await.into_iter().enumerate() {
            match answer {
                Ok(found) => {
                    answers.answered.push(k);
                    answers.found.extend(found);
                }
                Err(StoreError::WentBack) => answers.went_back = true,
                Err(_) => {}
            }
        }
        answers
    }

    /// Reads what one member has of a name and one of its counters. Returns `None` if the member
    /// has no such name.
    ///
    /// # Errors
    /// The member did not answer, or went back. The other members are asked.
    pub(crate) async fn ask(
        &self,
        k: usize,
        key: &CounterKey,
        until: Instant,
    ) -> Result<Option<MemberEntry>, StoreError> {
        let member = self.member(k)?;
        if !member.is_well() {
            // A member that went back says so.
            member.database.heartbeat.guard()?;
            return Err(StoreError::Unavailable);
        }
        let until = until.min(Instant::now() + LOOK);
        let (look, has_used_periods) = loop {
            let guard = member.database.guard_by(until).await?;
            let (key, guard_copy) = (key.clone(), guard.clone());
            let looking = member
                .database
                .connection
                .run(until, |database| look_whole(database, guard_copy, key));
            let looked = match looking.await {
                Ok(looked) => looked,
                Err(failure) => {
                    if !matches!(failure.cause(), Cause::Busy | Cause::Contention) {
                        member.fail();
                    }
                    return Err(StoreError::Unavailable);
                }
            };
            if member.database.counts(&guard, looked.0.guard, until)? {
                break looked;
            }
        };
        let Some(entry) = look.entry else {
            return Ok(None);
        };
        let definition = catalog::definition_in(&self.name, &entry.state, &entry.definition)?;
        Ok(Some(MemberEntry {
            k,
            definition,
            has_used_periods,
            entry,
        }))
    }

    /// Checks that one more sequence may be created.
    pub(crate) async fn admit_one_more(&self) -> Result<(), StoreError> {
        let database = self.any().ok_or(StoreError::Unavailable)?;
        database.admit_one_more(database.deadline()).await
    }

    /// Checks that a name may be created as its template says.
    async fn admit_creation(
        &self,
        template: &Definition,
        answers: &Answers,
        until: Instant,
    ) -> Result<(), StoreError> {
        let rules = self.change_rules();
        rules.admit(template)?;
        template.check_time(now_ms())?;
        let first = answers.answered.first().copied().unwrap_or_default();
        self.member(first)?.database.admit_one_more(until).await
    }

    /// Creates a name in the members that answered, in their order. Says whether more than half of
    /// the members have it from here.
    ///
    /// # Errors
    /// `WentBack` if too few members are left without those in which the name waits for an operator.
    async fn create_in_members(
        &self,
        name: &SequenceName,
        template: &Arc<Definition>,
        answers: &Answers,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let is_loose = faults::is(Fault::LooseCreation);
        let key = CounterKey::whole(name.clone());
        let mut n_created = 0;
        let mut waits = Ok(());
        for k in &answers.answered {
            let member = self.member(*k)?;
            let until = until.min(Instant::now() + LOOK);
            let Ok(guard) = member.database.guard_by(until).await else {
                continue;
            };
            let above = self.memory.view(&key, *k).seen;
            let above = above.map_or(0, |seen| seen.next_value);
            let new = NewName {
                name: name.clone(),
                definition: Arc::clone(template),
                row: NewRow::Sequence { above },
            };
            let creating = member.database.create_once(new, guard.clone(), until);
            match creating.await {
                Ok(Creation::Created(_)) => n_created += 1,
                Ok(Creation::Contradicted) => {
                    let _why = member.database.failed(&guard);
                }
                Ok(Creation::Waits) => waits = Err(member.database.heartbeat.name_waits(name)),
                Ok(Creation::TooLow | Creation::MissingCounter | Creation::Refused(_)) => {
                    return Err(StoreError::WentBack);
                }
                // Another process creates the name, perhaps with another definition. The next round
                // looks at what there is now.
                Ok(Creation::Exists) | Err(StatementFailure::NotCommitted(Cause::Contention)) => {
                    return Ok(false);
                }
                // A change may hold the rows that the creation needs.
                Err(failure) if matches!(failure.cause(), Cause::Silent | Cause::Interrupted) => {
                    member.fail_unless_it_answers().await;
                }
                Err(_) => member.fail(),
            }
            if is_loose && n_created > 0 {
                return Ok(true);
            }
        }
        let is_decided = n_created * 2 > self.members.len();
        if !is_decided {
            waits?;
        }
        Ok(is_decided)
    }

    /// Continues a creation that another process began. It repairs the members that answered and
    /// lack the name.
    ///
    /// # Errors
    /// `WentBack` if too few members are left without those in which the name waits for an operator.
    async fn go_on(
        &self,
        name: &SequenceName,
        found: &MemberEntry,
        answers: &Answers,
        until: Instant,
    ) -> Result<(), StoreError> {
        if found.is_claim() {
            // The next round looks at the outcome.
            let _seen_next = self.claim_in(name, &found.definition, answers).await;
            return Ok(());
        }
        let mut n_able = answers.answered.len();
        let mut waits = false;
        for k in &answers.answered {
            if answers.found.iter().any(|other| other.k == *k) {
                continue;
            }
            // The next round looks at the outcome.
            if let Err(StoreError::WentBack) = self.repair(*k, name, (found, false), until).await {
                n_able -= 1;
                waits = true;
            }
        }
        match waits && n_able * 2 <= self.members.len() {
            true => Err(StoreError::WentBack),
            false => Ok(()),
        }
    }
}

/// Reads a counter. If it is the counter without a period, this also says whether a number was ever
/// reserved of one of the sequence's periods.
async fn look_whole(
    database: DatabaseConnection,
    guard: HeartbeatGuard,
    key: CounterKey,
) -> Result<(counter_read::CounterRead, bool), DbErr> {
    let whole = key.period.is_none().then(|| key.sequence.clone());
    let look = counter_read::look(database.clone(), guard, key).await?;
    let head = look.entry.as_ref().and_then(CatalogEntry::counter);
    let is_unused = head.is_some_and(|head| head.seen.version <= head.revision);
    let (Some(name), true) = (whole, is_unused) else {
        return Ok((look, false));
    };
    let is_reserved_from =
        Expr::col(counter::Column::Version).gt(Expr::col(counter::Column::Revision));
    let used = counter::Entity::find()
        .filter(counter::Column::Sequence.eq(name.as_str()))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        .filter(is_reserved_from)
        .limit(1)
        .one(&database)
        .await?;
    Ok((look, used.is_some()))
}
