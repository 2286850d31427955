//! Tests the arithmetic of a speed limit.

use proptest::prelude::*;

use super::fence::{Fence, for_births};
use super::{Paced, SpeedLimit};

fn limit() -> impl Strategy<Value = SpeedLimit> {
    (1_u32..=10_000_000, 1_u64..=10_000_000_000)
        .prop_map(|(rate, burst)| SpeedLimit { rate, burst })
}

#[test]
fn a_rested_counter_gives_its_burst_and_then_its_rate() {
    let limit = SpeedLimit {
        rate: 100,
        burst: 1000,
    };
    let start = Paced {
        n_reserved: 0,
        paced_until_us: 0,
    };
    let now = 1_000_000_000;
    assert_eq!(limit.n_available(start.paced_until_us, now), 1000);
    let used = limit.fence(start, now, now);
    assert_eq!(limit.reserve(start, 1000, now), Some(used));
    assert_eq!(limit.n_available(used.paced_until_us, now), 0);
    assert_eq!(limit.reserve(used, 1, now), None);
    assert_eq!(limit.n_available(used.paced_until_us, now + 500_000), 50);
    assert!(limit.reserve(used, 51, now + 500_000).is_none());
    assert!(limit.reserve(used, 50, now + 500_000).is_some());
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_a_counter() {
    let limit = SpeedLimit {
        rate: 100,
        burst: 1000,
    };
    let (now, minute) = (1_000_000_000, 60_000_000);
    let capacity = limit.capacity_us();
    assert_eq!(limit.n_available(now + capacity + minute, now), 0);
    assert_eq!(limit.n_available(now + capacity + minute + 1, now), 1000);
    let far = Paced {
        n_reserved: 7,
        paced_until_us: now + capacity + minute + 1,
    };
    let reserved = limit.reserve(far, 100, now);
    let paced_until_us = now + limit.cost_us(100);
    assert_eq!(
        reserved,
        Some(Paced {
            n_reserved: 107,
            paced_until_us
        })
    );
}

/// Lets an operator say that no counter was lost, in a database that has one fence. Copies were
/// taken before and after the word. The first one fails over, and a counter begins there. Then the
/// second one does, which lacks the counter.
#[test]
fn a_word_about_new_counters_ends_with_a_fence_above_another_branch() {
    let limit = SpeedLimit {
        rate: 10,
        burst: 100,
    };
    let plan = |id, of: (&[Fence], &[Fence], &[Fence]), since_s: i64, until_s: i64| {
        Fence::plan(id, of, (since_s * 1_000_000, false), until_s * 1_000_000)
    };
    let before_word = [plan(1, (&[], &[], &[]), 0, 60)];
    let lacking_nothing = (&before_word[..], &before_word[..], &[][..]);
    let first = [before_word[0], plan(2, lacking_nothing, 50, 80)];
    let born = Fence::birth(limit, &first);
    let now_us = 130_000_000;
    let n = limit.n_available(born.paced_until_us, now_us);
    let given = limit.reserve(born, n, now_us);
    let end = given.map_or(0, |given| given.n_reserved);
    assert!(end > born.n_reserved);
    let is_given = |n: u64| (born.n_reserved..end).contains(&n);
    let fence = plan(3, (&first, &before_word, &before_word), 52, 132);
    let second = [before_word[0], fence];
    let born_again = Fence::birth(limit, for_births(&second, 1));
    assert!(born_again.n_reserved >= end);
    // So does one that began after the word, and from which nothing was reserved.
    let raised = fence.raise(limit, Paced::RESTED);
    assert!(raised.n_reserved >= end);
    // Controls: the word outlives the fence, and the fence does not know of the word.
    let fence = plan(4, (&first, &before_word, &[]), 52, 132);
    let born_again = Fence::birth(limit, for_births(&[fence], 0));
    assert!(is_given(born_again.n_reserved));
    let raised = fence.raise(limit, Paced::RESTED);
    assert!(is_given(raised.n_reserved));
    // A fence that lacks nothing leaves the word as it is.
    let alone = [before_word[0], plan(5, lacking_nothing, 52, 132)];
    assert_eq!(for_births(&alone, 1), &alone[1..]);
}

/// The clock of the former primary was ahead, and lost commits were paid for by it.
#[test]
fn a_time_that_an_operator_says_counts_whatever_the_copy_has_paid() {
    let limit = SpeedLimit {
        rate: 10,
        burst: 100,
    };
    let ahead_us = 12_000_000;
    let copy = Paced {
        n_reserved: 500,
        paced_until_us: ahead_us,
    };
    let lost = limit.reserve(copy, limit.n_available(ahead_us, ahead_us), ahead_us);
    let lost = lost.map_or(0, |lost| lost.n_reserved);
    assert!(lost > copy.n_reserved);
    let fence = |is_told| {
        let planned = Fence::plan(1, (&[], &[], &[]), (0, is_told), 1_000_000);
        planned.raise(limit, copy).n_reserved
    };
    assert!(fence(true) >= lost);
    // Control: the line goes by what was paid.
    assert!(fence(false) < lost);
    // What an operator has ended for new counters is in the copy, and says nothing of this loss.
    let ended = [Fence::plan(2, (&[], &[], &[]), (-ahead_us, false), 0)];
    let planned = Fence::plan(3, (&[], &ended, &ended), (0, true), 1_000_000);
    assert_eq!((planned.since_us, planned.n_levels), (0, 1));
}

#[test]
fn a_limit_of_nothing_is_none() {
    assert_eq!(SpeedLimit::new(0, 1), None);
    assert_eq!(SpeedLimit::new(1, 0), None);
}

proptest! {
    #![proptest_config(crate::tests::properties())]

    #[test]
    fn what_is_available_can_be_reserved_and_no_more(
        limit in limit(), paced in 0_i64..1 << 50, now in 0_i64..1 << 50,
    ) {
        let counter = Paced { n_reserved: 0, paced_until_us: paced };
        let n = limit.n_available(paced, now);
        prop_assert!(n == 0 || limit.reserve(counter, n, now).is_some());
        // Costs are whole microseconds.
        let in_a_microsecond = u64::from(limit.rate / 1_000_000) + 1;
        prop_assert!(limit.reserve(counter, n + in_a_microsecond, now).is_none());
    }

    #[test]
    fn after_the_wait_there_are_as_many_as_were_waited_for(
        limit in limit(), paced in 0_i64..1 << 50, now in 0_i64..1 << 50, n in 1_u64..=10_000_000_000,
    ) {
        let counter = Paced { n_reserved: 0, paced_until_us: paced };
        match limit.wait_us(paced, n, now) {
            None => prop_assert!(n > limit.burst()),
            Some(0) => prop_assert!(limit.reserve(counter, n, now).is_some()),
            Some(wait) => {
                let then = now + i64::try_from(wait).unwrap_or(i64::MAX);
                prop_assert!(limit.reserve(counter, n, then - 1).is_none());
                prop_assert!(limit.reserve(counter, n, then).is_some());
            }
        }
    }

    #[test]
    fn a_fence_does_not_raise_the_line(
        limit in limit(), n in 0_u64..1 << 50, paced in 0_i64..1 << 50,
        since in 0_i64..1 << 50, until in 0_i64..1 << 50, later in 0_i64..1 << 40,
    ) {
        prop_assume!(since <= until && paced <= until + limit.horizon_us());
        let copy = Paced { n_reserved: n, paced_until_us: paced };
        let fenced = limit.fence(copy, since, until);
        let line = |counter: Paced, since| {
            counter.n_reserved + limit.n_lost(counter, since, until + later)
        };
        prop_assert!(fenced.n_reserved >= n);
        prop_assert_eq!(limit.n_available(fenced.paced_until_us, until - 1), 0);
        prop_assert!(line(fenced, since) <= line(copy, since));
        prop_assert!(line(fenced, until) <= line(copy, since));
    }

    #[test]
    fn a_sequel_is_not_above_a_line_that_is_known(
        limit in limit(), ahead in -1_000_000_000_i64..1_000_000_000, since in 0_i64..1 << 50,
        steps in prop::collection::vec((0_i64..200_000_000, 1_u64..=10_000_000_000), 1..20),
    ) {
        let copy = Paced { n_reserved: 0, paced_until_us: since + ahead };
        let (mut counter, mut now) = (copy, since);
        for (passed, n) in steps {
            now += passed;
            let n = n.min(limit.n_available(counter.paced_until_us, now));
            counter = limit.reserve(counter, n, now).unwrap_or(counter);
            let is_below = counter.n_reserved <= limit.n_lost(copy, since, now);
            prop_assert!(is_below || !limit.knows_line(copy, since));
        }
    }

    #[test]
    fn nothing_overflows(
        rate in 1_u32.., burst in 1_u64.., n in any::<u64>(), paced in any::<i64>(),
        since in any::<i64>(), until in any::<i64>(),
    ) {
        let limit = SpeedLimit { rate, burst };
        let counter = Paced { n_reserved: n, paced_until_us: paced };
        let _ = limit.reserve(counter, n, since);
        let _ = limit.fence(counter, since, until);
        let _ = limit.wait_us(paced, n, until);
        prop_assert!(limit.n_available(paced, until) <= burst);
    }
}
