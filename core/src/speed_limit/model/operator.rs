//! What operators do in a model: they say what was lost, and change the limit.

use super::{
    super::{SpeedLimit, fence::Fence},
    Tree,
    state::Knowledge,
};

impl Tree {
    /// Lets an operator skip numbers of a database that goes on. If that recovery is lost, only a
    /// replica that lived through it knows of it.
    pub(super) fn skip(&mut self) {
        if !self.primary.is_stamped() || !self.lives_through || !self.draw.is_one_in(4) {
            return;
        }
        let mut n_steps = self.draw.below(3 * self.primary.state.limit.burst);
        let is_of_one = self.draw.is_one_in(2);
        if is_of_one && self.primary.state.is_stopped {
            // The counter waits for a word that is right.
            let ends = self
                .given
                .values()
                .chain(self.former.iter().map(|(_, end)| end));
            let reached = self.counter_of(&self.primary.state).n_reserved;
            n_steps += ends.max().map_or(0, |end| end.saturating_sub(reached));
        }
        let planned = self.planned(&Knowledge::default());
        let said = Fence {
            n_levels: 0,
            n_steps,
            is_said: true,
            ..planned
        };
        self.write(said, is_of_one);
    }

    /// Lets an operator say that no counter was lost, if that is true: the counter is there, or no
    /// number of it was ever given. No former primary lives on.
    pub(super) fn say_that_no_counter_was_lost(&mut self) {
        let is_true = self.given.is_empty() || self.primary.state.counter.is_some();
        if !self.primary.is_stamped() || !is_true {
            return;
        }
        self.former = None;
        let state = &mut self.primary.state;
        state.n_ended = state.recoveries.len();
    }

    /// Changes the limit, which keeps the debt in numbers. A change that raises it must not be lost.
    /// A lower limit computes less of fences from before than was given: of a counter that they found
    /// lost, and of levels.
    pub(super) fn change_limit(&mut self) {
        let is_free = self.primary.is_stamped() && self.primary.state.counter.is_some();
        if !is_free || self.lives_through || !self.draw.is_one_in(4) {
            return;
        }
        let clock_us = self.now_us + self.primary.ahead_us;
        let before = self.primary.state.limit;
        let is_raised = self.draw.is_one_in(2);
        let after = SpeedLimit {
            rate: if is_raised {
                before.rate * 2
            } else {
                before.rate / 2 + 1
            },
            burst: if is_raised {
                before.burst * 2
            } else {
                before.burst / 2 + 1
            },
        };
        let is_raised = after.rate > before.rate || after.burst > before.burst;
        if let Some(counter) = &mut self.primary.state.counter {
            let ahead_us = counter.paced_until_us.saturating_sub(clock_us);
            if (1..=before.horizon_us()).contains(&ahead_us) {
                let debt_us = i128::from(ahead_us) * i128::from(before.rate);
                let kept_us = debt_us / i128::from(after.rate) + 1;
                let kept_us = i64::try_from(kept_us).unwrap_or(i64::MAX);
                // What a clock that was set back put beyond a whole burst stays beyond it.
                let beyond_us = (ahead_us - before.capacity_us()).max(0);
                counter.paced_until_us = clock_us + kept_us.min(after.capacity_us() + beyond_us);
            }
        }
        self.primary.state.limit = after;
        if is_raised {
            self.copies.clear();
            (self.last, self.former) = (None, None);
        }
    }
}
