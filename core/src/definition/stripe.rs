//! Computes stripes: the numbers of one database, if several databases share their sequences.
//!
//! Database `k` of `n` counts *m* = 0, 1, 2 …, and its number is `start + step · (m · n + k)`. So
//! no two databases have a number in common, even if a database forgets what it gave. No database
//! needs to ask another one.

use std::borrow::Cow;

use super::{Definition, Kind};

/// Bounds the databases that share sequences.
pub const MAX_STRIPES: u16 = 64;

/// The place of one database among the databases that share sequences.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stripe {
    k: u16,
    n: u16,
}

impl Stripe {
    /// Describes a database that shares its sequences with no other database.
    pub const WHOLE: Self = Self { k: 0, n: 1 };

    /// Creates the stripe of database `k` of `n`; `None` unless `k < n` and `n` is 1 to
    /// [`MAX_STRIPES`].
    #[must_use]
    pub fn new(k: u16, n: u16) -> Option<Self> {
        (k < n && n <= MAX_STRIPES).then_some(Self { k, n })
    }

    /// Returns the place of this database, counted from 0.
    #[must_use]
    pub fn k(self) -> u16 {
        self.k
    }

    /// Returns how many databases there are.
    #[must_use]
    pub fn n(self) -> u16 {
        self.n
    }

