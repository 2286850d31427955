//! Resolves names that are not in memory: asks the store what a name is, and makes the issuer that
//! its definition needs.
//!
//! Callers of one name share one question. The question is finished even if its callers give up. A
//! change or a recovery that comes while the store is asked may be missing in the answer, so the
//! store is then asked again.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared as SharedFuture, ready},
};
use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_process::clock;
use odometer_store::{ReadCounter, SeenRecovery, StoreError};
use parking_lot::Mutex;
use tracing::Instrument as _;

use crate::{
    directory::period_rule::PeriodRule,
    directory::shared::Shared,
    error::SequenceError,
    issuer::{memory::Issuer, state::IssuerState},
};

/// The questions to the store that are under way.
#[derive(Default)]
pub(crate) struct Questions(Mutex<HashMap<Asked, Question>>);

/// What is asked: a name, and whether it is created.
type Asked = (SequenceName, bool);

type Answer = SharedFuture<BoxFuture<'static, Result<Arc<Issuer>, SequenceError>>>;

struct Question {
    answer: Answer,
    /// Whether something changed while the store was asked.
    is_stale: bool,
}

impl Shared {
    /// Returns what a name leads to in memory. A name that shares the numbers of another sequence
    /// leads to that one.
    pub(crate) fn known(&self, name: &SequenceName) -> Option<Arc<Issuer>> {
        let found = self.names.find(name.as_str());
        found.or_else(|| self.names.find(self.aliases.pin().get(name)?.as_str()))
    }

