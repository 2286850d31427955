//! Repeats an operation on a database: says whether another attempt is made, and waits before it.
//!
//! A loop makes the attempts, and hands the outcome of each to [`Retry::after`]. It says what a
//! failure means, and [`Retry`] keeps the limits: the time, the number of attempts, and the pauses
//! between them.

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

    /// Does not count the present attempt: it did nothing but wait for its turn.
    pub fn spare(&mut self) {
        self.n_left = self.n_left.saturating_add(1);
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

    /// Returns what an attempt gave. If it gave nothing and another attempt can help, waits for the
    /// time of that attempt, and returns `None`. `judge` decides for a statement that failed whether
    /// another attempt can help.
    ///
    /// # Errors
    /// The error for the caller, if no attempt can help. `late` if the attempts or the time are
    /// used up.
    pub async fn after<T, E>(
        &mut self,
        outcome: Result<T, AttemptError<E>>,
        judge: impl FnOnce(&StatementFailure) -> Result<(), E>,
        late: E,
    ) -> Result<Option<T>, E> {
        let goes_on = match outcome {
            Ok(given) => return Ok(Some(given)),
            Err(AttemptError::Final(error)) => return Err(error),
            Err(AttemptError::Again) => self.at_once(),
            Err(AttemptError::Conflict) => self.again().await,
            Err(AttemptError::Failed(failure)) => {
                judge(&failure)?;
                self.again().await
            }
        };
        if goes_on { Ok(None) } else { Err(late) }
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
        assert_eq!(
            retry.after(Ok(7), |_| Err("refused"), "late").await,
            Ok(Some(7))
        );
        let failed = || {
            let failure = StatementFailure::NotCommitted(Cause::Contention);
            Err::<(), _>(AttemptError::Failed(failure))
        };
        assert_eq!(retry.after(failed(), |_| Ok(()), "late").await, Ok(None));
        let refused = retry.after(failed(), |_| Err("refused"), "late").await;
        assert_eq!(refused, Err("refused"));
        let wrong = Err::<(), _>(AttemptError::Final("wrong"));
        assert_eq!(retry.after(wrong, |_| Ok(()), "late").await, Err("wrong"));
        let again = retry.after(Err::<(), _>(AttemptError::Again), |_| Ok(()), "late");
        assert_eq!(again.await, Ok(None));
        let mut spared = retry.at_most(1);
        spared.spare();
        let again = spared.after(Err::<(), _>(AttemptError::Again), |_| Ok(()), "late");
        assert_eq!(again.await, Ok(None));
        let mut retry = spared.at_most(1);
        for error in [AttemptError::Conflict, AttemptError::Again] {
            let late = retry.after(Err::<(), _>(error), |_| Ok(()), "late");
            assert_eq!(late.await, Err("late"));
        }
    }
}
