//! Goes round the members of a store of several databases: asks one after the other, until one of
//! them gives what is wanted. Refills and leases of worker ids go round in the same way.
//!
//! A member that fails costs at most its part of the deadline, and is then passed over. If every
//! member refuses, the caller is refused. One refusal is enough if its reason holds for all
//! members.

use std::{
    sync::Arc,
    time::{Duration, Instant},
    vec,
};

use super::health::Member;
use crate::{error::StoreError, store::Store, worker_lease::lease::LeaseError};

/// While other members are well, a member may take at most 1/`DEADLINE_PARTS` of the time that is
/// left.
const DEADLINE_PARTS: u32 = 5;
/// The least time that a member gets, so that members are not passed over only because the deadline
/// is near.
const MIN_PART: Duration = Duration::from_millis(100);

/// Why a member did not give what it was asked for.
pub(crate) trait Refusal: Sized {
    /// The refusal if the deadline comes before all members were asked.
    const LATE: Self;

    /// Returns how much the refusal says for the whole store. Returns `None` if no other member
    /// would say something else.
    fn weight(&self) -> Option<u8>;

    /// Says whether the member did not do its work, so that it is passed over.
    fn is_failure(&self) -> bool;

    /// Says whether the member lost commits. If it is well, this holds for one name of it.
    fn is_loss(&self) -> bool;

    /// Returns what this refusal and a later one of the same weight say together.
    fn and(self, later: Self) -> Self;
}

/// One walk round the members.
pub(crate) struct Walk<'a, E> {
    store: &'a Store,
    order: vec::IntoIter<usize>,
    until: Instant,
    refused: Refusals<E>,
}

/// What the members have refused until now.
struct Refusals<E>(Option<E>);

impl<'a, E: Refusal> Walk<'a, E> {
    pub(crate) fn new(store: &'a Store, order: Vec<usize>, until: Instant) -> Self {
        Self {
            store,
            order: order.into_iter(),
            until,
            refused: Refusals(None),
        }
    }

    /// Returns the member that is asked next, with its place in the store. Returns `None` if all
    /// were asked.
    ///
    /// # Errors
    /// The deadline has come.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, &'a Arc<Member>)>, E> {
        let next = self.order.next();
        if next.is_some() && Instant::now() >= self.until {
            return Err(E::LATE);
        }
        Ok(next.and_then(|k| Some((k, self.store.members.get(k)?))))
    }

    /// Notes what a member answered. Returns what it gave, if it gave something.
    ///
    /// # Errors
    /// The refusal, if no other member would say something else.
    pub(crate) fn note<T>(
        &mut self,
        member: &Member,
        answer: Result<T, E>,
    ) -> Result<Option<T>, E> {
        match answer {
            Ok(given) => {
                member.succeed();
                Ok(Some(given))
            }
            Err(error) => {
                let is_of_name = error.is_loss() && !member.database.heartbeat.has_gone_back();
                let is_failure = error.is_failure() && !is_of_name;
                self.refused.note(error)?;
                if is_failure {
                    member.fail();
                }
                Ok(None)
            }
        }
    }

    /// Returns why no member gave anything. `otherwise` holds if no member was asked.
    pub(crate) fn reason(self, otherwise: E) -> E {
        self.refused.0.unwrap_or(otherwise)
    }
}

impl<E: Refusal> Refusals<E> {
    /// Notes why a member gave nothing.
    ///
    /// # Errors
    /// The reason, if no other member would say something else.
    fn note(&mut self, error: E) -> Result<(), E> {
        let Some(weight) = error.weight() else {
            return Err(error);
        };
        self.0 = Some(match self.0.take() {
            Some(earlier) if earlier.weight() > Some(weight) => earlier,
            Some(earlier) if earlier.weight() == Some(weight) => earlier.and(error),
            Some(_) | None => error,
        });
        Ok(())
    }
}

impl Store {
    /// Returns all members in the order in which they are asked. Members that are well come first,
    /// from `first` on. The other members are a last resort.
    pub(crate) fn order(&self, first: usize) -> Vec<usize> {
        let n = self.members.len();
        let round = (0..n).map(|at| first.wrapping_add(at) % n.max(1));
        let is_well = |k: &usize| self.members.get(*k).is_some_and(|member| member.is_well());
        let (mut well, ill): (Vec<usize>, Vec<usize>) = round.partition(is_well);
        well.extend(ill);
        well
    }

    /// Says whether another member is well.
    pub(crate) fn has_others(&self, k: usize) -> bool {
        let mut others = self.members.iter().enumerate();
        others.any(|(other, member)| other != k && member.is_well())
    }

    /// Returns until when one member may take: a part of the time that is left, or all of it if no
    /// other member is well.
    pub(crate) fn part_of(&self, k: usize, until: Instant) -> Instant {
        if !self.has_others(k) {
            return until;
        }
        let now = Instant::now();
        let part = until.saturating_duration_since(now) / DEADLINE_PARTS;
        (now + part.max(MIN_PART)).min(until)
    }
}

impl Refusal for StoreError {
    const LATE: Self = Self::Deadline;