    /// Returns a definition as this database counts it: from `start + step · k`, in steps of `step
    /// · n`.
    ///
    /// A definition of the time-ordered kind stays as it is, because no database counts its ids.
    ///
    /// The result may begin above its own `max`. If a sequence has fewer numbers than there are
    /// databases, some databases have no number.
    #[must_use]
    pub fn view(self, definition: &Definition) -> Cow<'_, Definition> {
        if self == Self::WHOLE || definition.kind == Kind::Snowflake {
            return Cow::Borrowed(definition);
        }
        let step = definition.step.saturating_mul(i64::from(self.n));
        let offset = definition.step.saturating_mul(i64::from(self.k));
        Cow::Owned(Definition {
            start: definition.start.saturating_add(offset),
            step,
            max: definition.max.min(self.highest_max(definition.step)),
            ..definition.clone()
        })
    }

    /// Returns the highest `max` after which every database can still count one step.
    #[must_use]
    pub fn highest_max(self, step: i64) -> i64 {
        i64::MAX.saturating_sub(step.saturating_mul(i64::from(self.n)))
    }

    /// Returns which database has `number`; `None` if the sequence does not have the number.
    ///
    /// An id of a time-ordered kind belongs to the database that leases its worker id.
    #[must_use]
    pub fn index_of(self, definition: &Definition, number: i64) -> Option<u16> {
        if let Some(layout) = &definition.layout {
            let worker = layout.read(number)?.worker;
            return u16::try_from(worker % u32::from(self.n)).ok();
        }
        let offset = number.checked_sub(definition.start)?;
        if offset < 0 || offset.checked_rem(definition.step) != Some(0) {
            return None;
        }
        let index = offset.checked_div(definition.step)? % i64::from(self.n);
        u16::try_from(index).ok()
    }

    /// Returns the lowest number of the sequence above all numbers that this database has reserved.
    ///
    /// `next_value` is the database's high-water mark. The databases of a store are compared by
    /// this number.
    #[must_use]
    pub fn reached(self, definition: &Definition, next_value: i64) -> i64 {
        if definition.kind == Kind::Snowflake {
            return next_value;
        }
        let others = definition.step.saturating_mul(i64::from(self.n) - 1);
        next_value.saturating_sub(others).max(definition.start)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn definition(start: i64, step: i64, max: i64) -> Definition {
        Definition {
            start,
            step,
            max,
            ..Definition::default()
        }
    }

    #[test]
    fn a_database_alone_counts_as_it_is_written() {
        let definition = definition(5, 3, 100);
        assert!(matches!(
            Stripe::WHOLE.view(&definition),
            Cow::Borrowed(view) if *view == definition
        ));
        assert_eq!(Stripe::WHOLE.index_of(&definition, 8), Some(0));
        assert_eq!(Stripe::WHOLE.reached(&definition, 8), 8);
    }

    #[test]
    fn a_place_is_one_of_so_many() {
        assert_eq!(Stripe::new(0, 1), Some(Stripe::WHOLE));
        for (k, n) in [(0, 0), (1, 1), (3, 3), (0, MAX_STRIPES + 1)] {
            assert_eq!(Stripe::new(k, n), None, "{k} of {n}");
        }
    }

    #[test]
    fn a_database_without_a_number_ends_where_it_begins() {
        let view = Stripe::new(2, 3).unwrap();
        let short = definition(1, 1, 2);
        let view = view.view(&short);
        assert_eq!((view.start, view.end(), view.left(view.start)), (3, 3, 0));
        assert_eq!(view.first_from(3), Some(3));
    }

    proptest! {
        #![proptest_config(crate::tests::properties())]

        #[test]
        fn databases_share_a_sequence_out_and_have_no_number_in_common(
            start in 0_i64..1000,
            step in 1_i64..50,
            n_numbers in 1_i64..60,
            n in 1_u16..9,
        ) {
            let whole = definition(start, step, start + step * (n_numbers - 1));
            let mut all = Vec::new();
            for k in 0..n {
                let stripe = Stripe::new(k, n).unwrap();
                let view = stripe.view(&whole).into_owned();
                let left = i64::try_from(view.left(view.start)).unwrap();
                prop_assert_eq!(view.end(), view.start + left * view.step);
                for m in 0..left {
                    let number = view.start + m * view.step;
                    prop_assert_eq!(number, start + step * (m * i64::from(n) + i64::from(k)));
                    prop_assert_eq!(stripe.index_of(&whole, number), Some(k));
                    all.push(number);
                }
            }
            all.sort_unstable();
            let expected: Vec<i64> = (0..n_numbers).map(|m| start + step * m).collect();
            prop_assert_eq!(all, expected);
        }

        #[test]
        fn what_one_reached_lies_above_all_of_it_and_each_goes_on_from_there(
            start in 0_i64..1000,
            step in 1_i64..50,
            n in 1_u16..9,
            k in 0_u16..9,
            other in 0_u16..9,
            m in 0_i64..100,
        ) {
            prop_assume!(k < n && other < n);
            let whole = definition(start, step, 1 << 40);
            let stripe = Stripe::new(k, n).unwrap();
            let view = stripe.view(&whole).into_owned();
            let next_value = view.start + m * view.step;
            let reached = stripe.reached(&whole, next_value);
            prop_assert_eq!((reached - start) % step, 0);
            prop_assert!(reached <= next_value);
            if m > 0 {
                prop_assert_eq!(reached, next_value - view.step + step);
            } else {
                prop_assert_eq!(reached, start);
            }
            let other = Stripe::new(other, n).unwrap();
            let first = other.view(&whole).first_from(reached).unwrap();
            prop_assert_eq!(other.index_of(&whole, first), Some(other.k()));
            prop_assert!(first >= reached && first - reached < view.step);
        }

        #[test]
        fn nothing_overflows_up_to_the_highest_max(
            step in 1_i64..1 << 53,
            n in 1_u16..=MAX_STRIPES,
            k in 0_u16..MAX_STRIPES,
            below in 0_i64..1 << 60,
        ) {
            prop_assume!(k < n);
            let stripe = Stripe::new(k, n).unwrap();
            let max = stripe.highest_max(step);
            let start = max - below.min(max);
            let view = stripe.view(&definition(start, step, max)).into_owned();
            let span = i128::from(view.end()) - i128::from(view.start);
            prop_assert!(span >= 0 && span % i128::from(view.step) == 0);
            prop_assert!(view.end() > max || view.start > max);
        }

        #[test]
        fn a_number_that_the_sequence_does_not_have_is_of_none(
            start in 0_i64..1000, step in 2_i64..50, number in -100_i64..2000,
        ) {
            let whole = definition(start, step, 10_000);
            let stripe = Stripe::new(1, 3).unwrap();
            let is_one = number >= start && (number - start) % step == 0;
            prop_assert_eq!(stripe.index_of(&whole, number).is_some(), is_one);
        }
    }
}
