//! Counts names, or the keys of a sequence, against their bound.

use super::catalog::LIVE;

/// How many rows may have ended for each one that may be live.
const ENDED_FOR_EACH: u64 = 10;

/// How many claims there may be for each sequence that a store may have: nothing in a claim says
/// whether its sequence is live or has ended.
pub(crate) const CLAIMS_FOR_EACH: u64 = 1 + ENDED_FOR_EACH;

/// How many names a database has, or how many keys a sequence has in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RowCount {
    pub(crate) live: u64,
    /// Retired names, or removed keys. Their rows stay, so that no number is issued again.
    pub(crate) ended: u64,
}

impl RowCount {
    /// Sums up how many rows have each state.
    pub(crate) fn of(states: Vec<(String, i64)>) -> Self {
        let mut count = Self::default();
        for (state, n_rows) in states {
            let n_rows = u64::try_from(n_rows).unwrap_or(0);
            let of_state = if state == LIVE {
                &mut count.live
            } else {
                &mut count.ended
            };
            *of_state = of_state.saturating_add(n_rows);
        }
        count
    }

    /// Returns the count with `n_more` live rows more.
    pub(crate) fn with(self, n_more: u64) -> Self {
        Self {
            live: self.live.saturating_add(n_more),
            ..self
        }
    }

    /// Returns whether no other row may be created: `limit` of them are live, or ten times as many
    /// have ended. Without this second bound, the table could grow without end.
    pub(crate) fn is_full(self, limit: u64) -> bool {
        self.left(limit) == 0
    }

    /// Returns how many rows may be created until the nearer of both bounds is reached.
    pub(crate) fn left(self, limit: u64) -> u64 {
        let most_ended = limit.saturating_mul(ENDED_FOR_EACH);
        let ended_left = most_ended.saturating_sub(self.ended);
        limit.saturating_sub(self.live).min(ended_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_makes_room_up_to_ten_times_the_limit() {
        let states = |states: &[(&str, i64)]| {
            let states = states.iter().map(|(state, n)| ((*state).to_owned(), *n));
            RowCount::of(states.collect())
        };
        assert!(!states(&[]).is_full(1));
        assert!(states(&[("live", 3)]).is_full(3));
        assert!(!states(&[("live", 2), ("retired", 29)]).is_full(3));
        assert!(states(&[("retired", 29)]).with(3).is_full(3));
        assert!(states(&[("live", 2), ("removed", 30)]).is_full(3));
        assert!(!states(&[("live", 2), ("removed", 30)]).is_full(u64::MAX));
        assert_eq!(states(&[("live", 2), ("retired", 5)]).left(3), 1);
        assert_eq!(states(&[("live", 2), ("retired", 9_990)]).left(1000), 10);
    }
}