    /// A member that is away may have numbers. So that the numbers of others are used up says
    /// least.
    fn weight(&self) -> Option<u8> {
        if matches!(self, Self::WentBack) {
            Some(6)
        } else if matches!(self, Self::Deadline | Self::Behind) {
            Some(5)
        } else if matches!(self, Self::RateLimited { .. }) {
            // Each member has a limit of its own. This one answers, and gives numbers soon.
            Some(4)
        } else if matches!(self, Self::Unavailable) {
            Some(3)
        } else if matches!(self, Self::Broken(_) | Self::TooManyPeriods { .. }) {
            // These reasons hold in one member, and need not hold in another.
            Some(2)
        } else if matches!(self, Self::TooLarge { .. }) {
            Some(1)
        } else if matches!(self, Self::Exhausted { .. }) {
            Some(0)
        } else {
            None
        }
    }

    fn is_failure(&self) -> bool {
        matches!(self, Self::Unavailable | Self::Deadline | Self::WentBack)
    }

    fn is_loss(&self) -> bool {
        matches!(self, Self::WentBack)
    }

    /// Numbers that are left in two members are left in the store. The largest range is the one
    /// that a member would give.
    fn and(self, later: Self) -> Self {
        match (self, later) {
            (Self::Exhausted { left: one }, Self::Exhausted { left: other }) => Self::Exhausted {
                left: one.saturating_add(other),
            },
            (Self::TooLarge { limit: one }, Self::TooLarge { limit: other }) => Self::TooLarge {
                limit: one.max(other),
            },
            (limited @ Self::RateLimited { .. }, later) => limited.sooner(later),
            (earlier, _) => earlier,
        }
    }
}

impl Refusal for LeaseError {
    const LATE: Self = Self::Deadline;

    /// A member that is away may have an id. So that no id is free says least.
    fn weight(&self) -> Option<u8> {
        Some(match self {
            // A member may have leased an id, which it takes back by itself.
            Self::MayHaveHappened => 6,
            // These reasons hold in one member, and need not hold in another.
            Self::Held { .. }
            | Self::Lost
            | Self::OtherWidth { .. }
            | Self::ClockAhead { .. }
            | Self::TooManyPools { .. }
            | Self::NotOfTheLease { .. } => 5,
            Self::NoneUsable { .. } => 4,
            Self::WentBack => 3,
            Self::Deadline => 2,
            Self::Unavailable => 1,
            Self::NoneFree { .. } => 0,
        })
    }

    fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Unavailable | Self::Deadline | Self::MayHaveHappened | Self::WentBack
        )
    }

    fn is_loss(&self) -> bool {
        matches!(self, Self::WentBack)
    }

    /// If both members will have an id, the earlier time counts.
    fn and(self, later: Self) -> Self {
        match (self, later) {
            (Self::NoneUsable { from_ms: one }, Self::NoneUsable { from_ms: other }) => {
                Self::NoneUsable {
                    from_ms: one.min(other),
                }
            }
            (earlier, _) => earlier,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what these refusals of members say together.
    fn reason<E: Refusal>(errors: Vec<E>) -> Option<E> {
        let mut refused = Refusals(None);
        for error in errors {
            assert!(refused.note(error).is_ok(), "another member may say more");
        }
        refused.0
    }

    #[test]
    fn what_one_database_cannot_give_is_asked_of_the_others() {
        let broken = || StoreError::Broken("a row is gone".to_owned());
        let full = || StoreError::TooManyPeriods { limit: 1 };
        let said = reason(vec![broken(), full()]);
        assert!(matches!(said, Some(StoreError::Broken(_))));
        let said = reason(vec![broken(), StoreError::Unavailable, full()]);
        assert!(matches!(said, Some(StoreError::Unavailable)));
        let left = |left| StoreError::Exhausted { left };
        let said = reason(vec![left(2), left(3)]);
        assert!(matches!(said, Some(StoreError::Exhausted { left: 5 })));
        let limit = |limit| StoreError::TooLarge { limit };
        let said = reason(vec![left(2), limit(7), left(3), limit(9)]);
        assert!(matches!(said, Some(StoreError::TooLarge { limit: 9 })));
        let mut refused = Refusals(None);
        assert!(refused.note(StoreError::PeriodRemoved).is_err());
    }

    #[test]
    fn what_one_database_lacks_another_may_have() {
        let none = || LeaseError::NoneFree { workers: 1024 };
        let late = |from_ms| LeaseError::NoneUsable { from_ms };
        assert!(matches!(
            reason(vec![none(), none()]),
            Some(LeaseError::NoneFree { workers: 1024 })
        ));
        assert!(matches!(
            reason(vec![none(), LeaseError::Unavailable]),
            Some(LeaseError::Unavailable)
        ));
        let earliest = reason(vec![late(9), none(), late(7)]);
        assert!(matches!(
            earliest,
            Some(LeaseError::NoneUsable { from_ms: 7 })
        ));
        assert!(matches!(
            reason(vec![
                none(),
                LeaseError::MayHaveHappened,
                LeaseError::Unavailable
            ]),
            Some(LeaseError::MayHaveHappened)
        ));
        let ahead = LeaseError::ClockAhead { by_ms: 400_000 };
        assert!(matches!(
            reason(vec![none(), ahead]),
            Some(LeaseError::ClockAhead { .. })
        ));
    }
}
