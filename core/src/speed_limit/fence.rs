//! Decides how far a fence raises the counters of a copy.
//!
//! A fence is one for all counters of a database. A counter lands on the line of the copy, if the
//! copy lacks no fence that the replica knows. Otherwise the copy may be further ahead than the
//! copy of an earlier fence, and its line may lie below numbers that were given after that fence.
//! Let the two branches part at a state *A*. The line of *A* is at most one *level* above *A*, which
//! is burst + rate · (*t* − *T*) for a *T* that is not later than that of *A*. No branch is below
//! *A*. So a counter that is raised by one level lands above each fence that landed on its line. If
//! a fence raised its line by levels itself, as many more are needed.
//!
//! A recovery in which an operator said what was lost is kept like a fence. It raises by as many
//! steps as were said, and leaves the limit as it was: it raises each line by these steps. A fence of
//! a copy that lacks such a recovery is raised by as many steps more.
//!
//! A new counter skips what the fences of its database skipped, until an operator says that no
//! counter was lost. From that word on counters begin at their start, so a branch with the word may
//! be below *A* by what these fences skip together. If a copy has the word, a fence by levels
//! raises it by these fences, too.

use super::{Paced, SpeedLimit};

/// How far apart the clocks of two servers may be, in microseconds.
pub const CLOCK_MARGIN_US: i64 = 2_000_000;

/// A fence: all counters of a database were raised above what lost commits can have given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Tells the fences of all branches apart. It is random.
    pub id: u128,
    /// No commit that began before this time was missing in the copy (Unix µs). If the replica knew
    /// of fences that the copy lacked, their earliest time.
    pub since_us: i64,
    /// All numbers that can have been given before this time are skipped (Unix µs).
    pub until_us: i64,
    /// How many levels the counters were raised by: 0 if they were raised to the line of the copy.
    pub n_levels: u32,
    /// How many steps more they were raised by.
    pub n_steps: u64,
    /// Whether an operator said what was lost. Then counters were raised by `n_steps` alone.
    pub is_said: bool,
}

impl Fence {
    /// Plans the fence of a copy which has the fences `in_copy`. An operator has `ended` some of
    /// them for new counters. The replica has met the fences in `known`, in this order. No commit
    /// that began before `since_us` is missing in the copy, as heartbeats show, or as an operator
    /// says if the time `is_told`. Then counters rise by a level, which does not depend on how far
    /// ahead of that time they are paid for in the copy: that may be by a clock that was ahead.
    ///
    /// It is one that [covers](missing) all of them. So the replica does not fence again.
    #[must_use]
    pub fn plan(
        id: u128,
        (known, in_copy, ended): (&[Self], &[Self], &[Self]),
        (since_us, is_told): (i64, bool),
        until_us: i64,
    ) -> Self {
        let all = known.iter().chain(in_copy);
        let on_the_line = Self {
            id,
            since_us,
            // By a clock that is behind it would not count as later than what it is above.
            until_us: all.fold(until_us, |until_us, fence| until_us.max(fence.until_us)),
            n_levels: 0,
            n_steps: 0,
            is_said: false,
        };
        // An older copy of the same branch has a line that is not below the line of a later one.
        let is_ahead = missing(known, in_copy)
            .any(|fence| fence.n_levels > 0 || fence.n_steps > 0 || fence.since_us <= since_us);
        if is_ahead {
            on_the_line.above(missing(known, in_copy).chain(ended))
        } else if is_told {
            on_the_line.above([].into_iter())
        } else {
            on_the_line
        }
    }

    /// Returns the fence that lands above these fences, too.
    pub(super) fn above<'a>(self, others: impl Iterator<Item = &'a Self>) -> Self {
        let one_level = Self {
            n_levels: 1,
            ..self
        };
        others.fold(one_level, |fence, other| Self {
            since_us: fence.since_us.min(other.since_us),
            n_levels: fence.n_levels.saturating_add(other.n_levels),
            n_steps: fence.n_steps.saturating_add(other.n_steps),
            ..fence
        })
    }

    /// Returns a counter as it is after the fence. If nothing was said of the loss, nothing more can
    /// be reserved of it before `until_us`, and then no more than the rate.
    #[must_use]
    pub fn raise(self, limit: SpeedLimit, counter: Paced) -> Paced {
        if self.is_said {
            return Paced {
                n_reserved: counter.n_reserved.saturating_add(self.n_steps),
                ..counter
            };
        }
        let on_the_line = limit.fence(counter, self.since_us, self.until_us);
        if self.n_levels == 0 {
            return on_the_line;
        }
        let level = limit.n_lost(Paced::RESTED, self.since_us, self.until_us);
        let n_skipped = level.saturating_mul(self.n_levels.into());
        let n_skipped = n_skipped.saturating_add(self.n_steps);
        Paced {
            n_reserved: counter.n_reserved.saturating_add(n_skipped),
            ..on_the_line
        }
    }

    /// Returns where a counter begins that is not in a database with these fences, in their order.
    /// It may have been there in commits that each fence found lost.
    #[must_use]
    pub fn birth(limit: SpeedLimit, fences: &[Self]) -> Paced {
        let raise = |counter, fence: &Self| fence.raise(limit, counter);
        fences.iter().fold(Paced::RESTED, raise)
    }
}

/// Returns the fences which a new counter skips, of those in a database. An operator has ended the
/// first `n_ended` of them, by the word that no counter was lost.
///
/// That is true of the database in which it was said. It says nothing of a branch that parted from
/// it before: there the counter may have begun above the fences that were ended here. If the
/// database lacks such a branch, a replica that knows the branch fences by levels, or an operator
/// says what was lost. So the word ends with such a fence, and all fences count again.
#[must_use]
pub fn for_births(fences: &[Fence], n_ended: usize) -> &[Fence] {
    let later = fences.get(n_ended..).unwrap_or_default();
    let ends_word = |fence: &Fence| fence.is_said || fence.n_levels > 0;
    match later.iter().any(ends_word) {
        true => fences,
        false => later,
    }
}

/// Returns the fences above which the line of a copy may not be: the known ones that are not in the
/// copy, and that no later fence in the copy is above.
///
/// `known` has the order in which they were made.
pub fn missing<'a>(known: &'a [Fence], in_copy: &'a [Fence]) -> impl Iterator<Item = &'a Fence> {
    let place = |fence: &Fence| known.iter().position(|other| other.id == fence.id);
    let is_covered = move |at: usize, fence: &Fence| {
        in_copy.iter().any(|other| {
            // Two servers may be fenced at the same time, and only time tells which came first.
            let is_later = place(other).is_none_or(|place| place > at)
                && other.until_us >= fence.until_us
                && !other.is_said;
            let lands_above = other.since_us <= fence.since_us
                && other.n_levels >= fence.n_levels
                && other.n_steps >= fence.n_steps;
            other.id == fence.id || (is_later && lands_above)
        })
    };
    let known = known.iter().enumerate();
    known
        .filter(move |(at, fence)| !is_covered(*at, fence))
        .map(|(_, fence)| fence)
}
