//! Says which sequence gives the numbers of a name, and whether a call would be the first one to use
//! it.

use std::sync::Arc;

use odometer_core::{
    name::SequenceName,
    period::{CounterKey, Period, PeriodKind},
    templates::Template,
};
use tokio::time::timeout;

use crate::{directory::calls::Directory, error::SequenceError, issuer::memory::Issuer};

/// What a call is the first one to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstUse {
    Name,
    /// The key of a caller, of a sequence that exists.
    Key,
}

impl Directory {
    /// Returns the sequence whose numbers a name gets by its template, if it has no sequence of its
    /// own.
    pub fn shared_by_template(&self, name: &SequenceName) -> Option<SequenceName> {
        match self.shared.settings.templates.of(name)? {
            Template::Definition(_) => None,
            Template::Share(target) => Some(target),
        }
    }

    /// Returns the sequence that gives the numbers of a name. Asks the store only if a template lets
    /// the name share the numbers of another sequence.
    ///
    /// # Errors
    /// The store was asked, and did not answer or failed.
    pub async fn source(&self, name: &SequenceName) -> Result<SequenceName, SequenceError> {
        let Some(target) = self.shared_by_template(name) else {
            return Ok(name.clone());
        };
        match self.find(name).await {
            Ok(issuer) => Ok(issuer.key.sequence.clone()),
            Err(SequenceError::Retired { .. }) => Ok(name.clone()),
            Err(SequenceError::NotFound { .. } | SequenceError::Elsewhere) => Ok(target),
            Err(error) => Err(error),
        }
    }

    /// Returns what a call would be the first one to use: a sequence, or the counter of a caller's
    /// key. `None` if neither: then both stay in the store for good.
    ///
    /// # Errors
    /// Memory does not know it, and the store did not answer or failed.
    pub async fn first_use(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
    ) -> Result<Option<FirstUse>, SequenceError> {
        let issuer = match self.find(name).await {
            Ok(issuer) => issuer,
            Err(SequenceError::Retired { .. }) => return Ok(None),
            Err(SequenceError::NotFound { .. } | SequenceError::Elsewhere) => {
                return Ok(Some(FirstUse::Name));
            }
            Err(error) => return Err(error),
        };
        // Nobody chooses the periods of a calendar.
        let (Some(period), PeriodKind::Keyed) = (period, issuer.definition().period) else {
            return Ok(None);
        };
        let periods = issuer.periods();
        let of_key = periods.and_then(|periods| periods.member(period.as_str()));
        if of_key.is_some_and(|of_key| of_key.n_issued() > 0 || of_key.remaining() > 0) {
            return Ok(None);
        }
        let key = CounterKey {
            sequence: issuer.key.sequence.clone(),
            period: period.clone(),
        };
        match self.waiting_for(self.seen(&key)).await {
            Ok(seen) => Ok(seen.is_none().then_some(FirstUse::Key)),
            Err(SequenceError::PeriodRemoved { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether there is a live sequence of this name, whose numbers are its own.
    ///
    /// # Errors
    /// Memory does not know it, and the store did not answer or failed.
    pub async fn is_live(&self, name: &SequenceName) -> Result<bool, SequenceError> {
        match self.find(name).await {
            Ok(issuer) => {
                let is_its_own = issuer.key.sequence == *name;
                Ok(is_its_own && !issuer.memory.lock().is_retired)
            }
            Err(
                SequenceError::Retired { .. }
                | SequenceError::NotFound { .. }
                | SequenceError::Elsewhere,
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the first call for a number creates a sequence of this name.
    pub fn creates(&self, name: &SequenceName) -> bool {
        self.shared.settings.templates.created_with(name).is_some()
    }

    /// Returns what a name leads to, and creates nothing.
    pub(crate) async fn find(&self, name: &SequenceName) -> Result<Arc<Issuer>, SequenceError> {
        match self.shared.known(name) {
            Some(issuer) => Ok(issuer),
            None => self.waiting_for(self.shared.look_up(name)).await,
        }
    }

    /// Waits for an answer of the store, as one of the callers who wait.
    pub(crate) async fn waiting_for<T>(
        &self,
        answer: impl Future<Output = Result<T, SequenceError>>,
    ) -> Result<T, SequenceError> {
        let _turn = self.shared.admit_waiter()?;
        let answer = timeout(self.shared.settings.refill_deadline, answer).await;
        answer.unwrap_or(Err(SequenceError::RefillTimeout))
    }
}
