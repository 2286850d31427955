//! Repeats an operation on a database: says whether another attempt is made, and waits before it.
//!
//! A loop keeps the attempt itself. It says what an error of the attempt means, and [`Retry`] keeps
//! the limits: the time, the number of attempts, and the pauses between them.

use std::time::Instant;

use crate::{backoff::Backoff, failure::StatementFailure, settings::StatementBounds};

/// The reason why an attempt did not succeed. `E` is the error for the caller.
#[derive(Debug)]
pub enum AttemptError<E> {
    /// Another attempt would end in the same way.
    Final(E),
    /// Another writer came first, or the attempt must be made in another way.
    Conflict,
    /// The attempt has learnt something, and the next one is made at once.
    Again,
    Failed(StatementFailure),
}

impl<E> AttemptError<E> {
    /// Returns the error for the caller if no further attempt is made.
    pub fn untried(self, unsuccessful: E) -> E {
        match self {
            Self::Final(error) => error,
            Self::Conflict | Self::Again | Self::Failed(_) => unsuccessful,
        }
    }
}

impl<E> From<StatementFailure> for AttemptError<E> {
    fn from(failure: StatementFailure) -> Self {
        Self::Failed(failure)
    }
}

/// The limits of the attempts that are left.
pub struct Retry {
    /// No attempt begins after this.
    pub until: Instant,
    n_left: u32,
    backoff: Backoff,
}

impl Retry {
    /// Allows any number of attempts until a deadline.
    pub fn until(until: Instant, bounds: &StatementBounds) -> Self {
        Self {
            until,
            n_left: u32::MAX,
            backoff: Backoff::new(bounds),
        }
    }

    /// Limits the attempts. The first attempt is one of them, and is made in any case.
    pub fn at_most(mut self, n_attempts: u32) -> Self {
        self.n_left = n_attempts;
        self
    }

    /// Returns whether another attempt may be made at once.
    fn at_once(&mut self) -> bool {
        self.n_left = self.n_left.saturating_sub(1);
        self.n_left > 0 && Instant::now() < self.until
    }

    /// Waits before another attempt. Returns false if there is none: the attempts or the time are
    /// used up.
    pub async fn again(&mut self) -> bool {
        if !self.at_once() {
            return false;
        }
        self.backoff.wait(self.until).await;
        Instant::now() < self.until
    }

    /// Waits before another attempt, if one can help. `judge` decides that for a statement that
    /// failed.
    ///
    /// # Errors
    /// The error for the caller, if no attempt can help. `late` if the attempts or the time are
    /// used up.
    pub async fn after<E>(
        &mut self,
        error: AttemptError<E>,
        judge: impl FnOnce(&StatementFailure) -> Result<(), E>,
        late: E,
    ) -> Result<(), E> {
        let goes_on = match error {
            AttemptError::Final(error) => return Err(error),
            AttemptError::Again => self.at_once(),
            AttemptError::Conflict => self.again().await,
            AttemptError::Failed(failure) => {
                judge(&failure)?;
                self.again().await
            }
        };
        if goes_on { Ok(()) } else { Err(late) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::failure::Cause;

    fn retry(time_limit: Duration) -> Retry {
        let bounds = StatementBounds {
            pool_max: 1,
            acquire: Duration::ZERO,
            timeout: Duration::ZERO,
            backoff_min: Duration::from_millis(1),
            backoff_max: Duration::from_millis(1),
            schema_wait: Duration::ZERO,
        };
        Retry::until(Instant::now() + time_limit, &bounds)
    }

    #[tokio::test]
    async fn the_first_attempt_is_one_of_those_allowed() {
        let mut retry = retry(Duration::from_secs(60)).at_most(3);
        assert!(retry.again().await);
        assert!(retry.at_once());
        assert!(!retry.again().await);
    }

    #[tokio::test]
    async fn no_attempt_begins_after_the_deadline() {
        let mut retry = retry(Duration::ZERO);
        assert!(!retry.at_once());
        assert!(!retry.again().await);
    }

    #[tokio::test]
    async fn only_what_can_help_is_tried_again() {
        let mut retry = retry(Duration::from_secs(60));
        let failed = || AttemptError::Failed(StatementFailure::NotCommitted(Cause::Contention));
        assert_eq!(retry.after(failed(), |_| Ok(()), "late").await, Ok(()));
        let refused = retry.after(failed(), |_| Err("refused"), "late").await;
        assert_eq!(refused, Err("refused"));
        let wrong = AttemptError::Final("wrong");
        assert_eq!(retry.after(wrong, |_| Ok(()), "late").await, Err("wrong"));
        let again = retry.after(AttemptError::Again, |_| Ok(()), "late");
        assert_eq!(again.await, Ok(()));
        for at_the_end in [AttemptError::Conflict, AttemptError::Again] {
            let mut retry = super::tests::retry(Duration::from_secs(60)).at_most(1);
            let late = retry.after(at_the_end, |_| Ok(()), "late");
            assert_eq!(late.await, Err("late"));
        }
    }
}
