//! Changes a sequence in all members of a store, or in none.
//!
//! A change opens one transaction in each member, in their order. So two changes never wait for
//! each other in a circle. The change then looks at what all transactions hold together. It writes
//! the same everywhere, under one version above all of theirs, and commits in the same order. If it
//! stops between two commits, the newest version counts. A replica that meets an older row writes
//! the newest version there. If the change is made again, it reaches all members.

use std::{sync::Arc, time::Instant};

use odometer_core::name::SequenceName;
use odometer_database::{
    failure::{Cause, StatementFailure},
    retry::{AttemptError, Retry},
};
use odometer_process::faults::{self, Fault};
use tokio::{sync::oneshot, task::JoinHandle};
use tracing::Instrument as _;

use super::health::Member;
use crate::{
    Altered,
    change::{
        decision::{Decision, decide},
        participant::{self, CommitSignals},
        prepared::Prepared,
        request::{ChangeRequest, ChangeScope},
    },
    error::{Attempted, StoreError},
    store::Store,
};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::striped::change";

/// The part of `store.timeout` for which a change may hold its rows.
const HOLD_PART: f64 = 0.8;

/// One member's part of a change that is under way.
struct Participant {
    member: Arc<Member>,
    task: JoinHandle<Result<bool, StatementFailure>>,
    decided: Option<oneshot::Sender<Arc<Decision>>>,
    written: oneshot::Receiver<()>,
    commit: oneshot::Sender<()>,
}

impl Store {
    /// Changes a sequence in all members of a store of several databases.
    ///
    /// # Errors
    /// `Incomplete` if a member is away. Otherwise the errors are those of one database.
    pub(crate) async fn alter_all(
        &self,
        change: Arc<ChangeRequest>,
    ) -> Result<Altered, StoreError> {
        let deadline = self.deadline();
        let mut retry = Retry::until(deadline, &self.bounds.statement);
        loop {
            // The changes of this process wait for each other: conflicts with other replicas are
            // enough. A dry run writes nothing, so it does not wait.
            let alone = if change.act.is_dry_run() {
                None
            } else {
                let waiting = tokio::time::timeout_at(deadline.into(), self.changing.lock());
                Some(waiting.await.map_err(|_late| StoreError::NotChanged)?)
            };
            let outcome = Box::pin(self.attempt(&change)).await;
            drop(alone);
            let judge = |_failure: &StatementFailure| Ok(());
            let altered = retry.after(outcome, judge, StoreError::NotChanged);
            if let Some(altered) = altered.await? {
                self.note_altered(&change.name, &altered);
                return Ok(altered);
            }
        }
    }

    fn note_altered(&self, name: &SequenceName, altered: &Altered) {
        if !altered.is_written {
            return;
        }
        let after = &altered.after;
        if after.is_live {
            let _newest = self.memory.learn(name, &after.definition, after.version);
        } else {
            self.memory.forget(name);
        }
    }

    async fn attempt(&self, change: &Arc<ChangeRequest>) -> Attempted<Altered> {
        let is_left_out =
            |member: &Member| !member.is_well() && faults::is(Fault::ChangeIncomplete);
        let is_away = |member: &&Arc<Member>| !member.is_well() && !is_left_out(member);
        if let Some(away) = self.members.iter().find(is_away) {
            return Err(missing(away).into());
        }
        let until = Instant::now() + self.bounds.statement.timeout.mul_f64(HOLD_PART);
        let mut participants = Vec::with_capacity(self.members.len());
        let mut parts = Vec::with_capacity(self.members.len());
        for (k, member) in self.members.iter().enumerate() {
            if is_left_out(member) {
                continue;
            }
            let scope = self.scope_in(k, change, until).await?;
            let guard = scope.guard.clone();
            let (participant, found) = open(member, Arc::clone(change), scope, until);
            match tokio::time::timeout_at(until.into(), found).await {
                Ok(Ok(Ok(part))) => {
                    participants.push(participant);
                    parts.push(part);
                }
                Ok(Ok(Err(StoreError::WentBack))) => {
                    return Err(member.database.name_went_back(&change.name).into());
                }
                Ok(Ok(Err(StoreError::Unguarded))) => return Err(member.database.failed(&guard)),
                Ok(Ok(Err(error))) => return Err(error.into()),
                // The participant failed or is silent. It is not waited for any longer.
                Ok(Err(_)) | Err(_) => return Err(participant.why().await),
            }
        }
        let decision = decide(change, &self.change_rules(), &parts).map_err(|error| {
            if matches!(error, StoreError::WentBack) {
                let parts = participants.iter().zip(&parts);
                for (participant, _) in parts.filter(|(_, part)| part.has_lost_it()) {
                    participant.member.database.name_went_back(&change.name);
                }
            }
            AttemptError::Final(error)
        })?;
        let altered = decision.altered.clone();
        if altered.is_written {
            let decision = Arc::new(decision);
            self.carry_out(participants, &decision, until).await?;
        }
        Ok(altered)
    }