    /// Returns what a name leads to. A name that is not in memory is read from the store. A name
    /// that does not exist is created, if its template says so and has the caller's period.
    ///
    /// # Errors
    /// `Elsewhere` if the name turns out to share the numbers of another sequence: look it up
    /// again. Otherwise why there is no issuer.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        name: &SequenceName,
        period: Option<&Period>,
    ) -> Result<Arc<Issuer>, SequenceError> {
        let name = match self.look_up(name).await {
            Err(SequenceError::NotFound { name }) => name,
            answer => return answer,
        };
        let Some(template) = self.settings.templates.created_with(&name) else {
            return Err(SequenceError::NotCreated { name });
        };
        check_period(&name, &template, period)?;
        self.ask_once(&name, Some(template))?.await
    }

    /// Returns what a name leads to, and creates nothing. A name that is not in memory is read from
    /// the store.
    ///
    /// # Errors
    /// As [`Shared::resolve`]. `NotFound` names the sequence that could be created.
    pub(crate) async fn look_up(
        self: &Arc<Self>,
        name: &SequenceName,
    ) -> Result<Arc<Issuer>, SequenceError> {
        if let Some(issuer) = self.known(name) {
            return Ok(issuer);
        }
        let target = self.aliases.pin().get(name).cloned();
        self.ask_once(target.as_ref().unwrap_or(name), None)?.await
    }

    /// Checks that one more name or period may be in memory, besides the names that the store is
    /// asked about.
    pub(crate) fn check_room(&self, n_asked: usize) -> Result<(), SequenceError> {
        let n_live = self.n_live.load(Ordering::Relaxed);
        if n_live.saturating_add(n_asked) >= self.settings.live_sequences {
            return Err(SequenceError::Overloaded {
                what: "limits.live_sequences",
            });
        }
        Ok(())
    }

    /// Asks the store about a name, or joins those who ask already. With a `template`, the name is
    /// created.
    fn ask_once(
        self: &Arc<Self>,
        name: &SequenceName,
        template: Option<Arc<Definition>>,
    ) -> Result<Answer, SequenceError> {
        let asked = (name.clone(), template.is_some());
        let mut questions = self.questions.0.lock();
        if let Some(question) = questions.get(&asked) {
            return Ok(question.answer.clone());
        }
        // The name may have come into memory while this call waited for the lock.
        if let Some(issuer) = self.names.find(name.as_str()) {
            return Ok(ready(Ok(issuer)).boxed().shared());
        }
        let (name_asked, creates) = &asked;
        let is_asked = questions.contains_key(&(name_asked.clone(), !creates));
        self.check_room(questions.len() - usize::from(is_asked))?;
        let (shared, asked_for) = (Arc::clone(self), asked.clone());
        let asking = async move { shared.ask_until_steady(asked_for, template).await };
        let answer = asking.in_current_span().boxed().shared();
        let question = Question {
            answer: answer.clone(),
            is_stale: false,
        };
        questions.insert(asked, question);
        drop(questions);
        // Nobody needs the handle: the callers hear the answer by themselves.
        let _running = self.store.finish(answer.clone());
        Ok(answer)
    }

    async fn ask_until_steady(
        self: &Arc<Self>,
        asked: Asked,
        template: Option<Arc<Definition>>,
    ) -> Result<Arc<Issuer>, SequenceError> {
        loop {
            let found = or_internal(self.read(&asked.0, template.as_ref())).await;
            if let Some(answer) = self.settle_question(&asked, found) {
                return answer;
            }
        }
    }

    /// Makes the issuer of what was found, and ends the question. Returns `None` if the store must
    /// be asked again.
    fn settle_question(
        &self,
        asked: &Asked,
        found: Result<ReadCounter, SequenceError>,
    ) -> Option<Result<Arc<Issuer>, SequenceError>> {
        // Changes look for the question and for the issuer under this lock, so they find one of
        // them.
        let mut questions = self.questions.0.lock();
        let question = questions.get_mut(asked)?;
        let is_told = matches!(
            found,
            Ok(_) | Err(SequenceError::NotFound { .. } | SequenceError::Retired { .. })
        );
        if std::mem::take(&mut question.is_stale) && is_told {
            return None;
        }
        questions.remove(asked);
        let (name, creates) = asked;
        Some(match found {
            Ok(found) => self.admit(name, found),
            Err(SequenceError::NotFound { .. }) if !creates && self.share(name) => {
                Err(SequenceError::Elsewhere)
            }
            Err(error) => Err(error),
        })
    }

    fn admit(
        &self,
        name: &SequenceName,
        mut found: ReadCounter,
    ) -> Result<Arc<Issuer>, SequenceError> {
        if let Some(issuer) = self.names.find_surely(name.as_str()) {
            return Ok(issuer);
        }
        self.check_room(0)?;
        // Most sequences are created from a template, so they share one copy of the definition.
        let template = self.settings.templates.created_with(name);
        if let Some(template) = template.filter(|template| **template == *found.known.definition) {
            found.known.definition = template;
        }
        let issuer = Issuer::of_name(name.clone(), found, self.settings.live_periods);
        let issuer = issuer.ok_or(SequenceError::Internal)?;
        // Names come into memory under the lock of the questions only.
        self.n_live.fetch_add(1, Ordering::Relaxed);
        Ok(self.names.admit(issuer))
    }

    /// Asks the store for a name, or lets it create the name.
    async fn read(
        &self,
        name: &SequenceName,
        template: Option<&Arc<Definition>>,
    ) -> Result<ReadCounter, SequenceError> {
        let started = Instant::now();
        let earlier = self.forgotten(&CounterKey::whole(name.clone()));
        let last_seen = earlier.map(|earlier| earlier.seen);
        let found = match template {
            None => self.store.resolve(name, last_seen).await,
            Some(template) => self.store.create(name, template, last_seen).await,
        };
        found.map_err(|error| {
            if !matches!(error, StoreError::NotFound) {
                let lasted = started.elapsed();
                self.slow_refills.tell_of_failure(name, &error, lasted);
            }
            SequenceError::from_store(name, error)
        })
    }

    /// Returns what a changed name leads to in memory. If the store is asked about the name now, it
    /// is asked once more.
    pub(crate) fn known_for_change(&self, name: &SequenceName) -> Option<Arc<Issuer>> {
        let mut questions = self.questions.0.lock();
        for creates in [false, true] {
            if let Some(question) = questions.get_mut(&(name.clone(), creates)) {
                question.is_stale = true;
            }
        }
        // A name with a sequence of its own does not share the numbers of another sequence.
        self.aliases.pin().remove(name);
        self.names.find_surely(name.as_str())
    }

    /// Makes every counter distrust what a recovered database gave before. Returns the issuers that
    /// hold blocks that must leave memory. Each question that is under way is asked once more.
    pub(crate) fn distrust(&self, seen: &SeenRecovery) -> Vec<Arc<Issuer>> {
        let mut questions = self.questions.0.lock();
        for question in questions.values_mut() {
            question.is_stale = true;
        }
        let is_of = |store: &str| self.store.has(seen.source, store);
        let distrust = |name: &SequenceName, state: &mut IssuerState| {
            // What it says of the sequence holds for each of its periods.
            state.distrust(name, seen, is_of)
        };
        self.names.change_all(|| self.all_issuers(), distrust)
    }
}

/// Turns a panic of `work` into an answer. So it concerns only the callers who wait for this
/// answer, and the next caller asks again.
async fn or_internal<T>(
    work: impl Future<Output = Result<T, SequenceError>>,
) -> Result<T, SequenceError> {
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    // The panic was logged where it happened.
    outcome.unwrap_or(Err(SequenceError::Internal))
}

/// Refuses a period that a sequence does not have, or in which callers cannot count now.
pub(crate) fn check_period(
    name: &SequenceName,
    definition: &Definition,
    period: Option<&Period>,
) -> Result<(), SequenceError> {
    match (PeriodRule::of(definition), period) {
        (Some(rule), _) => rule
            .choose(definition, period, clock::now_ms())
            .map(|_chosen| ()),
        (None, Some(_)) => Err(SequenceError::NoPeriods { name: name.clone() }),
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "the panic is what is tested")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_one_question_is_an_answer() {
        let question = async { panic!("as was asked for") };
        let answer: Result<(), _> = or_internal(question).await;
        assert!(matches!(answer, Err(SequenceError::Internal)));
        assert!(or_internal(ready(Ok(()))).await.is_ok());
    }
}
