//! First use of a name: asks the databases what they have of it, and makes it where they have it not.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::counter;
use futures_util::future::join_all;
use odometer_core::{
    definition::{Definition, DefinitionError, Order, Stripe},
    name::SequenceName,
    period::CounterKey,
};
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

use super::{
    agreement::{Answers, MajorityAnswer, MemberEntry, is_steady, verdict},
    store::Striped,
};
use crate::creation;
use crate::creation::Creation;
use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::reservation::{attempt_error::AttemptError, counter_read, stripe_constraints::Agreed};
use crate::rows::catalog::{self, CatalogEntry, NO_PERIOD};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::striped::birth";

/// How long one database may take to say what it has of a name.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// Rounds of births that others were in the way of.
const ROUNDS: usize = 12;

impl Striped {
    /// What was decided of a name, which is born where it is not there.
    ///
    /// # Errors
    /// `NotFound`, `Retired`, `TooMany`, `Unavailable` where too few databases answer, `WentBack`.
    pub(crate) async fn agree(
        &self,
        name: &SequenceName,
        template: Option<&Arc<Definition>>,
        until: Instant,
    ) -> Result<Agreed, StoreError> {
        for _round in 0..ROUNDS {
            let answers = self.ask_all(name, until).await;
            match verdict(&answers, self.members.len()) {
                MajorityAnswer::Decided(found) => {
                    if self.was_at_once(name, &answers, &found, until).await {
                        return self.live(name, &found);
                    }
                }
                MajorityAnswer::Unknown if answers.went_back => return Err(StoreError::WentBack),
                MajorityAnswer::Unknown => return Err(StoreError::Unavailable),
                MajorityAnswer::Unborn => {
                    let template = template.ok_or(StoreError::NotFound)?;
                    self.admit_birth(template, &answers, until).await?;
                    if self.create(name, template, &answers, until).await? {
                        self.metrics.sequences_created.increment(1);
                        tracing::info!(target: TARGET, sequence = name.as_str(), "a sequence was created");
                        // A change may have come between two of the rows: they are read together.
                        continue;
                    }
                }
                MajorityAnswer::Begun(found) => self.go_on(name, &found, &answers, until).await,
            }
            if let Some(agreed) = self.agreements.get(name) {
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

    /// Whether what was found as decided was so in more than half of the databases at one moment.
    async fn was_at_once(
        &self,
        name: &SequenceName,
        answers: &Answers,
        found: &MemberEntry,
        until: Instant,
    ) -> bool {
        let n = self.members.len();
        let is_known = faults::is(Fault::LooseBirth) || found.was_used();
        is_known || is_steady(answers, &self.ask_all(name, until).await, found, n)
    }

    /// What was found as decided, where numbers are issued of it.
    pub(crate) fn live(
        &self,
        name: &SequenceName,
        found: &MemberEntry,
    ) -> Result<Agreed, StoreError> {
        if found.is_claim() {
            return Err(StoreError::Elsewhere(Arc::clone(&found.definition)));
        }
        if !found.is_live() {
            self.agreements.forget(name);
            return Err(StoreError::Retired);
        }
        let agreed = self
            .agreements
            .learn(name, &found.definition, found.version());
        Ok(agreed)
    }

    /// Asks all databases that are well what they have of a name.
    pub(crate) async fn ask_all(&self, name: &SequenceName, until: Instant) -> Answers {
        self.ask_all_of(&CounterKey::whole(name.clone()), until)
            .await
    }

    /// Asks all databases that are well what they have of a name and one of its counters.
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

    /// What one database has of a name and one of its counters; `None` where it has no such name.
    ///
    /// # Errors
    /// It did not answer, or went back; the others are asked.
    pub(crate) async fn ask(
        &self,
        k: usize,
        key: &CounterKey,
        until: Instant,
    ) -> Result<Option<MemberEntry>, StoreError> {
        let member = self.member(k)?;
        if !member.is_well() {
            let went_back = member.database.heartbeat.has_gone_back();
            return Err(if went_back {
                StoreError::WentBack
            } else {
                StoreError::Unavailable
            });
        }
        let guard = member.database.heartbeat.guard()?;
        let (key, borne_out) = (key.clone(), guard.clone());
        let until = until.min(Instant::now() + LOOK);
        let looking = member
            .database
            .connection
            .run(until, |database| look_whole(database, borne_out, key));
        let (look, has_used_periods) = match looking.await {
            Ok(looked) => looked,
            Err(failure) => {
                if !matches!(failure.cause(), Cause::Busy | Cause::Contention) {
                    member.fail();
                }
                return Err(StoreError::Unavailable);
            }
        };
        if !guard.is_satisfied_by(look.heartbeat) {
            member.database.heartbeat.contradicted(&guard);
            return Err(StoreError::WentBack);
        }
        let Some(standing) = look.standing else {
            return Ok(None);
        };
        let definition = catalog::definition_in(&self.name, &standing.state, &standing.definition)?;
        Ok(Some(MemberEntry {
            k,
            definition,
            has_used_periods,
            standing,
        }))
    }

    /// Whether a name may be born as its template says.
    async fn admit_birth(
        &self,
        template: &Definition,
        answers: &Answers,
        until: Instant,
    ) -> Result<(), StoreError> {
        self.admit(template).map_err(StoreError::Definition)?;
        template
            .check_time(now_ms())
            .map_err(StoreError::Definition)?;
        let first = answers.answered.first().copied().unwrap_or_default();
        let admitting = self.member(first)?.database.admit_one_more(until);
        admitting.await.map_err(AttemptError::untried)
    }

    /// What a definition must be like so that several databases can count by it.
    pub(crate) fn admit(&self, definition: &Definition) -> Result<(), DefinitionError> {
        let n_databases = self.members.len();
        if definition.order == Order::Strict {
            return Err(DefinitionError::Invalid {
                field: "order",
                reason: format!(
                    "cannot be \"strict\" in the store `{}`: {n_databases} databases give its \
                     numbers side by side",
                    self.name
                ),
            });
        }
        let last = self
            .members
            .last()
            .map(|member| member.database.identity.stripe);
        let highest = last.unwrap_or(Stripe::WHOLE).highest_max(definition.step);
        if definition.max > highest {
            return Err(DefinitionError::Invalid {
                field: "max",
                reason: format!(
                    "must be at most {highest} in the store `{}` (2^63 - 1 - {n_databases} steps), \
                     not {}",
                    self.name, definition.max
                ),
            });
        }
        Ok(())
    }

    /// Makes a name in the databases that answered, in their order; whether more than half have it
    /// from here.
    async fn create(
        &self,
        name: &SequenceName,
        template: &Arc<Definition>,
        answers: &Answers,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let is_loose = faults::is(Fault::LooseBirth);
        let key = CounterKey::whole(name.clone());
        let mut n_born = 0;
        for k in &answers.answered {
            let member = self.member(*k)?;
            let Ok(guard) = member.database.heartbeat.guard() else {
                continue;
            };
            let above = self.memory.view(&key, *k).seen;
            let above = above.map_or(0, |seen| seen.next_value);
            let (name, template) = (name.clone(), Arc::clone(template));
            let (stripe, borne_out) = (member.database.stripe, guard.clone());
            let until = until.min(Instant::now() + LOOK);
            let bearing = member.database.connection.run(until, |database| {
                creation::create(database, name, template, stripe, borne_out, above)
            });
            match bearing.await {
                Ok(Creation::Born) => n_born += 1,
                Ok(Creation::Contradicted) => member.database.heartbeat.contradicted(&guard),
                Ok(Creation::TooLow) => return Err(StoreError::WentBack),
                // Somebody else makes it, maybe in another way: what there is now is looked at.
                Err(StatementFailure::NotCommitted(Cause::Duplicate | Cause::Contention)) => {
                    return Ok(false);
                }
                // A change may hold what the birth stands on.
                Err(failure) if matches!(failure.cause(), Cause::Silent | Cause::Interrupted) => {
                    member.fail_unless_it_answers().await;
                }
                Err(_) => member.fail(),
            }
            if is_loose && n_born > 0 {
                return Ok(true);
            }
        }
        Ok(n_born * 2 > self.members.len())
    }

    /// Brings a name that somebody began to make to the databases that answered and have it not.
    async fn go_on(
        &self,
        name: &SequenceName,
        found: &MemberEntry,
        answers: &Answers,
        until: Instant,
    ) {
        if found.is_claim() {
            // What comes of it is looked at.
            let _seen_next = self.claim_in(name, &found.definition, answers).await;
            return;
        }
        for k in &answers.answered {
            if answers.found.iter().any(|other| other.k == *k) {
                continue;
            }
            // What comes of it is looked at.
            let _seen_next = self.repair_begun(*k, name, found, until).await;
        }
    }
}

/// What is there of a counter; where it is the one without period of a sequence, also whether a number
/// was ever reserved of one of its periods.
async fn look_whole(
    database: DatabaseConnection,
    guard: HeartbeatGuard,
    key: CounterKey,
) -> Result<(counter_read::CounterRead, bool), DbErr> {
    let whole = key.period.is_none().then(|| key.sequence.clone());
    let look = counter_read::look(database.clone(), guard, key).await?;
    let head = look.standing.as_ref().and_then(CatalogEntry::counter);
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