    async fn scope_in(
        &self,
        k: usize,
        change: &ChangeRequest,
        until: Instant,
    ) -> Attempted<ChangeScope> {
        let member = self.member(k)?;
        let last_seen = self.memory.view(&change.key(), k).seen;
        let scope = ChangeScope::of(&member.database, last_seen, until);
        Ok(scope.await.map_err(|_error| missing(member))?)
    }

    /// Writes in every member, and then commits in every member.
    async fn carry_out(
        &self,
        mut participants: Vec<Participant>,
        decision: &Arc<Decision>,
        until: Instant,
    ) -> Attempted<()> {
        for participant in &mut participants {
            if let Some(way) = participant.decided.take() {
                // If the participant is gone, the missing write shows it.
                let _gone = way.send(Arc::clone(decision));
            }
        }
        if let Some(at) = first_unwritten(&mut participants, until).await {
            let failed = participants.swap_remove(at);
            // The other participants are dropped, which rolls their transactions back.
            return Err(failed.why().await);
        }
        let mut n_committed = 0;
        let mut unknown = None;
        for participant in participants {
            match participant.commit().await {
                Ok(()) => n_committed += 1,
                // The first participant decides: nothing was committed, and nothing will be.
                Err(StatementFailure::NotCommitted(cause))
                    if n_committed == 0 && unknown.is_none() =>
                {
                    let is_in_the_way = matches!(cause, Cause::Contention | Cause::Interrupted);
                    return Err(match is_in_the_way {
                        true => AttemptError::Conflict,
                        false => AttemptError::Final(StoreError::NotChanged),
                    });
                }
                // The member gets the change at its next use, like any change that it missed.
                Err(failure) => unknown = Some(failure),
            }
        }
        match unknown {
            None => Ok(()),
            Some(failure) => {
                tracing::warn!(
                    target: TARGET,
                    error = failure.cause().text(),
                    committed = n_committed,
                    "a change was not heard of from all databases"
                );
                Err(StoreError::MayHaveChanged.into())
            }
        }
    }
}

impl Participant {
    /// Finds out why a participant gave no answer.
    async fn why(self) -> AttemptError<StoreError> {
        // Whatever it waits for, it rolls back from now on.
        drop((self.decided, self.written, self.commit));
        match self.task.await {
            Ok(Err(
                StatementFailure::NotCommitted(cause) | StatementFailure::MayHaveCommitted(cause),
            )) => {
                if matches!(cause, Cause::Silent) {
                    // If the member answers nothing else either, it is passed over, and the next
                    // attempt fails at once.
                    self.member.fail_unless_it_answers().await;
                }
                // A silent statement may have waited for another change.
                if cause.may_pass() || matches!(cause, Cause::Silent | Cause::Busy) {
                    return AttemptError::Conflict;
                }
                self.member.fail();
                AttemptError::Final(missing(&self.member))
            }
            Ok(Ok(_)) | Err(_) => AttemptError::Final(StoreError::NotChanged),
        }
    }

    async fn commit(self) -> Result<(), StatementFailure> {
        let is_heard = self.commit.send(()).is_ok();
        let outcome = match self.task.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(StatementFailure::NotCommitted(Cause::Interrupted)),
            Ok(Err(failure)) => Err(failure),
            Err(_stopped) => {
                let cause = Cause::Broken("its task was stopped".to_owned());
                Err(StatementFailure::MayHaveCommitted(cause))
            }
        };
        match outcome {
            // A participant that did not get the signal to commit cannot have committed.
            Err(StatementFailure::MayHaveCommitted(cause)) if !is_heard => {
                Err(StatementFailure::NotCommitted(cause))
            }
            outcome => outcome,
        }
    }
}

/// Opens a change in one member. The receiver gets what was found there.
fn open(
    member: &Arc<Member>,
    change: Arc<ChangeRequest>,
    scope: ChangeScope,
    until: Instant,
) -> (Participant, oneshot::Receiver<Result<Prepared, StoreError>>) {
    let (found, finding) = oneshot::channel();
    let (decided, deciding) = oneshot::channel();
    let (written, writing) = oneshot::channel();
    let (commit, committing) = oneshot::channel();
    let signals = CommitSignals {
        found,
        decided: deciding,
        written,
        commit: committing,
    };
    let connection = Arc::clone(&member.database.connection);
    let taking_part = async move {
        let part = connection.run(until, |database| {
            participant::run(database, change, scope, signals)
        });
        part.await
    };
    let task = member.database.tasks().spawn(taking_part.in_current_span());
    let participant = Participant {
        member: Arc::clone(member),
        task,
        decided: Some(decided),
        written: writing,
        commit,
    };
    (participant, finding)
}

/// Waits for the participants in their order, and returns the first one that did not write.
async fn first_unwritten(participants: &mut [Participant], until: Instant) -> Option<usize> {
    for (at, participant) in participants.iter_mut().enumerate() {
        let writing = tokio::time::timeout_at(until.into(), &mut participant.written);
        if !matches!(writing.await, Ok(Ok(()))) {
            return Some(at);
        }
    }
    None
}

fn missing(member: &Member) -> StoreError {
    if member.database.heartbeat.has_gone_back() {
        return StoreError::WentBack;
    }
    StoreError::Incomplete {
        away: member.database.identity.to_string(),
    }
}
