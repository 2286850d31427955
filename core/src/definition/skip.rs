//! Computes the end of a sequence, and the next number after steps are skipped.
//!
//! A sequence skips steps after a restore of an older state, for example.

use super::Definition;

impl Definition {
    /// Returns the first number after the last one that may be issued.
    ///
    /// It is the lowest number above the [`last`](Self::last) one that whole steps reach from
    /// `start`. It is 2^63 − 1 if that number is higher. This happens only for a time-ordered
    /// sequence, and no counter leads such a sequence to its end. The limit of a counted sequence is
    /// at most `max`. `max` is at most 2^63 − 1 − `step`, so the number still fits.
    #[must_use]
    pub fn end(&self) -> i64 {
        let above = self.last().saturating_add(1);
        self.on_grid(above).unwrap_or(i64::MAX)
    }

    /// Returns the length of `n_steps` steps, at most 2^63 − 1. The ends of the sequence do not
    /// matter.
    #[must_use]
    pub fn length_of_steps(&self, n_steps: u64) -> i64 {
        let n_steps = i64::try_from(n_steps).unwrap_or(i64::MAX);
        self.step.saturating_mul(n_steps)
    }

    /// Returns the highest number that whole steps reach from `start` and after which one more step
    /// fits.
    #[must_use]
    pub fn highest(&self) -> i64 {
        let step = self.step.max(1);
        let n_steps = (i64::MAX - step).saturating_sub(self.start).max(0) / step;
        self.start.saturating_add(n_steps.saturating_mul(step))
    }

    /// Returns `next_value` after `n_steps` more steps: at most [`highest`](Self::highest), and
    /// never lower than `next_value`.
    ///
    /// The result may lie above the end of the sequence. The end may have been higher, and may be
    /// raised again. Then the sequence goes on from the result.
    #[must_use]
    pub fn skipped(&self, next_value: i64, n_steps: u64) -> i64 {
        let skipped = next_value.saturating_add(self.length_of_steps(n_steps));
        skipped.min(self.highest()).max(next_value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_is_the_first_number_that_is_not_issued() {
        for (start, step, max, end) in [
            (1, 1, 10, 11),
            (1, 3, 10, 13),
            (1, 3, 9, 10),
            (5, 10, 5, 15),
            (0, 1, i64::MAX - 1, i64::MAX),
        ] {
            let definition = Definition {
                start,
                step,
                max,
                ..Definition::default()
            };
            assert_eq!(definition.end(), end, "{start} {step} {max}");
            assert!(definition.exhausted(definition.end()));
            assert!(!definition.exhausted(definition.end() - step));
        }
    }

    proptest! {
        #![proptest_config(crate::tests::properties())]

        #[test]
        fn a_skip_goes_by_whole_steps_and_leaves_room_for_one_more(
            start in 0_i64..1 << 40,
            step in 1_i64..1 << 30,
            n_in_all in 0_i64..1 << 20,
            n_used in 0_i64..1 << 20,
            n_steps in prop_oneof![0..1_u64 << 21, any::<u64>()],
        ) {
            let definition = Definition {
                start,
                step,
                max: start + n_in_all * step,
                ..Definition::default()
            };
            let next_value = start + n_used.min(n_in_all + 1) * step;
            let skipped = definition.skipped(next_value, n_steps);
            prop_assert!(skipped >= next_value);
            prop_assert!(skipped.checked_add(step).is_some());
            prop_assert_eq!((skipped - start) % step, 0);
            if skipped < definition.highest() {
                prop_assert_eq!(u64::try_from((skipped - next_value) / step), Ok(n_steps));
            }
        }
    }
}
